//! Places of the cache device that cannot be read or written.

use forebay_faulty::{Fault, Operation};

use crate::ledger::Kept;
use crate::support::{MIB, text, until};
use crate::world::{BLOCK, Case, REGION_BLOCKS, World, in_each};

/// A sector that cannot be read while its neighbours are dirty affects nothing else.
fn one_sector_costs_one_block(_: Case, world: &mut World) {
    world.dirty_stays();
    let daemon = world.start();
    let mut client = world.client();
    assert!(world.ledger.write_run(&mut client, 100, 24));
    assert!(world.ledger.flush(&mut client));
    until("the blocks to be in the log", || {
        world.find_on(0, world.ledger.newest(123)).is_some()
    });
    let bad = 110;
    let place = world.place_on(0, world.ledger.newest(bad));
    let sector = Fault::of(Operation::Read)
        .within(place..place + BLOCK)
        .until_written();
    let fault = world.cache().fail(sector);
    let drain = daemon.begin(&world.scratch, &["drain", "origin"]);
    until("the other blocks to be written back", || {
        let held = world.on_origin(false);
        let newest = |(block, value): &(u64, u64)| *value == world.ledger.newest(*block);
        held.iter().filter(|held| held.0 != bad).all(newest)
    });
    // It ends by itself. Either it got the block elsewhere, as from memory, or it says what is left.
    let drained = drain.wait_with_output().unwrap();
    let held = world.on_origin(false);
    let is_saved = held.contains(&(bad, world.ledger.newest(bad)));
    let code = if is_saved { 0 } else { 5 };
    assert_eq!(drained.status.code(), Some(code), "{}", text(&drained));
    assert!(is_saved || text(&drained).contains("cannot be read"));
    // More than the cache holds, in the same shard: every segment is used again.
    for round in 0..10 {
        for first in (0..REGION_BLOCKS - 200).step_by(64) {
            let region = (round % 2) * 2 * REGION_BLOCKS;
            world
                .ledger
                .write_run(&mut client, region + 130 + first, 64);
        }
    }
    world.check(&mut client, Kept::Acknowledged, &[bad]);
    world.cache().clear(fault);
    world.check(&mut client, Kept::Acknowledged, &[bad]);
    world.ledger.flush(&mut client);
    drop(client);
    daemon.kill();
    world.recover_without(Kept::Acknowledged, &[bad]);
}

#[test]
fn a_sector_that_cannot_be_read_costs_its_block_alone() {
    in_each(&["writeback"], one_sector_costs_one_block);
}

/// The second half of a superblock is not written, then the first half of the next one is torn:
/// a whole copy is left.
fn a_whole_superblock_is_left(case: Case, world: &mut World) {
    world.dirty_stays();
    let daemon = world.start();
    let mut client = world.client();
    (world.ledger).load(&mut client, &mut world.random, 100, |_| {});
    world.ledger.flush(&mut client);
    let superblock = Fault::of(Operation::Write)
        .within(0..MIB)
        .times(1)
        .torn(case.seed);
    let second_half = world.cache().fail(superblock.clone().after(2));
    let switch = |mode| {
        let switched = daemon.begin(&world.scratch, &["mode", "origin", mode]);
        switched.wait_with_output().unwrap().status.success()
    };
    assert!(!switch("writethrough"));
    assert_eq!(world.cache().left(second_half), 0);
    let first_half = world.cache().fail(superblock);
    assert!(!switch("writearound"));
    assert_eq!(world.cache().left(first_half), 0);
    (world.ledger).load(&mut client, &mut world.random, 100, |_| {});
    world.cut_power(daemon);
    world.recover(Kept::Durable);
}

#[test]
fn a_superblock_write_that_fails_twice_leaves_a_whole_copy() {
    in_each(&["writeback"], a_whole_superblock_is_left);
}
