//! Connections that fail in masses write few lines into the log, and cost little.

mod support;

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Resource, Rlimit, getrlimit, prlimit};
use support::nbd::Client;
use support::{Daemon, MIB, Scratch, until};

/// S7: connections that end in the middle of a message have a line, and then their number.
#[test]
fn bad_connections_are_counted_and_not_listed() {
    let scratch = Scratch::new();
    scratch.file("origin", 8 * MIB);
    let daemon = Daemon::start(&scratch, &["--origin", "origin"]);
    for _ in 0..500 {
        let mut stream = UnixStream::connect(scratch.path("nbd")).unwrap();
        // The greeting; without it the connection is one that nobody began to talk on.
        stream.read_exact(&mut [0; 18]).unwrap();
        stream.write_all(&[0, 0]).unwrap();
    }
    until("the count of what was left out", || {
        daemon
            .log()
            .contains("more connections ended otherwise than the protocol wants")
    });
    assert!(daemon.log().lines().count() < 20, "{}", daemon.log());
    daemon.stop();
}

/// S7: without a descriptor left the daemon says so now and then, waits, and lets clients in once
/// there are some again.
#[test]
fn clients_wait_while_descriptors_are_out() {
    let scratch = Scratch::new();
    scratch.file("origin", 8 * MIB);
    let daemon = Daemon::start(&scratch, &["--origin", "origin"]);
    let process = Pid::from_raw(daemon.id() as i32).unwrap();
    let files = || {
        let list = std::fs::read_dir(format!("/proc/{}/fd", daemon.id())).unwrap();
        list.count() as u64
    };
    let (socket, before) = (scratch.path("nbd"), files());
    let clients: Vec<Client> = (0..4).map(|_| Client::connect(&socket).unwrap()).collect();
    // As many as are open. The limit is of numbers, of which some are free below it, or none.
    let usual = getrlimit(Resource::Nofile);
    let none_left = Rlimit {
        current: Some(before),
        ..usual
    };
    // `accept` takes a descriptor before it looks whether anybody is there: a listener that is not at it
    // yet, of the dashboard or of commands, would have a word to say too.
    until("all threads to wait", || all_threads_wait(&daemon));
    prlimit(Some(process), Resource::Nofile, none_left).unwrap();
    let waiting: Vec<UnixStream> = (0..20)
        .map(|_| UnixStream::connect(&socket).unwrap())
        .collect();
    until("a word about descriptors", || {
        daemon.log().contains("Too many open files")
    });
    // Client threads poll for a moment after a request; none comes here.
    let (used, began) = (processor_time(&daemon), Instant::now());
    while began.elapsed() < Duration::from_secs(2) {
        std::thread::sleep(Duration::from_millis(100));
    }
    let used = processor_time(&daemon) - used;
    assert!(used < Duration::from_millis(200), "{used:?} in two seconds");
    let lines = daemon.log();
    let said = lines.matches("could not be accepted").count();
    assert!(said <= 2, "{lines}");
    // Those that wait are still let in when there is room again.
    drop(clients);
    drop(waiting);
    prlimit(Some(process), Resource::Nofile, usual).unwrap();
    let mut client = Client::connect(&socket).unwrap();
    assert_eq!(client.read(0, 4096), vec![0; 4096]);
    daemon.stop();
}

fn all_threads_wait(daemon: &Daemon) -> bool {
    let threads = std::fs::read_dir(format!("/proc/{}/task", daemon.id())).unwrap();
    let mut stats =
        threads.map(|thread| std::fs::read_to_string(thread.unwrap().path().join("stat")));
    // A thread that ends meanwhile is not waiting yet.
    stats.all(|stat| stat.is_ok_and(|stat| stat.rsplit(')').next().unwrap().starts_with(" S")))
}

/// Processor time that a daemon has used.
fn processor_time(daemon: &Daemon) -> Duration {
    let stat = std::fs::read_to_string(format!("/proc/{}/stat", daemon.id())).unwrap();
    let after = stat.rsplit(')').next().unwrap();
    let fields: Vec<u64> = after
        .split_whitespace()
        .skip(11)
        .take(2)
        .map(|field| field.parse().unwrap())
        .collect();
    // Ticks of 10 ms.
    Duration::from_millis((fields[0] + fields[1]) * 10)
}
