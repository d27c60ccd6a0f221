//! Recovery of a full cache of 64 GiB, as a crash leaves it: bytes read and written, and time.

use std::time::{Duration, Instant};

use forebay_engine::format::{
    DurablePosition, Entry, EntryList, Link, SegmentId, Sequence, Summary, SummaryKind,
    header::State,
};
use forebay_engine::{
    AttachOptions, BlockKey, CacheId, DATA_OFFSET_BYTES, DeviceError, Geometry, Storage, Stream,
    attach, create,
};

use crate::Figure;
use forebay_virtual::Blank;

/// One segment in so many is free.
const FREE_EVERY: u32 = 64;
/// `Drop`s and `Clean`s in each segment: blocks come, are written back and go.
const DROPS: u16 = 16;
const CLEANS: u16 = 16;

/// A full cache whose segments are made up as they are read: each sealed, all its blocks live.
struct Generated {
    head: Blank,
    geometry: Geometry,
    id: CacheId,
    read_bytes: u64,
    written_bytes: u64,
    /// What each summary says is durable: the last segment of each stream.
    durable: [DurablePosition; Stream::COUNT],
    /// The time that making up took.
    made_up_in: Duration,
}

impl Generated {
    /// Main has most segments, as in a cache that was used for long.
    fn stream(&self, segment: u32) -> Stream {
        let segments = self.geometry.segments_per_shard;
        match segment {
            _ if segment < segments / 10 => Stream::Probation,
            _ if segment < segments / 10 * 8 => Stream::Main,
            _ => Stream::Write,
        }
    }

    fn generation(segment: u32) -> Sequence {
        Sequence::new(1, 1 + u64::from(segment) * 10_000)
    }

    /// The segment before this one in its stream.
    fn previous(&self, segment: u32) -> Option<Link> {
        let is_free_before = (segment - 1).is_multiple_of(FREE_EVERY);
        let before = (segment - 1).checked_sub(u32::from(is_free_before))?;
        (self.stream(before) == self.stream(segment)).then(|| Link {
            segment: SegmentId(before),
            generation: Self::generation(before),
            end_slot: self.geometry.slots_per_segment() as u16,
        })
    }

    /// The durable position of each stream: the last segment of each.
    fn last_segments(&self) -> [DurablePosition; Stream::COUNT] {
        let segments = self.geometry.segments_per_shard;
        Stream::ALL.map(|stream| {
            let is_last = |segment: &u32| {
                !segment.is_multiple_of(FREE_EVERY) && self.stream(*segment) == stream
            };
            let last = (0..segments)
                .rev()
                .find(is_last)
                .expect("all streams are there");
            DurablePosition {
                generation: Self::generation(last),
                end_slot: self.geometry.slots_per_segment() as u16,
            }
        })
    }

    fn summary(&self, segment: u32) -> Vec<u8> {
        let geometry = self.geometry;
        let stream = self.stream(segment);
        let first = geometry.first_slot() as u16 + 1;
        let count = geometry.slots_per_segment() as u16 - first;
        let generation = Self::generation(segment);
        let mut entries = EntryList::default();
        // Scattered keys, so that each block takes an entry of its own: the largest summary.
        let key = |i: u16| BlockKey((u64::from(i) * 40_000 + u64::from(segment)) * 2);
        for i in 0..count {
            let entry = Entry::Data {
                key: key(i),
                slot: first + i,
                count: 1,
                dirty: stream == Stream::Write,
            };
            entries.push(generation.number + 1 + u64::from(i), entry, &[u32::from(i)]);
        }
        let mut number = generation.number + 1 + u64::from(count);
        for i in 0..DROPS {
            let key = BlockKey(key(i * 7).0 + 1);
            entries.push(number, Entry::Drop { key, count: 1 }, &[]);
            number += 2;
        }
        for i in 0..CLEANS {
            let entry = Entry::Clean {
                segment: SegmentId(segment - 1),
                slot: first + i * 5,
                count: 1,
            };
            entries.push(number, entry, &[]);
            number += 2;
        }
        let summary = Summary {
            shard: 0,
            segment: SegmentId(segment),
            which: 0,
            kind: SummaryKind::Seal,
            stream,
            generation,
            end_slot: geometry.slots_per_segment() as u16,
            last_number: number - 2,
            state: State {
                known_durable: Sequence::new(1, u64::MAX >> 20),
                durable: self.durable,
                previous: self.previous(segment),
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
        if is_start && !segment.is_multiple_of(u64::from(FREE_EVERY)) {
            let began = Instant::now();
            let summary = self.summary(segment as u32);
            self.made_up_in += began.elapsed();
            into[..summary.len()].copy_from_slice(&summary);
        }
        Ok(())
    }

    fn write(&mut self, offset_bytes: u64, from: &[u8]) -> Result<(), DeviceError> {
        if offset_bytes < DATA_OFFSET_BYTES {
            return self.head.write(offset_bytes, from);
        }
        self.written_bytes += from.len() as u64;
        Ok(())
    }

    fn flush(&mut self) -> Result<(), DeviceError> {
        Ok(())
    }
}

pub(crate) fn measure() -> Result<Vec<Figure>, String> {
    let size_bytes = 64u64 << 30;
    let geometry = Geometry::for_device(size_bytes, 4096, Some(1), 1).expect("large enough");
    let id = CacheId([9; 16]);
    let mut device = Generated {
        head: Blank::new(size_bytes),
        geometry,
        id,
        read_bytes: 0,
        written_bytes: 0,
        durable: Default::default(),
        made_up_in: Duration::ZERO,
    };
    device.durable = device.last_segments();
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
    let began = Instant::now();
    let attached = attach(&mut device, &mut [], &options).expect("a sound cache");
    let seconds = (began.elapsed() - device.made_up_in).as_secs_f64();
    let cached = attached.report.cached_blocks();
    let segments = f64::from(geometry.segments_per_shard);
    assert!(
        cached as f64 > segments * 440.0,
        "the cache is full: {cached} blocks in {segments} segments"
    );
    Ok(vec![
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
            "recovery of 64 GiB: MiB written",
            device.written_bytes as f64 / f64::from(1 << 20),
            f64::INFINITY,
        ),
        Figure::new(
            "recovery: seconds of CPU for 100 GiB (beside)",
            seconds * 100.0 / 64.0,
            f64::INFINITY,
        ),
    ])
}
