//! Tests of the memory buffer by itself.

use crate::buffer::MemoryBuffer;
use crate::format::{BlockKey, CacheId, Slot};
use crate::interface::Memory;
use crate::rig::{BLOCK_BYTES, Rig};
use crate::settings::{Mode, Settings};
use crate::shm_journal::ShmIdentity;

fn buffered() -> (Rig, MemoryBuffer, ShmIdentity) {
    let mut rig = Rig::new(Mode::Writeback, Settings::default());
    rig.ram.buffer = vec![0; 256 * BLOCK_BYTES];
    let identity = ShmIdentity {
        cache: CacheId([7; 16]),
        shard: 0,
        epoch: 3,
        boot_id: [1; 16],
    };
    let buffer = MemoryBuffer::adopt(identity, BLOCK_BYTES, &mut rig.ram);
    (rig, buffer, identity)
}

fn store(rig: &mut Rig, buffer: &mut MemoryBuffer, key: u64, count: u16, fill: u8) -> bool {
    let data = rig
        .ram
        .alloc(usize::from(count) * BLOCK_BYTES)
        .expect("memory");
    rig.ram.bytes_mut(data).fill(fill);
    buffer.store(BlockKey(key), count, data, &mut rig.ram)
}

#[test]
fn a_write_that_is_nowhere_else_is_found_until_it_is_logged() {
    let (mut rig, mut buffer, _) = buffered();
    let order = buffer.next_order();
    assert!(store(&mut rig, &mut buffer, 4, 2, 9));
    assert!(buffer.is_unfinished(BlockKey(5)));
    assert!(buffer.holds_unfinished(BlockKey(0), BlockKey(5)));
    assert!(!buffer.holds_unfinished(BlockKey(6), BlockKey(60)));
    assert!(buffer.holds_before(order + 1, BlockKey(0), BlockKey(9)));
    assert!(!buffer.holds_before(order, BlockKey(0), BlockKey(9)));
    buffer.finish(order, &mut rig.ram);
    for key in [4, 5] {
        buffer.is_logged(BlockKey(key), order, Some(Slot(key as u32)));
    }
    assert!(!buffer.is_unfinished(BlockKey(5)));
    let logged = buffer.newest(BlockKey(5)).map(|has| has.logged);
    assert_eq!(logged, Some(Some(Slot(5))), "the copy stays");
}

#[test]
fn a_full_buffer_takes_nothing_and_copies_make_room() {
    let (mut rig, mut buffer, _) = buffered();
    let (blocks, held) = buffer.occupancy();
    assert!(blocks >= 8 && held == 0);
    let mut orders = Vec::new();
    for key in 0.. {
        let order = buffer.next_order();
        if !store(&mut rig, &mut buffer, key, 1, 1) {
            break;
        }
        orders.push(order);
    }
    assert_eq!(buffer.occupancy(), (blocks, blocks));
    buffer.finish(orders[0], &mut rig.ram);
    assert!(
        store(&mut rig, &mut buffer, 100, 1, 2),
        "the oldest was a copy"
    );
    assert!(buffer.newest(BlockKey(0)).is_none());
}

#[test]
fn the_next_life_finds_what_was_not_logged() {
    let (mut rig, mut buffer, identity) = buffered();
    let order = buffer.next_order();
    assert!(store(&mut rig, &mut buffer, 4, 1, 9));
    assert!(store(&mut rig, &mut buffer, 8, 1, 7));
    buffer.finish(order, &mut rig.ram);
    let next = MemoryBuffer::adopt(identity, BLOCK_BYTES, &mut rig.ram);
    let keys: Vec<_> = next.unfinished_keys().collect();
    assert_eq!(keys, [BlockKey(8)]);
    let to = rig.ram.alloc(BLOCK_BYTES).expect("memory");
    next.copy_out(BlockKey(8), 0, to, &mut rig.ram);
    assert!(rig.ram.bytes(to).iter().all(|byte| *byte == 7));
    let other = ShmIdentity {
        boot_id: [2; 16],
        ..identity
    };
    let foreign = MemoryBuffer::adopt(other, BLOCK_BYTES, &mut rig.ram);
    assert_eq!(foreign.unfinished_keys().count(), 0);
}
