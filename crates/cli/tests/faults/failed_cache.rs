//! A cache that failed because one shard cannot write to it any more.

use std::time::Duration;

use forebay_faulty::Operation;

use crate::ledger::{How, Kept};
use crate::support::{Daemon, text, until};
use crate::world::{Case, REGION_BLOCKS, World, in_each};

const BOTH: [&str; 2] = ["writeback", "writethrough"];

/// Both shards have data; then the first cannot be written to any more.
pub(crate) fn fail_cache(world: &mut World) -> Daemon {
    let daemon = world.start();
    let mut client = world.client();
    (world.ledger).load(&mut client, &mut world.random, 200, |_| {});
    world.ledger.flush(&mut client);
    world.break_first_shard();
    let mut block = 0;
    while !daemon.log().contains("the cache failed") {
        let first_shard = block % REGION_BLOCKS;
        world.ledger.write(&mut client, first_shard, How::Durable);
        block += 1;
        assert!(block < 4 * REGION_BLOCKS, "the cache never fails");
    }
    daemon
}

/// Waits until nothing is newer in the cache.
fn until_clean(world: &World, daemon: &Daemon) {
    until("everything to be written back", || {
        daemon.status(&world.scratch)["cache"]["dirty_bytes"] == 0
    });
}

/// Later writes that the healthy shard acknowledges do not go into a cache that nobody believes.
fn the_other_shard_loses_nothing(case: Case, world: &mut World) {
    world.dirty_stays();
    let daemon = fail_cache(world);
    let mut client = world.client();
    for block in REGION_BLOCKS..REGION_BLOCKS + 16 {
        let how = if block % 2 == 0 {
            How::Durable
        } else {
            How::Plain
        };
        world.ledger.write(&mut client, block, how);
    }
    (world.ledger).load(&mut client, &mut world.random, 200, |_| {});
    if case.seed.is_multiple_of(2) {
        world.cut_power(daemon);
        world.recover(Kept::Durable);
    } else {
        daemon.kill();
        world.recover(Kept::Acknowledged);
    }
}

#[test]
fn one_shard_that_cannot_be_written_costs_the_other_nothing() {
    in_each(&BOTH, the_other_shard_loses_nothing);
}

/// A stop while much is dirty and the origin is slow does not lose the rest, and says where it is.
fn a_stop_leaves_the_rest_on_record(case: Case, world: &mut World) {
    world.dirty_stays();
    world
        .origin()
        .delay(Operation::Write, Duration::from_millis(300));
    let mut daemon = fail_cache(world);
    if case.seed.is_multiple_of(2) {
        // The record has the name of before.
        daemon.command(&world.scratch, &["rename", "origin", "renamed"]);
    }
    daemon.signal("-TERM");
    let code = daemon.wait();
    let log = daemon.log();
    assert!(
        code == Some(0)
            || log.contains(
                "in it are newer than on its origins, and `forebay drain --offline` writes it out"
            ),
        "{code:?}: {log}"
    );
    drop(daemon);
    world.heal();
    let refusal = world.try_start().err().unwrap_or_default();
    assert_eq!(
        code == Some(0),
        refusal.contains("nothing is lost"),
        "{refusal}"
    );
    world.write_out(&refusal, Kept::Acknowledged);
    world.check_origin(Kept::Acknowledged, &[]);
}

#[test]
fn a_stop_after_a_failure_loses_nothing_that_is_still_dirty() {
    in_each(&["writeback"], a_stop_leaves_the_rest_on_record);
}

/// A volume whose cache is gone, and with nothing dirty, is a volume like any other.
fn flushes_succeed_again(_: Case, world: &mut World) {
    let mut daemon = fail_cache(world);
    until_clean(world, &daemon);
    let mut client = world.client();
    // A client that was not told of a loss before may be told once more.
    world.ledger.flush(&mut client);
    for round in 0..3 {
        let answers = (world.ledger).load(&mut client, &mut world.random, 60, |_| {});
        assert_eq!(
            (answers.failed_writes, answers.failed_flushes),
            (0, 0),
            "round {round}"
        );
        assert!(world.ledger.flush(&mut client), "round {round}");
    }
    drop(client);
    daemon.signal("-TERM");
    assert_eq!(daemon.wait(), Some(0), "{}", daemon.log());
    drop(daemon);
    world.cut_power_of_devices();
    world.recover(Kept::Durable);
}

#[test]
fn flushes_succeed_again_once_nothing_is_dirty() {
    in_each(&BOTH, flushes_succeed_again);
}

/// A host that does not know what became of a cache must not write it over newer data.
fn another_state_directory_is_refused(case: Case, world: &mut World) {
    let daemon = fail_cache(world);
    world.heal();
    until_clean(world, &daemon);
    let mut client = world.client();
    let answers = (world.ledger).load(&mut client, &mut world.random, 200, |_| {});
    assert_eq!(answers.failed_writes, 0);
    drop(client);
    if case.seed.is_multiple_of(2) {
        daemon.kill();
    } else {
        daemon.stop();
    }
    let before = world.on_origin(false);
    let elsewhere = world.drain_offline("elsewhere");
    assert_eq!(elsewhere.status.code(), Some(3), "{}", text(&elsewhere));
    assert!(text(&elsewhere).contains("another state directory"));
    let (state, away) = (world.scratch.path("state"), world.scratch.path("away"));
    std::fs::rename(&state, &away).unwrap();
    let refusal = world.try_start().err().unwrap_or_default();
    assert!(refusal.contains("another state directory"), "{refusal}");
    let _ = std::fs::remove_dir_all(&state);
    std::fs::rename(&away, &state).unwrap();
    assert_eq!(world.on_origin(false), before);
    world.recover(Kept::Acknowledged);
}

#[test]
fn an_abandoned_cache_is_not_believed_under_another_state_directory() {
    in_each(&BOTH, another_state_directory_is_refused);
}
