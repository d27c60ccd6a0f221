//! Arrays: where data lies, what a partial stripe of a RAID5 costs, and that nothing gets lost.

use forebay_model::{Array, Command, DeviceModel, Disk, DiskParameters, Level};

const KIB: u64 = 1 << 10;
const MIB: u64 = 1 << 20;
const CHUNK: u64 = 512 * KIB;
const LEVELS: [Level; 4] = [
    Level::Striped,
    Level::Mirrored,
    Level::Parity,
    Level::StripedMirrors,
];

fn array(level: Level) -> Array {
    let disk =
        || -> Box<dyn DeviceModel> { Box::new(Disk::new(DiskParameters::sata_7200rpm(4 << 30))) };
    Array::new(level, CHUNK, (0..4).map(|_| disk()).collect())
}

/// Runs the array until it is at rest; returns what completed, in order.
fn drain(array: &mut Array) -> Vec<(u64, u64)> {
    let mut done = Vec::new();
    while let Some(now_ns) = array.next_event_ns() {
        array.advance(now_ns);
        while let Some(one) = array.pop_done(now_ns) {
            done.push(one);
        }
    }
    done
}

/// Time of a write of so many MiB in sequence, each request once the last is done, in seconds.
fn sequential_write(array: &mut Array, mib: u64, request_bytes: u64) -> f64 {
    let mut now_ns = 0;
    for at in (0..mib * MIB).step_by(request_bytes as usize) {
        array.submit(now_ns, at, Command::write(at, request_bytes));
        while let Some(next_ns) = array.next_event_ns() {
            array.advance(next_ns);
            if let Some((_, at_ns)) = array.pop_done(next_ns) {
                now_ns = at_ns;
                break;
            }
        }
    }
    now_ns as f64 / 1e9
}

#[test]
fn every_command_completes_once_and_in_order_of_time() {
    for level in LEVELS {
        let mut array = array(level);
        let mut state = 1u64;
        for id in 0..1_000u64 {
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1);
            let offset = (state >> 33) % 100_000 * 4096;
            let command = match id % 7 {
                0 => Command::flush(),
                1 => Command::discard(offset, MIB),
                2 | 3 => Command::read(offset, 4096 << (id % 10)),
                _ => Command::write(offset, 4096 << (id % 11)),
            };
            array.submit(id * 300_000, id, command);
        }
        let done = drain(&mut array);
        let mut ids: Vec<u64> = done.iter().map(|(id, _)| *id).collect();
        ids.sort_unstable();
        assert_eq!(ids, (0..1_000).collect::<Vec<_>>(), "{level:?}");
        assert!(done.is_sorted_by_key(|(_, at_ns)| *at_ns), "{level:?}");
    }
}

#[test]
fn a_long_write_has_the_speed_of_the_disks_that_hold_data() {
    let seconds = LEVELS.map(|level| sequential_write(&mut array(level), 3840, 3 * MIB));
    let [striped, mirrored, parity, mirrors] = seconds.map(|taken| seconds[1] / taken);
    // Each disk has less to write, so that more of it is at its outer edge and in its write cache.
    assert!((3.8..5.6).contains(&striped), "{striped}");
    assert!((2.8..4.3).contains(&parity), "{parity}");
    assert!((1.9..2.7).contains(&mirrors), "{mirrors}");
    assert!((mirrored - 1.0).abs() < 0.01);
}

#[test]
fn a_stripe_that_is_not_whole_is_completed_by_reads() {
    let mut whole = array(Level::Parity);
    assert_eq!(whole.stripe_bytes(), 3 * CHUNK);
    let quick = sequential_write(&mut whole, 96, 3 * CHUNK);
    let counters = whole.counters();
    assert_eq!(
        (counters.whole_stripes(), counters.partial_stripes()),
        (64, 0)
    );
    let mut partial = array(Level::Parity);
    let slow = sequential_write(&mut partial, 96, CHUNK);
    let counters = partial.counters();
    assert_eq!(
        (counters.whole_stripes(), counters.partial_stripes()),
        (0, 192)
    );
    assert!(slow > 4.0 * quick, "{slow} s, {quick} s");
}

#[test]
fn parts_that_come_together_make_a_whole_stripe() {
    let mut array = array(Level::Parity);
    for (id, part) in [2, 0, 1].into_iter().enumerate() {
        array.submit(
            id as u64 * 100_000,
            id as u64,
            Command::write(part * CHUNK, CHUNK),
        );
    }
    assert_eq!(drain(&mut array).len(), 3);
    let counters = array.counters();
    assert_eq!(
        (counters.whole_stripes(), counters.partial_stripes()),
        (1, 0)
    );
}

#[test]
fn copies_share_reads() {
    let reads = |level| {
        let mut array = array(level);
        for id in 0..64 {
            array.submit(0, id, Command::read(id * 40 * MIB % (2 << 30), 64 * KIB));
        }
        drain(&mut array).last().expect("reads").1
    };
    let mirrored = reads(Level::Mirrored);
    let mut single = Disk::new(DiskParameters::sata_7200rpm(4 << 30));
    for id in 0..64 {
        single.submit(0, id, Command::read(id * 40 * MIB % (2 << 30), 64 * KIB));
    }
    let mut last = 0;
    while let Some(now_ns) = single.next_event_ns() {
        single.advance(now_ns);
        while let Some((_, at_ns)) = single.pop_done(now_ns) {
            last = at_ns;
        }
    }
    assert!(mirrored * 2 < last, "{mirrored} ns, {last} ns on one disk");
}
