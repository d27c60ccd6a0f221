//! Blocks that faults touch: a fault showed at the place of their data or of their entries. A
//! request fails for a fault of its own blocks only, and damage makes only touched blocks wrong.

use std::collections::BTreeSet;
use std::ops::Range;

use forebay_engine::format::geometry::DATA_OFFSET_BYTES;
use forebay_engine::format::{
    DurablePosition, Entry, EntryList, Header, SegmentId, Sequence, Stream, Summary,
};
use forebay_engine::{BlockKey, CacheId, VolumeSlot};

use super::World;
use crate::device::{Device, Harmed, How};
use crate::disk::{Disk, PAGE_BYTES};
use crate::payload::{self, SECTOR_BYTES};

/// A block: its volume, and its number there.
pub(super) type Block = (u16, u64);

/// The longest summary of a simulated segment, in bytes.
const SUMMARY_BYTES: usize = 4 * PAGE_BYTES;

/// A fault.
#[derive(Debug)]
pub(super) struct Fault {
    pub(super) on_cache: bool,
    /// None if the cache was abandoned.
    pub(super) how: Option<How>,
    /// The volume of a flush.
    pub(super) volume: Option<u16>,
    /// Its blocks were tried by themselves: a longer transfer that fails is taken apart (I23).
    pub(super) is_single: bool,
    pub(super) blocks: BTreeSet<Block>,
}

/// Faults of this life of the daemon, and what lasts of all.
#[derive(Debug, Default)]
pub(super) struct Touched {
    /// In their order.
    pub(super) faults: Vec<Fault>,
    /// Blocks that stay wrong on the cache device.
    pub(super) lasting: BTreeSet<Block>,
    /// The segments that it is in, by their places on the disk.
    segments: BTreeSet<u64>,
    /// Places of a fault whose operation has not been answered: the index names what is there with
    /// the answer.
    unanswered: Vec<Range<u64>>,
    /// Some shard failed.
    pub(super) any_failed: bool,
    /// After which of the faults all had.
    pub(super) all_failed: Option<usize>,
    /// Blocks that were answered from memory and then could not be stored.
    pub(super) late: BTreeSet<Block>,
    /// Blocks of each write that may be answered from memory: a write fails as a whole.
    pub(super) written: Vec<BTreeSet<Block>>,
    /// Faults that are looked at are of a recovery, before which the cache's devices held this: it
    /// may take unreadable blocks for absent, and overwrite them.
    pub(super) before_recovery: Option<Disk>,
}

impl Touched {
    /// A moment, in numbers of faults.
    pub(super) fn now(&self) -> usize {
        self.faults.len()
    }

    /// Another daemon: earlier failures concern no request of this one.
    pub(super) fn another_life(&mut self) {
        self.faults.clear();
        self.any_failed = false;
        self.all_failed = None;
        self.late.clear();
        self.written.clear();
    }
}

impl World<'_> {
    /// Takes note of the faults of all devices.
    pub(super) fn look_at_harm(&mut self) {
        for harmed in std::mem::take(&mut self.cache.harmed) {
            self.note_on_cache(&harmed);
        }
        for volume in 0..self.origins.len() {
            for harmed in std::mem::take(&mut self.origins[volume].harmed) {
                let first = self.block_of(harmed.place / SECTOR_BYTES as u64);
                let end = harmed.place + harmed.len_bytes.max(1) - 1;
                let last = self.block_of(end / SECTOR_BYTES as u64);
                let blocks: BTreeSet<Block> =
                    (first..=last).map(|block| (volume as u16, block)).collect();
                if self.plan.config.buffer_bytes > 0 && harmed.how == How::Write {
                    let Touched { late, written, .. } = &mut self.touched;
                    let written = written.iter().filter(|whole| !whole.is_disjoint(&blocks));
                    late.extend(written.flatten().chain(&blocks));
                }
                self.touched.faults.push(Fault {
                    on_cache: false,
                    how: Some(harmed.how),
                    volume: None,
                    is_single: true,
                    blocks,
                });
            }
        }
    }

    fn note_on_cache(&mut self, harmed: &Harmed) {
        let mut blocks = self.blocks_at(harmed.place, harmed.len_bytes);
        self.add_blocks_in(&harmed.contents, &mut blocks);
        self.add_blocks_named_at(harmed.place..harmed.place + harmed.len_bytes, &mut blocks);
        let lasts = harmed.how == How::Lasting
            || (self.touched.before_recovery.is_some() && harmed.how == How::Read);
        if lasts {
            self.add_blocks_below(&harmed.contents, &mut blocks);
            self.add_blocks_below(&page_at(&self.cache.disk, harmed.place), &mut blocks);
            let places = harmed.place..harmed.place + harmed.len_bytes;
            self.touched.unanswered.push(places);
            self.touched.lasting.extend(&blocks);
            let mut at = harmed.place;
            while at < harmed.place + harmed.len_bytes {
                let segment = self.segment_at(at);
                let were = self.blocks_before(segment);
                self.touched.segments.insert(segment);
                self.touched.lasting.extend(were);
                at += PAGE_BYTES as u64;
            }
        }
        let block_bytes = u64::from(self.plan.config.geometry.block_bytes);
        self.touched.faults.push(Fault {
            on_cache: true,
            how: Some(harmed.how),
            volume: None,
            is_single: harmed.how == How::Write || harmed.len_bytes <= block_bytes,
            blocks,
        });
    }

    /// An operation was answered: a lost write of zeroes is named only now.
    pub(super) fn look_at_answered(&mut self) {
        for places in std::mem::take(&mut self.touched.unanswered) {
            let mut blocks = BTreeSet::new();
            self.add_blocks_named_at(places, &mut blocks);
            self.touched.lasting.extend(blocks);
        }
    }

    /// Takes note of a flush of an origin that failed, or of a cache that failed.
    pub(super) fn note_failure(&mut self, how: Option<How>, volume: Option<u16>) {
        self.touched.faults.push(Fault {
            on_cache: volume.is_none(),
            how,
            volume,
            is_single: false,
            blocks: BTreeSet::new(),
        });
    }

    /// Takes note of it when the cache fails.
    pub(super) fn look_for_failure(&mut self) {
        let failed = |engine: &forebay_engine::Engine| engine.failure().is_some();
        if self.touched.all_failed.is_none() && self.engines().any(failed) {
            self.touched.any_failed = true;
            if self.engines().all(failed) {
                self.touched.all_failed = Some(self.touched.now());
                self.note_failure(None, None);
            }
        }
    }

    /// Adds the blocks that an index says are there: zeroes do not say it themselves.
    fn add_blocks_named_at(&self, places: Range<u64>, blocks: &mut BTreeSet<Block>) {
        let block_bytes = u64::from(self.plan.config.geometry.block_bytes);
        for (at, volume) in (0..).zip(&self.volumes) {
            for block in 0..(volume.sectors * 512).div_ceil(block_bytes) {
                let mut named = self
                    .engines()
                    .flat_map(|engine| engine.addresses_of(VolumeSlot(at), block * block_bytes));
                if named.any(|address| places.contains(&self.cache.place(address))) {
                    blocks.insert((at, block));
                }
            }
        }
    }

    /// Where the segment of a place on the disk starts.
    fn segment_at(&self, place: u64) -> u64 {
        let span = self.cache.span_bytes();
        let segment_bytes = u64::from(self.plan.config.geometry.segment_bytes);
        let start = place - place % span + DATA_OFFSET_BYTES;
        start + place.saturating_sub(start) / segment_bytes * segment_bytes
    }

    /// The blocks whose data or entries were in a segment before the recovery.
    fn blocks_before(&self, segment: u64) -> BTreeSet<Block> {
        let segment_bytes = u64::from(self.plan.config.geometry.segment_bytes);
        let before = self.touched.before_recovery.as_ref();
        before.map_or_else(BTreeSet::new, |disk| {
            self.blocks_on(disk, segment, segment_bytes)
        })
    }

    /// The blocks whose data or entries are at a place on the disk.
    fn blocks_at(&self, place: u64, len_bytes: u64) -> BTreeSet<Block> {
        self.blocks_on(&self.cache.disk, place, len_bytes)
    }

    fn blocks_on(&self, disk: &Disk, place: u64, len_bytes: u64) -> BTreeSet<Block> {
        let mut blocks = BTreeSet::new();
        let end = (place + len_bytes).min(disk.size_bytes());
        let start = place - place % PAGE_BYTES as u64;
        for at in (start..end).step_by(PAGE_BYTES) {
            match disk.page(at) {
                page if is_metadata(page) => {
                    self.add_blocks_of_page(&page_at(disk, at), &mut blocks);
                }
                page => self.add_blocks_of_page(page, &mut blocks),
            }
        }
        blocks
    }

    fn add_blocks_in(&self, contents: &[u8], blocks: &mut BTreeSet<Block>) {
        for at in (0..contents.len()).step_by(PAGE_BYTES) {
            self.add_blocks_of_page(&contents[at..], blocks);
        }
    }

    /// `bytes` start with the page, and go on with what lies behind it.
    fn add_blocks_of_page(&self, bytes: &[u8], blocks: &mut BTreeSet<Block>) {
        if !is_metadata(bytes) {
            let page = &bytes[..PAGE_BYTES.min(bytes.len())];
            for sector in page.chunks_exact(SECTOR_BYTES) {
                // Rot may have made it another place's.
                if let Some((volume, sector)) = payload::place_in(sector)
                    && let Some(state) = self.volumes.get(usize::from(volume))
                    && sector < state.sectors
                {
                    blocks.insert((volume, self.block_of(sector)));
                }
            }
            return;
        }
        if let Some(said) = Said::of(bytes) {
            blocks.extend(said.names(true).filter_map(|key| self.block_named(key)));
        }
    }

    pub(super) fn block_named(&self, key: BlockKey) -> Option<Block> {
        let block_bytes = u64::from(self.plan.config.geometry.block_bytes);
        (0..).zip(&self.volumes).find_map(|(at, volume)| {
            let blocks = (volume.sectors * 512).div_ceil(block_bytes);
            let block = key.0.checked_sub(volume.base.0)?;
            (block < blocks).then_some((at, block))
        })
    }

    /// Damage was accepted, or cannot be told from what was never there: every block that it
    /// touched may hold anything it ever held.
    pub(super) fn forget_touched(&mut self) {
        if self.keeps_two() {
            return;
        }
        let segment_bytes = u64::from(self.plan.config.geometry.segment_bytes);
        let mut blocks = self.touched.lasting.clone();
        for segment in self.touched.segments.clone() {
            // Records behind a damaged one are lost with it.
            blocks.extend(self.blocks_at(segment, segment_bytes));
            // So are those of which only the crash journal knows yet.
            self.add_blocks_named_at(segment..segment + segment_bytes, &mut blocks);
        }
        let count = blocks.len() as u64;
        self.counts().add("blocks forgotten after damage", count);
        // Records whose data is gone may count again.
        self.touched.lasting.extend(&blocks);
        let block_sectors = u64::from(self.plan.config.geometry.block_bytes) / 512;
        for (volume, block) in blocks {
            let sectors = self.volumes[usize::from(volume)].sectors;
            let first = block * block_sectors;
            for sector in first..(first + block_sectors).min(sectors) {
                self.model.forget_sector(volume, sector);
            }
        }
    }

    /// Adds what these headers and summaries say is dead: without the tails they carry it counts
    /// again, and nothing need follow them that says so.
    fn add_blocks_below(&self, contents: &[u8], blocks: &mut BTreeSet<Block>) {
        for at in (0..contents.len()).step_by(PAGE_BYTES) {
            let Some(said) = Said::of(&contents[at..]) else {
                continue;
            };
            let disk = &self.cache.disk;
            for other in said_in(disk, 0..disk.size_bytes()) {
                let is_of_shard = other.shard == said.shard;
                if is_of_shard && other.generation < said.tails[other.stream as usize] {
                    blocks.extend(other.names(true).filter_map(|key| self.block_named(key)));
                }
            }
        }
    }

    /// The blocks of a stretch of sectors.
    pub(super) fn blocks_of(&self, range: crate::model::Range) -> BTreeSet<Block> {
        if range.count == 0 {
            return BTreeSet::new();
        }
        let (first, last) = (
            self.block_of(range.sector),
            self.block_of(range.sector + range.count - 1),
        );
        (first..=last).map(|block| (range.volume, block)).collect()
    }

    /// Whether the newest copy of any of these blocks is dirty in the cache.
    pub(super) fn any_dirty(&self, blocks: &BTreeSet<Block>) -> bool {
        let block_bytes = u64::from(self.plan.config.geometry.block_bytes);
        blocks.iter().any(|(volume, block)| {
            let mut engines = self.engines();
            engines.any(|engine| {
                engine
                    .block_state(VolumeSlot(*volume), block * block_bytes)
                    .1
            })
        })
    }
}

/// The page at a place, and what a summary that starts with it has behind it.
pub(super) fn page_at(disk: &Disk, place: u64) -> Vec<u8> {
    let start = place - place % PAGE_BYTES as u64;
    let left = disk.size_bytes().saturating_sub(start) as usize;
    let mut bytes = vec![0; SUMMARY_BYTES.min(left)];
    disk.read(start, &mut bytes);
    bytes
}

fn field<const N: usize>(page: &[u8], at: usize) -> [u8; N] {
    page[at..at + N].try_into().expect("inside the page")
}

/// Whether damage of what begins with these bytes shows by itself. Blocks have checksums, and the write
/// stream has two copies. A header or summary of another stream is there once: that it is missing
/// shows where a page on another device says that it was durable.
pub(super) fn damage_shows(device: &Device, bytes: &[u8]) -> bool {
    let Some(said) = Said::of(bytes).filter(|said| said.stream != Stream::Write) else {
        return true;
    };
    let place = DurablePosition {
        generation: said.generation,
        end_slot: said.end_slot,
    };
    let others = device.data_of_others();
    let mut others = others.flat_map(|data| said_in(&device.disk, data));
    others.any(|other| other.shard == said.shard && other.durable[said.stream as usize] >= place)
}

/// The sound headers and summaries in these places.
pub(super) fn said_in(disk: &Disk, places: Range<u64>) -> impl Iterator<Item = Said> {
    let pages = places.step_by(PAGE_BYTES);
    let metadata = pages.filter(|place| is_metadata(disk.page(*place)));
    metadata.filter_map(|place| Said::of(&page_at(disk, place)))
}

/// Whether a page starts a header or a summary, sound or not.
fn is_metadata(page: &[u8]) -> bool {
    page.len() >= PAGE_BYTES && (page.starts_with(b"FBRH") || page.starts_with(b"FBSM"))
}

/// Identity in a header or summary, which says itself where it belongs.
pub(super) struct Said {
    shard: u16,
    pub(super) stream: Stream,
    generation: Sequence,
    /// The slot after all that it tells of.
    end_slot: u16,
    durable: [DurablePosition; Stream::COUNT],
    tails: [Sequence; Stream::COUNT],
    entries: EntryList,
}

impl Said {
    /// The blocks that it names as written, and if `dropped` as dropped too.
    pub(super) fn names(&self, dropped: bool) -> impl Iterator<Item = BlockKey> {
        let entries = self.entries.iter().flatten().map(|entry| entry.entry);
        entries
            .flat_map(move |entry| match entry {
                Entry::Data { key, count, .. } | Entry::Zero { key, count, .. } => {
                    key.0..key.0 + u64::from(count)
                }
                Entry::Drop { key, count } if dropped => key.0..key.0 + u64::from(count),
                _ => 0..0,
            })
            .map(BlockKey)
    }

    /// `bytes` start with its page, and go on with what lies behind it.
    pub(super) fn of(bytes: &[u8]) -> Option<Said> {
        if !is_metadata(bytes) {
            return None;
        }
        let id = CacheId(field(bytes, 12));
        let shard = u16::from_le_bytes(field(bytes, 28));
        let segment = SegmentId(u32::from_le_bytes(field(bytes, 30)));
        if bytes.starts_with(b"FBRH") {
            let slot = u16::from_le_bytes(field(bytes, 34));
            let header = Header::decode(id, shard, segment, slot, &bytes[..PAGE_BYTES])?;
            Some(Said {
                shard,
                stream: header.stream,
                generation: header.generation,
                end_slot: slot + 1 + header.blocks,
                durable: header.state.durable,
                tails: header.state.tails,
                entries: header.entries,
            })
        } else {
            let summary = Summary::decode(id, shard, segment, bytes[34], bytes)?;
            Some(Said {
                shard,
                stream: summary.stream,
                generation: summary.generation,
                end_slot: summary.end_slot,
                durable: summary.state.durable,
                tails: summary.state.tails,
                entries: summary.entries,
            })
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_header_says_what_it_names() {
        let mut entries = EntryList::default();
        let key = BlockKey(5);
        entries.push(41, Entry::Drop { key, count: 3 }, &[]);
        let header = Header {
            shard: 2,
            segment: SegmentId(9),
            slot: 17,
            stream: Stream::Main,
            generation: Sequence::new(3, 40),
            blocks: 0,
            combined: false,
            state: Default::default(),
            entries,
        };
        let mut page = vec![0; PAGE_BYTES];
        header.encode(CacheId([7; 16]), &mut page);
        let said = Said::of(&page).expect("a header");
        let named: Vec<_> = said
            .entries
            .iter()
            .flatten()
            .map(|entry| entry.entry)
            .collect();
        assert_eq!(named, [Entry::Drop { key, count: 3 }]);
    }
}
