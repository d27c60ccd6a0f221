//! Origins behind real servers of the NBD protocol: refusals before anything is written, servers
//! that are killed under load and start again, servers that fail and cut answers short.

mod support;

use std::process::Command;

use support::nbd::Client;
use support::nbdkit::Server;
use support::{Daemon, MIB, Scratch, forebay_says, installed, until};

const BLOCK: u64 = 4096;
const SIZE: u64 = 32 * MIB;

fn uri(scratch: &Scratch, more: &str) -> String {
    format!("nbd+unix:///disk?socket={}{more}", scratch.text("server"))
}

fn daemon(scratch: &Scratch, mode: &str, more: &str) -> Daemon {
    scratch.file("cache", 64 * MIB);
    let origin = uri(scratch, more);
    let arguments = [
        "--origin", &origin, "--cache", "cache", "--create", "--mode", mode,
    ];
    Daemon::start(scratch, &arguments)
}

fn contents(block: u64, round: u64) -> Vec<u8> {
    let word = block * 1000 + round;
    word.to_le_bytes().repeat(BLOCK as usize / 8)
}

fn skips() -> bool {
    let skips = !installed("nbdkit");
    if skips {
        println!("skipped: nbdkit is not installed");
    }
    skips
}

#[test]
fn exports_that_cannot_be_served_are_refused_in_words() {
    if skips() {
        return;
    }
    let scratch = Scratch::new();
    scratch.file("cache", 64 * MIB);
    let says = |more: &str, code, words: &[&str]| {
        let origin = uri(&scratch, more);
        let arguments = [
            "serve", "--origin", &origin, "--cache", "cache", "--create", "--nbd", "unix:nbd",
        ];
        forebay_says(&scratch, &arguments, code, words);
    };
    says("", 1, &["cannot reach", "server"]);
    says("&what=1", 2, &["none of socket=PATH"]);
    {
        let _server = Server::nbdkit(&scratch, &["-r", "memory", "32M"]);
        says("", 3, &["to be read only"]);
    }
    {
        let _server = Server::nbdkit(
            &scratch,
            &["eval", "get_size=echo 33554432", "pread=exit 1"],
        );
        says("", 3, &["to be read only"]);
    }
    let _server = Server::nbdkit(
        &scratch,
        &[
            "eval",
            "get_size=echo 33554432",
            "pread=exit 1",
            "pwrite=exit 1",
            "can_write=exit 0",
        ],
    );
    says("", 3, &["has no flush", "flush=none"]);
    let cache = std::fs::read(scratch.path("cache")).unwrap();
    assert!(cache.iter().all(|byte| *byte == 0), "nothing is written");
}

/// I26: in each mode everything acknowledged is read again, and a flush makes it durable on the
/// origin, although the server was killed and lost what it had not flushed.
#[test]
fn a_server_that_is_killed_under_load_loses_nothing() {
    if skips() {
        return;
    }
    for mode in ["writeback", "writethrough", "writearound", "passthrough"] {
        let scratch = Scratch::new();
        // A kill takes what was not flushed.
        scratch.file("disk", SIZE);
        let forgetful = ["--filter=cache", "file", "disk"];
        let mut server = Server::nbdkit(&scratch, &forgetful);
        let daemon = daemon(&scratch, mode, "");
        let mut client = Client::connect(&scratch.path("nbd")).unwrap();
        for block in 0..256 {
            client.write(block * 7 % 1024 * BLOCK, &contents(block, 1));
        }
        server.kill();
        let waiting = client.begin_write(2000 * BLOCK, &contents(2000, 2));
        waiting.unwrap();
        let _server = Server::nbdkit(&scratch, &forgetful);
        assert_eq!(client.reply().unwrap().error, 0, "{mode}");
        client.flush();
        daemon.command(&scratch, &["drain", &volume_of(&daemon)]);
        let mut direct = Client::connect(&scratch.path("server")).unwrap();
        for block in 0..256 {
            let place = block * 7 % 1024 * BLOCK;
            let expected = contents(block, 1);
            assert!(
                client.read(place, BLOCK as u32) == expected,
                "{mode} {block}"
            );
            assert!(
                direct.read(place, BLOCK as u32) == expected,
                "{mode} {block}"
            );
        }
        drop((client, direct));
        daemon.stop();
    }
}

fn volume_of(daemon: &Daemon) -> String {
    let uri = daemon.uri();
    let name = uri.split("/").nth(3).unwrap_or_default();
    name.split('?').next().unwrap_or_default().to_owned()
}

#[test]
fn hits_do_not_wait_for_a_server_that_is_away_and_misses_end_with_its_time() {
    if skips() {
        return;
    }
    let scratch = Scratch::new();
    let mut server = Server::nbdkit(&scratch, &["memory", "32M"]);
    let daemon = daemon(&scratch, "writeback", "&origin-timeout=1");
    let mut client = Client::connect(&scratch.path("nbd")).unwrap();
    client.write(0, &contents(0, 1));
    server.kill();
    assert!(client.read(0, BLOCK as u32) == contents(0, 1), "a hit");
    client.write(BLOCK, &contents(1, 1));
    client.begin_read(SIZE - BLOCK, BLOCK as u32).unwrap();
    assert_eq!(client.reply().unwrap().error, 5, "a miss");
    let log = daemon.log();
    assert!(log.contains("is gone"), "{log}");
    let _server = Server::nbdkit(&scratch, &["memory", "32M"]);
    until("the server to be found", || {
        client.begin_read(SIZE - BLOCK, BLOCK as u32).unwrap();
        client.reply().unwrap().error == 0
    });
    daemon.stop();
}

/// Another image in the place of the first is not written to.
#[test]
fn another_export_is_not_taken_for_the_one_that_was_there() {
    if skips() {
        return;
    }
    let scratch = Scratch::new();
    scratch.pattern("one", SIZE);
    scratch.file("other", SIZE);
    let mut server = Server::nbdkit(&scratch, &["file", "one"]);
    let daemon = daemon(&scratch, "writethrough", "&origin-timeout=1");
    let mut client = Client::connect(&scratch.path("nbd")).unwrap();
    client.write(0, &contents(0, 1));
    server.kill();
    let _server = Server::nbdkit(&scratch, &["file", "other"]);
    client.begin_write(BLOCK, &contents(1, 1)).unwrap();
    assert_ne!(client.reply().unwrap().error, 0);
    until("the reason", || daemon.log().contains("is another one"));
    let other = std::fs::read(scratch.path("other")).unwrap();
    assert!(other.iter().all(|byte| *byte == 0));
}

/// Filters of nbdkit: errors, delays, and sizes that the server does not take. No wrong byte, and no
/// hang.
#[test]
fn errors_and_delays_of_a_server_change_no_byte() {
    if skips() {
        return;
    }
    let filters: [&[&str]; 3] = [
        &[
            "--filter=delay",
            "memory",
            "32M",
            "rdelay=2ms",
            "wdelay=2ms",
        ],
        &[
            "--filter=blocksize-policy",
            "memory",
            "32M",
            "blocksize-minimum=4096",
            "blocksize-maximum=64K",
            "blocksize-error-policy=error",
        ],
        &[
            "--filter=error",
            "memory",
            "32M",
            "error-pread-rate=100%",
            "error-file=now",
            "error=EIO",
        ],
    ];
    for filter in filters {
        let scratch = Scratch::new();
        let _server = Server::nbdkit(&scratch, filter);
        let daemon = daemon(&scratch, "writethrough", "");
        let mut client = Client::connect(&scratch.path("nbd")).unwrap();
        let big = contents(5, 3).repeat(64);
        client.write(MIB, &big);
        // From now on reads fail, if the filter is that of errors.
        std::fs::File::create(scratch.path("now")).unwrap();
        client.begin_read(0, MIB as u32).unwrap();
        let reply = client.reply().unwrap();
        std::fs::remove_file(scratch.path("now")).unwrap();
        let zeroes = reply.error == 5 || reply.data.iter().all(|byte| *byte == 0);
        assert!(zeroes, "{filter:?}");
        assert!(client.read(MIB, big.len() as u32) == big, "{filter:?}");
        client.flush();
        daemon.stop();
    }
}

#[test]
fn qemu_nbd_is_a_server_too() {
    if !installed("qemu-nbd") {
        println!("skipped: qemu-nbd is not installed");
        return;
    }
    let scratch = Scratch::new();
    support::run(
        "qemu-img",
        &["create", "-q", "-f", "qcow2", &scratch.text("image"), "32M"],
    );
    let socket = scratch.path("server");
    let child = Command::new("qemu-nbd")
        .args(["-t", "-f", "qcow2", "-x", "disk", "-k"])
        .arg(&socket)
        .arg(scratch.path("image"))
        .spawn()
        .expect("qemu-nbd");
    let _server = Server::of(child);
    until("the server to listen", || socket.exists());
    let daemon = daemon(&scratch, "writeback", "");
    let mut client = Client::connect(&scratch.path("nbd")).unwrap();
    for block in 0..64 {
        client.write(block * 3 * BLOCK, &contents(block, 1));
    }
    client.begin_zeroes(0, BLOCK as u32).unwrap();
    assert_eq!(client.reply().unwrap().error, 0);
    client.flush();
    for block in 1..64 {
        assert!(client.read(block * 3 * BLOCK, BLOCK as u32) == contents(block, 1));
    }
    assert!(client.read(0, BLOCK as u32).iter().all(|byte| *byte == 0));
    daemon.stop();
}

/// A server that ends with its first client is not asked whether it is there: it is opened.
#[test]
fn a_volume_comes_back_with_a_server_that_takes_one_client() {
    if skips() {
        return;
    }
    let scratch = Scratch::new();
    scratch.file("cache", 64 * MIB);
    scratch.file("disk", SIZE);
    let text = format!(
        "[cache]\ndevice = \"cache\"\ncreate = true\n[[volume]]\norigin = \"{}\"\n",
        uri(&scratch, "")
    );
    std::fs::write(scratch.path("file.toml"), text).unwrap();
    let serve = ["--config", "file.toml"];
    {
        let _server = Server::nbdkit(&scratch, &["file", "disk"]);
        Daemon::start(&scratch, &serve).stop();
    }
    let daemon = Daemon::start_without_volumes(&scratch, &serve);
    let once = ["--filter=exitlast", "file", "disk"];
    let _server = Server::nbdkit(&scratch, &once);
    until("the volume to be served", || {
        daemon.log().contains("volume disk is attached")
    });
    let mut client = Client::connect(&scratch.path("nbd")).unwrap();
    client.write(0, &contents(0, 1));
    client.flush();
    drop(client);
    daemon.stop();
}

/// Samples are of an orderly stop. After a crash the daemon says that it has none.
#[test]
fn a_daemon_says_after_a_crash_that_nothing_tells_of_another_host() {
    if skips() {
        return;
    }
    let scratch = Scratch::new();
    scratch.file("disk", SIZE);
    let _server = Server::nbdkit(&scratch, &["file", "disk"]);
    let words = "nothing tells whether another host wrote";
    let first = daemon(&scratch, "writeback", "");
    assert!(!first.log().contains(words));
    first.kill();
    let origin = uri(&scratch, "");
    let again = ["--origin", &origin, "--cache", "cache"];
    let second = Daemon::start(&scratch, &again);
    assert!(second.log().contains(words), "{}", second.log());
    second.stop();
    let third = Daemon::start(&scratch, &again);
    assert!(!third.log().contains(words), "{}", third.log());
    third.stop();
}
