//! Holds the presets to the raw-device rows of `comparison-22-jobs-2015.csv`: a closed loop of
//! virtual load against each model, within 10 % of what was measured on the real drives.

use forebay_model::{Command, DeviceModel, Disk, DiskParameters, Fill, Ssd, SsdParameters};

const KIB: u64 = 1 << 10;
const GIB: u64 = 1 << 30;

/// A small generator of random numbers: the tests must give the same answer each time.
struct Random(u64);

impl Random {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % bound
    }
}

struct Load {
    depth: u64,
    commands: u64,
}

/// Keeps `depth` commands in flight and returns the KiB/s of reads and of writes.
fn run(
    device: &mut dyn DeviceModel,
    load: &Load,
    mut next: impl FnMut(u64) -> Command,
) -> (f64, f64) {
    let mut now_ns = 0;
    let mut submitted = 0;
    let mut done = 0;
    let mut bytes = [0u64; 2];
    let mut in_flight = std::collections::HashMap::new();
    while done < load.commands {
        while submitted < load.commands && submitted - done < load.depth {
            let command = next(submitted);
            in_flight.insert(submitted, command);
            device.submit(now_ns, submitted, command);
            submitted += 1;
        }
        now_ns = device
            .next_event_ns()
            .expect("a device with commands has an event");
        device.advance(now_ns);
        while let Some((id, at_ns)) = device.pop_done(now_ns) {
            assert!(at_ns <= now_ns);
            let command = in_flight.remove(&id).expect("each command completes once");
            bytes[usize::from(command.kind == forebay_model::Kind::Write)] += command.len_bytes;
            done += 1;
        }
    }
    let seconds = now_ns as f64 / 1e9;
    (
        bytes[0] as f64 / 1024.0 / seconds,
        bytes[1] as f64 / 1024.0 / seconds,
    )
}

fn check(job: &str, measured_kibps: f64, model_kibps: f64) {
    let ratio = model_kibps / measured_kibps;
    println!("{job}: measured {measured_kibps:.0} KiB/s, model {model_kibps:.0}, {ratio:.3}");
    assert!(
        (0.9..=1.1).contains(&ratio),
        "{job}: {model_kibps:.0} for {measured_kibps:.0} KiB/s"
    );
}

fn disk() -> Disk {
    Disk::new(DiskParameters::sata_7200rpm(4_000_787_030_016))
}

fn ssd(fill: Fill) -> Ssd {
    Ssd::new(SsdParameters {
        fill,
        ..SsdParameters::sata_850pro()
    })
}

fn sequential(start: u64, write: bool) -> impl FnMut(u64) -> Command {
    move |index| {
        let offset = start + index * 128 * KIB;
        if write {
            Command::write(offset, 128 * KIB)
        } else {
            Command::read(offset, 128 * KIB)
        }
    }
}

fn random(span_gib: u64, len: u64, write_percent: u64) -> impl FnMut(u64) -> Command {
    let mut random = Random(0x9e37_79b9_7f4a_7c15);
    move |_| {
        let offset = random.below(span_gib * GIB / len) * len;
        if random.below(100) < write_percent {
            Command::write(offset, len)
        } else {
            Command::read(offset, len)
        }
    }
}

#[test]
fn disk_matches_the_wd_re() {
    let load = Load {
        depth: 1,
        commands: 32_768,
    };
    let (read, _) = run(&mut disk(), &load, sequential(GIB, false));
    check("job 1: read 128k depth 1", 173_630.0, read);
    let (_, write) = run(&mut disk(), &load, sequential(29 * GIB, true));
    check("job 7: write 128k depth 1", 173_641.0, write);
    let (_, write) = run(&mut disk(), &load, sequential(477 * GIB, true));
    check("job 14: write 128k depth 1 at 477 GiB", 170_110.0, write);
}

#[test]
fn clean_ssd_matches_the_850_pro() {
    let sequential_load = Load {
        depth: 1,
        commands: 16_384,
    };
    let (read, _) = run(
        &mut ssd(Fill::Clean),
        &sequential_load,
        sequential(GIB, false),
    );
    check("job 3: read 128k depth 1", 448_373.0, read);
    let (_, write) = run(
        &mut ssd(Fill::Clean),
        &sequential_load,
        sequential(GIB, true),
    );
    check("job 6: write 128k depth 1", 417_515.0, write);

    let one = Load {
        depth: 1,
        commands: 100_000,
    };
    let many = Load {
        depth: 32,
        commands: 400_000,
    };
    let (read, _) = run(&mut ssd(Fill::Clean), &one, random(8, 4 * KIB, 0));
    check("job 4: randread 4k depth 1", 35_877.0, read);
    let (read, _) = run(&mut ssd(Fill::Clean), &many, random(8, 4 * KIB, 0));
    check("job 5: randread 4k depth 32", 397_301.0, read);
    let (read, write) = run(&mut ssd(Fill::Clean), &many, random(8, 8 * KIB, 33));
    check("job 20: mix 8k depth 32, reads", 302_434.0, read);
    check("job 20: mix 8k depth 32, writes", 148_712.0, write);
    let (_, write) = run(&mut ssd(Fill::Clean), &one, random(8, 4 * KIB, 100));
    check("job 21: randwrite 4k depth 1", 109_215.0, write);
    let (_, write) = run(&mut ssd(Fill::Clean), &many, random(8, 4 * KIB, 100));
    check("job 22: randwrite 4k depth 32", 363_017.0, write);
}

#[test]
fn full_ssd_matches_the_850_pro() {
    let one = Load {
        depth: 1,
        commands: 262_144,
    };
    let many = Load {
        depth: 32,
        commands: 262_144,
    };
    let (read, write) = run(&mut ssd(Fill::Full), &many, random(8, 8 * KIB, 33));
    check("job 20: mix 8k depth 32, reads", 103_892.0, read);
    check("job 20: mix 8k depth 32, writes", 51_085.0, write);
    let (_, write) = run(&mut ssd(Fill::Full), &one, random(8, 4 * KIB, 100));
    check("job 21: randwrite 4k depth 1", 57_481.0, write);
    let (_, write) = run(&mut ssd(Fill::Full), &many, random(8, 4 * KIB, 100));
    check("job 22: randwrite 4k depth 32", 58_194.0, write);
}

/// No row gives the disk's random reads; a 7,200 rpm drive does 70-90 a second over its whole
/// surface and about twice as many when it may choose among 32.
#[test]
fn disk_reorders_random_reads() {
    let whole = 3_700;
    let (one, _) = run(
        &mut disk(),
        &Load {
            depth: 1,
            commands: 2_000,
        },
        random(whole, 4 * KIB, 0),
    );
    let (many, _) = run(
        &mut disk(),
        &Load {
            depth: 32,
            commands: 4_000,
        },
        random(whole, 4 * KIB, 0),
    );
    println!(
        "random reads: {:.0} and {:.0} a second",
        one / 4.0,
        many / 4.0
    );
    assert!((70.0..90.0).contains(&(one / 4.0)), "{one}");
    assert!((1.6..3.5).contains(&(many / one)), "{many} for {one}");
}
