//! The start of a full cache of 64 GiB, after a crash and after an orderly stop: bytes read and
//! written, and time.

use std::collections::HashMap;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::time::{Duration, Instant};

use forebay_engine::format::{
    DurablePosition, Entry, EntryList, Link, SegmentId, Sequence, Summary, SummaryKind,
    header::State,
};
use forebay_engine::{
    AttachOptions, Attached, BlockKey, CacheId, CheckpointHead, DATA_OFFSET_BYTES, DeviceError,
    Engine, Geometry, Settings, Storage, Stream, attach, create,
};

use crate::Figure;
use crate::rig::Ram;
use forebay_virtual::Blank;

/// Of so many segments one is free.
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
    /// Parts of its checkpoint, by their addresses.
    parts: HashMap<u64, Vec<u8>>,
    /// Durable positions that each summary says: the last segment of each stream.
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

    fn summary(&self, shard: u16, segment: u32) -> Vec<u8> {
        let geometry = self.geometry;
        let stream = self.stream(segment);
        let first = geometry.first_slot() as u16 + 1;
        let count = geometry.slots_per_segment() as u16 - first;
        let generation = Self::generation(segment);
        let mut entries = EntryList::default();
        // Scattered keys, so that each block takes an entry of its own: the largest summary.
        let segments = u64::from(geometry.segments_per_shard);
        let region_blocks = u64::from(geometry.region_bytes / geometry.block_bytes);
        let key = |i: u16| {
            let nth = (u64::from(i) * segments + u64::from(segment)) * 2;
            let region = nth / region_blocks * u64::from(geometry.shards) + u64::from(shard);
            BlockKey(region * region_blocks + nth % region_blocks)
        };
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
            shard,
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
        if let Some(part) = self.parts.get(&offset_bytes) {
            into.copy_from_slice(part);
            return Ok(());
        }
        into.fill(0);
        let segment_bytes = u64::from(self.geometry.segment_bytes);
        let segment = (offset_bytes - first) / segment_bytes;
        let is_start = (offset_bytes - first).is_multiple_of(segment_bytes);
        // A few segments stay free, as in a real cache.
        if is_start && !segment.is_multiple_of(u64::from(FREE_EVERY)) {
            let began = Instant::now();
            let summary = self.summary(0, segment as u32);
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

/// Stops a cache that nobody has used, and leaves its checkpoint.
fn stop(device: &mut Generated, mut attached: Attached) {
    let recovered = attached.shards.remove(0);
    let mut ram = Ram::new(4096, 48);
    let mut engine = Engine::new(Settings::default(), recovered, [1; 16], &mut ram);
    engine.hold();
    let checkpoint = engine
        .begin_checkpoint(&device.geometry)
        .expect("there is room for one");
    for number in 0..checkpoint.parts() {
        let (address, part) = engine.checkpoint_part(&checkpoint, number);
        device.parts.insert(address, part);
    }
    let mut head = CheckpointHead::new(&attached.superblock);
    head.add(0, checkpoint.first_place());
    head.write(&attached.superblock, device)
        .expect("memory does not fail");
}

/// A full cache of this size, of which the superblock alone is there.
fn generated(size_bytes: u64, shards: u16) -> Generated {
    let geometry =
        Geometry::for_device(size_bytes, 4096, Some(shards), shards).expect("large enough");
    let id = CacheId([9; 16]);
    let mut device = Generated {
        head: Blank::new(size_bytes),
        geometry,
        id,
        read_bytes: 0,
        written_bytes: 0,
        parts: HashMap::new(),
        durable: Default::default(),
        made_up_in: Duration::ZERO,
    };
    device.durable = device.last_segments();
    let mut superblock = create(&mut device, id, geometry).expect("a blank device");
    superblock.epoch = 1;
    superblock
        .add_volume("full", 2 * size_bytes, 1)
        .expect("room for a volume");
    superblock.write(&mut device).expect("memory does not fail");
    device
}

/// Writes a full cache of this size and so many shards to a sparse file, of which the superblock and a
/// summary of each segment take room: 1 % of the size. Its volume, `full`, has twice the size.
///
/// # Errors
/// If the file cannot be written.
pub(crate) fn write_image(path: &Path, size_bytes: u64, shards: u16) -> std::io::Result<()> {
    let mut device = generated(size_bytes, shards);
    let file = File::create(path)?;
    file.set_len(size_bytes)?;
    let mut head = vec![0; DATA_OFFSET_BYTES as usize];
    device
        .head
        .read(0, &mut head)
        .map_err(std::io::Error::other)?;
    file.write_all_at(&head, 0)?;
    let Geometry {
        segment_bytes,
        segments_per_shard,
        ..
    } = device.geometry;
    for shard in 0..shards {
        let is_used = |segment: &u32| !segment.is_multiple_of(FREE_EVERY);
        for segment in (0..segments_per_shard).filter(is_used) {
            // In a new cache the shards' segments alternate.
            let nth = u64::from(segment) * u64::from(shards) + u64::from(shard);
            let at = DATA_OFFSET_BYTES + nth * u64::from(segment_bytes);
            file.write_all_at(&device.summary(shard, segment), at)?;
        }
    }
    file.sync_all()
}

pub(crate) fn measure() -> Result<Vec<Figure>, String> {
    let mut device = generated(64 << 30, 1);
    let options = AttachOptions {
        boot_id: [1; 16],
        accept_damage: false,
        without_missing: false,
        from_checkpoint: true,
    };
    let began = Instant::now();
    let attached = attach(&mut device, &mut [], &options).expect("a sound cache");
    let seconds = (began.elapsed() - device.made_up_in).as_secs_f64();
    let cached = attached.report.cached_blocks();
    let segments = f64::from(device.geometry.segments_per_shard);
    assert!(
        cached as f64 > segments * 440.0,
        "the cache is full: {cached} blocks in {segments} segments"
    );
    let (read_bytes, written_bytes) = (device.read_bytes, device.written_bytes);
    stop(&mut device, attached);
    device.read_bytes = 0;
    let began = Instant::now();
    let again = attach(&mut device, &mut [], &options).expect("a sound cache");
    let seconds_after_stop = began.elapsed().as_secs_f64();
    assert!(again.report.shards[0].from_checkpoint, "it is sound");
    assert_eq!(again.report.cached_blocks(), cached);
    Ok(vec![
        Figure::new(
            "recovery of 64 GiB: MiB read",
            read_bytes as f64 / f64::from(1 << 20),
            700.0,
        ),
        Figure::new(
            "recovery of 64 GiB: reads of metadata for each segment",
            read_bytes as f64 / segments / 20480.0,
            1.0,
        ),
        Figure::new(
            "recovery of 64 GiB: MiB written",
            written_bytes as f64 / f64::from(1 << 20),
            1.0,
        ),
        Figure::new(
            "recovery: seconds of CPU for 100 GiB (beside)",
            seconds * 100.0 / 64.0,
            f64::INFINITY,
        ),
        Figure::new(
            "start after an orderly stop, 64 GiB: MiB read",
            device.read_bytes as f64 / f64::from(1 << 20),
            240.0,
        ),
        Figure::new(
            "start after an orderly stop: seconds of CPU for 2 TiB (beside)",
            seconds_after_stop * 2048.0 / 64.0,
            f64::INFINITY,
        ),
    ])
}
