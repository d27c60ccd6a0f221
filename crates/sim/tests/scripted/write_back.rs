//! Dirty data on its way to the origin.

use forebay_engine::{Commit, Mode, Nanos};
use forebay_sim::plan::{Harm, Target};
use forebay_sim::{Script, Step};

/// Blocks that became dirty while write-back paused after an error of the origin set no time to
/// look again, so that a drain slept for ever.
#[test]
fn what_becomes_dirty_during_a_pause_is_written_back_after_it() {
    Script::new(16)
        .stays_dirty()
        .drain()
        .fail(Target::OriginWrite, 1)
        .write(0, 1)
        .flush()
        .pass(50)
        // Nothing is dirty for a moment.
        .mode(Mode::Writethrough)
        .write(0, 1)
        .flush()
        .mode(Mode::Writeback)
        .write(5, 1)
        .flush()
        // The first one ended in that moment.
        .drain()
        .pass(60_000)
        .step(Step::ExpectClean { volume: 0 })
        .holds();
}

/// S10: an administrator who has mended the disk waits for no retry, which may be half a minute
/// away.
#[test]
fn a_drain_tries_at_once_what_failed_before() {
    // The eighth failure is followed by 25.6 s of patience.
    Script::new(16)
        .stays_dirty()
        .write(0, 1)
        .flush()
        .fail(Target::OriginWrite, 8)
        .drain()
        .pass(26_000)
        .drain_no_more()
        .drain()
        .pass(2_000)
        .step(Step::ExpectClean { volume: 0 })
        .holds();
}

/// The end of a write-back made the *next* version clean, if that had come to the same slot of
/// the same segment, used again meanwhile (I6).
#[test]
fn the_end_of_a_write_back_says_nothing_of_the_next_version_in_the_slot() {
    // The log has gone round, to the same slot, after one of these.
    for rounds in 170..190 {
        Script::new(1)
            .write(0, 1)
            .flush()
            .slow(Target::OriginWrite, 10_000)
            .drain()
            .pass(1)
            .repeat(rounds, |script, _| script.write(0, 1).flush())
            .pass(20_000)
            .kill()
            .holds();
    }
}

/// A discard of a dirty block was logged as zeroes and sent to the origin as a discard. An origin
/// that ignores discards kept the old data, which came back when the clean copy was gone (I6).
#[test]
fn a_discarded_dirty_block_stays_zero_on_an_origin_that_ignores_discards() {
    Script::new(16)
        .config(|config| config.origin_discards = 1)
        .stays_dirty()
        .write(0, 1)
        .flush()
        .drain()
        .pass(5_000)
        .drain_no_more()
        .write(0, 1)
        .settle()
        .mode(Mode::Writethrough)
        .discard(0, 1)
        .flush()
        .read(0, 1)
        .flush()
        .power_cut()
        .holds();
}

/// A failed flush of the origin was the business of the shard that asked for it, although it lost
/// what the other had written (I10).
#[test]
fn a_failed_flush_of_the_origin_concerns_every_shard() {
    Script::new(16)
        .config(|config| config.geometry.shards = 2)
        .failed_flush_loses()
        .stays_dirty()
        .write(0, 16)
        .flush()
        .fail(Target::OriginFlush, 1)
        .drain()
        .pass(10_000)
        .step(Step::ExpectClean { volume: 0 })
        .power_cut()
        .holds();
}

/// A write that ended while a flush ran was believed after the *next* flush, although the one
/// that failed had lost it (I10).
#[test]
fn a_failed_flush_also_doubts_what_was_written_while_it_ran() {
    Script::new(16)
        .failed_flush_loses()
        .mode(Mode::Writethrough)
        .write(0, 1)
        .settle()
        .slow_and_failing(Target::OriginFlush, 100)
        .begin_flush()
        .pass(1)
        .write(4, 1)
        .pass(10)
        .flush()
        .flush()
        .power_cut()
        .holds();
}

/// A volume was removed while a flush of its origin ran; the next one in its place took the end of
/// that flush for its own, and was clean too early (I6).
#[test]
fn a_volume_goes_only_when_the_flush_of_its_origin_has_ended() {
    Script::new(8)
        .mode(Mode::Writethrough)
        .write(0, 4)
        .slow(Target::OriginFlush, 200)
        .step(Step::Detach {
            volume: 0,
            cut: None,
        })
        .write(0, 4)
        .flush()
        .power_cut()
        .holds();
}

/// A read error of the cache device in write-back made a dirty block unreadable for good.
#[test]
fn one_read_error_in_write_back_is_tried_again() {
    let counts = Script::new(8)
        .stays_dirty()
        .write(0, 4)
        .flush()
        .fail(Target::CacheRead, 1)
        .drain()
        .pass(10_000)
        .step(Step::ExpectClean { volume: 0 })
        .read(0, 4)
        .holds();
    assert_eq!(counts.get("failed requests"), 0, "\n{counts}");
}

/// Dirty blocks that cannot be read counted for the throttle: every write was held for ever, also
/// the one that would have replaced them.
#[test]
fn unreadable_dirty_blocks_hold_up_no_writes() {
    Script::new(32)
        .settings(|settings| {
            settings.dirty_low_percent = 0;
            settings.dirty_high_percent = 0;
            settings.dirty_limit_percent = 10;
            settings.age_limit = Nanos(1_000_000);
        })
        .slow(Target::OriginWrite, 10)
        .repeat(8, |script, block| {
            script.write(block, 1).flush().harm(block, Harm::Rot)
        })
        .pass(60_000)
        .repeat(24, |script, block| script.write(8 + block, 1))
        .settle()
        .holds();
}

/// A copy of a dirty block that reclaim had begun was published as dirty although write-back had
/// ended meanwhile; a write that bypasses the cache that knew the block as clean then dropped it
/// (I5).
#[test]
fn a_copy_of_what_was_written_back_meanwhile_is_clean() {
    for slow_ms in [1, 5, 20, 100] {
        Script::new(64)
            .eager()
            .stays_dirty()
            .write(0, 8)
            .flush()
            .harm(3, Harm::Unreadable)
            .slow(Target::OriginWrite, slow_ms)
            .drain()
            .repeat(10, |script, round| {
                script.write(8 + round % 7 * 8, 8).pass(slow_ms / 5)
            })
            .mode(Mode::Readonly)
            .write(0, 8)
            .pass(slow_ms)
            .holds();
    }
}

/// A write that was answered from memory was stored before an older write that still waited for its
/// first block, replaced by it, and read from memory all the same until all of it was stored (I1).
#[test]
fn what_is_answered_from_memory_comes_after_the_older_writes_of_its_blocks() {
    Script::new(16)
        .settings(|settings| settings.commit = Commit::Memory)
        .config(|config| config.buffer_bytes = 8192 + 32 * 4160)
        .mode(Mode::Writethrough)
        .slow(Target::OriginWrite, 400)
        .write(2, 1)
        .pass(5)
        .slow(Target::OriginWrite, 100)
        .write(0, 1)
        .pass(5)
        .mode(Mode::Writeback)
        // Waits for block 0, while block 1 is nobody's.
        .write_sectors(0, 12)
        // Waits for block 2, so that it is in memory for long.
        .write(1, 2)
        .pass(200)
        .read(1, 1)
        .pass(400)
        .read(1, 1)
        .holds();
}
