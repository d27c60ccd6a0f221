//! Several connections to the server of a network origin: reads go over all of them, changes over one.

mod support;

use std::collections::BTreeSet;

use support::nbd::Client;
use support::nbdkit;
use support::server::{Answer, BLOCK, ESHUTDOWN, READ, Server, WRITE, contents, image};
use support::{Daemon, Scratch, installed, until};

fn daemon(scratch: &Scratch, options: &str) -> Daemon {
    let origin = format!(
        "nbd+unix:///disk?socket={}{options}",
        scratch.text("server")
    );
    Daemon::start(scratch, &["--origin", &origin])
}

/// A daemon on a server that takes several clients, and a client of it that has read.
fn over_several(scratch: &Scratch, options: &str) -> (Server, Daemon, Client) {
    let server = Server::start_shared(&scratch.path("server"), image());
    let daemon = daemon(scratch, options);
    let mut client = Client::connect(&scratch.path("nbd")).unwrap();
    reads_all(&mut client, 0..64);
    (server, daemon, client)
}

/// Reads blocks with all requests on their way at once.
fn reads_all(client: &mut Client, blocks: std::ops::Range<u64>) {
    let asked: Vec<(u64, u64)> = blocks
        .map(|block| {
            let cookie = client.begin_read(block * BLOCK, BLOCK as u32).unwrap();
            (cookie, block)
        })
        .collect();
    for _ in &asked {
        let reply = client.reply().unwrap();
        let (_, block) = asked
            .iter()
            .find(|(cookie, _)| *cookie == reply.cookie)
            .unwrap();
        assert_eq!(reply.error, 0, "block {block}");
        assert!(reply.data == contents(*block), "block {block}");
    }
}

#[test]
fn a_real_server_has_reads_on_all_and_changes_on_one() {
    if !installed("nbdkit") {
        return;
    }
    for (options, expected) in [("", 4), ("&connections=2", 2), ("&connections=1", 1)] {
        let scratch = Scratch::new();
        std::fs::write(scratch.path("disk"), image()).unwrap();
        let served = ["--filter=log", "--filter=delay", "file", "disk"];
        let how = ["logfile=said", "rdelay=5ms"];
        let mut server = nbdkit::Server::nbdkit(&scratch, &[&served[..], &how].concat());
        let daemon = daemon(&scratch, options);
        let mut client = Client::connect(&scratch.path("nbd")).unwrap();
        for block in 0..32 {
            client.write(block * BLOCK, &contents(block));
        }
        client.flush();
        reads_all(&mut client, 0..256);
        drop(client);
        daemon.stop();
        server.kill();
        let said = std::fs::read_to_string(scratch.path("said")).unwrap();
        let connections_of = |word: &str| -> BTreeSet<&str> {
            let lines = said.lines().filter(|line| line.contains(word));
            let named = lines
                .filter_map(|line| line.split(' ').find(|part| part.starts_with("connection=")));
            named.collect()
        };
        assert_eq!(
            connections_of(" Read ").len(),
            expected,
            "{options}: {said}"
        );
        assert_eq!(connections_of(" Write ").len(), 1, "{options}");
        assert_eq!(connections_of(" Flush ").len(), 1, "{options}");
    }
}

#[test]
fn a_server_that_does_not_offer_several_has_one() {
    let scratch = Scratch::new();
    let server = Server::start(&scratch.path("server"), image());
    let daemon = daemon(&scratch, "&connections=16");
    let mut client = Client::connect(&scratch.path("nbd")).unwrap();
    reads_all(&mut client, 0..64);
    assert_eq!(server.clients(), 1);
    drop(client);
    daemon.stop();
}

/// Where the first breaks all are opened again; where another does the first goes on, as a change that
/// the server has of it might otherwise be carried out late. What was asked is asked again.
#[test]
fn one_that_breaks_costs_no_request() {
    for (broken, words, clients) in [
        (0, "is gone", 8),
        (1, "reads have one", 4),
        (3, "reads have one", 4),
    ] {
        let scratch = Scratch::new();
        let (server, daemon, mut client) = over_several(&scratch, "");
        assert_eq!(server.clients(), 4);
        let mut is_cut = false;
        server.answer_by(move |request| {
            let cuts = !is_cut && request.command == READ && request.client == broken;
            is_cut |= cuts;
            if cuts {
                Answer::Cut(2000)
            } else {
                Answer::Right
            }
        });
        client.write(BLOCK, &contents(7777));
        reads_all(&mut client, 64..512);
        until("the daemon to notice", || daemon.log().contains(words));
        assert!(client.read(BLOCK, BLOCK as u32) == contents(7777));
        assert_eq!(server.clients(), clients, "connection {broken}");
        client.flush();
        drop(client);
        daemon.stop();
        assert!(server.contents()[BLOCK as usize..][..BLOCK as usize] == contents(7777));
    }
}

/// More than origin-timeout passes without a read on a further connection.
#[test]
fn one_that_was_idle_for_long_is_no_silent_server() {
    let scratch = Scratch::new();
    let (server, daemon, mut client) = over_several(&scratch, "&origin-timeout=1");
    let began = std::time::Instant::now();
    until("more than the timeout", || {
        began.elapsed().as_millis() > 1500
    });
    reads_all(&mut client, 0..512);
    assert_eq!(server.clients(), 4);
    let log = daemon.log();
    assert!(!log.contains("is gone") && !log.contains("broke"), "{log}");
    drop(client);
    daemon.stop();
}

/// A host that is shut out hears it on whichever connection, and then writes nothing on any.
#[test]
fn a_host_that_is_shut_out_on_one_writes_on_none() {
    for told in 0..4 {
        let scratch = Scratch::new();
        let (server, daemon, mut client) = over_several(&scratch, "");
        server.answer_by(move |request| {
            if request.command == READ && request.client == told {
                return Answer::Error(ESHUTDOWN);
            }
            Answer::Right
        });
        // More than one connection has at a time.
        for block in 0..128 {
            client.begin_read(block * BLOCK, BLOCK as u32).unwrap();
        }
        let failed = (0..128)
            .filter(|_| client.reply().unwrap().error != 0)
            .count();
        assert!(failed > 0, "connection {told}");
        until("the daemon to know", || {
            daemon.log().contains("has shut this host out")
        });
        let before = server.contents();
        server.answer_by(|request| {
            assert_ne!(request.command, WRITE);
            Answer::Right
        });
        let mut client = Client::connect(&scratch.path("nbd")).unwrap();
        client.begin_write(9 * BLOCK, &contents(99)).unwrap();
        assert_ne!(client.reply().unwrap().error, 0);
        assert!(server.contents() == before);
    }
}
