//! Tests: recovery finds the promise of a renewal below the open segment (I19, decision 15) in any
//! header that says it. A renewal that was durable and has rotted is damage, not absence (I14).

use crate::format::header::State;
use crate::format::{
    BlockKey, CacheId, DurablePosition, Entry, EntryList, Geometry, Header, Link, SegmentId,
    Sequence, Stream, Summary, SummaryKind, Superblock,
};
use crate::interface::{DeviceError, Storage};
use crate::recovery::attach::create;
use crate::recovery::{RecoverOptions, RecoveryError, recover};

struct Disk(Vec<u8>);

impl Storage for Disk {
    fn size_bytes(&self) -> u64 {
        self.0.len() as u64
    }

    fn read(&mut self, offset_bytes: u64, into: &mut [u8]) -> Result<(), DeviceError> {
        let from = self.0.get(offset_bytes as usize..).unwrap_or(&[]);
        let from = from.get(..into.len()).ok_or(DeviceError::Io)?;
        into.copy_from_slice(from);
        Ok(())
    }

    fn write(&mut self, offset_bytes: u64, from: &[u8]) -> Result<(), DeviceError> {
        let start = offset_bytes as usize;
        let into = self.0.get_mut(start..start + from.len());
        into.ok_or(DeviceError::Io)?.copy_from_slice(from);
        Ok(())
    }

    fn flush(&mut self) -> Result<(), DeviceError> {
        Ok(())
    }
}

const ID: CacheId = CacheId([1; 16]);
const RENEWED: SegmentId = SegmentId(0);
const YOUNG: SegmentId = SegmentId(1);
const OPEN: SegmentId = SegmentId(2);
const END_SLOT: u16 = 8;

/// The contents of a header of the open segment.
#[derive(Clone, Copy)]
enum Says {
    /// Encoded before the renewal was durable.
    Before,
    /// After: it leads to the renewal, and main's tail is past the old position.
    After,
    /// Lost in the power cut.
    Lost,
}

struct Device {
    disk: Disk,
    superblock: Superblock,
}

/// Generations: the renewed segment had 10, the young one has 20, the renewal 30, the open one 40.
fn generation(number: u64) -> Sequence {
    Sequence::new(1, number)
}

impl Device {
    fn new() -> Device {
        let mut disk = Disk(vec![0; 64 << 20]);
        let geometry = Geometry::for_device(64 << 20, 4096, Some(1), 1).unwrap();
        let mut superblock = create(&mut disk, ID, geometry).unwrap();
        superblock.epoch = 1;
        Device { disk, superblock }
    }

    fn state(&self, says: Says) -> State {
        let (tail, previous) = match says {
            Says::After => (20, link(RENEWED, 30)),
            Says::Before | Says::Lost => (10, link(YOUNG, 20)),
        };
        let mut tails = [Sequence::ZERO; Stream::COUNT];
        tails[Stream::Main as usize] = generation(tail);
        let mut durable = [DurablePosition::default(); Stream::COUNT];
        durable[Stream::Main as usize] = DurablePosition {
            generation: generation(40),
            end_slot: self.first_slot() + 2,
        };
        State {
            known_durable: generation(41),
            tails,
            durable,
            previous: Some(previous),
        }
    }

    fn first_slot(&self) -> u16 {
        self.superblock.geometry.first_slot() as u16
    }

    fn summary(&mut self, segment: SegmentId, number: u64, which: u8, kind: SummaryKind) {
        let mut entries = EntryList::with_capacity(4096);
        let entry = Entry::Data {
            key: BlockKey(u64::from(segment.0)),
            slot: self.first_slot() + 1,
            count: 1,
            dirty: false,
        };
        entries.push(number + 1, entry, &[7]);
        let summary = Summary {
            shard: 0,
            segment,
            which,
            kind,
            stream: Stream::Main,
            generation: generation(number),
            end_slot: END_SLOT,
            last_number: number + 1,
            state: State {
                previous: None,
                ..self.state(Says::Before)
            },
            entries,
        };
        let mut bytes = vec![0; summary.encoded_bytes()];
        let map = self.superblock.segment_map(0);
        summary.encode(map.id_in(segment), &mut bytes);
        let at = map.place_address(segment) + map.summary_offset(which);
        self.disk.write(at, &bytes).unwrap();
    }

    /// A record of one block in the open segment.
    fn record(&mut self, nth: u16, says: Says) {
        if matches!(says, Says::Lost) {
            return;
        }
        let slot = self.first_slot() + 2 * nth;
        let mut entries = EntryList::with_capacity(4096);
        let entry = Entry::Data {
            key: BlockKey(100 + u64::from(nth)),
            slot: slot + 1,
            count: 1,
            dirty: false,
        };
        entries.push(41 + u64::from(nth), entry, &[7]);
        let header = Header {
            shard: 0,
            segment: OPEN,
            slot,
            stream: Stream::Main,
            generation: generation(40),
            blocks: 1,
            combined: false,
            state: self.state(says),
            entries,
        };
        let mut page = vec![0; 4096];
        let map = self.superblock.segment_map(0);
        header.encode(map.id_in(OPEN), &mut page);
        let at = map.header_address_at(self.superblock.geometry.slot(OPEN, slot), 0);
        self.disk.write(at, &page).unwrap();
    }
}

fn link(segment: SegmentId, number: u64) -> Link {
    Link {
        segment,
        generation: generation(number),
        end_slot: END_SLOT,
    }
}

/// Recovers a cache whose open segment has these headers, with the renewal or without.
fn recovered(headers: [Says; 3], renewal_is_there: bool) -> Result<(), RecoveryError> {
    let mut device = Device::new();
    device.summary(RENEWED, 10, 0, SummaryKind::Seal);
    device.summary(YOUNG, 20, 0, SummaryKind::Seal);
    if renewal_is_there {
        device.summary(RENEWED, 30, 1, SummaryKind::Renewal);
    }
    for (nth, says) in (0..).zip(headers) {
        device.record(nth, says);
    }
    let options = RecoverOptions {
        accept_damage: false,
        write: false,
        promise: None,
        first_part: None,
    };
    let superblock = device.superblock;
    recover(&mut device.disk, &superblock, 0, vec![], false, options).map(|_| ())
}

const CASES: [(&str, [Says; 3]); 3] = [
    (
        "the last one says it",
        [Says::Before, Says::Before, Says::After],
    ),
    (
        "one says it that was encoded after the last, whose data came sooner",
        [Says::Before, Says::After, Says::Before],
    ),
    (
        "one says it behind another that was lost",
        [Says::Before, Says::Lost, Says::After],
    ),
];

#[test]
fn a_promised_renewal_that_is_missing_is_damage() {
    for (case, headers) in CASES {
        let result = recovered(headers, false);
        let Err(RecoveryError::Damaged(lost)) = result else {
            panic!("{case}: {result:?}");
        };
        assert!(lost[0].contains("is missing"), "{case}: {lost:?}");
    }
}

#[test]
fn one_that_is_there_is_not() {
    for (case, headers) in CASES {
        assert!(recovered(headers, true).is_ok(), "{case}");
    }
    let unsaid = [Says::Before, Says::Before, Says::Before];
    assert!(recovered(unsaid, false).is_ok(), "nothing was promised");
}

/// A first header that was zeroed is no sign that its segment was never used again since it died:
/// the headers behind it say how far entries were durable.
#[test]
fn a_zeroed_first_header_is_damage_if_others_vouch_for_it() {
    for (summary_before, is_damage) in [(true, true), (false, false)] {
        let mut device = Device::new();
        if summary_before {
            device.summary(OPEN, 5, 0, SummaryKind::Seal);
        }
        for nth in 0..3 {
            device.record(nth, Says::Before);
        }
        let first = device.superblock.geometry.slot(OPEN, device.first_slot());
        let at = device.superblock.segment_map(0).header_address_at(first, 0);
        device.disk.write(at, &[0; 4096]).unwrap();
        let options = RecoverOptions {
            accept_damage: false,
            write: false,
            promise: None,
            first_part: None,
        };
        let superblock = device.superblock;
        let result = recover(&mut device.disk, &superblock, 0, vec![], false, options);
        // Without anything before it the segment looks as if it had never been used.
        assert_eq!(
            matches!(result, Err(RecoveryError::Damaged(_))),
            is_damage,
            "{summary_before}"
        );
    }
}
