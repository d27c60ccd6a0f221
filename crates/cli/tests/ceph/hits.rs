//! Hits and synced writes beside the bare image and librbd's own cache, in one run.
//!
//! With `CEPH_AWAY=1` librbd's messenger holds back what comes from the OSD, by Ceph's own means: a read
//! takes some 4 ms then.

use std::time::{Duration, Instant};

use crate::cluster::Cluster;
use crate::support::nbd::Client;
use crate::support::{Daemon, MIB, Scratch};

const IMAGE: &str = "hits";
const BLOCK: u64 = 4096;
/// Half of librbd's cache, and a quarter of Forebay's.
const BLOCKS: u64 = 16 * MIB / BLOCK;
/// Rounds in which each is measured, in turn.
const ROUNDS: usize = 5;
const ROUND: Duration = Duration::from_secs(1);

/// A client of one of those that are compared.
struct Side {
    name: &'static str,
    client: Client,
    next: u64,
    reads: Vec<f64>,
    synced: Vec<f64>,
}

impl Side {
    fn new(name: &'static str, scratch: &Scratch, socket: &str, export: &str) -> Side {
        Side {
            name,
            client: open(scratch, socket, export),
            next: 0,
            reads: Vec::new(),
            synced: Vec::new(),
        }
    }

    /// A place, in an order that is none.
    fn place(&mut self) -> u64 {
        self.next += 2_654_435_761;
        self.next % BLOCKS * BLOCK
    }

    fn read_all(&mut self) {
        for block in 0..BLOCKS {
            self.client.read(block * BLOCK, BLOCK as u32);
        }
    }

    fn reads(&mut self) {
        let rate = per_second(|| {
            let place = self.place();
            self.client.read(place, BLOCK as u32);
        });
        self.reads.push(rate);
    }

    fn synced_writes(&mut self) {
        let data = vec![7; BLOCK as usize];
        let rate = per_second(|| {
            let place = self.place();
            self.client.write(place, &data);
            self.client.flush();
        });
        self.synced.push(rate);
    }
}

fn open(scratch: &Scratch, socket: &str, export: &str) -> Client {
    Client::open(&scratch.path(socket), export)
        .unwrap()
        .unwrap()
}

fn per_second(mut once: impl FnMut()) -> f64 {
    let began = Instant::now();
    let mut count = 0;
    while began.elapsed() < ROUND {
        once();
        count += 1;
    }
    f64::from(count) / began.elapsed().as_secs_f64()
}

fn median(rates: &[f64]) -> f64 {
    let mut rates = rates.to_vec();
    rates.sort_by(f64::total_cmp);
    rates.get(rates.len() / 2).copied().unwrap_or_default()
}

/// Options of librbd for the distance to the OSD.
fn away() -> &'static str {
    if std::env::var_os("CEPH_AWAY").is_none() {
        return "";
    }
    ":ms_inject_delay_type=osd:ms_inject_delay_probability=1:ms_inject_delay_max=0.0004"
}

/// Decision 34's purpose: data that is cached is read at the SSD's price and not at the network's.
/// Each has one request at a time. The SSD is an emulated one.
#[test]
fn hits_are_more_than_reads_of_the_bare_image() {
    let Some(cluster) = Cluster::start() else {
        return;
    };
    let image = format!("{}/{IMAGE}", crate::cluster::POOL);
    cluster.run("rbd", &["create", "--size", "64M", &image]);
    let scratch = Scratch::new();
    let serve = |socket: &str, cache: &str, options: &str| {
        cluster.serve_with(IMAGE, &scratch.path(socket), cache, options)
    };
    {
        let _filling = serve("filling", "writeback", "");
        let mut client = open(&scratch, "filling", IMAGE);
        let data: Vec<u8> = (0..MIB as usize).map(|at| at as u8).collect();
        for piece in 0..BLOCKS * BLOCK / MIB {
            client.write(piece * MIB, &data);
        }
        client.flush();
    }
    let away = away();
    let _bare = serve("bare", "none", &format!(":rbd_cache=false{away}"));
    let _librbd = serve("librbd", "writeback", &format!(":rbd_cache=true{away}"));
    let _origin = serve("server", "none", &format!(":rbd_cache=false{away}"));
    scratch.file("cache", 64 * MIB);
    let origin = format!("nbd+unix:///{IMAGE}?socket={}", scratch.text("server"));
    let cache = ["--cache", "cache", "--create", "--mode", "writeback"];
    let emulated = ["--cache-emulate", "ssd"];
    let arguments = [&["--origin", &origin][..], &cache, &emulated].concat();
    let daemon = Daemon::start(&scratch, &arguments);
    let ssd_scratch = Scratch::new();
    ssd_scratch.file("ssd", 64 * MIB);
    let ssd = Daemon::start(
        &ssd_scratch,
        &["--origin", "ssd", "--origin-emulate", "ssd"],
    );
    let mut sides = [
        Side::new("the bare image", &scratch, "bare", IMAGE),
        Side::new("librbd's cache", &scratch, "librbd", IMAGE),
        Side::new("Forebay", &scratch, "nbd", IMAGE),
        Side::new("the SSD alone", &ssd_scratch, "nbd", "ssd"),
    ];
    for side in &mut sides {
        side.read_all();
    }
    for _ in 0..ROUNDS {
        sides.iter_mut().for_each(Side::reads);
    }
    // One image has one writer at a time: each is done before the next begins.
    for side in &mut sides {
        (0..ROUNDS).for_each(|_| side.synced_writes());
    }
    let [bare, _, ours, ssd_alone] = &sides;
    println!("| | reads a second | to bare | synced writes a second | to the SSD alone |");
    for side in &sides {
        let (reads, synced) = (median(&side.reads), median(&side.synced));
        println!(
            "| {} | {reads:.0} | {:.1} | {synced:.0} | {:.2} |",
            side.name,
            reads / median(&bare.reads),
            synced / median(&ssd_alone.synced)
        );
    }
    let gain = median(&ours.reads) / median(&bare.reads);
    // On a busy machine the clients' own wake-ups take most of the time. The table is to be read.
    assert!(gain > 1.0, "hits are {gain} times the reads of the image");
    drop(sides);
    daemon.stop();
    ssd.stop();
}
