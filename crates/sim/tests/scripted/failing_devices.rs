//! Devices that fail at the wrong moment.

use forebay_engine::{Commit, Mode, Nanos};
use forebay_sim::plan::{Harm, Target};
use forebay_sim::{Script, Step};

/// Part of a block was written while its dirty copy could not be read and reclaim had carried it
/// on to another slot: the old slot no longer said dirty, and the rest came from the origin.
#[test]
fn a_partial_block_is_not_completed_from_an_origin_that_is_older() {
    Script::new(64)
        .stays_dirty()
        .write(0, 1)
        .flush()
        .harm(0, Harm::Unreadable)
        // The second try ends when the log has gone round.
        .slow(Target::CacheRead, 1)
        .slow(Target::CacheRead, 400)
        .write_sectors(2, 3)
        .repeat(20, |script, round| {
            script.write(8 + round % 3 * 8, 7).pass(2)
        })
        .settle()
        .read(0, 1)
        .holds();
}

/// A segment that could not be read when damage was accepted was readable at the next attach, and
/// brought back clean blocks that the origin had overtaken.
#[test]
fn accepted_damage_stays_accepted() {
    let counts = Script::new(32)
        .config(|config| config.verify_percent = 0)
        .read(0, 5)
        .settle()
        .pass(2_000)
        .flush()
        .mode(Mode::Passthrough)
        .harm(0, Harm::SegmentUnreadable)
        .power_cut()
        .write(0, 5)
        .flush()
        .step(Step::Heal)
        .power_cut()
        .mode(Mode::Writeback)
        .read(0, 5)
        .holds();
    assert!(counts.get("damage accepted") > 0, "\n{counts}");
}

/// A loss that was accepted was missed again by the next attach, where nothing new had become
/// durable in its stream meanwhile: summaries went on promising it.
#[test]
fn accepted_damage_is_not_reported_again() {
    for harm in [Harm::HeaderRot, Harm::SegmentUnreadable] {
        let counts = Script::new(16)
            .stays_dirty()
            .config(|config| config.verify_percent = 0)
            .repeat(2, |script, block| script.write_durably(block))
            .pass(1_000)
            .harm(1, harm)
            .power_cut()
            .step(Step::Heal)
            .kill()
            .power_cut()
            .holds();
        assert!(counts.get("damage accepted") > 0, "\n{counts}");
    }
}

/// A hit of several blocks failed once; the first had moved meanwhile, and the others had no
/// second try: an error for one passing fault.
#[test]
fn each_block_of_a_failed_hit_is_tried_again() {
    let counts = Script::new(16)
        .stays_dirty()
        .write(0, 3)
        .flush()
        .slow_and_failing(Target::CacheRead, 100)
        .read(0, 3)
        .write(0, 1)
        .pass(50)
        .settle()
        .holds();
    assert_eq!(counts.get("failed requests"), 0, "\n{counts}");
}

/// I10: a flush of the origin failed and lost what a read was on its way to. The block had been
/// written again, but only into memory: it waited for another write of the block to be logged. The
/// read was made again from the origin.
#[test]
fn a_doubtful_read_sees_what_is_in_memory_alone() {
    let counts = Script::new(16)
        .stays_dirty()
        .failed_flush_loses()
        .settings(|settings| settings.commit = Commit::Memory)
        .config(|config| config.buffer_bytes = 128 << 10)
        .mode(Mode::Writearound)
        .write(0, 1)
        .settle()
        .mode(Mode::Writeback)
        .slow(Target::OriginRead, 1_000)
        .read(0, 1)
        // It owns the block for so long.
        .slow(Target::CacheWrite, 1_500)
        .write_sectors(1, 1)
        .write(0, 1)
        // The origin's flush comes by itself.
        .fail(Target::OriginFlush, 1)
        .pass(1_200)
        .settle()
        .holds();
    assert!(counts.get("fault: origin flush failed") > 0, "\n{counts}");
}

/// The origin is written to only when it is on record that the cache counts no more: the device
/// may come back, with blocks that look clean (I15).
#[test]
fn a_cache_that_comes_back_after_it_was_abandoned_is_void() {
    for record_ms in [0, 200, 1_000, 30_000] {
        Script::new(16)
            .config(|config| config.record_delay = Nanos(record_ms * 1_000_000))
            .stays_dirty()
            .read(0, 1)
            .write(1, 1)
            .pass(1_000)
            .flush()
            .step(Step::CacheGone)
            .write(5, 1)
            .write(0, 1)
            .pass(300)
            .write(9, 1)
            .kill()
            .read(0, 2)
            .holds();
    }
}

/// A write through that was in the log when the cache was abandoned went to the origin at once,
/// because nothing becomes durable in such a log: after a power cut before the record was made the
/// log still had what was there before, as a clean block (I15).
#[test]
fn a_write_through_waits_until_it_is_on_record_that_the_cache_counts_no_more() {
    for mode in [Mode::Writethrough, Mode::Writearound] {
        let counts = Script::new(16)
            .config(|config| config.record_delay = Nanos(30 * Nanos::SECOND.0))
            .mode(mode)
            .read(0, 1)
            .settle()
            .pass(2_000)
            .write(5, 1)
            .settle()
            .slow_and_failing(Target::CacheFlush, 100)
            .begin_flush()
            .pass(20)
            .slow(Target::CacheWrite, 200)
            .write(0, 1)
            .pass(500)
            .flush()
            .power_cut()
            .read(0, 1)
            .holds();
        assert!(counts.get("abandoned") > 0, "\n{counts}");
    }
}

/// A clean block that cannot be read, or not rightly, comes from the origin, without an error.
#[test]
fn a_clean_block_that_rots_is_read_from_the_origin() {
    let counts = Script::new(16)
        .read(0, 4)
        .settle()
        .pass(1_000)
        .harm(1, Harm::Rot)
        .harm(2, Harm::Unreadable)
        .read(1, 1)
        .read(2, 1)
        .read(3, 1)
        .settle()
        .holds();
    assert_eq!(counts.get("failed requests"), 0, "\n{counts}");
    assert!(counts.get("checksum errors") > 0);
}

/// A write-through that failed was not taken back: the cache had it, the origin did not, and the
/// client knew it as failed.
#[test]
fn a_write_through_that_failed_is_old_or_new_and_stays_so() {
    Script::new(16)
        .mode(Mode::Writethrough)
        .write(0, 2)
        .flush()
        .fail(Target::OriginWrite, 1)
        .write(0, 2)
        .settle()
        .read(0, 2)
        .kill()
        .read(0, 2)
        .flush()
        .power_cut()
        .holds();
}

/// A region of which a flush failed was promoted as clean once nothing else was unflushed, although
/// the origin may lose it still (I6).
#[test]
fn a_region_in_doubt_is_not_promoted() {
    Script::new(16)
        .mode(Mode::Passthrough)
        .write(0, 2)
        .settle()
        .fail(Target::OriginFlush, 1)
        .flush()
        .mode(Mode::Writeback)
        .read(0, 2)
        .pass(3_000)
        .power_cut()
        .read(0, 2)
        .holds();
}

/// A write-through that failed stayed in the log as dirty: an origin that takes nothing more
/// filled the cache with what nobody was told is stored.
#[test]
fn a_write_through_that_failed_leaves_nothing_dirty() {
    Script::new(16)
        .mode(Mode::Writethrough)
        .fail(Target::OriginWrite, 3)
        .write(0, 1)
        .settle()
        .step(Step::ExpectClean { volume: 0 })
        .holds();
}

/// The header of a durable write rotted. Later headers promised it, but where it was the first of
/// its segment, or another followed at once, nobody read them: an acknowledged write was missing
/// without a word (I14).
#[test]
fn headers_behind_a_missing_one_promise_it() {
    for rotten in 0..2 {
        let counts = Script::new(4)
            .stays_dirty()
            .repeat(3, |script, block| script.write_durably(block))
            .harm(rotten, Harm::HeaderRot)
            .power_cut()
            .holds();
        assert!(counts.get("damage reported") > 0, "\n{counts}");
    }
}

/// A dirty block that cannot be read stays where it is while clean blocks hold room (I23), and is
/// written back by who asks for that once its sector is mended: it was never tried again.
#[test]
fn a_segment_that_cannot_be_read_is_not_buried_while_there_is_room() {
    let counts = Script::new(260)
        .settings(|settings| settings.dirty_high_percent = 20)
        .config(|config| config.geometry.segments_per_shard = 40)
        .read(40, 210)
        .settle()
        .write(0, 1)
        .flush()
        .harm(0, Harm::Unreadable)
        .drain()
        .pass(2_000)
        .drain_no_more()
        .repeat(18, |script, round| {
            script.write(8 + round % 3 * 8, 7).pass(200)
        })
        .settle()
        .step(Step::Heal)
        .drain()
        .pass(20_000)
        .step(Step::ExpectClean { volume: 0 })
        .read(0, 1)
        .holds();
    assert!(counts.get("segments reclaimed") > 4, "\n{counts}");
    assert_eq!(counts.get("unreadable dirty blocks carried on"), 0);
}
