//! Behaviour of the models beyond their rates: order, flushes, read-ahead, fairness, speed.

use std::time::Instant;

use forebay_model::{
    Command, DeviceModel, Disk, DiskParameters, Fill, ModelOptions, OptionError, Ssd, SsdParameters,
};

const MIB: u64 = 1 << 20;
const GIB: u64 = 1 << 30;

fn disk() -> Disk {
    Disk::new(DiskParameters::sata_7200rpm(4000 * GIB))
}

/// Runs the device until it is at rest; returns what completed, in order.
fn drain(device: &mut dyn DeviceModel) -> Vec<(u64, u64)> {
    let mut done = Vec::new();
    while let Some(now_ns) = device.next_event_ns() {
        device.advance(now_ns);
        while let Some(one) = device.pop_done(now_ns) {
            done.push(one);
        }
    }
    done
}

fn complete(device: &mut dyn DeviceModel, now_ns: u64, id: u64, command: Command) -> u64 {
    device.submit(now_ns, id, command);
    loop {
        let now_ns = device.next_event_ns().expect("the command is in flight");
        device.advance(now_ns);
        while let Some((done, at_ns)) = device.pop_done(now_ns) {
            if done == id {
                return at_ns;
            }
        }
    }
}

#[test]
fn every_command_completes_once_and_in_order_of_time() {
    let models: [Box<dyn DeviceModel>; 3] = [
        Box::new(disk()),
        Box::new(Ssd::new(SsdParameters::sata_850pro())),
        Box::new(Ssd::new(SsdParameters {
            fill: Fill::Full,
            ..SsdParameters::sata_850pro()
        })),
    ];
    for mut device in models {
        let mut state = 1u64;
        for id in 0..2_000u64 {
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1);
            let offset = (state >> 33) % 100_000 * 4096;
            let mut command = match id % 7 {
                0 => Command::flush(),
                1 => Command::discard(offset, MIB),
                2 | 3 => Command::write(offset, 4096 * (1 + state % 64)),
                _ => Command::read(offset, 4096 * (1 + state % 64)),
            };
            command.fua = id % 11 == 3;
            device.submit(id * 50_000, id, command);
        }
        let done = drain(device.as_mut());
        assert!(done.is_sorted_by_key(|(_, at_ns)| *at_ns));
        let mut ids: Vec<u64> = done.iter().map(|(id, _)| *id).collect();
        ids.sort_unstable();
        assert!(ids.into_iter().eq(0..2_000), "each exactly once");
    }
}

#[test]
fn a_flush_waits_for_the_write_cache_and_an_idle_one_does_not() {
    let mut disk = disk();
    let idle_ns = complete(&mut disk, 0, 1, Command::flush());
    assert!(idle_ns < 100_000);
    let written_ns = complete(&mut disk, idle_ns, 2, Command::write(900 * GIB, MIB));
    assert!(
        written_ns - idle_ns < 3_000_000,
        "acknowledged from the cache"
    );
    let flushed_ns = complete(&mut disk, written_ns, 3, Command::flush());
    assert!(flushed_ns - written_ns > 4_000_000, "the platters took it");
    let again_ns = complete(&mut disk, flushed_ns, 4, Command::flush());
    assert!(again_ns - flushed_ns < 100_000);
}

#[test]
fn an_interrupted_read_stream_costs_no_turn() {
    let mut disk = disk();
    let mut now_ns = 0;
    for index in 0..64 {
        now_ns = complete(&mut disk, now_ns, index, Command::read(index * MIB, MIB));
    }
    let elsewhere_ns = complete(&mut disk, now_ns, 64, Command::read(100 * GIB, 4096));
    assert!(elsewhere_ns - now_ns > 1_000_000);
    // The host was away long enough for the drive to read ahead before it left.
    let mut device = self::disk();
    let mut now_ns = 0;
    for index in 0..64 {
        now_ns = complete(&mut device, now_ns, index, Command::read(index * MIB, MIB));
    }
    now_ns += 10_000_000;
    now_ns = complete(&mut device, now_ns, 64, Command::read(100 * GIB, 4096));
    let back_ns = complete(&mut device, now_ns, 65, Command::read(64 * MIB, 128 << 10));
    assert!(
        back_ns - now_ns < 1_000_000,
        "from the buffer: {} ns",
        back_ns - now_ns
    );
}

#[test]
fn a_late_reader_keeps_the_rate_of_the_platters() {
    let mut disk = disk();
    let mut now_ns = 0;
    for index in 0..4_000 {
        let done_ns = complete(
            &mut disk,
            now_ns,
            index,
            Command::read(index << 17, 1 << 17),
        );
        // As late as a real clock delivers completions.
        now_ns = done_ns + 20_000 + (index * 7_919) % 90_000;
    }
    let rate = (4_000u64 << 17) as f64 / (now_ns as f64 / 1e9) / 1e6;
    assert!((175.0..180.0).contains(&rate), "{rate} MB/s");
}

#[test]
fn a_far_read_is_not_starved_by_near_ones() {
    let mut disk = disk();
    let far = u64::MAX;
    disk.submit(0, 0, Command::read(0, 4096));
    disk.submit(0, far, Command::read(3_900 * GIB, 4096));
    let mut next = 1;
    for _ in 0..31 {
        disk.submit(
            0,
            next,
            Command::read(next * 40_961 * 4096 % (2 * GIB), 4096),
        );
        next += 1;
    }
    loop {
        let now_ns = disk.next_event_ns().expect("reads are in flight");
        assert!(now_ns < 600_000_000, "the far read still waits");
        disk.advance(now_ns);
        while let Some((id, _)) = disk.pop_done(now_ns) {
            if id == far {
                return;
            }
            disk.submit(
                now_ns,
                next,
                Command::read(next * 40_961 * 4096 % (2 * GIB), 4096),
            );
            next += 1;
        }
    }
}

#[test]
fn a_flush_of_the_ssd_is_not_starved_by_reads() {
    let mut ssd = Ssd::new(SsdParameters::sata_850pro());
    ssd.submit(0, 0, Command::write(0, 4096));
    for id in 1..33 {
        ssd.submit(0, id, Command::read(id * MIB, 4096));
    }
    ssd.submit(0, 1_000_000, Command::flush());
    let mut next = 33;
    loop {
        let now_ns = ssd.next_event_ns().expect("commands are in flight");
        assert!(now_ns < 5_000_000, "the flush still waits");
        ssd.advance(now_ns);
        while let Some((id, _)) = ssd.pop_done(now_ns) {
            if id == 1_000_000 {
                return;
            }
            ssd.submit(now_ns, next, Command::read(next * MIB, 4096));
            next += 1;
        }
    }
}

#[test]
fn discards_give_a_full_ssd_room() {
    let mut ssd = Ssd::new(SsdParameters {
        fill: Fill::Full,
        ..SsdParameters::sata_850pro()
    });
    let mut time_of_random_writes = |from_ns: u64| {
        let mut now_ns = from_ns;
        for id in 0..40_000u64 {
            now_ns = complete(
                &mut ssd,
                now_ns,
                id,
                Command::write(id * 7_919 % 9_973 * 8192, 4096),
            );
        }
        let took_ns = now_ns - from_ns;
        now_ns = complete(&mut ssd, now_ns, 0, Command::discard(0, 64 * GIB));
        (took_ns, now_ns + 10_000_000_000)
    };
    let (full_ns, now_ns) = time_of_random_writes(0);
    let (trimmed_ns, _) = time_of_random_writes(now_ns);
    assert!(
        trimmed_ns * 3 < full_ns * 2,
        "{trimmed_ns} ns trimmed, {full_ns} ns full"
    );
}

#[test]
fn options_are_read_and_wrong_ones_are_explained() {
    let Ok(ModelOptions::Disk(disk)) = ModelOptions::parse("hdd:rpm=5400,write-cache-mib=0") else {
        panic!("a disk");
    };
    assert_eq!(disk.rotation_ns, 11_111_111);
    assert_eq!(disk.write_cache_bytes, 0);
    let Ok(ModelOptions::Ssd(ssd)) = ModelOptions::parse("ssd:fill=full,read-us=80") else {
        panic!("a solid-state drive");
    };
    assert_eq!((ssd.fill, ssd.read_latency_ns), (Fill::Full, 80_000));

    let message = |text| {
        ModelOptions::parse(text)
            .expect_err("not understood")
            .to_string()
    };
    assert!(message("floppy").contains("hdd and ssd"));
    assert!(message("hdd:speed=3").contains("rpm"));
    assert!(message("ssd:fill").contains("name=value"));
    assert!(message("ssd:fill=half").contains("clean or full"));
    assert!(matches!(
        ModelOptions::parse("hdd:rpm=-1"),
        Err(OptionError::BadValue { .. })
    ));
    for text in [
        "hdd",
        "ssd",
        "hdd:seek-ms=8",
        "hdd:seek-ms=0.1,queue-depth=1",
        "hdd:read-ahead-mib=0",
    ] {
        let mut device = ModelOptions::parse(text).expect("understood").build(GIB);
        device.submit(0, 1, Command::read(0, 4096));
        assert_eq!(drain(device.as_mut()).len(), 1, "{text}");
    }
}

/// Commands per second of real time at depth 32; printed, and held to a bound far below what was
/// measured so that a busy machine does not fail it.
#[test]
fn models_are_fast() {
    let rate = |device: &mut dyn DeviceModel, commands: u64| {
        let begin = Instant::now();
        let mut state = 1u64;
        let mut submitted = 0;
        let mut now_ns = 0;
        let mut in_flight = 0;
        while submitted < commands || in_flight > 0 {
            while in_flight < 32 && submitted < commands {
                state = state
                    .wrapping_mul(6_364_136_223_846_793_005)
                    .wrapping_add(1);
                let offset = (state >> 33) % 1_000_000 * 4096;
                device.submit(
                    now_ns,
                    submitted,
                    match submitted % 3 {
                        0 => Command::write(offset, 4096),
                        _ => Command::read(offset, 4096),
                    },
                );
                submitted += 1;
                in_flight += 1;
            }
            if let Some(next_ns) = device.next_event_ns() {
                now_ns = next_ns;
            }
            while device.pop_done(now_ns).is_some() {
                in_flight -= 1;
            }
        }
        commands as f64 / begin.elapsed().as_secs_f64()
    };
    let ssd = rate(&mut Ssd::new(SsdParameters::sata_850pro()), 300_000);
    let disk = rate(&mut disk(), 100_000);
    println!("commands per second: ssd {ssd:.0}, disk {disk:.0}");
    assert!(
        ssd > 250_000.0 && disk > 75_000.0,
        "ssd {ssd:.0}, disk {disk:.0}"
    );
}

#[test]
fn a_flush_of_the_disk_is_not_starved_by_a_stream_of_writes() {
    let mut disk = disk();
    // A piece far away, then a stream that is always under the head.
    disk.submit(0, 0, Command::write(100 * GIB, 4096));
    for id in 1..64 {
        disk.submit(0, id, Command::write(id * MIB, MIB));
    }
    disk.submit(0, 1_000_000, Command::flush());
    let mut next = 64;
    loop {
        let now_ns = disk.next_event_ns().expect("commands are in flight");
        assert!(now_ns < 2_000_000_000, "the flush still waits");
        disk.advance(now_ns);
        while let Some((id, _)) = disk.pop_done(now_ns) {
            if id == 1_000_000 {
                return;
            }
            disk.submit(now_ns, next, Command::write(next * MIB, MIB));
            next += 1;
        }
    }
}

#[test]
fn a_far_read_is_not_starved_by_a_stream_of_writes() {
    const FAR: u64 = u64::MAX;
    // The number of choices before decides which of them fall together.
    for reads_before in 0..8 {
        let mut disk = disk();
        let mut now_ns = 0;
        for id in 0..reads_before {
            now_ns = complete(&mut disk, now_ns, id, Command::read(id * GIB, 4096));
        }
        let write = |id: u64| Command::write(900 * GIB + id * MIB, MIB);
        for id in 100..180 {
            disk.submit(now_ns, id, write(id));
        }
        disk.submit(now_ns, FAR, Command::read(100 * GIB, 4096));
        let late_ns = now_ns + 1_000_000_000;
        let mut next = 180;
        let mut is_read = false;
        while !is_read {
            now_ns = disk.next_event_ns().expect("writes are in flight");
            assert!(
                now_ns < late_ns,
                "after {reads_before} reads it still waits"
            );
            disk.advance(now_ns);
            while let Some((id, _)) = disk.pop_done(now_ns) {
                is_read |= id == FAR;
                disk.submit(now_ns, next, write(next));
                next += 1;
            }
        }
    }
}

/// Sends a command into a stream of reads that is always under the head; returns how long it took.
fn beside_a_stream_of_reads(disk: &mut Disk, now_ns: u64, command: Command) -> u64 {
    const OTHER: u64 = u64::MAX;
    disk.submit(now_ns, OTHER, command);
    let mut next = 3;
    loop {
        let at_ns = disk.next_event_ns().expect("reads are in flight");
        assert!(at_ns - now_ns < 2_000_000_000, "it still waits");
        disk.advance(at_ns);
        while let Some((id, done_ns)) = disk.pop_done(at_ns) {
            if id == OTHER {
                return done_ns - now_ns;
            }
            if id < 1 << 32 {
                disk.submit(at_ns, next, Command::read(next * MIB, MIB));
                next += 1;
            }
        }
    }
}

#[test]
fn a_flush_of_the_disk_is_not_starved_by_a_stream_of_reads() {
    let mut disk = disk();
    for id in 0..3 {
        disk.submit(0, id, Command::read(id * MIB, MIB));
    }
    disk.submit(1_000, 1 << 32, Command::write(900 * GIB, MIB));
    let took_ns = beside_a_stream_of_reads(&mut disk, 2_000, Command::flush());
    assert!(took_ns > 4_000_000, "the platters took it: {took_ns}");
}

#[test]
fn a_write_of_the_disk_is_not_starved_by_a_stream_of_reads() {
    let mut disk = disk();
    for id in 0..3 {
        disk.submit(0, id, Command::read(id * MIB, MIB));
    }
    // As many pieces as the write cache takes.
    for id in 0..256 {
        let write = Command::write((500 + id) * GIB, 4096);
        disk.submit(1_000, (1 << 32) + id, write);
    }
    beside_a_stream_of_reads(&mut disk, 2_000, Command::write(900 * GIB, 4096));
}
