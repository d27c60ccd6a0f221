//! Segments and memory that run short: everything must still end (I18).

use forebay_engine::{Commit, Mode, Nanos};
use forebay_sim::disk::Survival;
use forebay_sim::plan::{Harm, Target};
use forebay_sim::{Script, Step};

/// A segment below its tail waited for a slow read, the read ended without a look at reclaim, and
/// writes waited for room that would never come.
#[test]
fn a_segment_that_waited_for_a_slow_read_is_reclaimed_after_it() {
    Script::new(64)
        .repeat(4, |script, round| script.write(round * 6, 6).flush())
        .pass(60_000)
        .repeat(4, |script, round| {
            script.slow(Target::CacheRead, 5_000).read(round * 6, 1)
        })
        .repeat(30, |script, round| script.write(round * 6 % 54, 6))
        .settle()
        .holds();
}

/// Each life opened segments and each crash sealed them nearly empty, until none was left to
/// carry a tail and every request hung at every attach.
#[test]
fn crash_after_crash_leaves_room() {
    for power in [false, true] {
        Script::new(3)
            .stays_dirty()
            .repeat(40, |script, life| {
                script
                    .write(life % 3, 1)
                    .flush()
                    .crash(power, Survival::Everything, &[])
            })
            .holds();
    }
}

/// Crashes in recovery leave room: every life ends before reclaim does.
#[test]
fn crashes_in_recovery_leave_room() {
    Script::new(16)
        .config(|config| config.verify_percent = 0)
        .repeat(9, |script, life| {
            script
                .step(Step::Write {
                    volume: 0,
                    sector: (7 + life * 5) % 9 * 8,
                    count: 64,
                    fua: true,
                })
                .crash(false, Survival::Nothing, &[(39, false)])
        })
        .write(0, 1)
        .holds();
}

/// Crashes leave room with reads, so that blocks are promoted and evicted: recovery had no segment
/// for the Drops that the crash had cut off, and could not go on.
#[test]
fn crash_after_crash_leaves_room_for_drops() {
    Script::new(96)
        .eager()
        .repeat(40, |script, life| {
            script
                .write(life % 3, 1)
                .read(life * 7 % 88, 8)
                .settle()
                .read(life * 5 % 88, 8)
                .write(life * 11 % 88, 4)
                .pass(3)
                .crash(life % 2 == 0, Survival::Any, &[(12, true)])
        })
        .holds();
}

/// A cache with nothing to do woke up at a time that had passed, again and again.
#[test]
fn an_idle_cache_sleeps() {
    let zeroes = Step::Zeroes {
        volume: 0,
        sector: 64,
        count: 8,
        fua: false,
    };
    for commit in [Commit::Write, Commit::Flush] {
        Script::new(16)
            .settings(|settings| {
                settings.commit = commit;
                settings.record_delay = Nanos(0);
            })
            .mode(Mode::Readonly)
            .read(1, 1)
            .settle()
            .pass(5)
            .step(zeroes.clone())
            .write(1, 1)
            .pass(40_000)
            .holds();
    }
}

/// Reclaim waited for the flush of a slow origin and flushed the cache after the cache meanwhile.
#[test]
fn reclaim_that_waits_for_the_origin_does_not_flush_the_cache_again_and_again() {
    let counts = Script::new(8)
        .eager()
        .slow(Target::OriginFlush, 2_000)
        .repeat(12, |script, _| script.write(0, 8))
        .pass(5_000)
        .settle()
        .holds();
    let lives = counts.get("engine lives");
    let flushes = counts.get("cache flushes");
    assert!(flushes < lives * 60, "{flushes} flushes in {lives} lives");
}

/// A tiny cache copied its dirty blocks round and round while the origin took its time for one.
#[test]
fn dirty_blocks_are_not_copied_round_and_round_while_the_origin_is_slow() {
    let counts = Script::new(64)
        .eager()
        .config(|config| config.origin_latency.least_ns = 50_000_000)
        .repeat(30, |script, round| script.write(round * 5 % 64, 1).flush())
        .pass(10_000)
        .settle()
        .holds();
    let (copied, written) = (
        counts.get("blocks retained"),
        counts.get("blocks written back"),
    );
    assert!(copied <= written, "{copied} copied, {written} written back");
}

/// A header could not be written for good; complete writes behind it in the segment never ended and
/// had no answer (I13).
#[test]
fn writes_behind_a_header_that_fails_are_answered() {
    for skipped in 0..4 {
        Script::new(16)
            .settings(|settings| settings.commit = Commit::Write)
            .repeat(skipped, |script, block| script.write(block, 1))
            .slow_and_failing(Target::CacheWrite, 5)
            .fail(Target::CacheWrite, 5)
            .repeat(4, |script, block| script.write(block, 1))
            .pass(1)
            .repeat(4, |script, block| script.write(4 + block, 1))
            .settle()
            .power_cut()
            .holds();
    }
}

/// With little memory, requests held what the headers needed that would have let them end.
#[test]
fn little_memory_is_enough() {
    Script::new(64)
        .eager()
        .config(|config| config.memory_bytes = 192 << 10)
        .repeat(60, |script, round| {
            script
                .read(round * 13 % 56, 8)
                .write_sectors(round * 37 % 500, 12)
                .write(round * 7 % 60, 4)
        })
        .settle()
        .holds();
}

/// Dirty blocks that cannot be read are carried on, since nothing else has them: never dropped,
/// and never in the way of everything else.
#[test]
fn unreadable_dirty_blocks_are_carried_on() {
    let counts = Script::new(64)
        .eager()
        .write(0, 4)
        .flush()
        .harm(0, Harm::Unreadable)
        .harm(2, Harm::Rot)
        .repeat(30, |script, round| {
            script.write(8 + round % 7 * 8, 8).step(Step::Settle)
        })
        .read(0, 4)
        .settle()
        .holds();
    assert!(counts.get("unreadable dirty blocks carried on") > 0);
}
