//! Recovery of a full cache of 64 GiB: bytes read for each segment.

use std::collections::HashMap;

use forebay_engine::format::{
    Entry, EntryList, SegmentId, Sequence, Summary, SummaryKind, header::State,
};
use forebay_engine::{
    AttachOptions, BlockKey, CacheId, DATA_OFFSET_BYTES, DeviceError, Geometry, Storage, attach,
    create,
};

use crate::Figure;
use forebay_virtual::Blank;

/// A full cache whose segments are made up as they are read: each sealed, all its blocks live.
struct Generated {
    head: Blank,
    geometry: Geometry,
    id: CacheId,
    read_bytes: u64,
    written: HashMap<u64, Vec<u8>>,
}

impl Generated {
    fn summary(&self, segment: u32) -> Vec<u8> {
        let geometry = self.geometry;
        let first = geometry.first_slot() as u16 + 1;
        let count = geometry.slots_per_segment() as u16 - first;
        let generation = Sequence::new(1, 1 + u64::from(segment) * 10_000);
        let mut entries = EntryList::default();
        for i in 0..count {
            // Scattered keys, so that each block takes an entry of its own: the largest summary.
            let key = BlockKey((u64::from(i) * 40_000 + u64::from(segment)) * 2);
            let entry = Entry::Data {
                key,
                slot: first + i,
                count: 1,
                dirty: false,
            };
            entries.push(generation.number + 1 + u64::from(i), entry, &[u32::from(i)]);
        }
        let summary = Summary {
            shard: 0,
            segment: SegmentId(segment),
            which: 0,
            kind: SummaryKind::Seal,
            stream: forebay_engine::Stream::Main,
            generation,
            end_slot: geometry.slots_per_segment() as u16,
            last_number: generation.number + u64::from(count),
            state: State {
                known_durable: Sequence::new(1, u64::MAX >> 20),
                ..State::default()
            },
            entries,
        };
        let mut bytes = vec![0; summary.encoded_bytes()];
        summary.encode(self.id, &mut bytes);
        bytes
    }
}

impl Storage for Generated {
    fn size_bytes(&self) -> u64 {
        self.head.size_bytes()
    }

    fn read(&mut self, offset_bytes: u64, into: &mut [u8]) -> Result<(), DeviceError> {
        let first = DATA_OFFSET_BYTES;
        if offset_bytes < first {
            return self.head.read(offset_bytes, into);
        }
        self.read_bytes += into.len() as u64;
        into.fill(0);
        let segment_bytes = u64::from(self.geometry.segment_bytes);
        let segment = (offset_bytes - first) / segment_bytes;
        let is_start = (offset_bytes - first).is_multiple_of(segment_bytes);
        // A few segments stay free, as in a real cache.
        if is_start && !segment.is_multiple_of(64) {
            let summary = self.summary(segment as u32);
            into[..summary.len()].copy_from_slice(&summary);
        }
        Ok(())
    }

    fn write(&mut self, offset_bytes: u64, from: &[u8]) -> Result<(), DeviceError> {
        self.written.insert(offset_bytes, Vec::new());
        self.head.write(offset_bytes, from)
    }

    fn flush(&mut self) -> Result<(), DeviceError> {
        Ok(())
    }
}

pub(crate) fn measure() -> Vec<Figure> {
    let size_bytes = 64u64 << 30;
    let geometry = Geometry::for_device(size_bytes, 4096, Some(1), 1).expect("large enough");
    let id = CacheId([9; 16]);
    let mut device = Generated {
        head: Blank::new(size_bytes),
        geometry,
        id,
        read_bytes: 0,
        written: HashMap::new(),
    };
    let mut superblock = create(&mut device, id, geometry).expect("a blank device");
    superblock.epoch = 1;
    superblock
        .add_volume("full", 1 << 45, 1)
        .expect("room for a volume");
    superblock.write(&mut device).expect("memory does not fail");
    let options = AttachOptions {
        boot_id: [1; 16],
        accept_damage: false,
        without_missing: false,
    };
    let began = std::time::Instant::now();
    let attached = attach(&mut device, &mut [], &options).expect("a sound cache");
    let seconds = began.elapsed().as_secs_f64();
    let cached = attached.report.cached_blocks();
    let segments = f64::from(geometry.segments_per_shard);
    assert!(
        cached as f64 > segments * 480.0,
        "the cache is full: {cached} blocks in {segments} segments"
    );
    vec![
        Figure::new(
            "recovery of 64 GiB: MiB read",
            device.read_bytes as f64 / f64::from(1 << 20),
            700.0,
        ),
        Figure::new(
            "recovery of 64 GiB: reads of metadata for each segment",
            device.read_bytes as f64 / segments / 20480.0,
            1.0,
        ),
        Figure::new(
            "recovery of 64 GiB: seconds of CPU (beside)",
            seconds,
            f64::INFINITY,
        ),
    ]
}
