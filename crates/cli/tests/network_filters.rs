//! Network origins behind filters of nbdkit that fail now and then, and exports that are not what
//! they were.

mod support;

use std::process::Command;

use support::nbd::Client;
use support::nbdkit::Server;
use support::{Daemon, MIB, Scratch, forebay_says, installed, until};

const BLOCK: u64 = 4096;

fn uri(scratch: &Scratch, export: &str) -> String {
    format!("nbd+unix:///{export}?socket={}", scratch.text("server"))
}

fn daemon(scratch: &Scratch, mode: &str, more: &str) -> Daemon {
    scratch.file("cache", 64 * MIB);
    let origin = uri(scratch, "disk") + more;
    let arguments = [
        "--origin", &origin, "--cache", "cache", "--create", "--mode", mode,
    ];
    Daemon::start(scratch, &arguments)
}

fn contents(block: u64) -> Vec<u8> {
    (block + 1).to_le_bytes().repeat(BLOCK as usize / 8)
}

/// Write-back goes on after errors, until the origin has everything.
#[test]
fn writes_that_fail_now_and_then_are_written_back_in_the_end() {
    if !installed("nbdkit") {
        return;
    }
    let scratch = Scratch::new();
    let failing = ["--filter=error", "memory", "32M", "error=EIO"];
    let rates = ["error-pwrite-rate=30%", "error-file=now"];
    let _server = Server::nbdkit(&scratch, &[&failing[..], &rates].concat());
    let daemon = daemon(&scratch, "writeback", "");
    std::fs::File::create(scratch.path("now")).unwrap();
    let mut client = Client::connect(&scratch.path("nbd")).unwrap();
    for block in 0..512 {
        client.write(block * 5 * BLOCK, &contents(block));
    }
    let drain = daemon.begin(&scratch, &["drain"]);
    until("an error", || daemon.log().contains("cannot write"));
    std::fs::remove_file(scratch.path("now")).unwrap();
    let output = drain.wait_with_output().unwrap();
    assert!(output.status.success(), "{}", support::text(&output));
    drop(client);
    daemon.stop();
    let mut direct = Client::connect(&scratch.path("server")).unwrap();
    for block in 0..512 {
        assert!(
            direct.read(block * 5 * BLOCK, BLOCK as u32) == contents(block),
            "{block}"
        );
    }
}

/// A filter in front of the one that fails asks again, and the daemon hears of nothing.
#[test]
fn a_server_that_asks_again_by_itself_is_waited_for() {
    if !installed("nbdkit") {
        return;
    }
    let scratch = Scratch::new();
    let filters = ["--filter=retry-request", "--filter=error", "memory", "32M"];
    let how = [
        "error-rate=10%",
        "error=EIO",
        "retry-request-delay=1",
        "retry-request-retries=99",
    ];
    let _server = Server::nbdkit(&scratch, &[&filters[..], &how].concat());
    let daemon = daemon(&scratch, "passthrough", "");
    let mut client = Client::connect(&scratch.path("nbd")).unwrap();
    for block in 0..40 {
        client.write(block * 7 * BLOCK, &contents(block));
    }
    client.flush();
    for block in 0..40 {
        assert!(
            client.read(block * 7 * BLOCK, BLOCK as u32) == contents(block),
            "{block}"
        );
    }
    drop(client);
    daemon.stop();
}

/// Each transfer that it waits for meanwhile ends early.
#[test]
fn a_daemon_that_is_stopped_now_and_then_does_not_take_its_server_for_gone() {
    if !installed("nbdkit") {
        return;
    }
    let scratch = Scratch::new();
    let slow = ["--filter=delay", "memory", "32M", "rdelay=100ms"];
    let _server = Server::nbdkit(&scratch, &slow);
    let origin = uri(&scratch, "disk");
    let daemon = Daemon::start_haltingly(&scratch, &["--origin", &origin]);
    let mut client = Client::connect(&scratch.path("nbd")).unwrap();
    assert_eq!(client.read(0, BLOCK as u32), [0; BLOCK as usize]);
    drop(client);
    daemon.stop();
}

/// A smaller export is another one; a larger one may have grown.
#[test]
fn an_export_that_shrank_is_not_written_to() {
    if !installed("nbdkit") {
        return;
    }
    for (size, is_taken) in [("16M", false), ("64M", true)] {
        let scratch = Scratch::new();
        let mut server = Server::nbdkit(&scratch, &["memory", "32M"]);
        let daemon = daemon(&scratch, "passthrough", "&origin-timeout=1");
        let mut client = Client::connect(&scratch.path("nbd")).unwrap();
        server.kill();
        let _server = Server::nbdkit(&scratch, &["memory", size]);
        client.begin_write(0, &contents(1)).unwrap();
        assert_eq!(client.reply().unwrap().error == 0, is_taken, "{size}");
        drop(client);
        if is_taken {
            daemon.stop();
            continue;
        }
        let log = daemon.log();
        assert!(
            log.contains("is another one: it had 33554432 bytes"),
            "{log}"
        );
        let mut direct = Client::connect(&scratch.path("server")).unwrap();
        assert!(direct.read(0, BLOCK as u32) == [0; BLOCK as usize]);
        // A stop would wait for an origin that is away, and say that it was not flushed.
        daemon.kill();
    }
}

#[test]
fn a_name_that_the_server_does_not_know_is_refused() {
    if !installed("qemu-nbd") {
        return;
    }
    let scratch = Scratch::new();
    scratch.file("image", 32 * MIB);
    scratch.file("cache", 64 * MIB);
    let child = Command::new("qemu-nbd")
        .args(["-t", "-f", "raw", "-x", "disk", "-k"])
        .arg(scratch.path("server"))
        .arg(scratch.path("image"))
        .spawn()
        .expect("qemu-nbd");
    let _server = Server::of(child);
    until("the server to listen", || scratch.path("server").exists());
    let origin = uri(&scratch, "dusk");
    let arguments = [
        "serve", "--origin", &origin, "--cache", "cache", "--create", "--nbd", "unix:nbd",
    ];
    forebay_says(&scratch, &arguments, 1, &["has no export of that name"]);
}

/// A volume that is its own origin would wait for itself.
#[test]
fn an_export_of_the_daemon_itself_is_no_origin() {
    let scratch = Scratch::new();
    scratch.file("origin", 32 * MIB);
    scratch.file("cache", 64 * MIB);
    let daemon = Daemon::cached(&scratch, "writeback", &[]);
    let own = format!("nbd+unix:///origin?socket={}", scratch.text("nbd"));
    let words = ["a socket of this daemon", "cannot be its own origin"];
    daemon.says(&scratch, &["attach", &own], 1, &words);
    Client::connect(&scratch.path("nbd"))
        .unwrap()
        .write(0, &contents(0));
    daemon.stop();
}
