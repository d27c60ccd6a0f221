//! A volume moves from one daemon to another under a writer, over an emulated network, with dirty data.
//!
//! `MOVE_DIRTY_MIB=1024 cargo test --release -p forebay --test moves -- --nocapture` prints how many
//! writes were answered in each tenth of a second, and the longest time without one.

mod support;

use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use support::moving::{daemon, dirty_mib, make_dirty, network_disk};
use support::nbd::Client;
use support::versions::{BLOCK, BLOCKS, ORIGIN_BYTES, Written, contents, version_of};
use support::{MIB, Scratch, installed, until};

/// A guest: it writes block after block, and connects anew wherever its volume is.
struct Guest {
    answered: AtomicU64,
    ends: AtomicBool,
}

impl Guest {
    fn run(&self, sockets: &[PathBuf]) -> (Written, Vec<Instant>) {
        let mut written = Written::default();
        let mut times = Vec::new();
        let mut client = Client::connect(&sockets[0]).unwrap();
        let mut version = 1;
        while !self.ends.load(Ordering::SeqCst) {
            let block = version * 929 % BLOCKS;
            written.begun.insert(block, version);
            let sent = client.begin_write(block * BLOCK, &contents(block, version));
            match sent.and_then(|_| client.reply()) {
                Ok(reply) if reply.error == 0 => {
                    written.acknowledged.insert(block, version);
                    times.push(Instant::now());
                    self.answered.fetch_add(1, Ordering::SeqCst);
                    version += 1;
                }
                // The write is sent again there.
                _ => client = connected_anew(sockets),
            }
        }
        (written, times)
    }
}

fn connected_anew(sockets: &[PathBuf]) -> Client {
    let began = Instant::now();
    loop {
        let mut open = sockets
            .iter()
            .filter_map(|socket| Client::open(socket, "guest").ok()?.ok());
        if let Some(client) = open.next() {
            return client;
        }
        assert!(began.elapsed() < support::LIMIT, "the volume is nowhere");
        std::thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn a_volume_moves_under_a_writer() {
    if !installed("nbdkit") {
        println!("skipped: nbdkit is not installed");
        return;
    }
    let dirty_mib = dirty_mib(64);
    let (here, there, disk) = (Scratch::new(), Scratch::new(), Scratch::new());
    let _network = network_disk(&disk, ORIGIN_BYTES + dirty_mib * MIB);
    let cache_bytes = (dirty_mib * 2 + 64) * MIB;
    let first = daemon(&here, &disk, cache_bytes);
    let dirty = make_dirty(&first, &here, ORIGIN_BYTES, dirty_mib);

    let guest = Guest {
        answered: AtomicU64::new(0),
        ends: AtomicBool::new(false),
    };
    let sockets = [here.path("nbd"), there.path("nbd")];
    let answered = |more: u64| {
        let then = guest.answered.load(Ordering::SeqCst) + more;
        until("the guest writes", || {
            guest.answered.load(Ordering::SeqCst) >= then
        });
    };
    let (written, times, handed_over) = std::thread::scope(|scope| {
        let thread = scope.spawn(|| guest.run(&sockets));
        answered(500);
        let began = Instant::now();
        let said = first.command(&here, &["hand-over", "guest"]);
        println!("{}", said.trim());
        let handed_over = began.elapsed();
        let second = daemon(&there, &disk, cache_bytes);
        answered(500);
        guest.ends.store(true, Ordering::SeqCst);
        let (written, times) = thread.join().unwrap();
        let mut client = Client::connect(&there.path("nbd")).unwrap();
        for (block, version) in &written.acknowledged {
            let found = version_of(&client.read(block * BLOCK, 4096), *block);
            assert_eq!(found, *version, "block {block}");
        }
        for at in 0..dirty_mib {
            let bytes = client.read(ORIGIN_BYTES + at * MIB, 4096);
            assert!(bytes.iter().all(|byte| *byte == at as u8), "MiB {at}");
        }
        second.stop();
        (written, times, handed_over)
    });
    first.stop();
    print_move(dirty, handed_over, &times);
    assert!(written.acknowledged.len() > 500);
}

fn print_move(dirty: u64, handed_over: Duration, times: &[Instant]) {
    let gaps = times.windows(2).map(|pair| pair[1] - pair[0]);
    println!(
        "{} MiB dirty, {:.1} s until they were handed over; longest time without an answer: {:.2} s",
        dirty / MIB,
        handed_over.as_secs_f64(),
        gaps.max().unwrap_or_default().as_secs_f64()
    );
    let tenths = times
        .iter()
        .map(|time| (*time - times[0]).as_millis() as usize / 100);
    let mut counts: Vec<u32> = Vec::new();
    for tenth in tenths {
        counts.resize(counts.len().max(tenth + 1), 0);
        counts[tenth] += 1;
    }
    println!("writes answered in each tenth of a second: {counts:?}");
}
