//! Clients that want more memory than there is: they wait for what comes back, and see no error.

mod support;

use support::nbd::Client;
use support::{Daemon, MIB, Scratch};

/// Twelve writes of 16 MiB at a time want most of the 256 MiB that a daemon has, of which a part is
/// kept for what it does itself.
#[test]
fn clients_wait_for_memory_and_see_no_error() {
    let scratch = Scratch::new();
    scratch.file("origin", 256 * MIB);
    scratch.file("cache", 64 * MIB);
    let daemon = Daemon::cached(&scratch, "writethrough", &[]);
    let socket = scratch.path("nbd");
    let writers = (0..12u64).map(|writer| {
        let socket = socket.clone();
        std::thread::spawn(move || {
            let mut client = Client::connect(&socket).unwrap();
            let data = vec![writer as u8 + 1; 16 << 20];
            for round in 0..4 {
                let at = (writer + round) % 12;
                client.write(at * 16 * MIB, &data);
            }
        })
    });
    for writer in writers.collect::<Vec<_>>() {
        writer.join().unwrap();
    }
    daemon.stop();
}

/// Clients that announce writes and send nothing hold memory only as long as nobody needs it.
#[test]
fn payloads_that_do_not_come_starve_nobody() {
    let scratch = Scratch::new();
    scratch.file("origin", 256 * MIB);
    let daemon = Daemon::start(&scratch, &["--origin", "origin", "--memory", "64M"]);
    let socket = scratch.path("nbd");
    let mut stalled: Vec<Client> = (0..14).map(|_| Client::connect(&socket).unwrap()).collect();
    for (at, client) in stalled.iter_mut().enumerate() {
        client.announce_write(at as u64 * 4 * MIB, 4 << 20).unwrap();
    }
    let mut healthy = Client::connect(&socket).unwrap();
    healthy.write(0, &vec![7; 4 << 20]);
    assert!(healthy.read(0, 4 << 20).iter().all(|byte| *byte == 7));
    assert!(
        daemon.log().contains("does not send the data of its write"),
        "{}",
        daemon.log()
    );
    daemon.stop();
}
