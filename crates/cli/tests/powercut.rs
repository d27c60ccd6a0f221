//! Power cuts at random moments: flushed data is kept (I7), and of the rest each block is as it was
//! before or after. The daemon records all it writes to its devices; from that they are rebuilt as
//! a cut may leave them, and a daemon is started on them.
//!
//! `POWERCUT_ROUNDS=50` has each test go on with more seeds.

mod support;

use std::collections::{HashMap, HashSet};
use std::ops::Range;
use std::path::PathBuf;

use forebay_random::SplitMix64;
use support::nbd::Client;
use support::power::{Cut, Recording};
use support::{Daemon, MIB, Scratch, forebay_ok};

const SECTOR: u64 = 512;
const SECTORS_PER_BLOCK: u64 = 8;
const MODES: [&str; 5] = [
    "writeback",
    "writethrough",
    "writearound",
    "readonly",
    "passthrough",
];
const SESSIONS: u64 = 2;
const CUTS: u64 = 8;
const REPLIES: u64 = 700;

/// Devices of a cache, and threads that serve it.
#[derive(Clone, Copy)]
struct Shape {
    shards: &'static str,
    threads: &'static str,
    /// Names of the devices of the cache.
    caches: &'static [&'static str],
    /// With a region for each shard.
    origin_bytes: u64,
    /// Of each device; a single one is smaller than the origin, so that segments are used again.
    cache_bytes: u64,
}

const ONE_SHARD: Shape = Shape {
    shards: "1",
    threads: "1",
    caches: &["cache"],
    origin_bytes: 12 * MIB,
    cache_bytes: 10 * MIB,
};
const THREE_SHARDS: Shape = Shape {
    shards: "3",
    threads: "2",
    origin_bytes: 28 * MIB,
    cache_bytes: 26 * MIB,
    ..ONE_SHARD
};
const TWO_DEVICES: Shape = Shape {
    caches: &["cache", "second"],
    ..THREE_SHARDS
};

impl Shape {
    fn sectors(self) -> u64 {
        self.origin_bytes / SECTOR
    }

    /// The origin, then the cache.
    fn devices(self) -> impl Iterator<Item = (&'static str, u64)> {
        let caches = self
            .caches
            .iter()
            .map(move |name| (*name, self.cache_bytes));
        [("origin", self.origin_bytes)].into_iter().chain(caches)
    }
}

/// The first sector at which requests may begin or end anywhere; before it they are whole blocks.
fn partial(sectors: u64) -> u64 {
    sectors / 2
}

/// A daemon's mode and what it promises.
#[derive(Clone, Copy)]
struct Contract {
    shape: Shape,
    mode: &'static str,
    commit: &'static str,
    /// The devices have no volatile cache, and every write counts that was acknowledged.
    acknowledged_is_durable: bool,
    /// The mode is only the first of many.
    switched: bool,
}

/// A request that changed sectors. Moments are lengths of the recording.
#[derive(Debug)]
struct Change {
    sectors: Range<u64>,
    /// The number in all its words.
    value: u64,
    /// Whether the old contents may stay.
    optional: bool,
    sent: u64,
    acknowledged: Option<u64>,
    durable: Option<u64>,
}

/// Something that a cut must not leave, and where.
#[derive(Debug)]
struct Wrong {
    sector: usize,
    what: String,
}

/// Requests to a daemon from its start on.
struct History {
    /// Values that each sector might have held before the daemon decided.
    before: Vec<Vec<u64>>,
    /// When it served, and what it then held.
    served: u64,
    found: Vec<u64>,
    changes: Vec<Change>,
    /// Blocks that a discard, now or earlier, may have left zero in part.
    trimmed: HashSet<u64>,
}

impl History {
    /// Values that each sector may hold after a cut.
    fn allowed(&self, position: u64, acknowledged_is_durable: bool) -> Vec<Vec<u64>> {
        let mut allowed = if position >= self.served {
            self.found.iter().map(|value| vec![*value]).collect()
        } else {
            self.before.clone()
        };
        for change in self.changes.iter().filter(|change| change.sent <= position) {
            let mut durable = change.durable;
            if acknowledged_is_durable {
                durable = change.acknowledged;
            }
            let is_durable = durable.is_some_and(|durable| durable <= position);
            for sector in change.sectors.clone() {
                let values = &mut allowed[sector as usize];
                if is_durable && !change.optional {
                    values.clear();
                }
                values.push(change.value);
            }
        }
        allowed
    }

    /// All that is known about where something is wrong.
    fn story(&self, wrong: &Wrong) -> String {
        let sector = wrong.sector;
        let touching = (self.changes.iter())
            .filter(|change| change.sectors.contains(&(sector as u64)))
            .map(|change| format!("\n{change:?}"));
        format!(
            "{}; served from {} on, sector {sector} then held {}, and was changed so:{}",
            wrong.what,
            self.served,
            self.found[sector],
            touching.collect::<String>()
        )
    }
}

/// Sends requests at random until `REPLIES` are answered.
fn load(
    client: &mut Client,
    random: &mut SplitMix64,
    history: &mut History,
    log: &PathBuf,
    mut now_and_then: impl FnMut(&mut SplitMix64),
) {
    let position = || std::fs::metadata(log).unwrap().len();
    let sectors_in_all = history.found.len() as u64;
    let mut value = history.found.iter().copied().max().unwrap_or(0);
    // The meaning of each request in flight: a change, or a flush and the changes it covers.
    let mut in_flight: HashMap<u64, Vec<usize>> = HashMap::new();
    let mut flushes: HashMap<u64, Vec<usize>> = HashMap::new();
    let mut durable_at_once: Vec<u64> = Vec::new();
    for number in 0..REPLIES {
        if number % 50 == 49 {
            now_and_then(random);
        }
        while client.waiting() < 8 {
            if random.below(10) == 0 {
                let sectors = some_sectors(random, sectors_in_all);
                let len = (sectors.end - sectors.start) * SECTOR;
                client
                    .begin_read(sectors.start * SECTOR, len as u32)
                    .unwrap();
                continue;
            }
            if random.below(25) == 0 {
                let covered = (0..history.changes.len())
                    .filter(|change| history.changes[*change].acknowledged.is_some());
                flushes.insert(client.begin_flush().unwrap(), covered.collect());
                continue;
            }
            let sectors = some_sectors(random, sectors_in_all);
            let busy = in_flight.values().flatten().any(|change| {
                let other = &history.changes[*change].sectors;
                other.start < sectors.end && sectors.start < other.end
            });
            if busy {
                continue;
            }
            let (offset, len) = (
                sectors.start * SECTOR,
                (sectors.end - sectors.start) * SECTOR,
            );
            let sent = position();
            let kind = random.below(20);
            let cookie = match kind {
                0 => client.begin_trim(offset, len as u32),
                1 => client.begin_zeroes(offset, len as u32),
                2 | 3 => {
                    value += 1;
                    client.begin_durable_write(offset, &contents(value, len))
                }
                _ => {
                    value += 1;
                    client.begin_write(offset, &contents(value, len))
                }
            }
            .unwrap();
            if kind == 0 {
                let blocks =
                    sectors.start / SECTORS_PER_BLOCK..sectors.end.div_ceil(SECTORS_PER_BLOCK);
                history.trimmed.extend(blocks);
            }
            if matches!(kind, 2 | 3) {
                durable_at_once.push(cookie);
            }
            in_flight.insert(cookie, vec![history.changes.len()]);
            history.changes.push(Change {
                sectors,
                value: if kind < 2 { 0 } else { value },
                optional: kind == 0,
                sent,
                acknowledged: None,
                durable: None,
            });
        }
        let reply = client.reply().unwrap();
        assert_eq!(reply.error, 0);
        let now = position();
        for change in in_flight.remove(&reply.cookie).unwrap_or_default() {
            let change = &mut history.changes[change];
            change.acknowledged = Some(now);
            if durable_at_once.contains(&reply.cookie) {
                change.durable = Some(now);
            }
        }
        for change in flushes.remove(&reply.cookie).unwrap_or_default() {
            let durable = &mut history.changes[change].durable;
            *durable = durable.or(Some(now));
        }
    }
}

/// Mostly a few blocks that are written again and again.
fn some_sectors(random: &mut SplitMix64, sectors: u64) -> Range<u64> {
    let border = partial(sectors);
    let partial = random.below(3) == 0;
    let base = if partial { border } else { 0 };
    let span = if random.below(2) == 0 {
        512
    } else {
        border - 128
    };
    let start = base + random.below(span);
    let long = random.below(6) == 0;
    if partial {
        start..start + 1 + random.below(if long { 100 } else { 12 })
    } else {
        let start = start / SECTORS_PER_BLOCK * SECTORS_PER_BLOCK;
        start..start + SECTORS_PER_BLOCK * (1 + random.below(if long { 16 } else { 1 }))
    }
}

fn contents(value: u64, len: u64) -> Vec<u8> {
    value.to_le_bytes().repeat(len as usize / 8)
}

/// The number in each sector.
fn read_all(client: &mut Client, shape: Shape) -> Result<Vec<u64>, Wrong> {
    let mut values = Vec::new();
    for offset in (0..shape.origin_bytes).step_by(MIB as usize) {
        let data = client.read(offset, MIB as u32);
        for bytes in data.chunks(SECTOR as usize) {
            let (value, sector) = (
                u64::from_le_bytes(bytes[..8].try_into().unwrap()),
                values.len(),
            );
            if bytes != contents(value, SECTOR) {
                let what = format!("sector {sector} is torn");
                return Err(Wrong { sector, what });
            }
            values.push(value);
        }
    }
    Ok(values)
}

fn compare(found: &[u64], allowed: &[Vec<u64>]) -> Result<(), Wrong> {
    for (sector, (value, allowed)) in found.iter().zip(allowed).enumerate() {
        if !allowed.contains(value) {
            let what = format!("sector {sector} holds {value}, allowed are {allowed:?}");
            return Err(Wrong { sector, what });
        }
    }
    Ok(())
}

/// Checks that blocks which were always written whole are one version each.
fn check_whole(found: &[u64], trimmed: &HashSet<u64>) -> Result<(), Wrong> {
    let whole = partial(found.len() as u64) as usize;
    let blocks = found[..whole].chunks(SECTORS_PER_BLOCK as usize);
    for (block, sectors) in (0..).zip(blocks) {
        // A discard leaves the old contents or zeroes, of each sector.
        let may_be = |value: &u64| *value == 0 && trimmed.contains(&block);
        let mut kept = sectors.iter().filter(|value| !may_be(value));
        let first = kept.next();
        if kept.any(|value| Some(value) != first) {
            return Err(Wrong {
                sector: (block * SECTORS_PER_BLOCK) as usize,
                what: format!("block {block} is torn: {sectors:?}"),
            });
        }
    }
    Ok(())
}

/// The devices of a test, and what they hold before a daemon is started.
struct Devices {
    scratch: Scratch,
    shape: Shape,
    /// By name.
    contents: Vec<(&'static str, Vec<u8>)>,
}

impl Devices {
    fn new(shape: Shape) -> Devices {
        let scratch = Scratch::new();
        for (name, size_bytes) in shape.devices() {
            scratch.file(name, size_bytes);
        }
        if shape.shards != "1" {
            forebay_ok(&scratch, &["create", "cache", "--shards", shape.shards]);
        }
        for device in &shape.caches[1..] {
            let daemon = Daemon::start(&scratch, &["--origin", "origin", "--cache", "cache"]);
            daemon.command(&scratch, &["cache", "add", device]);
            daemon.stop();
        }
        let contents = shape.devices().map(|(name, _)| {
            let bytes = std::fs::read(scratch.path(name)).unwrap();
            (name, bytes)
        });
        let contents = contents.collect();
        Devices {
            scratch,
            shape,
            contents,
        }
    }

    /// Starts a daemon after the power came back: there is no shared memory from before.
    fn start(&self, contract: Contract, more: &[&str]) -> Result<Daemon, String> {
        self.scratch.remove_shared_memory();
        let fixed = [
            "--origin",
            "origin",
            "--create",
            "--threads",
            self.shape.threads,
            "--mode",
            contract.mode,
            "--commit",
            contract.commit,
            "--dirty-low",
            "5",
            "--age",
            "1",
            "--memory",
            "32M",
        ];
        let caches = self.shape.caches.iter().flat_map(|name| ["--cache", *name]);
        let fixed = fixed.into_iter().chain(caches);
        let arguments: Vec<&str> = fixed.chain(more.iter().copied()).collect();
        Daemon::try_start(&self.scratch, &arguments)
    }

    /// Makes the devices what a cut leaves of them; returns that.
    fn cut(&self, recording: &Recording, cut: Cut) -> Vec<(&'static str, Vec<u8>)> {
        let mut images = vec![Vec::new(); self.contents.len()];
        for (name, contents) in &self.contents {
            images[recording.device(name)] = contents.clone();
        }
        recording.cut(cut, &mut images);
        let names = self.contents.iter().map(|(name, _)| *name);
        let left = names.map(|name| (name, std::mem::take(&mut images[recording.device(name)])));
        let left = left.collect();
        self.put(&left);
        left
    }

    fn put(&self, contents: &Vec<(&'static str, Vec<u8>)>) {
        for (name, bytes) in contents {
            std::fs::write(self.scratch.path(name), bytes).unwrap();
        }
    }

    /// Runs a daemon under load and kills it; returns its recording and what was asked of it.
    fn record(
        &self,
        contract: Contract,
        random: &mut SplitMix64,
        session: u64,
        (before, trimmed): (Vec<Vec<u64>>, HashSet<u64>),
    ) -> (Recording, History) {
        let name = format!("recording-{session}");
        let log = self.scratch.path(&name);
        let daemon = self
            .start(contract, &["--record", &name])
            .unwrap_or_else(|said| panic!("the daemon did not start: {said}"));
        let served = std::fs::metadata(&log).unwrap().len();
        let mut client = Client::connect(&self.scratch.path("nbd")).unwrap();
        let found = read_all(&mut client, contract.shape).unwrap();
        compare(&found, &before).unwrap();
        let mut history = History {
            before,
            served,
            found,
            changes: Vec::new(),
            trimmed,
        };
        load(&mut client, random, &mut history, &log, |random| {
            if contract.switched {
                let mode = MODES[random.below(5) as usize];
                daemon.command(&self.scratch, &["mode", "origin", mode]);
            }
        });
        daemon.kill();
        (Recording::read(&log), history)
    }
}

fn some_cut(
    recording: &Recording,
    history: &History,
    unit: u64,
    from: u64,
    random: &mut SplitMix64,
) -> Cut {
    let promises: Vec<u64> = history
        .changes
        .iter()
        .filter_map(|change| change.durable)
        .collect();
    let position = match random.below(8) {
        // The moment a promise was given is the one that tells most.
        0..4 if !promises.is_empty() => promises[random.below(promises.len() as u64) as usize],
        4 => recording.end(),
        _ => recording.some_position(from, random),
    };
    Cut {
        position,
        unit,
        survives: [0, 10, 50, 90, 100][random.below(5) as usize],
        whole: random.below(2) == 0,
        liar: None,
        without_cache: None,
        seed: random.bits(),
    }
}

/// Starts a daemon on what a cut left and reads everything.
fn judge(
    devices: &Devices,
    contract: Contract,
    cut: Cut,
    history: &History,
    allowed: &[Vec<u64>],
) -> Result<(), Wrong> {
    let refused = |what| Wrong { sector: 0, what };
    let daemon = devices.start(contract, &[]).map_err(refused)?;
    let mut client = Client::connect(&devices.scratch.path("nbd")).unwrap();
    let found = read_all(&mut client, contract.shape)?;
    compare(&found, allowed)?;
    // Write-back has checksums against devices that tear a block.
    if cut.unit == 4096 || (contract.mode == "writeback" && !contract.switched) {
        check_whole(&found, &history.trimmed)?;
    }
    drop(client);
    daemon.kill();
    Ok(())
}

fn survives_power_cuts(contract: Contract, seed: u64) {
    let rounds = std::env::var("POWERCUT_ROUNDS").map_or(1, |rounds| rounds.parse().unwrap());
    for round in 0..rounds {
        survives_with(contract, seed + round * 101);
    }
}

fn survives_with(contract: Contract, seed: u64) {
    println!("seed {seed}");
    let mut random = SplitMix64::new(seed);
    let mut devices = Devices::new(contract.shape);
    let sectors = contract.shape.sectors() as usize;
    let mut before = (vec![vec![0]; sectors], HashSet::new());
    let unit = if seed.is_multiple_of(2) { 4096 } else { 512 };
    for session in 0..SESSIONS {
        let (recording, history) = devices.record(contract, &mut random, session, before);
        // Before the first daemon served there was no cache.
        let from = if session == 0 { history.served } else { 0 };
        let mut last = None;
        for number in 0..CUTS {
            let mut cut = some_cut(&recording, &history, unit, from, &mut random);
            if contract.acknowledged_is_durable {
                cut.without_cache = Some(recording.device("cache"));
            }
            let images = devices.cut(&recording, cut);
            let allowed = history.allowed(cut.position, contract.acknowledged_is_durable);
            if let Err(wrong) = judge(&devices, contract, cut, &history, &allowed) {
                panic!(
                    "seed {seed}, session {session}, cut {number} ({cut:?}): {}",
                    history.story(&wrong)
                );
            }
            last = Some((images, allowed));
        }
        // The next daemon goes on from what the last cut left.
        let (images, allowed) = last.unwrap();
        devices.put(&images);
        devices.contents = images;
        before = (allowed, history.trimmed);
    }
}

#[test]
fn write_back_keeps_what_was_flushed() {
    let contract = Contract {
        shape: ONE_SHARD,
        mode: "writeback",
        commit: "flush",
        acknowledged_is_durable: false,
        switched: false,
    };
    survives_power_cuts(contract, 1);
}

#[test]
fn write_back_from_memory_keeps_what_was_flushed() {
    let contract = Contract {
        shape: ONE_SHARD,
        mode: "writeback",
        commit: "memory",
        acknowledged_is_durable: false,
        switched: false,
    };
    survives_power_cuts(contract, 9);
}

#[test]
fn write_back_with_commit_write_keeps_what_was_flushed() {
    let contract = Contract {
        shape: ONE_SHARD,
        mode: "writeback",
        commit: "write",
        acknowledged_is_durable: false,
        switched: false,
    };
    survives_power_cuts(contract, 2);
}

#[test]
fn write_back_with_commit_write_keeps_all_on_a_device_without_a_volatile_cache() {
    let contract = Contract {
        shape: ONE_SHARD,
        mode: "writeback",
        commit: "write",
        acknowledged_is_durable: true,
        switched: false,
    };
    survives_power_cuts(contract, 3);
}

#[test]
fn write_through_keeps_what_was_flushed() {
    for (commit, seed) in [("flush", 4), ("write", 5)] {
        let contract = Contract {
            shape: ONE_SHARD,
            mode: "writethrough",
            commit,
            acknowledged_is_durable: false,
            switched: false,
        };
        survives_power_cuts(contract, seed);
    }
}

#[test]
fn write_around_keeps_what_was_flushed() {
    let contract = Contract {
        shape: ONE_SHARD,
        mode: "writearound",
        commit: "flush",
        acknowledged_is_durable: false,
        switched: false,
    };
    survives_power_cuts(contract, 6);
}

#[test]
fn switched_modes_keep_what_was_flushed() {
    for seed in [8, 9] {
        let contract = Contract {
            shape: ONE_SHARD,
            mode: "writeback",
            commit: "flush",
            acknowledged_is_durable: false,
            switched: true,
        };
        survives_power_cuts(contract, seed);
    }
}

fn several_shards_keep_what_was_flushed(shape: Shape, mode: &'static str, commit: &'static str) {
    let contract = Contract {
        shape,
        mode,
        commit,
        acknowledged_is_durable: false,
        switched: false,
    };
    survives_power_cuts(contract, 11);
}

#[test]
fn three_shards_on_two_threads_keep_what_was_flushed() {
    several_shards_keep_what_was_flushed(THREE_SHARDS, "writeback", "flush");
}

#[test]
fn three_shards_in_memory_keep_what_was_flushed() {
    several_shards_keep_what_was_flushed(THREE_SHARDS, "writeback", "memory");
}

#[test]
fn three_shards_on_two_devices_keep_what_was_flushed() {
    several_shards_keep_what_was_flushed(TWO_DEVICES, "writeback", "flush");
}

/// Cuts the power of a device that lies about flushes; returns the messages of the cuts that are
/// found out.
fn liar_found_out(mode: &'static str, liar: &str) -> Vec<String> {
    let contract = Contract {
        shape: ONE_SHARD,
        mode,
        commit: "flush",
        acknowledged_is_durable: false,
        switched: false,
    };
    let mut random = SplitMix64::new(7);
    let devices = Devices::new(contract.shape);
    let sectors = contract.shape.sectors() as usize;
    let before = (vec![vec![0]; sectors], HashSet::new());
    let (recording, history) = devices.record(contract, &mut random, 0, before);
    let mut said = Vec::new();
    for _ in 0..6 {
        let mut cut = some_cut(&recording, &history, 512, history.served, &mut random);
        cut.liar = Some((recording.device(liar), history.served));
        cut.survives = cut.survives.min(50);
        devices.cut(&recording, cut);
        let allowed = history.allowed(cut.position, false);
        said.extend(judge(&devices, contract, cut, &history, &allowed).err());
    }
    said.into_iter().map(|wrong| wrong.what).collect()
}

/// The tests' own test: a device that lies about flushes loses what was promised, and that is
/// seen. An origin that does nobody else can find out; of a cache the daemon itself sees it.
#[test]
fn devices_that_ignore_flushes_are_found_out() {
    let said = liar_found_out("writearound", "origin");
    let losses = said.iter().filter(|said| said.contains("allowed are"));
    assert!(losses.count() >= 3, "{said:?}");
    let said = liar_found_out("writeback", "cache");
    assert!(said.len() >= 3, "{said:?}");
}
