//! Refusals: each says why and what to do.

mod support;

use std::os::unix::fs::FileExt;

use support::nbd::Client;
use support::{Daemon, MIB, Scratch, forebay, forebay_ok, forebay_says, text};

const USAGE: i32 = 2;
const REFUSED: i32 = 3;

fn refused(scratch: &Scratch, arguments: &[&str], words: &[&str]) {
    not_served(scratch, arguments, REFUSED, words);
}

fn not_served(scratch: &Scratch, arguments: &[&str], code: i32, words: &[&str]) {
    let Err(said) = Daemon::try_start(scratch, arguments) else {
        panic!("{arguments:?} was not refused")
    };
    assert!(said.contains(&format!("Some({code})")), "{said}");
    for word in words {
        assert!(
            said.contains(word),
            "{arguments:?} does not say {word:?}: {said}"
        );
    }
}

#[test]
fn a_directory_of_configurations_is_refused_with_the_services_that_serve_it() {
    let scratch = Scratch::new();
    std::fs::create_dir(scratch.path("etc")).unwrap();
    let words = [
        "etc is a directory, and a daemon serves one cache: name a file in it",
        "`systemctl start forebay@NAME` serves /etc/forebay/NAME.toml",
    ];
    not_served(&scratch, &["--config", "etc"], USAGE, &words);
}

#[test]
fn help_names_every_command_and_the_exit_codes() {
    let scratch = Scratch::new();
    let help = forebay_ok(&scratch, &["--help"]);
    let commands = [
        "create",
        "serve",
        "attach",
        "detach",
        "status",
        "mode",
        "set",
        "drain",
        "stop",
        "check",
        "dump",
        "repair",
        "devices",
        "memory",
        "trace",
        "advise",
        "explain",
        "check-config",
        "reload",
    ];
    for command in commands {
        assert!(help.contains(command), "{help}");
        let own = forebay_ok(&scratch, &[command, "--help"]);
        assert!(own.contains("Example: forebay"), "{own}");
    }
    assert!(help.contains("Exit codes"));
    assert_eq!(forebay(&scratch, &["serve"]).status.code(), Some(2));
    assert_eq!(forebay(&scratch, &["nonsense"]).status.code(), Some(2));
}

#[test]
fn values_that_make_no_sense_are_wrong_usage() {
    let scratch = Scratch::new();
    scratch.file("origin", MIB);
    for (arguments, word) in [
        (&["--nbd", "smoke:signals"][..], "unix:PATH"),
        (&["--nbd", "tcp:localhost"], "HOST:PORT"),
        (&["--nbd", "tcp:localhost:70000"], "65535"),
        (&["--config", "x"], "cannot be used with"),
        (
            &["--nbd", "unix:x", "--dirty-low", "-5", "--cache", "c"],
            "not a percentage",
        ),
        (
            &["--nbd", "unix:x", "--write-budget", "10B", "--cache", "c"],
            "10 B a day",
        ),
        (&[], "--nbd"),
        (&[], "--ublk"),
        (
            &["--nbd", "unix:x", "--dirty-low", "90", "--cache", "c"],
            "must be at most dirty-high",
        ),
        (&["--nbd", "unix:x", "--memory", "1M"], "32 MiB"),
        (&["--nbd", "unix:x", "--threads", "0"], "threads"),
        (&["--nbd", "unix:x", "--origin-emulate", "tape"], "hdd"),
        (
            &["--nbd", "unix:x", "--mode", "magic", "--cache", "c"],
            "writeback",
        ),
    ] {
        let all: Vec<&str> = ["serve", "--origin", "origin"]
            .into_iter()
            .chain(arguments.iter().copied())
            .collect();
        forebay_says(&scratch, &all, 2, &[word]);
    }
}

#[test]
fn without_its_driver_a_block_device_is_refused_before_anything_is_written() {
    if std::path::Path::new("/dev/ublk-control").exists() {
        eprintln!("skipped: this machine has the ublk driver; the lab tests what works with it");
        return;
    }
    let scratch = Scratch::new();
    scratch.file("origin", MIB);
    let cache = scratch.file("cache", 64 * MIB);
    let serve = [
        "serve", "--origin", "origin", "--cache", "cache", "--create", "--ublk",
    ];
    forebay_says(&scratch, &serve, 1, &["modprobe ublk_drv"]);
    let written = std::fs::read(cache).unwrap();
    assert!(written.iter().all(|byte| *byte == 0), "nothing was written");
    forebay_says(&scratch, &["devices"], 0, &["there are no block devices"]);
    let remove = ["devices", "--remove", "/dev/ublkb0"];
    forebay_says(&scratch, &remove, 1, &["modprobe ublk_drv"]);
    forebay_says(&scratch, &["devices", "--force"], 2, &["--remove"]);
}

#[test]
fn configuration_errors_point_at_their_line() {
    let scratch = Scratch::new();
    for (text, words) in [
        (
            "[nbd]\nlisten = [\"unix:x\"]\n[[volume]]\norigin = \"a\"\ncolour = 1\n",
            &["line 5", "colour"][..],
        ),
        (
            "[nbd]\nlisten = [\"pipe:x\"]\n[[volume]]\norigin = \"a\"\n",
            &["line 2", "unix:PATH"],
        ),
        (
            "[nbd]\nlisten = [\"unix:x\"]\n[[volume]]\norigin = \"a\"\n[[volume]]\norigin = \"b/a\"\n",
            &["line 6", "two volumes are called `a`"],
        ),
        (
            "[cache]\ndevice = \"c\"\n[settings]\ndirty-low = 88\n[nbd]\nlisten = []\n[[volume]]\norigin = \"a\"\n",
            &["line 4", "must be at most dirty-high"],
        ),
        (
            "[cache]\ndevice = \"c\"\n[nbd]\nlisten = []\n[[volume]]\norigin = \"a\"\nmode = \"fast\"\n",
            &["line 7", "unknown mode"],
        ),
    ] {
        std::fs::write(scratch.path("f.toml"), text).unwrap();
        forebay_says(&scratch, &["serve", "--config", "f.toml"], 2, words);
    }
}

/// A cache is not made over what `cache` holds unless it is said in its words.
fn only_with_exact_words(scratch: &Scratch, held: &str) {
    for (more, said) in [
        (&[][..], "--force"),
        (&["--force"], "--yes-lose"),
        (&["--force", "--yes-lose", "nothing"], "not `nothing`"),
    ] {
        let create = [&["create", "cache"], more].concat();
        forebay_says(scratch, &create, REFUSED, &[held, said]);
    }
}

#[test]
fn a_device_that_holds_something_is_not_overwritten() {
    let scratch = Scratch::new();
    let path = scratch.file("cache", 64 * MIB);
    scratch.file("origin", 8 * MIB);
    let file = std::fs::File::options().write(true).open(&path).unwrap();
    for (offset, magic, what) in [
        (1024 + 56, &[0x53u8, 0xef][..], "ext4"),
        (0, b"XFSB", "XFS"),
        (512, b"LABELONE", "LVM"),
        (4096, &[0xfc, 0x4e, 0x2b, 0xa9], "md RAID"),
        (510, &[0x55, 0xaa], "partition table"),
        (65536 + 64, b"_BHRfS_M", "btrfs"),
        (3_000_000, b"x", "unknown kind"),
        (64 * MIB - 512, b"EFI PART", "GUID partition table"),
    ] {
        file.write_at(magic, offset).unwrap();
        only_with_exact_words(&scratch, what);
        let still = &mut vec![0; magic.len()];
        std::fs::File::open(&path)
            .unwrap()
            .read_exact_at(still, offset)
            .unwrap();
        assert_eq!(still, magic, "nothing was written");
        refused(
            &scratch,
            &["--origin", "origin", "--cache", "cache", "--create"],
            &["forebay create"],
        );
        file.write_at(&vec![0; magic.len()], offset).unwrap();
    }
    forebay_ok(&scratch, &["create", "cache"]);
    only_with_exact_words(&scratch, "without unwritten data");
}

#[test]
fn unwritten_data_is_lost_only_with_its_exact_words() {
    let scratch = Scratch::new();
    scratch.file("origin", 8 * MIB);
    scratch.file("cache", 64 * MIB);
    let daemon = Daemon::cached(
        &scratch,
        "writeback",
        &["--age", "3600", "--dirty-low", "50", "--name", "disk"],
    );
    let mut client = Client::connect(&scratch.path("nbd")).unwrap();
    client.write(0, &[7; 1 << 20]);
    client.flush();
    drop(client);
    daemon.stop();
    let words = "1 MiB of unwritten data of volume disk";
    only_with_exact_words(&scratch, words);
    let check = forebay_ok(&scratch, &["check", "cache"]);
    assert!(
        check.contains("volume disk") && check.contains("1 MiB dirty"),
        "{check}"
    );
    let dump = forebay_ok(&scratch, &["dump", "cache", "--json"]);
    let dump: serde_json::Value = serde_json::from_str(&dump).unwrap();
    assert_eq!(dump["volumes"][0]["dirty_bytes"], 1 << 20);
    forebay_ok(
        &scratch,
        &["create", "cache", "--force", "--yes-lose", words],
    );
    only_with_exact_words(&scratch, "without unwritten data");
}

#[test]
fn a_cache_is_not_laid_over_another_or_a_changed_origin() {
    let scratch = Scratch::new();
    scratch.pattern("origin", 8 * MIB);
    scratch.pattern("other", 8 * MIB);
    scratch.file("cache", 64 * MIB);
    Daemon::cached(&scratch, "writeback", &[]).stop();
    refused(
        &scratch,
        &["--origin", "other", "--cache", "cache"],
        &["belongs to volume `origin`", "--name"],
    );
    refused(
        &scratch,
        &["--origin", "other", "--cache", "cache", "--name", "origin"],
        &["another origin"],
    );
    let origin = std::fs::File::options()
        .write(true)
        .open(scratch.path("origin"))
        .unwrap();
    for (offset, name) in [
        (0, "the start"),
        (1024, "a superblock"),
        (8 * MIB - 1, "the end"),
    ] {
        let mut byte = [0];
        std::fs::File::open(scratch.path("origin"))
            .unwrap()
            .read_exact_at(&mut byte, offset)
            .unwrap();
        origin.write_at(&[!byte[0]], offset).unwrap();
        refused(
            &scratch,
            &["--origin", "origin", "--cache", "cache"],
            &["changed since"],
        );
        origin.write_at(&byte, offset).unwrap();
        println!("{name}");
    }
    origin.set_len(4 * MIB).unwrap();
    refused(
        &scratch,
        &["--origin", "origin", "--cache", "cache"],
        &["shrank"],
    );
    origin.set_len(8 * MIB).unwrap();
    refused(
        &scratch,
        &["--origin", "origin", "--cache", "cache"],
        &["changed since"],
    );
    scratch.pattern("origin", 8 * MIB);
    Daemon::cached(&scratch, "writeback", &[]).stop();
}

#[test]
fn two_daemons_do_not_share_a_cache_or_an_origin() {
    let scratch = Scratch::new();
    scratch.file("origin", 8 * MIB);
    scratch.file("second", 8 * MIB);
    scratch.file("cache", 64 * MIB);
    let daemon = Daemon::cached(&scratch, "writeback", &[]);
    let try_other = |arguments: &[&str]| {
        let fixed = ["serve", "--nbd", "unix:other", "--control", "other-control"];
        let all: Vec<&str> = fixed.into_iter().chain(arguments.iter().copied()).collect();
        let holder = format!("the forebay process {}", daemon.id());
        forebay_says(
            &scratch,
            &all,
            REFUSED,
            &["in use", &holder, "--cache cache", "forebay stop"],
        );
    };
    try_other(&["--origin", "second", "--cache", "cache"]);
    try_other(&["--origin", "origin"]);
    forebay_says(&scratch, &["check", "cache"], REFUSED, &["in use"]);
    forebay_says(
        &scratch,
        &["create", "cache", "--force"],
        REFUSED,
        &["in use"],
    );
    daemon.stop();
}

#[test]
fn what_is_no_cache_says_what_to_do() {
    let scratch = Scratch::new();
    scratch.file("origin", 8 * MIB);
    scratch.file("cache", 64 * MIB);
    scratch.file("tiny", MIB);
    scratch.file("empty", 0);
    refused(
        &scratch,
        &["--origin", "origin", "--cache", "cache"],
        &["no cache yet", "--create"],
    );
    let wrong = |arguments: &[&str], words: &[&str]| not_served(&scratch, arguments, USAGE, words);
    wrong(
        &["--origin", "origin", "--cache", "tiny", "--create"],
        &["are needed"],
    );
    not_served(
        &scratch,
        &["--origin", "origin", "--cache", "empty", "--create"],
        1,
        &["is empty"],
    );
    wrong(&["--origin", "/dev/null"], &["character device"]);
    wrong(&["--origin", "/dev"], &["directory"]);
    forebay_says(&scratch, &["create", "/dev"], USAGE, &["directory"]);
    forebay_says(&scratch, &["check", "cache"], REFUSED, &["blank"]);
    for wrong in [
        &["create", "new", "--size", "1M"][..],
        &["create", "new", "--size", "64M", "--block-size", "5000"],
        &["create", "new", "--size", "64M", "--shards", "200"],
    ] {
        forebay_says(&scratch, wrong, USAGE, &["new"]);
        assert!(!scratch.path("new").exists(), "{wrong:?} left the file");
    }
    forebay_says(
        &scratch,
        &["create", "cache", "--size", "64M"],
        REFUSED,
        &["exists already"],
    );
    forebay_says(
        &scratch,
        &["create", "cache", "--block-size", "5000"],
        USAGE,
        &["power of two"],
    );
    forebay_says(
        &scratch,
        &["status", "--control", "nobody"],
        1,
        &["no forebay daemon answers at", "/nobody.sock"],
    );
    let missing = forebay(
        &scratch,
        &["serve", "--origin", "missing", "--nbd", "unix:x"],
    );
    assert_eq!(missing.status.code(), Some(1));
    let said = text(&missing);
    assert!(
        said.contains("cannot find missing: No such file") && said.contains("lsblk"),
        "{said}"
    );
}

#[test]
fn an_abandoned_cache_stays_abandoned() {
    let scratch = Scratch::new();
    scratch.file("origin", 8 * MIB);
    scratch.file("cache", 64 * MIB);
    let daemon = Daemon::cached(&scratch, "writeback", &[]);
    let id = daemon.status(&scratch)["cache"]["id"]
        .as_str()
        .unwrap()
        .to_owned();
    daemon.stop();
    let record = scratch.path(&format!("state/{id}.abandoned"));
    std::fs::write(
        &record,
        r#"{"epoch":1,"reason":"the cache device failed","time":1}"#,
    )
    .unwrap();
    refused(
        &scratch,
        &["--origin", "origin", "--cache", "cache"],
        &["abandoned", "the cache device failed", "create"],
    );
    std::fs::write(&record, "rubbish").unwrap();
    let Err(said) = Daemon::try_start(&scratch, &["--origin", "origin", "--cache", "cache"]) else {
        panic!("it was served");
    };
    assert!(said.contains("abandoned"), "{said}");
    let state = scratch.text("state");
    let words = format!("the Forebay cache {id} without unwritten data");
    forebay_ok(
        &scratch,
        &[
            "create",
            "cache",
            "--force",
            "--yes-lose",
            &words,
            "--state-dir",
            &state,
        ],
    );
    assert!(!record.exists());
    Daemon::cached(&scratch, "writeback", &[]).stop();
}

/// S3: a port of the loopback's is open to each local user, so it is no exception.
#[test]
fn tcp_needs_tls() {
    let scratch = Scratch::new();
    scratch.file("origin", 8 * MIB);
    for address in ["tcp:0.0.0.0:0", "tcp:127.0.0.1:0", "tcp:[::1]:0"] {
        let open = ["serve", "--origin", "origin", "--nbd", address];
        let words = ["--nbd-insecure", "certificate", address];
        forebay_says(&scratch, &open, REFUSED, &words);
        // The dashboard's word is not NBD's.
        let open = [&open[..], &["--http-insecure"]].concat();
        forebay_says(&scratch, &open, REFUSED, &words);
    }
    let open = [
        "serve",
        "--origin",
        "origin",
        "--nbd",
        "unix:x",
        "--http",
        "0.0.0.0:0",
    ];
    forebay_says(&scratch, &open, REFUSED, &["--http-insecure", "dashboard"]);
    let open = ["--origin", "origin", "--nbd", "tcp:127.0.0.1:0"];
    let daemon = Daemon::start(&scratch, &[&open[..], &["--nbd-insecure"]].concat());
    assert!(
        daemon.status(&scratch)["exports"]
            .to_string()
            .contains("nbd://127.0.0.1:")
    );
    daemon.stop();
}
