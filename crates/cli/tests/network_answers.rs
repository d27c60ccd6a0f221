//! Network origins whose server answers with errors, shuts the host out, or breaks off in the middle
//! of an answer.

mod support;

use std::process::{Child, Command};
use std::sync::mpsc::channel;

use support::nbd::Client;
use support::server::{Answer, BLOCK, ESHUTDOWN, FLUSH, READ, Server, WRITE, contents, image};
use support::{Daemon, MIB, Scratch, forebay_says, installed, until};

const EIO: u32 = 5;

fn daemon(scratch: &Scratch, mode: &str) -> Daemon {
    scratch.file("cache", 64 * MIB);
    let origin = format!("nbd+unix:///disk?socket={}", scratch.text("server"));
    let arguments = [
        "--origin", &origin, "--cache", "cache", "--create", "--mode", mode,
    ];
    Daemon::start(scratch, &arguments)
}

fn error_of_read(client: &mut Client, block: u64) -> u32 {
    client.begin_read(block * BLOCK, BLOCK as u32).unwrap();
    client.reply().unwrap().error
}

/// Processes that end with their test.
struct Processes(Vec<Child>);

impl Processes {
    fn start(&mut self, program: &str, arguments: &[&str]) {
        let child = Command::new(program).args(arguments).spawn();
        self.0.push(child.expect(program));
    }
}

impl Drop for Processes {
    fn drop(&mut self) {
        for child in &mut self.0 {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

/// In answer to a structured read `qemu-nbd` 7.2 closes the connection when its image has an error
/// there. A client that then reads the same again never comes to an end.
#[test]
fn a_read_error_of_qemu_nbd_is_the_clients_read_error() {
    if !(installed("qemu-nbd") && installed("nbdkit")) {
        return;
    }
    let scratch = Scratch::new();
    let mut servers = Processes(Vec::new());
    let (image, socket) = (scratch.text("image"), scratch.text("server"));
    let now = format!("error-file={}", scratch.text("now"));
    let failing = ["--foreground", "--unix", &image, "--filter=error", "memory"];
    let how = ["32M", "error=EIO", "error-pread-rate=100%", &now];
    servers.start("nbdkit", &[&failing[..], &how].concat());
    until("the image", || scratch.path("image").exists());
    let image = format!("nbd:unix:{image}");
    let serving = ["--persistent", "--format", "raw", "--export-name", "disk"];
    let how = ["--socket", &socket, &image];
    servers.start("qemu-nbd", &[&serving[..], &how].concat());
    until("the server", || scratch.path("server").exists());
    let daemon = daemon(&scratch, "writethrough");
    let mut client = Client::connect(&scratch.path("nbd")).unwrap();
    client.write(0, &contents(0));
    std::fs::File::create(scratch.path("now")).unwrap();
    assert_eq!(error_of_read(&mut client, 4000), EIO);
    std::fs::remove_file(scratch.path("now")).unwrap();
    assert_eq!(error_of_read(&mut client, 4000), 0);
    assert!(!daemon.log().contains("is gone"), "{}", daemon.log());
    daemon.stop();
}

#[test]
fn a_server_that_breaks_off_at_the_start_is_told_from_one_that_refuses() {
    let scratch = Scratch::new();
    scratch.file("cache", 64 * MIB);
    let server = Server::start(&scratch.path("server"), image());
    let origin = format!("nbd+unix:///disk?socket={}", scratch.text("server"));
    let arguments = [
        "serve", "--origin", &origin, "--cache", "cache", "--create", "--nbd", "unix:nbd",
    ];
    server.answer_by(|_| Answer::Cut(7));
    let words = [
        "cannot read the export",
        "connection broke: the server closed it",
    ];
    forebay_says(&scratch, &arguments, 1, &words);
    server.answer_by(|_| Answer::Error(EIO));
    forebay_says(
        &scratch,
        &arguments,
        1,
        &["cannot read the export", "input/output error"],
    );
    assert!(!scratch.path("nbd").exists());
}

/// Waits for the word that the daemon has for a host that was shut out.
fn until_shut_out(daemon: &Daemon) {
    until("the daemon to know", || {
        daemon.log().contains("has shut this host out")
    });
}

/// A host that was shut out stays so, whatever the server says later: another host may have
/// written to the image.
fn stays_shut_out(scratch: &Scratch, server: &Server) {
    let before = server.contents();
    let clients = server.clients();
    server.answer_by(|_| Answer::Right);
    let mut client = Client::connect(&scratch.path("nbd")).unwrap();
    client.begin_write(9 * BLOCK, &contents(99)).unwrap();
    // In write-back the cache takes it.
    client.reply().unwrap();
    // A daemon that connected again would have them wait for that, and read.
    for block in 4001..4021 {
        assert_ne!(error_of_read(&mut client, block), 0);
    }
    assert_eq!(server.clients(), clients, "it connected again");
    assert!(server.contents() == before, "it wrote");
}

/// In each of the requests, the number of a host that was shut out is final.
#[test]
fn a_host_that_was_shut_out_writes_nothing_any_more() {
    for command in [READ, WRITE, FLUSH] {
        let scratch = Scratch::new();
        let server = Server::start(&scratch.path("server"), image());
        let daemon = daemon(&scratch, "writethrough");
        let mut client = Client::connect(&scratch.path("nbd")).unwrap();
        client.write(0, &contents(7));
        server.answer_by(move |request| {
            let is_it = request.command == command;
            if is_it {
                Answer::Error(ESHUTDOWN)
            } else {
                Answer::Right
            }
        });
        client.begin_read(4000 * BLOCK, BLOCK as u32).unwrap();
        client.begin_write(BLOCK, &contents(8)).unwrap();
        client.begin_flush().unwrap();
        for _ in 0..3 {
            client.reply().unwrap();
        }
        until_shut_out(&daemon);
        stays_shut_out(&scratch, &server);
    }
}

/// The first thing that a host does when its server returns is to read.
#[test]
fn a_host_that_was_shut_out_while_its_server_was_away_learns_it() {
    let scratch = Scratch::new();
    let server = Server::start(&scratch.path("server"), image());
    let daemon = daemon(&scratch, "writeback");
    let mut client = Client::connect(&scratch.path("nbd")).unwrap();
    client.write(0, &contents(7));
    let mut is_cut = false;
    server.answer_by(move |request| {
        if !is_cut && request.command == READ {
            is_cut = true;
            return Answer::Cut(0);
        }
        match request.command {
            READ => Answer::Error(ESHUTDOWN),
            _ => Answer::Right,
        }
    });
    assert_ne!(error_of_read(&mut client, 4000), 0);
    until_shut_out(&daemon);
    stays_shut_out(&scratch, &server);
}

/// I26, cut in each part of a reply: before it, in its header, behind it, in its data.
#[test]
fn an_answer_that_breaks_off_is_asked_for_again() {
    for command in [READ, WRITE, FLUSH] {
        for at in [0, 3, 4, 9, 15, 16, 17, 2000] {
            let scratch = Scratch::new();
            let server = Server::start(&scratch.path("server"), image());
            let daemon = daemon(&scratch, "passthrough");
            let mut client = Client::connect(&scratch.path("nbd")).unwrap();
            let mut is_cut = false;
            server.answer_by(move |request| {
                let cuts = !is_cut && request.command == command;
                is_cut |= cuts;
                if cuts { Answer::Cut(at) } else { Answer::Right }
            });
            client.write(BLOCK, &contents(8));
            client.flush();
            let what = format!("{command} cut at {at}");
            let found = client.read(3000 * BLOCK, 4 * BLOCK as u32);
            let expected: Vec<u8> = (3000..3004).flat_map(contents).collect();
            assert!(found == expected, "{what}");
            assert!(client.read(BLOCK, BLOCK as u32) == contents(8), "{what}");
            until("the daemon to notice", || daemon.log().contains("is gone"));
            let written = server.contents();
            assert!(written[BLOCK as usize..][..BLOCK as usize] == contents(8));
            assert!(written[..BLOCK as usize] == contents(0), "{what}");
            drop(client);
            daemon.stop();
        }
    }
}

/// I10: a client whose flush fails is gone before it hears of that, as one is that connects again. Its
/// writes may be lost, so that the next flush fails.
#[test]
fn a_failed_flush_of_a_client_that_is_gone_is_the_next_ones() {
    for mode in ["passthrough", "writethrough"] {
        let scratch = Scratch::new();
        let server = Server::start(&scratch.path("server"), image());
        let daemon = daemon(&scratch, mode);
        let mut client = Client::connect(&scratch.path("nbd")).unwrap();
        client.write(0, &contents(7));
        let (comes, has_come) = channel();
        let (goes_on, may_go_on) = channel();
        let mut has_failed = false;
        server.answer_by(move |request| {
            if request.command != FLUSH || has_failed {
                return Answer::Right;
            }
            has_failed = true;
            comes.send(()).unwrap();
            may_go_on.recv().unwrap();
            Answer::Error(EIO)
        });
        client.begin_flush().unwrap();
        has_come.recv().unwrap();
        drop(client);
        let mut client = Client::connect(&scratch.path("nbd")).unwrap();
        goes_on.send(()).unwrap();
        let mut error_of_flush = || {
            client.begin_flush().unwrap();
            client.reply().unwrap().error
        };
        assert_eq!(error_of_flush(), EIO, "{mode}");
        assert_eq!(error_of_flush(), 0, "{mode}: told once");
        drop(client);
        daemon.stop();
    }
}

/// I10: what write-back wrote is dirty in the cache until a flush of the origin covers it. A file
/// system that heard of an error would go read-only.
#[test]
fn a_client_does_not_hear_of_a_flush_that_fails_for_write_back_alone() {
    for failing in [FLUSH, WRITE] {
        let scratch = Scratch::new();
        let server = Server::start(&scratch.path("server"), image());
        let daemon = daemon(&scratch, "writeback");
        let mut client = Client::connect(&scratch.path("nbd")).unwrap();
        client.write(0, &contents(7));
        server.answer_by(move |request| match request.command {
            FLUSH => Answer::Error(EIO),
            command if command == failing => Answer::Error(EIO),
            _ => Answer::Right,
        });
        let mut drain = daemon.begin(&scratch, &["drain", "disk"]);
        until("a flush to fail", || daemon.log().contains("cannot flush"));
        client.flush();
        client.write(BLOCK, &contents(8));
        client.flush();
        server.answer_by(|_| Answer::Right);
        drain.wait().unwrap();
        daemon.says(&scratch, &["drain", "disk"], 0, &[]);
        let written = server.contents();
        assert!(written[..BLOCK as usize] == contents(7));
        assert!(written[BLOCK as usize..][..BLOCK as usize] == contents(8));
        drop(client);
        daemon.stop();
    }
}

/// The cache is stopped in order all the same, and has what was dirty.
#[test]
fn a_stop_passes_a_volume_by_whose_server_has_shut_the_host_out() {
    let scratch = Scratch::new();
    let server = Server::start(&scratch.path("server"), image());
    let mut daemon = daemon(&scratch, "writeback");
    let mut client = Client::connect(&scratch.path("nbd")).unwrap();
    client.write(0, &contents(7));
    server.answer_by(|_| Answer::Error(ESHUTDOWN));
    assert_ne!(error_of_read(&mut client, 4000), 0);
    until_shut_out(&daemon);
    drop(client);
    daemon.signal("-TERM");
    assert_eq!(daemon.wait(), Some(0), "{}", daemon.log());
    let log = daemon.log();
    assert!(log.contains("volume disk is left as it is"), "{log}");
    drop(daemon);

    server.answer_by(|_| Answer::Right);
    let origin = format!("nbd+unix:///disk?socket={}", scratch.text("server"));
    let daemon = Daemon::start(&scratch, &["--origin", &origin, "--cache", "cache"]);
    let mut client = Client::connect(&scratch.path("nbd")).unwrap();
    assert!(client.read(0, BLOCK as u32) == contents(7));
    drop(client);
    daemon.stop();
}

/// Each new connection has the same request, after all changes. Without a pause and an end that was
/// twenty connections a second for ever, or one in each `origin-timeout`.
#[test]
fn a_request_at_which_the_server_ends_or_hangs_each_time_fails_when_its_time_is_up() {
    for (poison, seconds, connections) in [(Answer::Cut(0), 3, 2..=12), (Answer::Silent, 1, 2..=5)]
    {
        let scratch = Scratch::new();
        let server = Server::start(&scratch.path("server"), image());
        scratch.file("cache", 64 * MIB);
        let socket = scratch.text("server");
        let origin = format!("nbd+unix:///disk?socket={socket}&origin-timeout={seconds}");
        let arguments = ["--origin", &origin, "--cache", "cache", "--create"];
        let daemon = Daemon::start(&scratch, &arguments);
        let mut client = Client::connect(&scratch.path("nbd")).unwrap();
        let poisoned = 1234 * BLOCK;
        server.answer_by(
            move |request| match (request.command, request.offset_bytes) {
                (READ, place) if place == poisoned => poison,
                _ => Answer::Right,
            },
        );
        let before = server.clients();
        assert_eq!(error_of_read(&mut client, 1234), EIO);
        let made = server.clients() - before;
        assert!(
            connections.contains(&made),
            "{poison:?}: {made} connections"
        );
        assert_eq!(error_of_read(&mut client, 1300), 0, "the others are served");
        server.answer_by(|_| Answer::Right);
        until("the block", || error_of_read(&mut client, 1234) == 0);
        daemon.stop();
    }
}
