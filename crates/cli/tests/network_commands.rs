//! Commands that write a network origin back, while its server is away or has shut this host out.

mod support;

use std::io::{BufRead, BufReader};
use std::process::Child;

use support::nbd::Client;
use support::server::{Answer, Server, WRITE};
use support::{Daemon, MIB, Scratch, forebay_ok, installed, nbdkit, send_signal, until};

const BLOCK: u64 = 4096;
const SIZE: u64 = 32 * MIB;
const ESHUTDOWN: u32 = 108;
/// A `detach` begins when a freeze before it has ended.
const COMMANDS: [&str; 4] = ["drain", "freeze", "hand-over", "detach"];

fn contents(block: u64) -> Vec<u8> {
    (block + 1).to_le_bytes().repeat(BLOCK as usize / 8)
}

/// A daemon in writeback over the export `disk` of the socket `server`.
fn daemon(scratch: &Scratch) -> Daemon {
    scratch.file("cache", 64 * MIB);
    let origin = format!("nbd+unix:///disk?socket={}", scratch.text("server"));
    let cache = ["--cache", "cache", "--create", "--mode", "writeback"];
    Daemon::start(scratch, &[&["--origin", &origin][..], &cache].concat())
}

fn write_all(daemon: &Daemon, scratch: &Scratch, blocks: u64) -> Client {
    let mut client = Client::connect(&scratch.path("nbd")).unwrap();
    for block in 0..blocks {
        client.write(block * BLOCK, &contents(block));
    }
    assert!(daemon.status(scratch)["cache"]["dirty_bytes"].as_u64() > Some(0));
    client
}

/// Dirty data is kept and named, and can be saved in the way that the message says.
#[test]
fn commands_end_at_once_where_the_host_was_shut_out() {
    let scratch = Scratch::new();
    let server = Server::start(&scratch.path("server"), vec![0; SIZE as usize]);
    let daemon = daemon(&scratch);
    server.answer_by(|request| match request.command {
        WRITE => Answer::Error(ESHUTDOWN),
        _ => Answer::Right,
    });
    let mut client = write_all(&daemon, &scratch, 64);
    for command in COMMANDS {
        let words = [
            "volume disk",
            "nbd+unix:///disk?socket=",
            "has shut this host out",
            "256 KiB of dirty data stay in the cache",
            "forebay rescue disk",
            "forebay detach disk --offline",
        ];
        daemon.says(&scratch, &[command, "disk"], 3, &words);
        client.write(0, &contents(0));
        assert!(client.read(BLOCK, BLOCK as u32) == contents(1), "{command}");
    }
    assert!(server.contents().iter().all(|byte| *byte == 0), "it wrote");
    drop(client);
    daemon.kill();
    let rescue = ["rescue", "disk", "--cache", "cache", "--to", "saved"];
    forebay_ok(&scratch, &rescue);
    let saved = std::fs::read(scratch.path("saved")).unwrap();
    let expected: Vec<u8> = (0..64).flat_map(contents).collect();
    assert!(saved[..expected.len()] == expected);
    let give_up = ["detach", "disk", "--offline", "--cache", "cache", "--force"];
    forebay_ok(&scratch, &give_up);
}

/// Nothing is dirty: the flush that each of them ends with says it.
#[test]
fn a_shut_out_volume_without_dirty_data_cannot_be_handed_over_either() {
    let scratch = Scratch::new();
    let server = Server::start(&scratch.path("server"), vec![0; SIZE as usize]);
    let daemon = daemon(&scratch);
    server.answer_by(|_| Answer::Error(ESHUTDOWN));
    let mut client = Client::connect(&scratch.path("nbd")).unwrap();
    client.begin_read(0, BLOCK as u32).unwrap();
    assert_ne!(client.reply().unwrap().error, 0);
    let words = ["has shut this host out", "none of its data is dirty"];
    daemon.says(&scratch, &["hand-over", "disk"], 3, &words);
    daemon.command(&scratch, &["drain", "disk"]);
    daemon.kill();
}

/// Begins a command, and returns it when it says how far it is; `None` if it ends before.
fn begun(daemon: &Daemon, scratch: &Scratch, command: &str) -> Option<Child> {
    let mut child = daemon.begin(scratch, &[command, "disk", "--json"]);
    let mut said = BufReader::new(child.stdout.take().unwrap());
    let mut line = String::new();
    said.read_line(&mut line).unwrap();
    if line.is_empty() {
        child.wait().unwrap();
        return None;
    }
    assert!(line.contains("dirty_bytes"), "{command}: {line}");
    child.stdout = Some(said.into_inner());
    Some(child)
}

#[test]
fn commands_wait_for_a_server_that_is_away_and_can_be_interrupted() {
    if !installed("nbdkit") {
        println!("skipped: nbdkit is not installed");
        return;
    }
    let scratch = Scratch::new();
    scratch.file("disk", SIZE);
    let mut server = nbdkit::Server::nbdkit(&scratch, &["file", "disk"]);
    let daemon = daemon(&scratch);
    let mut client = Client::connect(&scratch.path("nbd")).unwrap();
    client.read(0, BLOCK as u32);
    server.kill();
    for block in 0..64 {
        client.write(block * BLOCK, &contents(block));
    }
    for command in COMMANDS {
        let mut child = None;
        until("the command before to have ended", || {
            child = begun(&daemon, &scratch, command);
            child.is_some()
        });
        let mut child = child.unwrap();
        send_signal(child.id(), "-INT");
        assert_eq!(child.wait().unwrap().code(), Some(4), "{command}");
        // Until a freeze has ended writes wait for the origin too.
        if command == "detach" {
            client.write(0, &contents(0));
        }
        assert!(client.read(BLOCK, BLOCK as u32) == contents(1), "{command}");
    }
    let _server = nbdkit::Server::nbdkit(&scratch, &["file", "disk"]);
    let expected: Vec<u8> = (0..64).flat_map(contents).collect();
    until("the volume to be as it was, and handed over", || {
        let done = daemon.begin(&scratch, &["hand-over", "disk"]).wait();
        done.unwrap().success()
    });
    let disk = std::fs::read(scratch.path("disk")).unwrap();
    assert!(disk[..expected.len()] == expected);
}
