//! Caches of several devices of which one is not what it should be, cache files that were cut
//! short, and state directories that do not do: each is refused in words, and nothing is lost.

mod support;

use std::fs::File;
use std::os::unix::fs::FileExt;

use support::model::{expect_each, write_each};
use support::nbd::Client;
use support::{Daemon, MIB, Scratch, forebay_ok, forebay_says, text};

const FAILURE: i32 = 1;
const REFUSED: i32 = 3;
const BLOCKS: u64 = 600;
const BOTH: [&str; 4] = ["--cache", "cache", "--cache", "second"];
/// Copies of the superblock: their size and how far apart they are.
const COPY: usize = 64 << 10;
const STRIDE: u64 = 256 << 10;

fn serve(scratch: &Scratch, caches: &[&str]) -> Result<Daemon, String> {
    let keep = ["--origin", "origin", "--age", "3600", "--dirty-low", "50"];
    Daemon::try_start(scratch, &[&keep[..], caches].concat())
}

fn write(scratch: &Scratch, version: u64) {
    let mut client = Client::connect(&scratch.path("nbd")).unwrap();
    write_each(&mut client, BLOCKS, version);
}

/// Everything that was written last is there.
fn is_whole(scratch: &Scratch, caches: &[&str], version: u64) {
    let daemon = serve(scratch, caches).unwrap();
    let mut client = Client::connect(&scratch.path("nbd")).unwrap();
    expect_each(&mut client, BLOCKS, version);
    drop(client);
    daemon.stop();
}

/// A cache on `cache` and `second` with dirty data on both; copies of both from before.
fn prepare(scratch: &Scratch) {
    scratch.file("origin", 8 * MIB);
    forebay_ok(scratch, &["create", "cache", "--size", "16M"]);
    scratch.file("second", 16 * MIB);
    let daemon = serve(scratch, &BOTH[..2]).unwrap();
    daemon.command(scratch, &["cache", "add", "second"]);
    write(scratch, 1);
    daemon.stop();
    for device in ["cache", "second"] {
        copy(scratch, device, &format!("{device}-old"));
    }
    let daemon = serve(scratch, &BOTH).unwrap();
    write(scratch, 1000);
    daemon.stop();
}

fn copy(scratch: &Scratch, from: &str, to: &str) {
    std::fs::copy(scratch.path(from), scratch.path(to)).unwrap();
}

/// Neither served nor repaired, and nothing is written to what was given.
fn refused(scratch: &Scratch, caches: &[&str], words: &[&str]) {
    let paths: Vec<&str> = caches
        .iter()
        .copied()
        .filter(|word| *word != "--cache")
        .collect();
    let read = |path: &&str| std::fs::read(scratch.path(path)).unwrap();
    let before: Vec<Vec<u8>> = paths.iter().map(read).collect();
    let Err(said) = serve(scratch, caches) else {
        panic!("{caches:?} was served");
    };
    assert!(
        said.starts_with(&format!("exit code Some({REFUSED})")),
        "{said}"
    );
    for word in words {
        assert!(said.contains(word), "{word:?} is not in: {said}");
    }
    forebay_says(scratch, &[&["check"][..], &paths].concat(), REFUSED, words);
    let repair = [&["repair"][..], &paths, &["--accept-damage"]].concat();
    forebay_says(scratch, &repair, REFUSED, words);
    let after: Vec<Vec<u8>> = paths.iter().map(read).collect();
    assert!(before == after, "{caches:?}: something was written");
}

#[test]
fn an_old_copy_of_one_device_is_refused() {
    let scratch = Scratch::new();
    prepare(&scratch);
    for device in ["cache", "second"] {
        let other = if device == "cache" { "second" } else { "cache" };
        let old = format!("{device}-old");
        let given = ["--cache", &old, "--cache", other];
        refused(&scratch, &given, &["old copy", &old, "nothing was changed"]);
    }
    is_whole(&scratch, &BOTH, 1000);
}

#[test]
fn devices_that_are_not_those_of_one_cache_are_refused() {
    let scratch = Scratch::new();
    prepare(&scratch);
    // Two that say they are the same one.
    copy(&scratch, "second", "twin");
    refused(
        &scratch,
        &["--cache", "cache", "--cache", "second", "--cache", "twin"],
        &["twin", "copy of another"],
    );
    refused(
        &scratch,
        &["--cache", "cache"],
        &["2 devices", "give all of them"],
    );
    let foreign = Scratch::new();
    prepare(&foreign);
    std::fs::copy(foreign.path("second"), scratch.path("foreign")).unwrap();
    refused(
        &scratch,
        &["--cache", "cache", "--cache", "foreign"],
        &["belongs to cache"],
    );
    is_whole(&scratch, &BOTH, 1000);
}

/// As a crash leaves them: half of the copies on either device are torn, which are those that were
/// being written.
#[test]
fn half_written_superblocks_are_no_obstacle() {
    let scratch = Scratch::new();
    prepare(&scratch);
    for device in ["cache", "second"] {
        let file = File::options()
            .write(true)
            .open(scratch.path(device))
            .unwrap();
        for nth in [0, 2] {
            file.write_all_at(&[0x55; COPY / 2], nth * STRIDE + COPY as u64 / 2)
                .unwrap();
        }
    }
    is_whole(&scratch, &BOTH, 1000);
    // None is left on one of them.
    let file = File::options()
        .write(true)
        .open(scratch.path("second"))
        .unwrap();
    let mut kept = vec![0; 1 << 20];
    File::open(scratch.path("second"))
        .unwrap()
        .read_exact_at(&mut kept, 0)
        .unwrap();
    for nth in 0..4 {
        file.write_all_at(&[0x55; COPY], nth * STRIDE).unwrap();
    }
    refused(&scratch, &BOTH, &["second", "not a Forebay cache"]);
    file.write_all_at(&kept, 0).unwrap();
    is_whole(&scratch, &BOTH, 1000);
}

/// A cache file `cache` with version 1 of everything, stopped in order.
fn written(scratch: &Scratch) {
    scratch.file("origin", 8 * MIB);
    forebay_ok(scratch, &["create", "cache", "--size", "16M"]);
    let daemon = serve(scratch, &["--cache", "cache"]).unwrap();
    write(scratch, 1);
    daemon.stop();
}

#[test]
fn a_cache_file_that_was_cut_short_gets_its_size_back_and_nothing_is_lost() {
    let scratch = Scratch::new();
    written(&scratch);
    let file = File::options()
        .write(true)
        .open(scratch.path("cache"))
        .unwrap();
    file.set_len(12 * MIB).unwrap();
    let words = [
        "cut short",
        "truncate -s 16777216",
        "nothing is lost by that",
    ];
    refused(&scratch, &["--cache", "cache"], &words);
    file.set_len(16 * MIB).unwrap();
    is_whole(&scratch, &["--cache", "cache"], 1);
}

/// A file system in memory, until the end of its test.
struct Mount(std::path::PathBuf);

impl Mount {
    /// None, with the reason on the test's output, where nothing may be mounted.
    fn new(place: std::path::PathBuf, options: &str) -> Option<Mount> {
        std::fs::create_dir(&place).unwrap();
        let mut mount = std::process::Command::new("mount");
        mount.args(["-t", "tmpfs", "-o", options, "tmpfs"]);
        let output = mount.arg(&place).output().expect("mount runs");
        if !output.status.success() {
            eprintln!("skipped: nothing can be mounted here: {}", text(&output));
            return None;
        }
        Some(Mount(place))
    }
}

impl Drop for Mount {
    fn drop(&mut self) {
        let mut umount = std::process::Command::new("umount");
        umount.arg("-l").arg(&self.0).status().expect("umount runs");
    }
}

/// The daemon would find out when its cache fails, and have its volumes wait for ever.
#[test]
fn a_state_directory_that_takes_no_record_is_refused_before_anything_is_written() {
    let scratch = Scratch::new();
    scratch.file("origin", 8 * MIB);
    scratch.file("cache", 16 * MIB);
    let Some(_full) = Mount::new(scratch.path("full"), "size=64k") else {
        return;
    };
    std::fs::write(scratch.path("full/other"), [1; 32 << 10]).unwrap();
    let Some(_read_only) = Mount::new(scratch.path("read-only"), "size=1M,ro") else {
        return;
    };
    for (state, why) in [
        ("full", "No space left"),
        ("read-only", "Read-only file system"),
    ] {
        let start = [
            "serve",
            "--origin",
            "origin",
            "--cache",
            "cache",
            "--create",
            "--mode",
            "writeback",
            "--nbd",
            "unix:other",
            "--control",
            "other",
            "--state-dir",
            state,
        ];
        let words = [
            "cannot write in the state directory",
            state,
            why,
            "--state-dir",
        ];
        forebay_says(&scratch, &start, FAILURE, &words);
        let left = std::fs::read_dir(scratch.path(state)).unwrap().count();
        assert_eq!(
            left,
            usize::from(state == "full"),
            "nothing of its own is left"
        );
    }
    let cache = std::fs::read(scratch.path("cache")).unwrap();
    assert!(cache.iter().all(|byte| *byte == 0), "nothing was written");
}

#[test]
fn a_state_directory_that_does_not_do_is_named_with_what_to_do() {
    let scratch = Scratch::new();
    written(&scratch);
    let before = std::fs::read(scratch.path("cache")).unwrap();
    std::fs::write(scratch.path("file"), "no directory").unwrap();
    for state in ["file", "/proc/no-such-place", "/dev/null/state"] {
        let start = [
            "serve",
            "--origin",
            "origin",
            "--cache",
            "cache",
            "--nbd",
            "unix:other",
            "--control",
            "other",
            "--state-dir",
            state,
        ];
        let words = ["cannot make the state directory", state, "--state-dir"];
        forebay_says(&scratch, &start, FAILURE, &words);
    }
    assert!(
        before == std::fs::read(scratch.path("cache")).unwrap(),
        "nothing was written"
    );
    // Notes of another host on its caches are not about this cache.
    let foreign = "00000000-1111-2222-3333-444444444444.abandoned";
    std::fs::write(scratch.path("state").join(foreign), "anything").unwrap();
    is_whole(&scratch, &["--cache", "cache"], 1);
    let said = text(&support::forebay(&scratch, &["check", "cache"]));
    assert!(!said.contains("abandoned"), "{said}");
}

/// As after the loss of another device, before dirty data was on two again.
fn has_dirty_data_alone(scratch: &Scratch, paths: [&str; 2]) {
    let mut storages = paths.map(|path| {
        let how = forebay_io::OpenHow {
            direct: forebay_io::DirectIo::IfPossible,
            read_only: false,
        };
        let device = forebay_io::RealDevice::open(&scratch.path(path), how).unwrap();
        device.storage().unwrap()
    });
    let storages = (0..).zip(storages.iter_mut()).collect();
    let mut joined = forebay_engine::Joined::new(storages);
    let mut superblock = forebay_engine::Superblock::read(&mut joined).unwrap();
    assert!(superblock.is_all_on_two());
    superblock.leave_two(|_| true);
    superblock.write(&mut joined).unwrap();
}

#[test]
fn a_missing_device_that_may_have_dirty_data_alone_is_waited_for_until_it_is_given_up() {
    let scratch = Scratch::new();
    scratch.file("origin", 64 * MIB);
    scratch.file("cache", 32 * MIB);
    scratch.file("second", 32 * MIB);
    let daemon = serve(
        &scratch,
        &[&BOTH[..], &["--create", "--copies", "2"]].concat(),
    )
    .unwrap();
    write(&scratch, 0);
    write(&scratch, 1000);
    daemon.stop();

    let one = ["--cache", "cache"];
    let undamaged = ["can do without", "--without-missing"];
    let repair = ["repair", "cache", "--accept-damage"];
    forebay_says(&scratch, &repair, REFUSED, &undamaged);
    let said = support::text(&support::forebay(&scratch, &repair));
    assert!(!said.contains("was given"), "nobody decided that: {said}");

    has_dirty_data_alone(&scratch, ["cache", "second"]);
    let words = [
        "number 1",
        "may be on it alone",
        "repair cache --accept-damage",
    ];
    let before = std::fs::read(scratch.path("cache")).unwrap();
    let said = serve(&scratch, &one).err().unwrap();
    for word in words {
        assert!(said.contains(word), "{word:?} is not in: {said}");
    }
    forebay_says(&scratch, &["repair", "cache"], REFUSED, &words);
    let after = std::fs::read(scratch.path("cache")).unwrap();
    assert!(before == after, "something was written");
    is_whole(&scratch, &BOTH, 1000);

    has_dirty_data_alone(&scratch, ["cache", "second"]);
    let said = forebay_ok(&scratch, &repair);
    assert!(said.contains("usable again"), "{said}");
    is_whole(&scratch, &one, 1000);
    // What was given up is not taken back.
    let said = serve(&scratch, &["--cache", "second"]).err().unwrap();
    assert!(said.contains("went on without"), "{said}");
}
