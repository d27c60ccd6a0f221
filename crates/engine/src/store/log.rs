//! The shard's log in memory: its segments, streams and open records. Bookkeeping only: `append`
//! and `durability` decide what is written when.

use std::collections::VecDeque;

use crate::format::header::{ENTRY_BYTES, State};
use crate::format::{
    CacheId, DurablePosition, EntryList, Geometry, Link, SegmentId, SegmentMap, Sequence, Slot,
    SlotsPerSegment, Stream, Superblock,
};
use crate::ids::RecordId;
use crate::interface::{Buf, Nanos};
use crate::planted::{self, Bug};
use crate::shm_journal::{JournalPage, PAGES};
use crate::slab::Slab;
use crate::store::append::PlacedAppend;
use crate::store::checkpoint::segments_for_checkpoint;
use crate::store::free_segments::FreeSegments;
use crate::store::renewal_below::Below;

/// Free segments that only reclaim may use: as many as streams, and one more (I18).
pub(crate) const RECLAIM_RESERVE: usize = Stream::COUNT + 1;
/// Free segments that recovery leaves, if it can: with fewer it moves tails (`recovery::tails`).
pub(crate) const WANTED_FREE: usize = RECLAIM_RESERVE + 2;
/// Free segments with which the log has room for long writes again, where reclaim aims at so many.
/// One that came free would only be used up at once, by an append that then waits for the next.
const ROOM_AGAIN: usize = RECLAIM_RESERVE + 4;

/// A checkpoint takes at most this part of a shard, in any geometry.
const CHECKPOINT_PART: usize = 64;

/// A claim on room in the log, by its purpose (I18).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Claim {
    /// A client's writes, promotions, hints: they get neither the segments that reclaim keeps free,
    /// nor the room left in a segment that was opened from these.
    Client,
    /// Reclaim: all but the last free segment.
    Reclaim,
    /// Entries without blocks that free segments, the tails and the `Drop`s of evicted blocks: any
    /// free segment.
    Tails,
}

impl Claim {
    /// Reclaim's or a client's.
    pub(crate) fn of(reclaim: bool) -> Claim {
        if reclaim {
            Claim::Reclaim
        } else {
            Claim::Client
        }
    }

    /// Free segments that must stay.
    pub(crate) fn leaves(self) -> usize {
        match self {
            _ if planted::is(Bug::NoReserve) => 0,
            Claim::Client => RECLAIM_RESERVE,
            Claim::Reclaim => 1,
            Claim::Tails => 0,
        }
    }
}

/// A filling of a slot. A slot is used again in each generation of its segment, even for another
/// version of the same block. A number alone would not do, since numbers start anew with each
/// epoch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Version {
    pub(crate) slot: Slot,
    generation: Sequence,
}

/// Where a segment is in its life.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SegmentState {
    /// Holds nothing.
    Free,
    /// Takes appends.
    Open,
    /// Takes no more; headers or its summary are still being written.
    Filled,
    /// Complete.
    Sealed,
    /// Its blocks are being retained or evicted.
    Emptying,
    /// Emptied; waits until the entries that superseded its own are durable (I8).
    Waiting,
    /// Below the tail; waits until a header with that tail is durable and no read is in flight.
    BelowTail,
    /// Holds nothing, and is not opened: its extent is being removed.
    Removed,
    /// In no extent: only its id is there.
    Absent,
    /// Holds nothing itself: its place holds another segment, or the second copy of one (I28).
    Lent,
}

#[derive(Debug)]
pub(crate) struct Segment {
    pub(crate) state: SegmentState,
    pub(crate) stream: Stream,
    pub(crate) generation: Sequence,
    /// Live blocks.
    pub(crate) live: u32,
    /// Dirty blocks among them.
    pub(crate) dirty: u32,
    /// Dirty blocks among them of volumes whose origin is not there.
    pub(crate) away: u32,
    /// Whether blocks were evicted from it that can still be read there.
    pub(crate) evicted: bool,
    /// Upper bound of the numbers that supersede entries of blocks that were in it, and of the
    /// `Drop`s from an earlier life of blocks that are.
    pub(crate) superseded_by: u64,
    /// Reads in flight; the segment is not reused before they end (I8).
    pub(crate) pins: u32,
    /// Slots below this one are durable.
    pub(crate) durable_slots: u16,
    /// The slot after the last used slot, once no more are added.
    pub(crate) end_slot: u16,
    /// Which summary slot counts, if any (I19).
    pub(crate) summary: Option<u8>,
    pub(crate) opened_at: Nanos,
    /// Its extent is being removed (see `shrink`).
    pub(crate) removing: bool,
    /// Its place is on a device that was lost.
    pub(crate) lost: bool,
    /// State that only segments being filled need.
    pub(crate) filling: Option<Box<Filling>>,
}

/// The part of a segment's state that ends with its seal.
#[derive(Debug)]
pub(crate) struct Filling {
    /// The segment before it in its stream.
    pub(crate) previous: Option<Link>,
    pub(crate) next_slot: u16,
    /// Every entry published so far, for the summary.
    pub(crate) entries: EntryList,
    /// Bytes of entries that fit the summary.
    pub(crate) capacity_bytes: usize,
    /// Bytes of the summary set aside for runs that are being written.
    pub(crate) reserved_bytes: usize,
    /// The record that takes appends.
    pub(crate) record: Option<RecordId>,
    /// Records not yet complete on the device or behind one that is not, by slot (I13).
    pub(crate) outstanding: VecDeque<RecordId>,
    /// Slots below this one are complete on the device, all records before them too.
    pub(crate) complete_slots: u16,
    /// Tries of its seal that failed.
    pub(crate) attempts: u8,
    /// Numbers set aside for renewals that go before it.
    pub(crate) below: Below,
}

/// A record that is being filled or written.
#[derive(Debug)]
pub(crate) struct Record {
    pub(crate) segment: SegmentId,
    pub(crate) slot: u16,
    pub(crate) stream: Stream,
    pub(crate) entries: EntryList,
    /// Bytes of the header set aside for runs that are being written.
    pub(crate) reserved_bytes: usize,
    pub(crate) blocks: u16,
    /// Data transfers in flight.
    pub(crate) pending: u32,
    pub(crate) closing: bool,
    pub(crate) complete: bool,
    pub(crate) opened_at: Nanos,
    pub(crate) journal: Option<JournalPage>,
    /// The header in flight.
    pub(crate) header: Option<Buf>,
    /// Runs whose data travels with the header; published when all is on the device.
    pub(crate) combined: Vec<PlacedAppend>,
    pub(crate) attempts: u8,
    /// The flush cycle that waits for it.
    pub(crate) awaited: bool,
    /// The tails its header carries.
    pub(crate) tails: [Sequence; Stream::COUNT],
}

impl Filling {
    /// Bytes of entries that fit the summary beside its entries and the bytes set aside.
    pub(crate) fn room_bytes(&self) -> usize {
        let used = self.entries.as_bytes().len() + self.reserved_bytes;
        self.capacity_bytes.saturating_sub(used)
    }
}

impl Record {
    /// True if so many blocks more, whose entries take at most so many bytes, fit its header and
    /// its journal page beside the bytes set aside.
    #[inline(always)]
    pub(crate) fn has_room(&self, blocks: usize, entry_bytes: usize) -> bool {
        self.entries.as_bytes().len() + self.reserved_bytes + entry_bytes <= ENTRY_BYTES
            && self
                .journal
                .as_ref()
                .is_none_or(|page| page.blocks_that_fit() >= blocks)
    }
}

#[derive(Debug, Default)]
pub(crate) struct StreamState {
    /// Its segments, oldest first.
    pub(crate) order: VecDeque<SegmentId>,
    pub(crate) open: Option<SegmentId>,
}

#[derive(Debug)]
pub(crate) struct Log {
    pub(crate) id: CacheId,
    pub(crate) shard: u16,
    pub(crate) geometry: Geometry,
    /// Of its geometry.
    per_segment: SlotsPerSegment,
    pub(crate) map: SegmentMap,
    pub(crate) epoch: u32,
    /// The next number to give (I1).
    pub(crate) next_number: u64,
    pub(crate) segments: Vec<Segment>,
    pub(crate) streams: [StreamState; Stream::COUNT],
    pub(crate) free: FreeSegments,
    pub(crate) tails: [Sequence; Stream::COUNT],
    /// Every number up to this one is durable.
    pub(crate) durable_number: u64,
    pub(crate) durable: [DurablePosition; Stream::COUNT],
    pub(crate) records: Slab<RecordId, Record>,
    pub(crate) journal_pages: Vec<usize>,
    pub(crate) journal_uses: u64,
    usable: usize,
    /// Pairs of these on two devices each, where two copies are kept.
    pub(super) pairs: usize,
    /// Segments that are kept free for the checkpoint of an orderly stop.
    for_checkpoint: usize,
    /// The number of devices that hold each dirty block.
    pub(super) copies: u8,
    /// Devices that are out, and those that are not: a bit for each number.
    pub(super) lost_devices: u16,
    pub(super) in_use: u16,
    /// A segment of the write stream was opened on one device, since no pair was left.
    pub(super) opened_alone: bool,
    /// Devices that are to be removed whole.
    pub(super) leaving: u16,
}

impl Log {
    pub(crate) fn new(superblock: &Superblock, shard: u16) -> Log {
        let geometry = superblock.geometry;
        let map = superblock.segment_map(shard);
        let segments: Vec<Segment> = (0..geometry.segments_per_shard)
            .map(|id| Segment::fresh(map.has(SegmentId(id))))
            .collect();
        let mut log = Log {
            id: superblock.id,
            shard,
            geometry,
            per_segment: SlotsPerSegment::of(&geometry),
            map,
            epoch: superblock.epoch,
            next_number: 1,
            segments,
            streams: Default::default(),
            free: FreeSegments::default(),
            tails: [Sequence::ZERO; Stream::COUNT],
            durable_number: 0,
            durable: [DurablePosition::default(); Stream::COUNT],
            records: Slab::default(),
            journal_pages: (0..PAGES).collect(),
            journal_uses: 0,
            usable: 0,
            pairs: 0,
            for_checkpoint: 0,
            copies: superblock.copies,
            lost_devices: 0,
            opened_alone: false,
            in_use: 0,
            leaving: 0,
        };
        log.note_devices(superblock);
        log
    }

    /// The number of segments, without those that are to leave.
    pub(crate) fn usable_segments(&self) -> usize {
        self.usable
    }

    pub(crate) fn reckon_usable(&mut self) {
        let usable =
            |segment: &&Segment| segment.state != SegmentState::Absent && !segment.is_leaving();
        self.usable = self.segments.iter().filter(usable).count();
        if self.copies > 1 {
            (_, self.pairs) = self.count_pairs();
        }
        let wanted = segments_for_checkpoint(&self.geometry);
        // A shard of which most was taken away keeps the ids of all, and would keep all of the rest free.
        let is_in_proportion = wanted <= self.usable / CHECKPOINT_PART;
        self.for_checkpoint = match self.copies < 2 && is_in_proportion {
            true => wanted,
            false => 0,
        };
    }

    /// The number of blocks that fit when headers take little.
    pub(crate) fn capacity_blocks(&self) -> u64 {
        let geometry = &self.geometry;
        let per_segment = geometry.slots_per_segment() - geometry.first_slot() - 1;
        self.usable as u64 * u64::from(per_segment)
    }

    /// Slots of the segments there are, all included.
    pub(crate) fn usable_slots(&self) -> usize {
        self.usable * self.geometry.slots_per_segment() as usize
    }

    /// The number of slots of a segment, to divide slots by.
    #[inline(always)]
    pub(crate) fn per_segment(&self) -> SlotsPerSegment {
        self.per_segment
    }

    pub(crate) fn segment(&mut self, id: SegmentId) -> &mut Segment {
        &mut self.segments[id.0 as usize]
    }

    pub(crate) fn generation_of(&self, id: SegmentId) -> Sequence {
        self.segments[id.0 as usize].generation
    }

    pub(crate) fn segment_of(&mut self, slot: Slot) -> &mut Segment {
        let id = self.per_segment.segment_of(slot);
        self.segment(id)
    }

    /// The version that a slot holds now.
    pub(crate) fn version(&self, slot: Slot) -> Version {
        let generation = self.segments[self.per_segment.segment_of(slot).0 as usize].generation;
        Version { slot, generation }
    }

    /// True if a slot still holds this version.
    pub(crate) fn holds(&self, version: Version) -> bool {
        self.version(version.slot) == version
    }

    pub(crate) fn stream_of(&self, slot: Slot) -> Stream {
        self.segments[self.per_segment.segment_of(slot).0 as usize].stream
    }

    /// Whether the entry of a live block is durable, so that it may be written back (I4).
    pub(crate) fn is_durable(&self, slot: Slot) -> bool {
        let segment = &self.segments[self.per_segment.segment_of(slot).0 as usize];
        self.per_segment.slot_in_segment(slot) < segment.durable_slots
    }

    /// The state of the shard for headers and summaries of a segment with this link.
    pub(crate) fn state(&self, previous: Option<Link>) -> State {
        State {
            known_durable: Sequence::new(self.epoch, self.durable_number),
            tails: self.tails,
            durable: self.durable,
            previous,
        }
    }

    /// The state of the shard for headers and summaries of a segment that is being filled.
    pub(crate) fn state_of_filling(&mut self, id: SegmentId) -> State {
        let previous = self.filling(id).previous;
        self.state(previous)
    }

    pub(crate) fn filling(&mut self, id: SegmentId) -> &mut Filling {
        self.segment(id)
            .filling
            .as_mut()
            .expect("the segment is being filled")
    }

    /// The link that the next segment of a stream carries.
    pub(crate) fn link_to_youngest(&self, stream: Stream) -> Option<Link> {
        let youngest = *self.streams[stream as usize].order.back()?;
        Some(self.link_to(youngest))
    }

    pub(crate) fn link_to(&self, id: SegmentId) -> Link {
        let segment = &self.segments[id.0 as usize];
        Link {
            segment: id,
            generation: segment.generation,
            end_slot: segment.end_slot,
        }
    }

    /// The number of free segments to aim at whatever arrives.
    pub(crate) fn least_free(&self) -> usize {
        let for_reclaim = RECLAIM_RESERVE + (2 + self.usable_segments() / 64).min(10);
        for_reclaim.max(self.for_checkpoint)
    }

    /// Whether there is room for long writes, after there was none.
    pub(crate) fn has_room_again(&self) -> bool {
        self.free.len() >= ROOM_AGAIN.min(self.least_free())
    }

    /// Opens a free segment for a stream that has none open.
    pub(crate) fn open_segment(&mut self, stream: Stream, now: Nanos) -> SegmentId {
        let id = self.take_free(stream);
        let previous = self.link_to_youngest(stream);
        let below = self.set_aside_below(stream);
        let generation = Sequence::new(self.epoch, self.next_number);
        // The number is the segment's alone: two segments opened one after the other with
        // nothing appended between them still have an order.
        self.next_number += 1;
        let first_slot = self.geometry.first_slot() as u16;
        let capacity_bytes = self.geometry.summary_entry_bytes();
        let segment = self.segment(id);
        assert_eq!(segment.state, SegmentState::Free);
        assert_eq!(
            (segment.live, segment.pins),
            (0, 0),
            "I8: nothing refers to a free segment"
        );
        segment.state = SegmentState::Open;
        segment.stream = stream;
        segment.generation = generation;
        segment.dirty = 0;
        segment.away = 0;
        segment.superseded_by = 0;
        segment.durable_slots = 0;
        segment.end_slot = 0;
        segment.opened_at = now;
        segment.filling = Some(Box::new(Filling {
            previous,
            next_slot: first_slot,
            entries: EntryList::with_capacity(capacity_bytes),
            capacity_bytes,
            reserved_bytes: 0,
            record: None,
            outstanding: VecDeque::new(),
            complete_slots: 0,
            attempts: 0,
            below,
        }));
        let state = &mut self.streams[stream as usize];
        state.order.push_back(id);
        state.open = Some(id);
        id
    }
}

impl Segment {
    /// Whether its place is not used again once it is free.
    pub(crate) fn is_leaving(&self) -> bool {
        self.removing || self.lost
    }

    /// An empty segment: free if an extent has it, absent otherwise.
    pub(crate) fn fresh(is_there: bool) -> Segment {
        Segment {
            state: if is_there {
                SegmentState::Free
            } else {
                SegmentState::Absent
            },
            stream: Stream::Write,
            generation: Sequence::ZERO,
            live: 0,
            dirty: 0,
            away: 0,
            evicted: false,
            superseded_by: 0,
            pins: 0,
            durable_slots: 0,
            end_slot: 0,
            summary: None,
            opened_at: Nanos(0),
            removing: false,
            lost: false,
            filling: None,
        }
    }
}
