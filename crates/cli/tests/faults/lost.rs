//! Whole devices that are lost while clients write, and come back.

use forebay_faulty::{Fault, Operation};

use crate::ledger::Kept;
use crate::support::{Daemon, MIB, text};
use crate::world::{BLOCKS, Case, World, in_each, in_each_of};

const BOTH: [&str; 2] = ["writeback", "writethrough"];

/// Clients write before and after the device is lost.
fn lose_under_load(world: &mut World, lose: impl Fn(&World)) -> Daemon {
    let daemon = world.start();
    let mut client = world.client();
    (world.ledger).load(&mut client, &mut world.random, 200, |_| {});
    world.load_and(&mut client, 300, 100, lose);
    daemon
}

/// The cache device comes back without its volatile cache. The memory of the machine says that
/// there is more on it, so what was not durable is an error.
fn a_lost_cache_comes_back(_: Case, world: &mut World) {
    let daemon = lose_under_load(world, |world| world.cache().lose());
    world.wait_for_failure(&daemon);
    daemon.kill();
    world.cache().bring_back();
    let lost = world.ledger.not_durable();
    world.recover_without(Kept::Durable, &lost);
}

#[test]
fn a_cache_that_was_lost_and_comes_back_loses_nothing_that_was_flushed() {
    in_each(&BOTH, a_lost_cache_comes_back);
}

/// Brings back an old image of a device of the cache. Returns what the origin held before.
fn an_old_image(world: &mut World, name: &str) -> Vec<(u64, u64)> {
    let daemon = world.start();
    let mut client = world.client();
    (world.ledger).load(&mut client, &mut world.random, 200, |_| {});
    world.ledger.flush(&mut client);
    let old = world.device(name).snapshot();
    (world.ledger).load(&mut client, &mut world.random, 200, |_| {});
    world.load_and(&mut client, 300, 100, |world| world.device(name).lose());
    world.wait_for_failure(&daemon);
    daemon.kill();
    let before = world.on_origin(false);
    world.device(name).bring_back_as(&old);
    before
}

/// It is not served, and no command writes it over newer data: some data that was durable when the
/// cache was abandoned is missing.
fn an_old_image_is_refused(world: &mut World, name: &str) {
    let before = an_old_image(world, name);
    let Err(said) = world.try_start() else {
        panic!("an old image is believed");
    };
    assert!(said.contains("was abandoned"), "{said}");
    if said.contains("are newer in it") {
        let drained = world.drain_offline("state");
        if drained.status.success() {
            // Of two devices the old one may lack nothing that was durable.
            return world.nothing_is_older(&before);
        }
        assert_eq!(drained.status.code(), Some(5), "{}", text(&drained));
        assert!(text(&drained).contains("damaged"), "{}", text(&drained));
    }
    assert_eq!(world.on_origin(false), before);
}

#[test]
fn an_old_image_of_a_lost_cache_is_refused() {
    in_each(&BOTH, |_, world| an_old_image_is_refused(world, "cache"));
}

/// An origin is away for a while, with its volatile cache or without: dirty data stays so, and is
/// written back afterwards.
fn an_origin_is_away(case: Case, world: &mut World) {
    let daemon = lose_under_load(world, |world| {
        if case.seed.is_multiple_of(2) {
            world.origin().disconnect();
        } else {
            world.origin().lose();
        }
    });
    let mut client = world.client();
    (world.ledger).load(&mut client, &mut world.random, 100, |_| {});
    world.origin().bring_back();
    world.ledger.flush(&mut client);
    let answers = (world.ledger).load(&mut client, &mut world.random, 200, |_| {});
    assert_eq!(answers.failed_writes, 0, "after the origin is back");
    world.check(&mut client, Kept::Acknowledged, &[]);
    if case.mode == "writeback" {
        daemon.command(&world.scratch, &["drain", "origin"]);
        world.check_origin(Kept::Durable, &[]);
    }
    drop(client);
    world.cut_power(daemon);
    world.recover(Kept::Durable);
}

#[test]
fn an_origin_that_was_away_gets_all_that_was_written_meanwhile() {
    in_each(&BOTH, an_origin_is_away);
}

/// Which of two cache devices something happens to.
fn one_of(case: Case) -> &'static str {
    ["cache", "second"][case.seed as usize % 2]
}

fn one_of_two_fails(case: Case, world: &mut World) {
    let daemon = lose_under_load(world, |world| {
        let all_but_superblock = MIB..u64::MAX;
        let writes = Fault::of(Operation::Write).within(all_but_superblock);
        world.device(one_of(case)).fail(writes);
    });
    // Until the log comes to that device.
    let mut client = world.client();
    let mut first = 0;
    while !daemon.log().contains("the cache failed") {
        world
            .ledger
            .write_run(&mut client, first % (BLOCKS - 64), 64);
        first += 64;
        assert!(first < 8 * BLOCKS, "the cache never fails");
    }
    daemon.kill();
    world.recover(Kept::Acknowledged);
}

#[test]
fn one_of_two_cache_devices_that_fails_costs_nothing() {
    in_each_of(2, &BOTH, one_of_two_fails);
}

fn one_of_two_is_lost(case: Case, world: &mut World) {
    let daemon = lose_under_load(world, |world| world.device(one_of(case)).lose());
    world.wait_for_failure(&daemon);
    daemon.kill();
    let missing = world.try_start().err().unwrap_or_default();
    assert!(missing.contains(one_of(case)), "{missing}");
    world.device(one_of(case)).bring_back();
    let lost = world.ledger.not_durable();
    world.recover_without(Kept::Durable, &lost);
}

#[test]
fn one_of_two_cache_devices_that_was_lost_costs_nothing_that_was_flushed() {
    in_each_of(2, &BOTH, one_of_two_is_lost);
}

#[test]
fn an_old_image_of_one_of_two_cache_devices_is_refused() {
    in_each_of(2, &BOTH, |case, world| {
        an_old_image_is_refused(world, one_of(case))
    });
}
