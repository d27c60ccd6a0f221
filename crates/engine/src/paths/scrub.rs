//! The scrub, where hits are not compared with their checksums (`verify = background`): within
//! `scrub` all that is stored is read once and compared. A pass goes through the segments in use in the
//! order of the device, 32 slots at a time, spread evenly over the time. An example:
//!
//! 1. Slots 64 to 95 are read at once. The block in slot 70 does not have its checksum.
//! 2. That block alone is read again, as a client's read of it would be: another time, and from its
//!    other device where it has two, which is mended then (I23).
//! 3. It is wrong each time. It is clean, so it is dropped, and comes from the origin when
//!    somebody asks for it. A dirty one stays, is listed as unreadable, and is an error for
//!    whoever reads it: while there is one, hits are compared.
//!
//! Write-back compares what it reads as ever, so that no rot reaches an origin.

use crate::checksum::crc32c;
use crate::format::{SegmentId, Slot};
use crate::interface::{
    Buf, Device, DeviceError, Failure, Memory, Nanos, Operation, Request, RequestKind, VolumeSlot,
    one_buf,
};
use crate::parts::Engine;
use crate::scrub::{Again, MOST_LOOKED_AT, REQUEST, SHORTEST, SPAN};
use crate::settings::Verify;
use crate::store::log::SegmentState;
use crate::store::op::{HitRead, Op};

impl Engine {
    fn is_scrubbed(&self) -> bool {
        let settings = &self.store.settings;
        let is_wanted = settings.verify == Verify::Background || settings.laboratory.scrub;
        // An orderly stop waits until nothing is in flight.
        let is_stopping =
            self.looks.held || !self.origin.writeback.may_begin_what_nobody_waits_for();
        is_wanted
            && settings.scrub_period != Nanos::NEVER
            && !is_stopping
            && !self.store.failed_cache()
    }

    /// The time between two spans, by which a pass through the whole shard takes its period.
    fn scrub_interval(&self) -> Nanos {
        let slots = self.store.log.segments.len() as u64
            * u64::from(self.store.log.geometry.slots_per_segment());
        let of_slot = self.store.settings.scrub_period.0 / slots.max(1);
        Nanos(of_slot.saturating_mul(SPAN.into())).max(SHORTEST)
    }

    pub(crate) fn advance_scrub(&mut self, now: Nanos, memory: &mut dyn Memory) {
        if let Again::Ended(buf) = self.scrub.again {
            memory.free(buf);
            self.scrub.again = Again::None;
        }
        if !self.is_scrubbed() {
            self.scrub.due = None;
            self.scrub.suspects.clear();
            return;
        }
        if self.scrub.is_reading || self.scrub.again != Again::None {
            return;
        }
        if let Some(suspect) = self.next_suspect() {
            return self.read_suspect(now, suspect, memory);
        }
        let next = now.after(self.scrub_interval());
        match self.scrub.due {
            None => self.scrub.due = Some(next),
            Some(due) if due <= now => {
                self.scrub.due = Some(next);
                self.scrub_span(memory);
            }
            Some(_) => {}
        }
    }

    /// Reads the next slots of which one is stored.
    fn scrub_span(&mut self, memory: &mut dyn Memory) {
        let Some((slot, count)) = self.next_span() else {
            return;
        };
        let len_bytes = usize::from(count) * self.store.block_bytes();
        let Some(buf) = memory.alloc(len_bytes) else {
            // The same slots again when it is time.
            self.scrub.in_segment -= count;
            return;
        };
        let per_segment = self.store.log.per_segment();
        let is_on_two = self.store.log.is_on_two(per_segment.segment_of(slot));
        let copy = if is_on_two { self.scrub.copy } else { 0 };
        self.store.log.segment_of(slot).pins += 1;
        self.scrub.is_reading = true;
        self.store.stats.cache_data_read_bytes += len_bytes as u64;
        let offset_bytes = self.store.log.map.address_at(slot, copy);
        self.store.issue(
            Op::Scrub { slot, buf },
            Device::Cache(0),
            Operation::Read {
                offset_bytes,
                bufs: one_buf(buf),
            },
        );
    }

    /// The next slots of which one is stored, and how many; the scrub goes on after them.
    fn next_span(&mut self) -> Option<(Slot, u16)> {
        let geometry = self.store.log.geometry;
        let (first, end) = (
            geometry.first_slot() as u16,
            geometry.slots_per_segment() as u16,
        );
        let mut looked_at = 0;
        while looked_at < MOST_LOOKED_AT {
            let id = self.scrub.segment;
            let Some(segment) = self.store.log.segments.get(id.0 as usize) else {
                self.end_pass();
                return None;
            };
            let at = self.scrub.in_segment.max(first);
            let is_there = holds_for_long(segment.state) && !self.is_home_lost(id);
            if !is_there || at >= end {
                self.scrub.segment.0 += 1;
                self.scrub.in_segment = first;
                looked_at += 1;
                continue;
            }
            let count = SPAN.min(end - at);
            self.scrub.in_segment = at + count;
            looked_at += u32::from(count);
            let slot = geometry.slot(id, at);
            if (slot.0..slot.0 + u32::from(count)).any(|slot| self.is_stored(Slot(slot))) {
                return Some((slot, count));
            }
        }
        None
    }

    /// Whether the place that a segment is read from is on a device that was lost. Its own place may be
    /// another one (I28).
    fn is_home_lost(&self, id: SegmentId) -> bool {
        let places = self.store.log.map.places();
        let home = places.map_or(id, |places| places.home(id));
        self.store.log.segments[home.0 as usize].lost
    }

    fn end_pass(&mut self) {
        self.scrub.segment.0 = 0;
        self.scrub.in_segment = 0;
        self.scrub.copy ^= 1;
        self.store.stats.scrub_passes += 1;
    }

    /// Whether a slot has a block whose contents are there.
    fn is_stored(&self, slot: Slot) -> bool {
        let flags = self.store.index.flags(slot);
        flags.live() && !flags.zero()
    }

    pub(crate) fn scrub_read_done(
        &mut self,
        (slot, buf): (Slot, Buf),
        result: Result<(), DeviceError>,
        memory: &mut dyn Memory,
    ) {
        let blocks = memory.bytes(buf).chunks_exact(self.store.block_bytes());
        for (slot, block) in (slot.0..).map(Slot).zip(blocks) {
            if !self.is_stored(slot) {
                continue;
            }
            if result.is_ok() && crc32c(block) == self.store.index.checksum(slot) {
                self.store.stats.scrubbed_blocks += 1;
            } else if !self
                .store
                .unreadable
                .holds(self.store.index.key(slot), slot)
            {
                self.scrub.suspects.push_back(slot);
            }
        }
        memory.free(buf);
        self.store.unpin(slot);
        self.scrub.is_reading = false;
    }

    /// The volume of the block in a slot, if it is still there and its origin is too.
    fn volume_of_suspect(&self, slot: Slot) -> Option<VolumeSlot> {
        let id = self.store.log.per_segment().segment_of(slot);
        let state = self.store.log.segments[id.0 as usize].state;
        if !holds_for_long(state) || !self.is_stored(slot) {
            return None;
        }
        let volume = self.store.volume_of(self.store.index.key(slot))?;
        (!self.store.attached(volume).away).then_some(volume)
    }

    /// The first suspect that is still to be read again.
    fn next_suspect(&mut self) -> Option<(Slot, VolumeSlot)> {
        while let Some(&slot) = self.scrub.suspects.front() {
            if let Some(volume) = self.volume_of_suspect(slot) {
                return Some((slot, volume));
            }
            self.scrub.suspects.pop_front();
        }
        None
    }

    /// Reads a block again, with all the ways that a read has.
    fn read_suspect(
        &mut self,
        now: Nanos,
        (slot, volume): (Slot, VolumeSlot),
        memory: &mut dyn Memory,
    ) {
        let id = self.store.log.per_segment().segment_of(slot);
        let key = self.store.index.key(slot);
        let block_bytes = self.store.block_bytes();
        let Some(buf) = memory.alloc(block_bytes) else {
            self.scrub.due = Some(now.after(self.scrub_interval()));
            return;
        };
        self.scrub.suspects.pop_front();
        self.scrub.again = Again::Reading(buf, slot);
        let (offset_bytes, _) = self.store.origin_range(volume, key, 1);
        let request = self.begin_request(
            now,
            Request {
                id: REQUEST,
                volume,
                kind: RequestKind::Read,
                offset_bytes,
                len_bytes: buf.len_bytes,
                buf,
            },
        );
        // Of two copies the one that was read, and then the other: a first attempt would ask whichever
        // device answers sooner, and a good copy there mends nothing.
        let attempts = match (self.store.log.is_on_two(id), self.scrub.copy) {
            (false, _) => 0,
            (true, 0) => 2,
            (true, _) => 1,
        };
        self.start_hit_read(HitRead {
            request,
            volume,
            key,
            slot,
            count: 1,
            dest: buf,
            bounce: None,
            attempts,
        });
    }

    /// The block was read again, well or not. A dirty one is tried as often as write-back tries one.
    pub(crate) fn suspect_was_read(&mut self, request: &Request, result: Result<(), Failure>) {
        let Again::Reading(buf, slot) = self.scrub.again else {
            unreachable!("a suspect was being read")
        };
        self.scrub.again = Again::Ended(buf);
        let (key, _) = self.store.keys_of(request);
        let is_there = self.store.index.find(key) == Some(slot);
        if result.is_ok() {
            self.store.unreadable.read_well(key, slot);
        } else if is_there && self.store.index.flags(slot).dirty() {
            self.store.unreadable.failed(key, slot);
            if !self.store.unreadable.holds(key, slot) {
                self.scrub.suspects.push_front(slot);
            }
        }
        self.store.stir();
    }

    /// When the scrub wants to go on.
    pub(crate) fn scrub_deadline(&self) -> Option<Nanos> {
        let waits = !self.scrub.is_reading && self.scrub.again == Again::None;
        self.scrub.due.filter(|_| waits && self.is_scrubbed())
    }
}

/// Whether blocks of such a segment stay where they are. A cache that nobody writes to has segments
/// open for days.
fn holds_for_long(state: SegmentState) -> bool {
    matches!(
        state,
        SegmentState::Open | SegmentState::Filled | SegmentState::Sealed
    )
}
