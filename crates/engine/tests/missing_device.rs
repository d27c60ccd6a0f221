//! Starts of a cache with two copies while a device is missing (I28): a start that is refused has put no
//! device out, so that the cache is whole as soon as the device is back.

mod common;

use common::{BOOT, Disk, Ram, Rig};
use forebay_engine::format::extents::place_of;
use forebay_engine::format::geometry::DATA_OFFSET_BYTES;
use forebay_engine::{
    AttachError, AttachOptions, CacheId, DeviceError, Geometry, IdentifyError, Joined, Mode, Nanos,
    RecoveryError, RequestKind, Settings, Storage, Superblock, attach, create,
    identify_those_given,
};

const DEVICE_BYTES: usize = 16 << 20;
const ORIGIN_BYTES: usize = 64 << 20;
const BLOCKS: u64 = 300;
const BLOCK: usize = 4096;

/// Devices, of which one can be missing, one can fail all writes, and the first can have a bad page.
#[derive(Clone)]
struct Devices {
    devices: Vec<Disk>,
    missing: Option<u8>,
    read_only: Option<u8>,
    /// The offset of a page of the first that cannot be read.
    bad_page: Option<u64>,
}

impl Devices {
    fn place(&mut self, address: u64) -> Result<(&mut Disk, u64), DeviceError> {
        let (number, offset_bytes) = place_of(address);
        match self.missing {
            Some(missing) if missing == number => Err(DeviceError::Gone),
            _ => Ok((&mut self.devices[usize::from(number)], offset_bytes)),
        }
    }
}

impl Storage for Devices {
    fn size_bytes(&self) -> u64 {
        DEVICE_BYTES as u64
    }

    fn device_numbers(&self) -> Vec<u8> {
        let is_there = |number: &u8| Some(*number) != self.missing;
        (0..self.devices.len() as u8).filter(is_there).collect()
    }

    fn size_of(&self, _number: u8) -> u64 {
        DEVICE_BYTES as u64
    }

    fn read(&mut self, offset_bytes: u64, into: &mut [u8]) -> Result<(), DeviceError> {
        let range = offset_bytes..offset_bytes + into.len() as u64;
        if self.bad_page.is_some_and(|page| range.contains(&page)) {
            return Err(DeviceError::Io);
        }
        let (disk, offset_bytes) = self.place(offset_bytes)?;
        disk.read(offset_bytes, into)
    }

    fn write(&mut self, offset_bytes: u64, from: &[u8]) -> Result<(), DeviceError> {
        if self.read_only == Some(place_of(offset_bytes).0) {
            return Err(DeviceError::Io);
        }
        let (disk, offset_bytes) = self.place(offset_bytes)?;
        disk.write(offset_bytes, from)
    }

    fn flush(&mut self) -> Result<(), DeviceError> {
        Ok(())
    }
}

/// A cache of two devices that has written blocks on both and flushed them.
fn written() -> Devices {
    written_on(2)
}

/// A cache of so many devices, written likewise.
fn written_on(count: usize) -> Devices {
    let mut devices = Devices {
        devices: vec![Disk(vec![0; DEVICE_BYTES]); count],
        missing: None,
        read_only: None,
        bad_page: None,
    };
    let geometry = Geometry::for_device(DEVICE_BYTES as u64, BLOCK as u32, Some(1), 1).unwrap();
    let mut superblock = create(&mut devices, CacheId([1; 16]), geometry).unwrap();
    for _ in 1..count {
        let added = superblock.add_device(DEVICE_BYTES as u64).unwrap();
        superblock.grow(added, DEVICE_BYTES as u64).unwrap();
    }
    superblock.set_copies(2);
    superblock
        .add_volume("test", ORIGIN_BYTES as u64, Mode::Writeback as u8)
        .unwrap();
    superblock.write(&mut devices).unwrap();
    let mut rig = start(devices);
    for block in 0..BLOCKS {
        rig.write(block * 2 * BLOCK as u64, &[block as u8; BLOCK], false);
    }
    rig.simple(RequestKind::Flush, 0, 0);
    // Then a header says how far the flush went (I14).
    rig.now = rig.now.after(Nanos(200_000_000));
    while rig.turn() {}
    rig.cache
}

fn start(devices: Devices) -> Rig<Devices> {
    let origin = Disk(vec![0; ORIGIN_BYTES]);
    Rig::attach(
        devices,
        origin,
        Ram::new(64 << 20),
        Settings::default(),
        Mode::Writeback,
    )
}

/// Attaches after a power cut. Returns the number of dirty blocks, too.
fn attach_without(devices: &mut Devices, missing: u8) -> Result<(Superblock, u64), AttachError> {
    attach_without_and(devices, missing, false)
}

/// Attaches likewise, where what was on the missing device alone may be given up.
fn attach_without_and(
    devices: &mut Devices,
    missing: u8,
    accept_damage: bool,
) -> Result<(Superblock, u64), AttachError> {
    devices.missing = Some(missing);
    let options = AttachOptions {
        boot_id: BOOT,
        accept_damage,
        without_missing: true,
        from_checkpoint: true,
    };
    let attached = attach(devices, &mut [], &options);
    devices.missing = None;
    attached.map(|attached| (attached.superblock, attached.report.dirty_blocks()))
}

fn holds_all(devices: Devices) -> bool {
    let mut rig = start(devices);
    (0..BLOCKS)
        .all(|block| rig.read(block * 2 * BLOCK as u64, BLOCK as u32) == [block as u8; BLOCK])
}

#[test]
fn either_device_may_be_missing() {
    for missing in [0, 1] {
        let mut pair = written();
        let (superblock, dirty_blocks) = attach_without(&mut pair, missing).unwrap();
        assert_eq!(dirty_blocks, BLOCKS);
        let out: Vec<u8> = superblock.devices_out().map(|on| on.number).collect();
        assert_eq!(out, [missing]);
    }
}

/// The other device has rotted: only with both is everything there.
#[test]
fn a_start_refused_for_damage_puts_no_device_out() {
    let written = written();
    let pages = (0..DEVICE_BYTES).step_by(BLOCK);
    let is_header = |at: &usize| written.devices[0].0[*at..].starts_with(b"FBRH");
    let mut refused = 0;
    for header in pages.filter(is_header) {
        let mut pair = written.clone();
        pair.devices[0].0[header + 60] ^= 1;
        let rotted = pair.devices[0].0.clone();
        match attach_without(&mut pair, 1) {
            // The segment's summary says it all.
            Ok((_, dirty_blocks)) => {
                assert_eq!(dirty_blocks, BLOCKS);
                continue;
            }
            Err(AttachError::Shard {
                source: RecoveryError::Damaged(_),
                ..
            }) => {}
            Err(other) => panic!("{other}"),
        }
        refused += 1;
        assert!(pair.devices[0].0 == rotted, "nothing is written");
        assert!(holds_all(pair));
    }
    assert!(refused > 0, "no header is missed");
}

/// Since the other was lost a device has all dirty data alone, and is missing once a third has come. The
/// second device takes the third's part here.
#[test]
fn a_device_that_has_dirty_data_alone_is_waited_for() {
    let mut pair = written();
    let (mut superblock, _) = attach_without(&mut pair, 1).unwrap();
    let gone: Vec<_> = (superblock.extents.iter())
        .filter(|extent| extent.device == 1)
        .map(|extent| extent.first_segment..extent.first_segment + extent.segments)
        .collect();
    superblock.shrink(&gone);
    let added = superblock.add_device(DEVICE_BYTES as u64).unwrap();
    superblock.grow(added, DEVICE_BYTES as u64).unwrap();
    superblock.write(&mut pair).unwrap();

    let before = pair.devices[1].0.clone();
    assert_eq!(
        attach_without(&mut pair, 0).unwrap_err(),
        AttachError::Alone(vec![0])
    );
    assert!(pair.devices[1].0 == before, "nothing is written");
    assert!(holds_all(pair));
}

/// An administrator gives up a device that is missing. One that is given, and fails just then, is not
/// given up with it: it may have dirty data alone.
#[test]
fn a_device_that_fails_is_not_given_up_with_one_that_is_missing() {
    let mut devices = written_on(3);
    devices.read_only = Some(0);
    assert_eq!(
        attach_without_and(&mut devices, 2, true).unwrap_err(),
        AttachError::Alone(vec![0, 2])
    );
    devices.read_only = None;
    let (superblock, _) = attach_without_and(&mut devices, 2, true).unwrap();
    let out: Vec<u8> = superblock.devices_out().map(|on| on.number).collect();
    assert_eq!(out, [2]);
}

/// A device that takes no writes is met only when another is about to be put out for good.
#[test]
fn a_start_refused_for_a_device_that_takes_no_writes_puts_no_other_out() {
    for accept_damage in [false, true] {
        for read_only in [0, 1] {
            let mut devices = written_on(3);
            devices.read_only = Some(read_only);
            attach_without_and(&mut devices, 2, accept_damage).unwrap_err();
            devices.read_only = None;
            assert!(holds_all(devices));
        }
    }
}

/// Another device was added to one that has all dirty data alone. A page of that cannot be read, in a
/// segment of which a second copy is made: a page that nobody wrote.
#[test]
fn a_bad_page_keeps_no_segment_from_its_second_copy() {
    let mut devices = written_on(1);
    let mut superblock = Superblock::read(&mut devices).unwrap();
    devices.devices.push(Disk(vec![0; DEVICE_BYTES]));
    let added = superblock.add_device(DEVICE_BYTES as u64).unwrap();
    superblock.grow(added, DEVICE_BYTES as u64).unwrap();
    superblock.write(&mut devices).unwrap();
    let segment_bytes = superblock.geometry.segment_bytes as usize;
    let data = DATA_OFFSET_BYTES as usize..DEVICE_BYTES;
    let mut tried = 0;
    for start in data.step_by(segment_bytes) {
        let segment = &devices.devices[0].0[start..][..segment_bytes];
        let mut pages = segment.chunks_exact(BLOCK);
        let last_is_blank = segment[segment_bytes - BLOCK..]
            .iter()
            .all(|byte| *byte == 0);
        if !last_is_blank || !pages.any(|page| page.starts_with(b"FBRH")) {
            continue;
        }
        let mut devices = devices.clone();
        devices.bad_page = Some((start + segment_bytes - BLOCK) as u64);
        assert!(holds_all(devices));
        tried += 1;
    }
    assert!(tried > 0, "no segment is partly used");
}

/// A device that has left the cache can still be named, as by a configuration that is changed later:
/// nothing of it is needed.
#[test]
fn a_device_that_was_removed_is_left_out_where_one_may_lack() {
    for copies in [1, 2] {
        let mut disks = vec![Disk(vec![0; DEVICE_BYTES]); 3];
        let geometry = Geometry::for_device(DEVICE_BYTES as u64, BLOCK as u32, Some(1), 1).unwrap();
        let mut joined = Joined::new((0..).zip(disks.clone()).collect());
        let mut superblock = Superblock::new(CacheId([1; 16]), geometry, DEVICE_BYTES as u64);
        for _ in 1..3 {
            superblock.add_device(DEVICE_BYTES as u64).unwrap();
        }
        superblock.set_copies(copies);
        superblock.write(&mut joined).unwrap();
        superblock.devices.retain(|on| on.number != 2);
        let left = joined.remove(2).unwrap();
        superblock.write(&mut joined).unwrap();
        disks = [0, 1].map(|number| joined.remove(number).unwrap()).into();
        disks.push(left);
        let mut given: Vec<&mut dyn Storage> = disks.iter_mut().map(|disk| disk as _).collect();
        let found = identify_those_given(&mut given, &mut |_, _| false);
        if copies == 1 {
            assert_eq!(found.unwrap_err(), IdentifyError::Removed { given: 2 });
            continue;
        }
        let found = found.unwrap();
        assert_eq!(found.given[..2], [Ok(0), Ok(1)]);
        assert_eq!(found.given[2], Err(IdentifyError::Removed { given: 2 }));
        assert_eq!(found.missing, []);
    }
}
