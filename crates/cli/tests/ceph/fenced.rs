//! A host is shut out of its image in the middle of write-back, and another one takes the image over.

use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;

use serde_json::Value;

use crate::cluster::{Cluster, POOL, Process};
use crate::rounds;
use crate::support::nbd::Client;
use crate::support::{Daemon, MIB, Scratch, until};

const IMAGE: &str = "shared";
const BLOCK: u64 = 4096;
const BLOCKS: u64 = 32 * MIB / BLOCK;
/// Blocks that the second host writes.
const OWN_BLOCKS: u64 = 64;

/// A daemon with its server, in a directory of its own.
struct Host {
    daemon: Daemon,
    server: Process,
    scratch: Scratch,
}

impl Host {
    fn start(cluster: &Cluster) -> Host {
        let scratch = Scratch::new();
        scratch.file("cache", 16 * MIB);
        let server = cluster.serve(IMAGE, &scratch.path("server"));
        let origin = format!("nbd+unix:///{IMAGE}?socket={}", scratch.text("server"));
        let cache = ["--cache", "cache", "--create", "--mode", "writeback"];
        let daemon = Daemon::start(&scratch, &[&["--origin", &origin][..], &cache].concat());
        Host {
            daemon,
            server,
            scratch,
        }
    }

    fn connect(&self) -> Client {
        Client::connect(&self.scratch.path("nbd")).unwrap()
    }

    fn dirty_bytes(&self) -> u64 {
        let status = self.daemon.status(&self.scratch);
        status["cache"]["dirty_bytes"].as_u64().unwrap()
    }

    fn log_has(&self, words: &str) -> bool {
        self.daemon.log().contains(words)
    }
}

fn contents(host: u64, version: u64) -> Vec<u8> {
    (host << 32 | version)
        .to_le_bytes()
        .repeat(BLOCK as usize / 8)
}

fn piece(image: &[u8], block: u64) -> &[u8] {
    &image[(block * BLOCK) as usize..][..BLOCK as usize]
}

/// A client that writes on, whatever it is answered.
struct Writer {
    ends: Arc<AtomicBool>,
    thread: JoinHandle<()>,
}

impl Writer {
    fn start(mut client: Client, host: u64) -> Writer {
        let ends = Arc::new(AtomicBool::new(false));
        let end = Arc::clone(&ends);
        let thread = std::thread::spawn(move || {
            for version in 1.. {
                if end.load(Ordering::SeqCst) {
                    return;
                }
                let block = version * 929 % BLOCKS;
                let sent = client.begin_write(block * BLOCK, &contents(host, version));
                if sent.and_then(|_| client.reply()).is_err() {
                    return;
                }
            }
        });
        Writer { ends, thread }
    }
}

/// Ways to shut a host out.
#[derive(Clone, Copy, Debug)]
enum Way {
    Blocklist,
    BreakLock,
}

/// The exclusive lock of the image, if it has one.
fn lock(cluster: &Cluster) -> Value {
    let image = format!("{POOL}/{IMAGE}");
    let said = cluster.run("rbd", &["lock", "ls", "--format", "json", &image]);
    let locks: Value = serde_json::from_str(&said).unwrap();
    locks[0].clone()
}

fn shut_out(cluster: &Cluster, way: Way, lock: &Value) {
    let field = |name: &str| lock[name].as_str().unwrap();
    match way {
        Way::Blocklist => {
            cluster.run("ceph", &["osd", "blocklist", "add", field("address")]);
        }
        Way::BreakLock => {
            let image = format!("{POOL}/{IMAGE}");
            let whose = [field("id"), field("locker")];
            cluster.run("rbd", &[&["lock", "rm", &image][..], &whose].concat());
        }
    }
}

/// Decision 34: error 108 is final, also when the first host's service manager starts its server
/// again, which the cluster then takes for another client.
#[test]
fn a_host_that_was_shut_out_in_mid_write_back_writes_nothing_any_more() {
    let Some(cluster) = Cluster::start() else {
        return;
    };
    let image = format!("{POOL}/{IMAGE}");
    cluster.run("rbd", &["create", "--size", "32M", &image]);
    for round in 0..rounds().div_ceil(2) {
        let way = [Way::Blocklist, Way::BreakLock][(round % 2) as usize];
        println!("round {round}: {way:?}");
        take_over(&cluster, way, round);
    }
}

fn take_over(cluster: &Cluster, way: Way, round: u64) {
    let (first_host, second_host) = (2 * round + 1, 2 * round + 2);
    // A server that was killed in the round before keeps its lock for a while.
    let old = lock(cluster);
    let mut first = Host::start(cluster);
    let writer = Writer::start(first.connect(), first_host);
    // The cache is half full, so that write-back has to go on.
    until("dirty data", || first.dirty_bytes() > 4 * MIB);
    let mut held = Value::Null;
    until("the first host's server to have the lock", || {
        held = lock(cluster);
        held["locker"].is_string() && held != old
    });
    let mut drain = first.daemon.begin(&first.scratch, &["drain"]);
    shut_out(cluster, way, &held);
    // To open the image brings the OSD the news of who is shut out.
    let second = Host::start(cluster);
    let mut client = second.connect();
    let before = cluster.export(IMAGE);
    let own: HashSet<u64> = (0..OWN_BLOCKS)
        .map(|number| number * 509 % BLOCKS)
        .collect();
    for block in &own {
        client.write(block * BLOCK, &contents(second_host, *block));
    }
    client.flush();
    second.daemon.command(&second.scratch, &["drain"]);
    until("the first host to know", || {
        first.log_has("has shut this host out")
    });
    first.server.kill();
    first.server = cluster.serve(IMAGE, &first.scratch.path("server"));
    let mut reader = first.connect();
    for number in 0..20 {
        reader.begin_flush().unwrap();
        reader.reply().unwrap();
        reader
            .begin_read(number * 100 * BLOCK, BLOCK as u32)
            .unwrap();
        reader.reply().unwrap();
    }
    assert!(first.dirty_bytes() > 0, "the first host had more to write");
    let after = cluster.export(IMAGE);
    for block in 0..BLOCKS {
        let expected = if own.contains(&block) {
            contents(second_host, block)
        } else {
            piece(&before, block).to_vec()
        };
        let found = piece(&after, block);
        assert!(
            found == expected,
            "block {block} begins with {:?} and not {:?}",
            &found[..8],
            &expected[..8]
        );
    }
    writer.ends.store(true, Ordering::SeqCst);
    assert_eq!(drain.wait().unwrap().code(), Some(3), "the drain");
    first.daemon.kill();
    writer.thread.join().unwrap();
    drop(client);
    second.daemon.stop();
}
