//! The devices and places of a shard's segments, in a cache that keeps dirty data on two devices (I28).

use smallvec::{SmallVec, smallvec};

use crate::format::extents::MAX_DEVICES;
use crate::format::{CacheDevice, SegmentId, Sequence, Slot, Stream, Superblock};
use crate::interface::{Bufs, Operation};
use crate::planted::{self, Bug};
use crate::store::free_segments::possible_pairs;
use crate::store::log::{Log, SegmentState};

impl Log {
    /// Takes over how many copies there are, and which devices are lost.
    pub(crate) fn note_devices(&mut self, superblock: &Superblock) {
        self.copies = superblock.copies;
        let bits = |wanted: fn(&CacheDevice) -> bool| -> u16 {
            let devices = superblock.devices.iter().filter(|on| wanted(on));
            devices.map(|on| 1 << on.number).sum()
        };
        // One that is lost stays so until it is removed: this superblock may be from before that.
        self.lost_devices = bits(|on| on.out) | (self.lost_devices & bits(|_| true));
        self.in_use = bits(|_| true) & !self.lost_devices;
        self.note_lost();
        let segments = &self.segments;
        let is_free = |id: SegmentId| segments[id.0 as usize].state == SegmentState::Free;
        self.free.retain(is_free);
    }

    /// Marks the segments whose own place is on a lost device.
    fn note_lost(&mut self) {
        for (id, segment) in (0..).map(SegmentId).zip(&mut self.segments) {
            let is_there = segment.state != SegmentState::Absent;
            segment.lost = is_there && self.lost_devices & 1 << self.map.device_of(id) != 0;
            let is_unused = matches!(segment.state, SegmentState::Free);
            if segment.lost && is_unused {
                segment.state = SegmentState::Removed;
            }
        }
        self.reckon_usable();
    }

    /// Counts free segments by device from now on, where there are several.
    pub(crate) fn stripe_free(&mut self) {
        let is_several = self.copies > 1 || self.in_use.count_ones() > 1;
        let devices = is_several.then(|| {
            let ids = (0..self.segments.len() as u32).map(SegmentId);
            let devices = ids.map(|id| self.map.device_of(id)).collect();
            (devices, self.devices_that_stay())
        });
        self.free.stripe(devices, self.copies > 1);
    }

    /// The devices among which the cache's reads are shared.
    pub(crate) fn devices_in_use(&self) -> u32 {
        self.in_use.count_ones().max(1)
    }

    fn devices_that_stay(&self) -> u16 {
        self.in_use & !self.leaving
    }

    /// Whether a device is to be removed whole.
    pub(crate) fn has_leaving_device(&self) -> bool {
        self.copies > 1 && self.leaving != 0
    }

    /// Notes which devices are to be removed whole: they take part in no pair.
    pub(crate) fn leave_devices(&mut self) {
        let mut stay = 0;
        let mut leave = 0;
        for (id, segment) in (0..).map(SegmentId).zip(&self.segments) {
            if segment.state != SegmentState::Absent && !segment.lost {
                let device = 1u16 << self.map.device_of(id);
                *(if segment.removing {
                    &mut leave
                } else {
                    &mut stay
                }) |= device;
            }
        }
        self.leaving = leave & !stay;
        self.stripe_free();
    }

    /// Whether so many pairs would be left without the segments that are to be removed.
    pub(crate) fn has_pairs_to_stay(&self, pairs: u32) -> bool {
        let (total, possible) = self.count_pairs();
        let pairs = pairs as usize;
        match self.devices_that_stay().count_ones() {
            _ if self.copies < 2 => true,
            0 | 1 => total >= pairs,
            _ => possible >= pairs,
        }
    }

    /// The number of segments that stay, and of pairs that these make: of 64 on one device and 16 on
    /// another 16.
    pub(super) fn count_pairs(&self) -> (usize, usize) {
        let mut stay = [0; MAX_DEVICES];
        for (id, segment) in (0..).map(SegmentId).zip(&self.segments) {
            if segment.state != SegmentState::Absent && !segment.is_leaving() {
                stay[usize::from(self.map.device_of(id))] += 1;
            }
        }
        let total = stay.iter().sum();
        let most = stay.iter().copied().max().unwrap_or(0);
        (total, possible_pairs(total, most))
    }

    /// The part of so many blocks that can be dirty, each of them on two devices if two are kept.
    pub(crate) fn dirty_part(&self, blocks: u64) -> u64 {
        let total = self.usable_segments();
        if !self.keeps_two() {
            blocks
        } else if self.pairs < total / 2 {
            blocks * self.pairs as u64 / total as u64
        } else {
            blocks / 2
        }
    }

    /// Opens nothing on a device any more.
    pub(crate) fn device_leaves(&mut self, number: u8) {
        self.lost_devices |= 1 << number;
        self.in_use &= !(1 << number);
        let segments = &self.segments;
        let map = &self.map;
        self.free.retain(|id| {
            segments[id.0 as usize].state == SegmentState::Free && map.device_of(id) != number
        });
        self.note_lost();
        self.stripe_free();
    }

    /// Whether a device was lost: a flush that it failed can have taken what it had.
    #[inline(always)]
    pub(crate) fn has_lost_device(&self) -> bool {
        self.lost_devices != 0
    }

    /// Whether a segment has a copy on a device that is lost.
    pub(crate) fn is_partly_lost(&self, id: SegmentId) -> bool {
        let places = self.places_of(id);
        let mut used = places.iter().filter(|place| {
            let home = self
                .map
                .places()
                .is_none_or(|places| places.home(id) == **place);
            let second = self.map.places().and_then(|places| places.second(id));
            home || second == Some(**place)
        });
        used.any(|place| self.segments[place.0 as usize].lost)
    }

    /// Whether a segment of the write stream, from this tail on, is on this device, or on those that are
    /// lost, and nowhere else.
    pub(crate) fn is_alone_on(&self, number: u8, tail: Sequence) -> bool {
        let gone = self.lost_devices | 1 << number;
        let is_gone = |place: SegmentId| gone & 1 << self.map.device_of(place) != 0;
        let mut segments = self.write_segments(tail);
        segments.any(|id| is_gone(self.home_of(id)) && self.second_of(id).is_none_or(is_gone))
    }

    /// Whether a segment of the write stream, from this tail on, is on one device that is not lost, or
    /// on none.
    pub(crate) fn is_alone_somewhere(&self, tail: Sequence) -> bool {
        let is_there = |place: SegmentId| self.lost_devices & 1 << self.map.device_of(place) == 0;
        let mut segments = self.write_segments(tail);
        segments.any(|id| !is_there(self.home_of(id)) || !self.second_of(id).is_some_and(is_there))
    }

    fn write_segments(&self, tail: Sequence) -> impl Iterator<Item = SegmentId> {
        let segments = (0..).map(SegmentId).zip(&self.segments);
        let written = segments.filter(move |(_, segment)| {
            let is_empty = matches!(
                segment.state,
                SegmentState::Free
                    | SegmentState::Absent
                    | SegmentState::Removed
                    | SegmentState::Lent
            );
            !is_empty && segment.stream == Stream::Write && segment.generation >= tail
        });
        written.map(|(id, _)| id)
    }

    fn home_of(&self, id: SegmentId) -> SegmentId {
        self.map.places().map_or(id, |places| places.home(id))
    }

    /// Whether one of a segment's places is to be removed.
    pub(crate) fn is_removing(&self, id: SegmentId) -> bool {
        let places = self.places_of(id);
        (places.iter()).any(|place| self.segments[place.0 as usize].removing)
    }

    /// Has a segment where it is not lost. False if that is nowhere.
    pub(crate) fn stays_somewhere(&mut self, id: SegmentId) -> bool {
        let segments = &self.segments;
        let Some(places) = self.map.places_mut() else {
            return true;
        };
        let is_lost = |place: SegmentId| segments[place.0 as usize].lost;
        let (home, second) = (places.home(id), places.second(id));
        let gone = match second {
            Some(second) if is_lost(second) => {
                places.set(id, home, None);
                Some(second)
            }
            Some(second) if is_lost(home) => {
                places.set(id, second, None);
                Some(home)
            }
            _ => None,
        };
        // The place on the lost device is nobody's any more: it comes free with no segment.
        if let Some(gone) = gone.filter(|gone| *gone != id) {
            self.segment(gone).state = SegmentState::Removed;
        }
        let state = self.segments[id.0 as usize].state;
        let holds = !matches!(
            state,
            SegmentState::Free | SegmentState::Absent | SegmentState::Removed | SegmentState::Lent
        );
        let places = self.map.places().expect("just seen");
        !holds || !self.segments[places.home(id).0 as usize].lost
    }

    /// Blocks that the places of second copies could hold.
    pub(crate) fn lent_blocks(&self) -> u64 {
        if !self.keeps_two() {
            return 0;
        }
        let lent = self.streams[Stream::Write as usize].order.len() as u64;
        let geometry = &self.geometry;
        lent * u64::from(geometry.slots_per_segment() - geometry.first_slot() - 1)
    }

    /// Whether there are to be two copies of dirty data.
    pub(crate) fn has_two_copies(&self) -> bool {
        self.copies > 1
    }

    /// Whether new segments of the write stream are on two devices.
    pub(crate) fn keeps_two(&self) -> bool {
        self.copies > 1 && self.devices_that_stay().count_ones() > 1
    }

    /// Recovery knows which segments are in use: their places are lent, and no others.
    pub(crate) fn take_back_places(&mut self) {
        if self.map.places().is_none() {
            return;
        }
        for id in (0..self.segments.len() as u32).map(SegmentId) {
            if self.segments[id.0 as usize].state != SegmentState::Sealed {
                self.lend(id, None);
            }
        }
        for id in (0..self.segments.len() as u32).map(SegmentId) {
            for place in self.places_of(id).into_iter().skip(1) {
                self.segment(place).state = SegmentState::Lent;
            }
        }
    }
    /// Takes a free segment for a stream. Dirty data has a second place (I28).
    pub(crate) fn take_free(&mut self, stream: Stream) -> SegmentId {
        const SEEN: &str = "the caller saw a free segment";
        let (id, second) = match stream {
            Stream::Write => self.free.take_pair().expect(SEEN),
            _ => (self.free.take().expect(SEEN), None),
        };
        self.lend(id, second);
        self.opened_alone |= stream == Stream::Write && second.is_none() && self.keeps_two();
        if let Some(second) = second.filter(|_| planted::is(Bug::LentReused)) {
            self.segment(second).state = SegmentState::Free;
            self.free.push_back(second);
        }
        id
    }

    /// Whether a segment of the write stream was opened on one device since the last
    /// [`Log::take_opened_alone`], where there are to be two.
    pub(crate) fn has_opened_alone(&self) -> bool {
        self.opened_alone
    }

    /// Whether one was, and forgets it.
    pub(crate) fn take_opened_alone(&mut self) -> bool {
        std::mem::take(&mut self.opened_alone)
    }

    /// A free segment is in its own place, and in that of `second` too.
    pub(crate) fn lend(&mut self, id: SegmentId, second: Option<SegmentId>) {
        if let Some(second) = second {
            self.segment(second).state = SegmentState::Lent;
        }
        if let Some(places) = self.map.places_mut() {
            places.set(id, id, second);
        }
    }

    /// A segment in use is in the place `home`, and in that of `second` too from now on.
    pub(crate) fn lend_from(&mut self, id: SegmentId, home: SegmentId, second: SegmentId) {
        self.segment(second).state = SegmentState::Lent;
        let places = self.map.places_mut().expect("the cache keeps two copies");
        places.set(id, home, Some(second));
    }

    /// The places that come free with a segment.
    pub(crate) fn places_of(&self, id: SegmentId) -> SmallVec<[SegmentId; 3]> {
        let mut freed = smallvec![id];
        if let Some(places) = self.map.places() {
            let lent = std::iter::once(places.home(id)).chain(places.second(id));
            freed.extend(lent.filter(|place| *place != id));
        }
        freed
    }

    /// The read of a block into one buffer, if nothing failed to read it yet.
    #[inline(always)]
    pub(crate) fn read_of_block(&self, slot: Slot, bufs: Bufs) -> Operation {
        match self.map.near_address(slot) {
            Some(offset_bytes) => Operation::Read { offset_bytes, bufs },
            None => self.read_of_far_block(slot, bufs),
        }
    }

    #[inline(never)]
    fn read_of_far_block(&self, slot: Slot, bufs: Bufs) -> Operation {
        let (offset_bytes, second) = self.map.addresses_at(slot);
        match second {
            None => Operation::Read { offset_bytes, bufs },
            Some(second) => Operation::ReadEither {
                offsets_bytes: [offset_bytes, second],
                buf: bufs[0],
            },
        }
    }

    /// Where a block is written.
    #[inline(always)]
    pub(crate) fn block_written_at(&self, slot: Slot) -> (u64, Option<u64>) {
        if self.map.places().is_none() {
            return (self.map.slot_address(slot), None);
        }
        self.block_written_twice_at(slot)
    }

    #[cold]
    fn block_written_twice_at(&self, slot: Slot) -> (u64, Option<u64>) {
        let segment = self.per_segment().segment_of(slot);
        let in_segment = self.per_segment().slot_in_segment(slot);
        let offset_bytes = self.map.block_offset(in_segment);
        self.map.written_at(segment, offset_bytes)
    }

    /// Where the header of a record is written.
    pub(crate) fn header_written_at(&self, segment: SegmentId, slot: u16) -> (u64, Option<u64>) {
        let offset_bytes = self.map.header_offset(slot);
        self.map.written_at(segment, offset_bytes)
    }

    /// Where a summary of a segment is written.
    pub(crate) fn summary_written_at(&self, segment: SegmentId, which: u8) -> (u64, Option<u64>) {
        let offset_bytes = self.map.summary_offset(which);
        self.map.written_at(segment, offset_bytes)
    }

    /// Whether a segment is in its own place.
    pub(crate) fn is_at_home(&self, id: SegmentId) -> bool {
        let places = self.map.places();
        places.is_none_or(|places| places.home(id) == id)
    }

    /// The segment whose place holds the second copy of a segment.
    pub(crate) fn second_of(&self, id: SegmentId) -> Option<SegmentId> {
        self.map.places()?.second(id)
    }

    /// Whether a segment is on two devices.
    pub(crate) fn is_on_two(&self, id: SegmentId) -> bool {
        self.second_of(id).is_some()
    }
}
