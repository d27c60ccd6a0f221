//! Two copies of dirty data on devices of unequal sizes, whose origin takes nothing.

mod common;

use common::{Disk, Fate, Ram, Rig};
use forebay_engine::format::extents::place_of;
use forebay_engine::*;

const BLOCK: usize = 4096;
const ORIGIN_BYTES: usize = 256 << 20;
const SMALL: usize = 16 << 20;
const LARGE: usize = 64 << 20;

/// Devices 0 and 1.
struct Two([Disk; 2]);

impl Storage for Two {
    fn size_bytes(&self) -> u64 {
        self.size_of(0)
    }

    fn device_numbers(&self) -> Vec<u8> {
        vec![0, 1]
    }

    fn size_of(&self, number: u8) -> u64 {
        self.0[usize::from(number)].0.len() as u64
    }

    fn read(&mut self, offset_bytes: u64, into: &mut [u8]) -> Result<(), DeviceError> {
        let (number, offset_bytes) = place_of(offset_bytes);
        self.0[usize::from(number)].read(offset_bytes, into)
    }

    fn write(&mut self, offset_bytes: u64, from: &[u8]) -> Result<(), DeviceError> {
        let (number, offset_bytes) = place_of(offset_bytes);
        self.0[usize::from(number)].write(offset_bytes, from)
    }

    fn flush(&mut self) -> Result<(), DeviceError> {
        Ok(())
    }
}

fn rig(sizes: [usize; 2]) -> Rig<Two> {
    let mut devices = Two(sizes.map(|bytes| Disk(vec![0; bytes])));
    let first = Geometry::for_device(sizes[0] as u64, BLOCK as u32, Some(1), 1).unwrap();
    let mut superblock = create(&mut devices, CacheId([1; 16]), first).unwrap();
    let added = superblock.add_device(sizes[1] as u64).unwrap();
    superblock.grow(added, sizes[1] as u64).unwrap();
    superblock.set_copies(2);
    let mode = Mode::Writeback;
    (superblock.add_volume("test", ORIGIN_BYTES as u64, mode as u8)).unwrap();
    superblock.write(&mut devices).unwrap();
    let mut origin = Disk(vec![0; ORIGIN_BYTES]);
    origin.0.fill(7);
    let ram = Ram::new(192 << 20);
    Rig::attach(devices, origin, ram, Settings::default(), mode)
}

fn writes_to_the_origin_hang(action: &Action) -> Fate {
    match (action.device, &action.operation) {
        (Device::Origin(_), Operation::Write { .. }) => Fate::Held,
        _ => Fate::Done,
    }
}

fn clean_blocks(rig: &Rig<Two>) -> u64 {
    let (dirty, cached) = rig.engine.volume_blocks(rig.volume).unwrap();
    cached - dirty
}

/// Reads this share of the cache, in percent, again and again.
fn fill(rig: &mut Rig<Two>, percent: u64) {
    let (_, capacity) = rig.engine.occupancy();
    for _ in 0..3 {
        for run in 0..capacity * percent / 100 / 32 {
            rig.read((128 << 20) + (run << 17), 128 << 10);
        }
    }
}

/// Writes single blocks in no order until one waits for ten seconds.
fn write_until_one_waits(rig: &mut Rig<Two>) {
    let buf = rig.ram.alloc(BLOCK).unwrap();
    for block in 0_u64.. {
        let offset_bytes = block * 40_503 % (32 << 10) * BLOCK as u64;
        let kind = RequestKind::Write { fua: false };
        let id = rig.start(kind, offset_bytes, BLOCK as u32, buf);
        let mut is_answered = false;
        for _ in 0..10_000 {
            if !rig.turn() {
                rig.now = rig.now.after(Nanos(1_000_000));
            }
            while let Some(ack) = rig.engine.next_ack() {
                is_answered |= ack.id == id;
            }
            if is_answered {
                break;
            }
        }
        if !is_answered {
            return;
        }
    }
}

#[test]
fn marks_of_dirty_data_are_of_the_pairs_that_are_possible() {
    for sizes in [[LARGE, SMALL], [SMALL, LARGE], [LARGE, LARGE]] {
        let limit = rig(sizes).engine.stats().dirty_limit_blocks;
        // The superblock takes 1 MiB, and summaries and headers one block of sixteen.
        let pairs = ((sizes[0].min(sizes[1]) - (1 << 20)) / BLOCK) as u64 * 15 / 16;
        let expected = pairs * 67 / 100..=pairs * 71 / 100;
        assert!(expected.contains(&limit), "{limit} on {sizes:?}");
    }
}

#[test]
fn clean_blocks_of_the_larger_device_stay_where_they_would_be_no_room() {
    let mut rig = rig([LARGE, SMALL]);
    fill(&mut rig, 45);
    let before = clean_blocks(&rig);
    assert!(before > 8000);
    rig.fate = writes_to_the_origin_hang;
    write_until_one_waits(&mut rig);
    let stats = rig.engine.stats();
    assert!(stats.dirty_blocks >= stats.dirty_limit_blocks);
    assert_eq!(clean_blocks(&rig), before);
}

#[test]
fn clean_blocks_go_where_some_of_them_are_on_the_smaller_device() {
    let mut rig = rig([LARGE, SMALL]);
    fill(&mut rig, 80);
    rig.fate = writes_to_the_origin_hang;
    write_until_one_waits(&mut rig);
    let stats = rig.engine.stats();
    assert!(stats.dirty_blocks >= stats.dirty_limit_blocks);
}
