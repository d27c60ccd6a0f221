//! Aftermath of crashes.

use forebay_engine::Commit;
use forebay_sim::Script;
use forebay_sim::disk::Survival;
use forebay_sim::plan::Target;

/// Data that took long was published behind a newer version of its block in the same stream, with
/// a higher number: after an eviction the older version came back (I2, I3).
#[test]
fn data_that_takes_long_is_never_published_below_a_newer_version() {
    for slow_ms in [5, 50, 300] {
        Script::new(24)
            .eager()
            .slow(Target::CacheWrite, slow_ms)
            .write(0, 1)
            .repeat(30, |script, round| {
                script
                    .write(1 + round % 5 * 4, 4)
                    .read(0, 1)
                    .pass(slow_ms / 10)
            })
            .write(0, 1)
            .repeat(30, |script, round| {
                script
                    .read(round % 6 * 4, 4)
                    .write(1 + round % 5 * 4, 4)
                    .pass(3)
            })
            .kill()
            .holds();
    }
}

/// A journal page of another cache on the same memory validated old entries behind the new head,
/// and replay took them in (I16).
#[test]
fn a_ring_of_another_cache_says_nothing() {
    Script::new(16)
        .config(|config| config.leftover = true)
        .repeat(6, |script, round| script.write(round * 2, 1))
        .kill()
        .holds();
}

/// Recovery's decisions named entries that only the crash journal knew; after a power cut before
/// all of that was durable, the next attach reported damage that was none (I14).
#[test]
fn recoveries_cut_short_leave_nothing_that_looks_like_damage() {
    for cut in 0..40 {
        Script::new(16)
            .eager()
            .repeat(4, |script, round| script.write(round * 4, 4).flush())
            .write(2, 6)
            .settle()
            .crash(false, Survival::Any, &[(cut, true), (cut / 2, true)])
            .write(0, 3)
            .settle()
            .crash(false, Survival::Nothing, &[(cut, true)])
            .holds();
    }
}

/// Verdicts promised what only the crash journal had known; a recovery that was cut short by power
/// left some of them and not others, and the next attach missed segments (I14).
#[test]
fn verdicts_promise_only_what_was_promised_before() {
    Script::new(32)
        .repeat(2, |script, _| {
            script.crash(false, Survival::Nothing, &[(16, false), (34, true)])
        })
        .holds();
}

/// A verdict named the end of the segment before while that was being decided too (I14).
#[test]
fn verdicts_name_no_end_that_is_being_decided() {
    Script::new(48)
        .write_durably(0)
        .flush()
        .write(37, 4)
        .crash(false, Survival::Any, &[(28, false), (4, true)])
        .holds();
}

/// A verdict kept naming a segment whose own verdict a power cut had taken (I14).
#[test]
fn a_link_to_what_is_not_there_is_written_anew() {
    Script::new(32)
        .repeat(3, |script, _| {
            script.crash(false, Survival::Any, &[(32, false), (0, true)])
        })
        .holds();
}

/// A flush raised a stream's durable position to a newer segment although an older one still had
/// records that were not complete, and the next attach missed them (I14).
#[test]
fn a_promise_never_runs_ahead_of_an_older_record() {
    for slow_ms in [1, 10, 100] {
        Script::new(32)
            .settings(|settings| settings.commit = Commit::Write)
            .stays_dirty()
            .write(0, 6)
            .slow(Target::CacheWrite, slow_ms)
            .write(6, 1)
            .repeat(6, |script, round| script.write(8 + round * 4, 4).pass(1))
            .begin_flush()
            .pass(2)
            .power_cut()
            .holds();
    }
}

/// With `commit = write`, what was acknowledged is there after a kill, and after a power cut if
/// the device has no volatile cache.
#[test]
fn what_was_acknowledged_survives_a_kill() {
    Script::new(32)
        .stays_dirty()
        .repeat(20, |script, round| {
            script.write_sectors(round * 11 % 240, 9).settle().kill()
        })
        .holds();
}
