//! Flushes that fail, and drop what they should have made durable: of an origin, of the cache
//! device, of the control plane.

use std::time::Duration;

use forebay_faulty::{Fault, Operation};

use crate::ledger::{How, Kept};
use crate::world::{Case, REGION_BLOCKS, World, in_each};

/// A drain that ends well has both shards' blocks on the origin durably, whichever thread's flush
/// failed.
fn drained_is_on_the_origin(_: Case, world: &mut World) {
    world.dirty_stays();
    let daemon = world.start();
    let mut client = world.client();
    world
        .origin()
        .delay(Operation::Flush, Duration::from_millis(10));
    for trial in 0..4 {
        let blocks = [200 + trial, REGION_BLOCKS + 200 + trial];
        for block in blocks {
            assert!(world.ledger.write(&mut client, block, How::Plain));
        }
        assert!(world.ledger.flush(&mut client));
        let fault = world.origin().fail(Fault::of(Operation::Flush).times(1));
        let drain = daemon.begin(&world.scratch, &["drain", "origin"]);
        if drain.wait_with_output().unwrap().status.success() {
            world.check_origin(Kept::Durable, &[]);
        }
        world.origin().clear(fault);
        daemon.command(&world.scratch, &["drain", "origin"]);
        world.check_origin(Kept::Durable, &[]);
        // A client that is still to hear of the flush that failed hears of it.
        world.ledger.flush(&mut client);
    }
    daemon.stop();
}

#[test]
fn what_is_drained_is_on_the_origin_though_a_flush_of_it_failed() {
    in_each(&["writeback"], drained_is_on_the_origin);
}

/// Of two clients that flush at the same time each believes its own answer only.
fn each_flush_of_an_origin_keeps_its_promise(_: Case, world: &mut World) {
    let daemon = world.start();
    let mut clients = [world.client(), world.client()];
    world
        .origin()
        .delay(Operation::Flush, Duration::from_millis(10));
    for trial in 0..4 {
        for block in [300 + trial, REGION_BLOCKS + 300 + trial] {
            world.ledger.write(&mut clients[0], block, How::Plain);
        }
        world.origin().fail(Fault::of(Operation::Flush).times(1));
        let [one, other] = &mut clients;
        world.ledger.flush_both([one, other]);
    }
    world.cut_power(daemon);
    world.recover(Kept::Durable);
}

#[test]
fn a_flush_of_an_origin_that_failed_is_believed_by_no_client() {
    let modes = ["writethrough", "writearound", "writeback"];
    in_each(&modes, each_flush_of_an_origin_keeps_its_promise);
}

/// Two blocks are written with FUA at the same time, one in each shard, and a flush of the cache
/// device fails.
fn nobody_believes_a_flush_of_the_cache(case: Case, world: &mut World) {
    let daemon = world.start();
    let mut clients = [world.client(), world.client()];
    (world.ledger).load(&mut clients[0], &mut world.random, 100, |_| {});
    world
        .cache()
        .delay(Operation::Flush, Duration::from_millis(10));
    world.cache().fail(Fault::of(Operation::Flush).times(1));
    for trial in 0..3 {
        let [one, other] = &mut clients;
        let blocks = [400 + trial, REGION_BLOCKS + 400 + trial];
        world.ledger.write_both([one, other], blocks);
    }
    world.check_running(&mut clients[0]);
    if case.mode == "writeback" {
        world.wait_for_failure(&daemon);
    }
    world.cut_power(daemon);
    world.recover(Kept::Durable);
}

#[test]
fn a_flush_of_the_cache_that_failed_is_believed_by_no_shard() {
    in_each(
        &["writeback", "writethrough"],
        nobody_believes_a_flush_of_the_cache,
    );
}

/// A command's flush of the cache fails and drops what clients wrote: the next flush of a client
/// does not say that it is durable.
fn a_command_flush_is_everybodys(case: Case, world: &mut World, command: &[&str]) {
    world.dirty_stays();
    let daemon = world.start();
    let mut client = world.client();
    for block in (500..508).chain(REGION_BLOCKS + 500..REGION_BLOCKS + 508) {
        assert!(world.ledger.write(&mut client, block, How::Plain));
    }
    let which = Fault::of(Operation::Flush).after(case.seed % 2).times(1);
    let fault = world.cache().fail(which);
    let output = daemon.begin(&world.scratch, command).wait_with_output();
    let succeeded = output.unwrap().status.success();
    assert!(
        !succeeded || world.cache().left(fault) == 1,
        "{command:?} does not say that a flush failed"
    );
    world.ledger.flush(&mut client);
    (world.ledger).load(&mut client, &mut world.random, 60, |_| {});
    world.cut_power(daemon);
    world.recover(Kept::Durable);
}

#[test]
fn a_flush_of_a_mode_switch_that_failed_is_not_forgotten() {
    in_each(&["writeback"], |case, world| {
        a_command_flush_is_everybodys(case, world, &["mode", "origin", "writethrough"]);
    });
}

#[test]
fn a_flush_of_a_rename_that_failed_is_not_forgotten() {
    in_each(&["writeback"], |case, world| {
        a_command_flush_is_everybodys(case, world, &["rename", "origin", "renamed"]);
    });
}

#[test]
fn a_flush_of_an_attach_that_failed_is_not_forgotten() {
    in_each(&["writeback"], |case, world| {
        a_command_flush_is_everybodys(case, world, &["attach", "devices/other"]);
    });
}

#[test]
fn a_flush_of_a_resize_that_failed_is_not_forgotten() {
    in_each(&["writeback"], |case, world| {
        a_command_flush_is_everybodys(case, world, &["cache", "resize", "24M"]);
    });
}
