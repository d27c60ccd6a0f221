//! Starts from the checkpoint of an orderly stop, and from all summaries where it cannot be (I29).

mod common;

use common::{BOOT, Disk, Ram, Rig};
use forebay_engine::checksum::{crc32c, crc32c_append};
use forebay_engine::{
    AttachOptions, Attached, CheckpointHead, Engine, Mode, RequestKind, Settings, Storage,
    Superblock, attach,
};

const CACHE_BYTES: usize = 32 << 20;

/// A cache with blocks of all kinds that was stopped in order, and addresses of the parts of its
/// checkpoint.
struct Stopped {
    cache: Disk,
    parts: Vec<u64>,
}

fn stopped() -> Stopped {
    let mut rig = Rig::new(CACHE_BYTES, 64 << 20, Settings::default(), Mode::Writeback);
    for block in 0..900u64 {
        rig.write(block * 12288, &[block as u8; 4096], false);
    }
    for block in 0..300u64 {
        rig.write(block * 24576, &[block as u8 ^ 0xff; 4096], false);
        rig.read(block * 16384, 4096);
    }
    rig.simple(RequestKind::Discard, 12288, 4096);
    rig.simple(RequestKind::Flush, 0, 0);
    rig.settle();
    rig.engine.limit_writeback();
    for block in 0..50u64 {
        rig.write(block * 36864, &[block as u8 + 100; 4096], false);
    }
    rig.simple(RequestKind::Flush, 0, 0);
    rig.engine.settle();
    rig.settle();
    rig.engine.hold();
    rig.settle();
    let superblock = Superblock::read(&mut rig.cache).expect("it is there");
    let parts = write_checkpoint(&mut rig.engine, &superblock, &mut rig.cache);
    Stopped {
        cache: rig.cache,
        parts,
    }
}

fn write_checkpoint(engine: &mut Engine, superblock: &Superblock, cache: &mut Disk) -> Vec<u64> {
    let checkpoint = engine
        .begin_checkpoint(&superblock.geometry)
        .expect("there is room for one");
    let mut addresses = Vec::new();
    for number in 0..checkpoint.parts() {
        let (address, part) = engine.checkpoint_part(&checkpoint, number);
        cache.write(address, &part).expect("memory");
        addresses.push(address);
    }
    let mut head = CheckpointHead::new(superblock);
    head.add(0, checkpoint.first_place());
    head.write(superblock, cache).expect("memory");
    addresses
}

fn start(cache: &mut Disk, from_checkpoint: bool) -> Attached {
    let options = AttachOptions {
        boot_id: BOOT,
        accept_damage: false,
        without_missing: false,
        from_checkpoint,
    };
    attach(cache, &mut [], &options).expect("a sound cache")
}

fn is_from_checkpoint(attached: &Attached) -> bool {
    attached.report.shards[0].from_checkpoint
}

/// Whether a start goes by its checkpoint; it serves what all summaries say in either case.
fn goes_by_checkpoint(cache: &Disk) -> bool {
    let scanned = start(&mut cache.clone(), false);
    assert!(!is_from_checkpoint(&scanned));
    let attached = start(&mut cache.clone(), true);
    assert_eq!(attached.difference(&scanned), None);
    is_from_checkpoint(&attached)
}

#[test]
fn a_start_goes_by_the_checkpoint_of_the_stop_before_it() {
    let mut stopped = stopped();
    assert!(goes_by_checkpoint(&stopped.cache));
    let attached = start(&mut stopped.cache, true);
    assert!(attached.report.cached_blocks() > 900 && attached.report.dirty_blocks() > 0);
    let again = start(&mut stopped.cache, true);
    assert!(!is_from_checkpoint(&again), "an epoch too late");
    assert_eq!(
        again.report.cached_blocks(),
        attached.report.cached_blocks()
    );
}

#[test]
fn a_checkpoint_that_is_damaged_anywhere_is_none() {
    let stopped = stopped();
    assert!(stopped.parts.len() >= 4);
    let head = 128 << 10;
    for address in stopped.parts.iter().copied().chain([head]) {
        for at in [0, 9, 40] {
            let mut cache = stopped.cache.clone();
            cache.0[address as usize + at] ^= 0x10;
            assert!(!goes_by_checkpoint(&cache), "{address:#x} + {at}");
        }
    }
}

/// The next life uses the free segments that have the parts.
#[test]
fn a_checkpoint_of_a_start_that_was_cut_short_is_not_believed() {
    let mut stopped = stopped();
    let mut superblock = Superblock::read(&mut stopped.cache).expect("it is there");
    superblock.epoch += 1;
    superblock.write(&mut stopped.cache).expect("memory");
    assert!(!goes_by_checkpoint(&stopped.cache));
}

/// A volume can be taken off while nothing is attached, and its blocks with it.
#[test]
fn a_superblock_that_was_written_since_ends_a_checkpoint() {
    let mut stopped = stopped();
    let mut superblock = Superblock::read(&mut stopped.cache).expect("it is there");
    superblock.write(&mut stopped.cache).expect("memory");
    assert!(!goes_by_checkpoint(&stopped.cache));
}

#[test]
fn a_life_after_a_checkpoint_leaves_another() {
    let mut stopped = stopped();
    let mut ram = Ram::new(64 << 20);
    let mut attached = start(&mut stopped.cache, true);
    assert!(is_from_checkpoint(&attached));
    let cached = attached.report.cached_blocks();
    let recovered = attached.shards.remove(0);
    let mut engine = Engine::new(Settings::default(), recovered, BOOT, &mut ram);
    engine.hold();
    write_checkpoint(&mut engine, &attached.superblock, &mut stopped.cache);
    assert!(goes_by_checkpoint(&stopped.cache));
    let again = start(&mut stopped.cache, true);
    assert_eq!(again.report.cached_blocks(), cached);
}

/// The highest number that there is, with the right checksum: no attach may break down over it.
#[test]
fn a_head_of_the_highest_epoch_is_none() {
    let mut stopped = stopped();
    let superblock = Superblock::read(&mut stopped.cache).expect("it is there");
    let mut head = CheckpointHead::new(&superblock);
    (head.epoch, head.sequence) = (u32::MAX, u64::MAX);
    head.write(&superblock, &mut stopped.cache).expect("memory");
    assert!(!goes_by_checkpoint(&stopped.cache));
}

/// With the right checksums, by a program with a mistake: slots that the table does not name, segments
/// that no stream has. What is in a slot is believed: its part is the second.
#[test]
fn a_checkpoint_that_contradicts_itself_is_none() {
    let stopped = stopped();
    let parts = stopped.parts.iter().enumerate();
    for (number, address) in parts.filter(|(number, _)| *number != 1) {
        let mut cache = stopped.cache.clone();
        forge(&mut cache.0[*address as usize..]);
        assert!(!goes_by_checkpoint(&cache), "part {number}");
    }
}

/// Changes the elements of the part that begins here, and gives it the checksum that it has to have.
fn forge(bytes: &mut [u8]) {
    const PAGE: usize = 4096;
    let seed = crc32c(&[1; 16]);
    let sum = |part: &[u8]| {
        let sum = crc32c_append(crc32c_append(seed, &part[..8]), &[0; 4]);
        crc32c_append(sum, &part[12..])
    };
    let said = u32::from_le_bytes(bytes[8..12].try_into().expect("four bytes"));
    let len_bytes = (PAGE..=bytes.len()).step_by(PAGE);
    let mut whole = len_bytes.filter(|len_bytes| sum(&bytes[..*len_bytes]) == said);
    let len_bytes = whole.next().expect("its length");
    let part = &mut bytes[..len_bytes];
    part[PAGE..PAGE + 64]
        .iter_mut()
        .for_each(|byte| *byte ^= 0xff);
    let sum = sum(part).to_le_bytes();
    part[8..12].copy_from_slice(&sum);
}
