//! Plans from seeds: swarm testing (Groce et al., ISSTA 2012). A seed switches whole features
//! off and draws the weights of the others, since rare bugs need runs that do little else than
//! what provokes them.

mod copies;

use std::cell::Cell;

use forebay_engine::{
    Admission, Commit, Laboratory, Mode, Replacement, Settings, Verify, WritebackPolicy,
};
use forebay_engine::{Geometry, Nanos};

use crate::disk::Survival;
use crate::plan::{Config, Crash, FaultRates, Latency, Plan, Step};
use crate::rng::Rng;

/// The plan of a seed.
#[must_use]
pub fn plan(seed: u64) -> Plan {
    let mut rng = Rng::of(seed, 1);
    let mut config = config(&mut rng);
    // Drawn apart, so that what seeds found before stays what they find.
    config.record_delay = Nanos(Rng::of(seed, 21).pick(&[0, 100_000, 10_000_000, 10_000_000_000]));
    guard_gate(&mut config.settings, &mut Rng::of(seed, GATE_SALT));
    choose_replacement(&mut config.settings, &mut Rng::of(seed, REPLACEMENT_SALT));
    let mut steps = steps(&mut rng, &config);
    buffer(&mut config, &mut steps, &mut Rng::of(seed, BUFFER_SALT));
    if seed > ONE_THREAD {
        threads(&mut config, &mut Rng::of(seed, THREADS_SALT));
        commands(&config, &mut steps, &mut Rng::of(seed, COMMANDS_SALT));
    }
    resize(&mut config, &mut steps, &mut Rng::of(seed, RESIZE_SALT));
    if seed > ONE_THREAD {
        devices(&mut config, &mut steps, &mut Rng::of(seed, DEVICES_SALT));
    }
    streams(&mut config, &mut steps, &mut Rng::of(seed, STREAMS_SALT));
    if config.volume_sectors.len() > 1 {
        // No draw of the seed's own: the rest of the plan is as it was.
        config.away_percent = Rng::of(seed, AWAY_SALT).pick(&[0, 0, 0, 0, 0, 0, 0, 0, 20, 60]);
    }
    if seed > ONE_THREAD {
        config.own_percent = Rng::of(seed, OWN_SALT).pick(&OWN_PERCENT);
    }
    if seed > SAME_SIZE {
        growth(&config, &mut steps, &mut Rng::of(seed, GROWTH_SALT));
    }
    if seed > STEADY {
        config.reconnects = Rng::of(seed, RECONNECT_SALT).pick(&[0, 30, 300]);
        if config.reconnects > 0 {
            // A write that failed is not sent again, and may have been read.
            config.origin_faults = FaultRates::NONE;
        }
    }
    if seed > UNFROZEN {
        freezes(&config, &mut steps, &mut Rng::of(seed, FREEZE_SALT));
    }
    if seed > CACHE_ALONE {
        config.origins_answer_hits = true;
        let each = Rng::of(seed, HITS_SALT).percent(50);
        config.settings.laboratory.each_hit_from_origin = each;
    }
    if seed > NO_CHECKPOINTS {
        checkpoints(&mut config, &mut steps, &mut Rng::of(seed, CHECKPOINT_SALT));
        return numbered(config, steps, seed);
    }
    if seed > ONE_COPY {
        copies::two_copies(&mut config, &mut steps, &mut Rng::of(seed, COPIES_SALT));
    }
    if seed > FAILS_IN_WORDS {
        copies::silent_faults(&mut config, &mut steps, &mut Rng::of(seed, SILENT_SALT));
        copies::number_of_copies(&mut config, &mut steps, &mut Rng::of(seed, CHANGE_SALT));
    }
    if RETURNING.contains(&seed) {
        copies::device_returns(&mut config, &mut steps, &mut Rng::of(seed, SECOND_SALT));
    } else if seed > NOT_REPLACED {
        copies::replacements(&mut config, &mut steps, &mut Rng::of(seed, SECOND_SALT));
    } else if seed > IN_TURN {
        copies::devices_at_a_time(&mut config, &mut steps, &mut Rng::of(seed, SECOND_SALT));
    } else if seed > ONE_AT_A_TIME {
        copies::second_device(&mut config, &mut steps, &mut Rng::of(seed, SECOND_SALT));
    }
    if seed > COPIED {
        straight(&mut config, &mut steps, &mut Rng::of(seed, STRAIGHT_SALT));
    }
    numbered(config, steps, seed)
}

fn numbered(config: Config, steps: Vec<Step>, seed: u64) -> Plan {
    Plan {
        config,
        steps: (0..).zip(steps).collect(),
        schedule: seed,
    }
}

/// The last seed of runs with one thread: seeds up to this keep their findings.
const ONE_THREAD: u64 = 1_000_000;

/// The last seed of runs whose volumes never grow, likewise.
const SAME_SIZE: u64 = 17_000_000;

/// The last seed of runs whose origins never forget, likewise.
const STEADY: u64 = 18_000_000;

/// The last seed of runs whose volumes are never frozen, likewise.
const UNFROZEN: u64 = 19_000_000;

/// The last seed of runs in which the cache alone answers hits, likewise.
const CACHE_ALONE: u64 = 20_000_000;

/// The last seed of runs with one copy of dirty data, likewise.
const ONE_COPY: u64 = 21_000_000;

/// The last seed of runs whose failing device says so, and that keep two copies from the beginning,
/// likewise.
const FAILS_IN_WORDS: u64 = 22_000_000;

/// The last seed of runs in which one device alone fails, likewise.
const ONE_AT_A_TIME: u64 = 23_000_000;

/// The last seed of runs in which a second device goes only after the first, likewise.
const IN_TURN: u64 = 24_000_000;

/// The last seed of runs whose devices leave before others come, likewise.
const NOT_REPLACED: u64 = 25_000_000;

/// Seeds of runs in which a device is missing at a start, and then comes back as a new one.
const RETURNING: std::ops::Range<u64> = 26_000_001..30_000_001;

/// The last seed of runs in which all that is read is copied.
const COPIED: u64 = 30_000_000;

/// The last seed of runs whose orderly stops leave no checkpoint; those after it keep one copy.
const NO_CHECKPOINTS: u64 = 31_000_000;

const CHECKPOINT_SALT: u64 = 34;

const STRAIGHT_SALT: u64 = 33;

const SECOND_SALT: u64 = 32;

const COPIES_SALT: u64 = 29;

const SILENT_SALT: u64 = 30;

const CHANGE_SALT: u64 = 31;

const GROWTH_SALT: u64 = 25;

const HITS_SALT: u64 = 28;

const FREEZE_SALT: u64 = 27;

const RECONNECT_SALT: u64 = 26;

const THREADS_SALT: u64 = 22;

const COMMANDS_SALT: u64 = 23;

/// Commands among the requests, on two fifths of the seeds: several at a time, with machines that
/// die while a superblock is written.
fn commands(config: &Config, steps: &mut Vec<Step>, rng: &mut Rng) {
    if !rng.percent(40) {
        return;
    }
    let cut_percent = rng.pick(&[0, 10, 40]);
    for _ in 0..rng.pick(&[1, 3, 8, 20]) {
        let at = rng.below(steps.len() as u64 + 1) as usize;
        let volume = rng.below(config.volume_sectors.len() as u64) as u16;
        let cut = rng.percent(cut_percent).then(|| rng.below(16) as u32);
        let step = match rng.below(10) {
            0..3 => Step::SetMode {
                volume,
                mode: any_mode(rng),
                cut,
            },
            3..5 => Step::Rename { volume, cut },
            5..7 => Step::Detach { volume, cut },
            7 => Step::Drain {
                volume,
                on: rng.percent(70),
            },
            _ => Step::Stop {
                power: rng.percent(50),
            },
        };
        steps.insert(at, step);
    }
}

/// Orderly stops that leave a checkpoint, of caches that have room for one. Half of them are on sound
/// devices, where what a start takes from it is compared with all summaries.
fn checkpoints(config: &mut Config, steps: &mut Vec<Step>, rng: &mut Rng) {
    config.checkpoints = true;
    config.geometry.segments_per_shard += rng.pick(&[0, 8, 24]);
    if rng.percent(50) {
        config.cache_faults = FaultRates::NONE;
        steps.retain(|step| !matches!(step, Step::Rot { .. } | Step::Harm { .. }));
    }
    for _ in 0..rng.pick(&[1, 2, 4, 8]) {
        let at = rng.below(steps.len() as u64 + 1) as usize;
        let power = rng.percent(50);
        steps.insert(at, Step::Stop { power });
    }
}

/// Reads straight into readers' memory, and on three quarters of the seeds hits that nobody verifies.
/// There devices do not lie: who does not look finds nothing.
fn straight(config: &mut Config, steps: &mut Vec<Step>, rng: &mut Rng) {
    config.straight = rng.percent(90);
    for settings in all_settings(config, steps) {
        settings.laboratory.scrub = rng.percent(70);
        settings.scrub_period = rng.pick(&[
            Nanos::NEVER,
            Nanos::SECOND,
            Nanos(3 * Nanos::SECOND.0),
            Nanos(10 * Nanos::SECOND.0),
        ]);
    }
    let background_percent = rng.pick(&[0, 50, 90, 100]);
    if background_percent == 0 {
        return;
    }
    for rate in config.cache_faults.lies_mut() {
        *rate = 0;
    }
    steps.retain(|step| !matches!(step, Step::Rot { .. }));
    for settings in all_settings(config, steps) {
        if rng.percent(background_percent) {
            settings.verify = Verify::Background;
        }
    }
}

/// The settings at the start, and each that a step sets.
fn all_settings<'a>(
    config: &'a mut Config,
    steps: &'a mut [Step],
) -> impl Iterator<Item = &'a mut Settings> {
    let of_steps = steps.iter_mut().filter_map(|step| match step {
        Step::Set(settings) => Some(settings),
        _ => None,
    });
    std::iter::once(&mut config.settings).chain(of_steps)
}

/// Volumes that grow with their origins, on a fifth of the seeds.
fn growth(config: &Config, steps: &mut Vec<Step>, rng: &mut Rng) {
    if !rng.percent(20) {
        return;
    }
    let cut_percent = rng.pick(&[0, 10, 40]);
    for volume in 0..config.volume_sectors.len() as u16 {
        if rng.percent(70) {
            let at = rng.below(steps.len() as u64 + 1) as usize;
            let cut = rng.percent(cut_percent).then(|| rng.below(16) as u32);
            steps.insert(at, Step::GrowVolume { volume, cut });
        }
    }
}

/// Volumes that are frozen, or handed over, on half of the seeds.
fn freezes(config: &Config, steps: &mut Vec<Step>, rng: &mut Rng) {
    if !rng.percent(50) {
        return;
    }
    let cut_percent = rng.pick(&[0, 10, 40]);
    for _ in 0..rng.pick(&[1, 3, 8]) {
        let at = rng.below(steps.len() as u64 + 1) as usize;
        let volume = rng.below(config.volume_sectors.len() as u64) as u16;
        let cut = rng.percent(cut_percent).then(|| rng.below(16) as u32);
        let step = match rng.below(10) {
            0..7 => Step::Freeze { volume },
            _ => Step::HandOver { volume, cut },
        };
        steps.insert(at, step);
    }
}

/// Chosen so that no seed that found something (tests/found.rs) gets a guarded gate: it would do
/// something else from then on.
const GATE_SALT: u64 = 9326;

/// Chosen in the same way: none of them gets a memory buffer.
const BUFFER_SALT: u64 = 330481;

/// Chosen in the same way: none of their volumes is away.
const AWAY_SALT: u64 = 921_633;

/// Chosen in the same way: none of their volumes has settings of its own.
const OWN_SALT: u64 = 2_065_625;
/// Shares of volumes with settings of their own.
const OWN_PERCENT: [u64; 12] = [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 40, 100];

/// Chosen in the same way: none of their caches is resized.
const RESIZE_SALT: u64 = 359_016;

/// A cache that grows and shrinks, on a fifth of the seeds.
fn resize(config: &mut Config, steps: &mut Vec<Step>, rng: &mut Rng) {
    if !rng.percent(20) {
        return;
    }
    let geometry = &mut config.geometry;
    // Less than what the protocol needs cannot stay: where it began with that, it must grow first.
    geometry.segments_per_shard = rng.pick(&[12, 14, 16, 24, 40, 60]);
    let row_bytes = geometry.row_bytes();
    config.alternates = rng.percent(70);
    config.spare_bytes = rng.pick(&[0, 1, 5, 20, 40]) * row_bytes;
    config.cache_devices = rng.pick(&[1, 1, 2, 3]) as u8;
    let often = rng.pick(&[1, 2, 4, 8, 16]);
    for _ in 0..often {
        let at = rng.below(steps.len() as u64 + 1) as usize;
        let device = rng.below(u64::from(config.cache_devices)) as u8;
        let cut = rng.percent(15).then(|| rng.below(16) as u32);
        let step = match rng.below(10) {
            0..5 => Step::Grow {
                device,
                segments: rng.pick(&[1, 3, 12, 100]),
                cut,
            },
            5..9 => Step::Shrink {
                device,
                keep: rng.pick(&[0, 0, 300, 500, 700, 900]),
                cut,
            },
            _ => Step::Keep,
        };
        steps.insert(at, step);
    }
}

const DEVICES_SALT: u64 = 24;

/// Makes a cache device of several fail, go away or come back old by itself.
fn devices(config: &mut Config, steps: &mut Vec<Step>, rng: &mut Rng) {
    let count = u64::from(config.cache_devices);
    if count < 2 {
        return;
    }
    config.failing_device = rng.percent(50).then(|| rng.below(count) as u8);
    config.returns_old = rng.percent(50);
    if rng.percent(20) {
        let at = rng.below(steps.len() as u64 + 1) as usize;
        let device = rng.below(count) as u8;
        steps.insert(at, Step::DeviceGone { device });
    }
}

/// Chosen in the same way: none of them has streams.
const STREAMS_SALT: u64 = 33_175;

/// Clients that read in sequence, on a fifth of the seeds: their next blocks are read ahead.
fn streams(config: &mut Config, steps: &mut Vec<Step>, rng: &mut Rng) {
    if !rng.percent(20) {
        return;
    }
    if rng.percent(60) {
        config.depth = 1;
    }
    let block_sectors = u64::from(config.geometry.block_bytes) / 512;
    for _ in 0..rng.pick(&[2, 4, 8, 16]) {
        let volume = rng.below(config.volume_sectors.len() as u64) as u16;
        let blocks = config.volume_sectors[usize::from(volume)] / block_sectors;
        let of_request = rng.pick(&[2, 2, 3, 4]);
        let requests = rng.between(4, 12).min(blocks / of_request);
        if requests == 0 {
            continue;
        }
        let first = rng.below(blocks - requests * of_request + 1);
        let mut at = rng.below(steps.len() as u64 + 1) as usize;
        if rng.percent(70) {
            let write = Step::Write {
                volume,
                sector: first * block_sectors,
                count: requests * of_request * block_sectors,
                fua: false,
            };
            steps.insert(at, write);
            at += 1;
        }
        // The second time it is cached, whoever wrote it.
        for request in (0..requests).chain(0..requests) {
            let sector = (first + request * of_request) * block_sectors;
            let count = of_request * block_sectors;
            steps.insert(
                at,
                Step::Read {
                    volume,
                    sector,
                    count,
                },
            );
            if rng.percent(10) && request + 1 < requests {
                // The blocks that may have been read ahead are written.
                at += 1;
                let next = Step::Write {
                    volume,
                    sector: sector + count,
                    count,
                    fua: false,
                };
                steps.insert(at, next);
            }
            // Others come in between.
            at = (at + 1 + rng.pick(&[0, 0, 0, 0, 0, 1, 2]) as usize).min(steps.len());
        }
    }
}

fn buffer(config: &mut Config, steps: &mut [Step], rng: &mut Rng) {
    if !rng.percent(20) {
        return;
    }
    let blocks = rng.pick(&[16, 17, 24, 64, 300]) as usize;
    config.buffer_bytes = 8192 + blocks * (config.geometry.block_bytes as usize + 64);
    config.settings.commit = Commit::Memory;
    for step in steps {
        if let Step::Set(settings) = step
            && rng.percent(50)
        {
            settings.commit = Commit::Memory;
        }
    }
}

fn guard_gate(settings: &mut Settings, rng: &mut Rng) {
    if !rng.percent(20) {
        return;
    }
    let touches = |rng: &mut Rng| {
        let touches = rng.pick(&[1, 1, 2, 3]) as u8;
        Admission::nth_touch(touches).expect("from 1 to 15")
    };
    let limit = |rng: &mut Rng| {
        let limited = rng.percent(40);
        let limit_ns = rng.pick(&[10_000, 300_000, 5_000_000]);
        limited.then_some(Nanos(limit_ns))
    };
    settings.read_admission = touches(rng);
    settings.write_admission = touches(rng);
    settings.congestion_read = limit(rng);
    settings.congestion_write = limit(rng);
    settings.write_budget_bytes_per_day = rng
        .percent(40)
        .then(|| rng.pick(&[1 << 20, 16 << 20, 256 << 20]));
    settings.writeback_policy = WritebackPolicy::NAMES[rng.below(4) as usize].0;
}

/// Chosen as [`GATE_SALT`] was.
const REPLACEMENT_SALT: u64 = 6102;

/// Another policy on a fifth of the seeds, and any bound for copies.
fn choose_replacement(settings: &mut Settings, rng: &mut Rng) {
    if !rng.percent(20) {
        return;
    }
    settings.replacement = Replacement::NAMES[rng.below(5) as usize].0;
    settings.retain_percent = rng.pick(&[0, 10, 40, 100]) as u8;
}

fn config(rng: &mut Rng) -> Config {
    let slots = rng.pick(&[8, 8, 8, 9, 10, 12, 16, 32]);
    let geometry = Geometry {
        block_bytes: if rng.percent(10) { 8192 } else { 4096 },
        segment_bytes: 0,
        shards: if rng.percent(25) { 2 } else { 1 },
        segments_per_shard: rng.pick(&[12, 12, 13, 14, 16, 20, 24, 40]),
        region_bytes: 0,
    };
    let geometry = Geometry {
        segment_bytes: slots * geometry.block_bytes,
        region_bytes: rng.pick(&[1, 2, 4]) * geometry.block_bytes,
        ..geometry
    };
    let block_sectors = u64::from(geometry.block_bytes) / 512;
    let volumes = if rng.percent(25) { 2 } else { 1 };
    let volume_sectors = (0..volumes)
        .map(|_| {
            let usual = rng.pick(&[2, 3, 3, 4, 6, 8, 12, 16, 24, 40, 64]);
            // Long sequential writes are treated apart, and seldom needed.
            let blocks = if rng.percent(3) { 400 } else { usual };
            let odd = if rng.percent(20) {
                rng.below(block_sectors)
            } else {
                0
            };
            blocks * block_sectors + odd
        })
        .collect();
    let modes = (0..volumes).map(|_| start_mode(rng)).collect();
    let faults_kind = rng.below(10);
    Config {
        geometry,
        alternates: false,
        spare_bytes: 0,
        cache_devices: 1,
        spare_devices: 0,
        failing_device: None,
        copies: 1,
        first_copies: 1,
        changes_copies: false,
        missing_percent: 0,
        returns_old: false,
        volume_sectors,
        modes,
        settings: settings(rng),
        cache_unit_bytes: rng.pick(&[512, 4096]),
        origin_unit_bytes: rng.pick(&[512, 4096]),
        depth: rng.pick(&[1, 2, 4, 8, 16]) as usize,
        pace: rng.pick(&[0, 1, 3, 10, 40]),
        cache_latency: latency(rng),
        origin_latency: latency(rng),
        cache_faults: if faults_kind < 2 {
            cache_faults(rng)
        } else {
            FaultRates::NONE
        },
        origin_faults: if (1..4).contains(&faults_kind) {
            origin_faults(rng)
        } else {
            FaultRates::NONE
        },
        memory_bytes: if rng.percent(15) { 192 << 10 } else { 64 << 20 },
        buffer_bytes: 0,
        origin_discards: rng.below(3) as u8,
        leftover: rng.percent(10),
        away_percent: 0,
        reconnects: 0,
        origins_answer_hits: false,
        straight: false,
        checkpoints: false,
        own_percent: 0,
        creation_cuts: (0..if rng.percent(10) {
            rng.between(1, 3)
        } else {
            0
        })
            .map(|_| rng.below(12) as u32)
            .collect(),
        forgive_rot: true,
        verify_percent: rng.pick(&[0, 30, 100]),
        record_delay: Nanos(0),
        threads: 1,
        message_latency: Latency::NONE,
    }
}

/// Several shards on several threads.
fn threads(config: &mut Config, rng: &mut Rng) {
    if !rng.percent(50) {
        return;
    }
    config.geometry.shards = rng.pick(&[2, 2, 3, 3, 4, 5, 8]) as u16;
    config.threads = rng.between(1, 4) as u16;
    config.memory_bytes *= usize::from(config.geometry.shards);
    config.message_latency = Latency {
        least_ns: rng.pick(&[0, 1_000, 50_000]),
        spread_ns: rng.pick(&[0, 10_000, 1_000_000, 20_000_000]),
        spikes: rng.pick(&[0, 0, 100]) as u32,
    };
}

fn start_mode(rng: &mut Rng) -> Mode {
    if rng.percent(60) {
        Mode::Writeback
    } else {
        any_mode(rng)
    }
}

fn any_mode(rng: &mut Rng) -> Mode {
    let at = rng.below(Mode::NAMES.len() as u64) as usize;
    Mode::NAMES[at].0
}

fn latency(rng: &mut Rng) -> Latency {
    Latency {
        least_ns: rng.pick(&[1_000, 20_000, 200_000, 3_000_000]),
        spread_ns: rng.pick(&[0, 1_000, 100_000, 2_000_000, 20_000_000]),
        spikes: rng.pick(&[0, 0, 50]),
    }
}

fn rate(rng: &mut Rng) -> u32 {
    if rng.percent(50) {
        0
    } else {
        rng.pick(&[20, 100, 500, 2_000]) as u32
    }
}

fn cache_faults(rng: &mut Rng) -> FaultRates {
    let lies = rng.percent(50);
    let lie = |rng: &mut Rng| {
        if lies && rng.percent(40) {
            rng.pick(&[20, 100]) as u32
        } else {
            0
        }
    };
    FaultRates {
        read: rate(rng),
        write: if rng.percent(50) {
            0
        } else {
            rng.pick(&[20, 300]) as u32
        },
        flush: if rng.percent(70) { 0 } else { 200 },
        flush_loss_percent: 50,
        discard: rate(rng),
        sticky_percent: rng.pick(&[0, 20]) as u32,
        stale_read: lie(rng),
        misdirected_read: lie(rng),
        misdirected_write: lie(rng),
        lost_write: lie(rng),
    }
}

fn origin_faults(rng: &mut Rng) -> FaultRates {
    FaultRates {
        read: rate(rng),
        write: rate(rng),
        flush: rate(rng),
        flush_loss_percent: rng.pick(&[0, 50, 100]) as u32,
        discard: rate(rng),
        sticky_percent: rng.pick(&[0, 10]) as u32,
        ..FaultRates::NONE
    }
}

fn settings(rng: &mut Rng) -> Settings {
    let (low, high, limit) = rng.pick(&[
        (5, 20, 30),
        (10, 60, 70),
        (0, 0, 10),
        (20, 40, 90),
        (90, 90, 90),
    ]);
    Settings {
        commit: if rng.percent(50) {
            Commit::Flush
        } else {
            Commit::Write
        },
        read_admission: if rng.percent(80) {
            Admission::ALWAYS
        } else {
            Admission::SECOND_TOUCH
        },
        write_admission: Admission::ALWAYS,
        congestion_read: None,
        congestion_write: None,
        write_budget_bytes_per_day: None,
        sequential_cutoff_bytes: if rng.percent(20) {
            Some(rng.pick(&[0, 8192, 65536]))
        } else {
            None
        },
        memory_buffer_bytes: 64 << 20,
        polling_percent: 0,
        verify: Verify::Always,
        scrub_period: Nanos::NEVER,
        writeback_policy: WritebackPolicy::Threshold,
        dirty_low_percent: low,
        dirty_high_percent: high,
        dirty_limit_percent: limit,
        age_limit: Nanos(rng.pick(&[1_000_000, 20_000_000, 30_000_000_000])),
        record_delay: Nanos(rng.pick(&[0, 1_000_000, 100_000_000])),
        writeback_depth: rng.pick(&[1, 2, 32]) as u16,
        writeback_run_bytes: rng.pick(&[65_536, 1 << 20]) as u32,
        laboratory: Laboratory::default(),
        replacement: Replacement::S3Fifo,
        retain_percent: 40,
        probation_percent: rng.pick(&[1, 5, 20, 50]) as u8,
        promotion_hits: rng.between(1, 3) as u8,
        renew_percent: rng.pick(&[1, 30, 80, 101]) as u8,
        discard_freed_segments: rng.percent(30),
    }
}

/// Weights of the kinds of step, relative to each other.
struct Weights(Vec<(Kind, u64)>);

#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Write,
    Zeroes,
    Discard,
    Read,
    Prefetch,
    Flush,
    Settle,
    Pass,
    Crash,
    Mode,
    Drain,
    Settings,
    Faults,
    Rot,
    Gone,
    Detach,
}

impl Weights {
    fn draw(rng: &mut Rng, config: &Config) -> Weights {
        let faulty =
            config.cache_faults != FaultRates::NONE || config.origin_faults != FaultRates::NONE;
        let rot = rng.percent(6);
        let usual = [
            (Kind::Write, 300, 0),
            (Kind::Zeroes, 20, 40),
            (Kind::Discard, 20, 50),
            (Kind::Read, 200, 10),
            (Kind::Prefetch, 30, 60),
            (Kind::Flush, 40, 25),
            (Kind::Settle, 20, 30),
            (Kind::Pass, 30, 25),
            (Kind::Crash, 10, 10),
            (Kind::Mode, 8, 60),
            (Kind::Drain, 6, 60),
            (Kind::Settings, 5, 70),
            (Kind::Faults, 10, if faulty { 0 } else { 100 }),
            (Kind::Rot, 3, if rot { 0 } else { 100 }),
            (Kind::Gone, 1, if rng.percent(3) { 0 } else { 100 }),
            (Kind::Detach, 4, 80),
        ];
        Weights(
            usual
                .into_iter()
                .map(|(kind, weight, off_percent)| {
                    let off = rng.percent(off_percent);
                    let scale = rng.pick(&[1, 2, 4, 8]);
                    (kind, if off { 0 } else { weight * scale })
                })
                .collect(),
        )
    }

    fn pick(&self, rng: &mut Rng) -> Kind {
        let total: u64 = self.0.iter().map(|(_, weight)| weight).sum();
        let mut at = rng.below(total);
        for (kind, weight) in &self.0 {
            if at < *weight {
                return *kind;
            }
            at -= weight;
        }
        unreachable!("the draw is below the total")
    }
}

/// Shape of the ranges of a run's requests.
struct Shape {
    /// Requests start and end on blocks, in percent.
    aligned_percent: u64,
    longest_blocks: u64,
    /// This share of the requests goes to the first two blocks, in percent.
    hot_percent: u64,
    /// This share of the requests goes on where the last one ended, in percent.
    sequential_percent: u64,
    /// Where that was.
    end: Cell<(u16, u64)>,
}

fn steps(rng: &mut Rng, config: &Config) -> Vec<Step> {
    let weights = Weights::draw(rng, config);
    let shape = Shape {
        aligned_percent: rng.pick(&[100, 90, 50]),
        longest_blocks: rng.pick(&[1, 1, 2, 4, 16]),
        hot_percent: rng.pick(&[0, 0, 30, 70]),
        sequential_percent: rng.pick(&[0, 0, 0, 98]),
        end: Cell::new((0, 0)),
    };
    let power_percent = rng.pick(&[0, 50, 50, 100]);
    let deep_percent = rng.pick(&[0, 20, 60]);
    let count = rng.pick(&[40, 100, 200, 400, 400]);
    (0..count)
        .map(|_| step(rng, config, &weights, &shape, power_percent, deep_percent))
        .collect()
}

fn step(
    rng: &mut Rng,
    config: &Config,
    weights: &Weights,
    shape: &Shape,
    power: u64,
    deep: u64,
) -> Step {
    let volume = rng.below(config.volume_sectors.len() as u64) as u16;
    let (sector, count) = range(rng, config, volume, shape);
    match weights.pick(rng) {
        Kind::Write => Step::Write {
            volume,
            sector,
            count,
            fua: rng.percent(10),
        },
        Kind::Zeroes => Step::Zeroes {
            volume,
            sector,
            count,
            fua: rng.percent(10),
        },
        Kind::Discard => Step::Discard {
            volume,
            sector,
            count,
        },
        Kind::Read => Step::Read {
            volume,
            sector,
            count,
        },
        Kind::Prefetch => Step::Prefetch {
            volume,
            sector,
            count,
        },
        Kind::Flush => Step::Flush { volume },
        Kind::Settle => Step::Settle,
        Kind::Pass => Step::Pass {
            ms: rng.pick(&[1, 10, 100, 600, 2_000, 40_000]),
        },
        Kind::Crash => Step::Crash(crash(rng, power, deep)),
        Kind::Mode => Step::SetMode {
            volume,
            mode: any_mode(rng),
            cut: None,
        },
        Kind::Drain => Step::Drain {
            volume,
            on: rng.percent(50),
        },
        Kind::Settings => Step::Set(settings(rng)),
        Kind::Faults => Step::Faults {
            on: rng.percent(70),
        },
        Kind::Rot => Step::Rot {
            place: rng.bits(),
            metadata: rng.percent(30),
        },
        Kind::Gone => Step::CacheGone,
        Kind::Detach => Step::Detach {
            volume,
            cut: if rng.percent(30) {
                Some(rng.below(6) as u32)
            } else {
                None
            },
        },
    }
}

fn crash(rng: &mut Rng, power_percent: u64, deep_percent: u64) -> Crash {
    let mut recoveries = Vec::new();
    while recoveries.len() < 5 && rng.percent(deep_percent) {
        recoveries.push((
            rng.below(rng.clone().pick(&[10, 60, 150])) as u32,
            rng.percent(power_percent),
        ));
    }
    let survival = rng.pick(&[
        Survival::Any,
        Survival::Any,
        Survival::Any,
        Survival::Nothing,
        Survival::Everything,
    ]);
    Crash {
        power: rng.percent(power_percent),
        survival,
        recoveries,
    }
}

fn range(rng: &mut Rng, config: &Config, volume: u16, shape: &Shape) -> (u64, u64) {
    let sectors = config.volume_sectors[usize::from(volume)];
    let block = u64::from(config.geometry.block_bytes) / 512;
    let blocks = sectors.div_ceil(block);
    let (last_volume, last_end) = shape.end.get();
    let goes_on = last_volume == volume && last_end < blocks;
    let first = if goes_on && rng.percent(shape.sequential_percent) {
        last_end
    } else if rng.percent(shape.hot_percent) {
        rng.below(blocks.min(2))
    } else {
        rng.below(blocks)
    };
    let length = rng.between(1, shape.longest_blocks.min(blocks - first));
    shape.end.set((volume, first + length));
    let (mut start, mut end) = (first * block, ((first + length) * block).min(sectors));
    if !rng.percent(shape.aligned_percent) {
        start = rng.between(start, end - 1);
        end = rng.between(start + 1, end);
    }
    (start, end - start)
}
