//! Read: hits from the cache, misses from the origin, promoted on the way if admitted.

use crate::bypass::{BypassReason, Bypassed, Direction};
use crate::checksum::crc32c;
use crate::format::{BlockKey, Slot};
use crate::ids::RequestIndex;
use crate::interface::{
    Buf, Device, DeviceError, Failure, Memory, Nanos, Operation, Request, VolumeSlot, one_buf,
};
use crate::parts::Engine;
use crate::policy::admission::Missed;
use crate::scrub;
use crate::store::op::{HitRead, MissRead, Op, Reader};

/// Repeats of a bad read of the cache device before the slot counts as damaged: a misdirected read
/// does not happen twice.
const READ_ATTEMPTS: u8 = 2;
/// The longest read of which evicted blocks are read where they were: each is a transfer of its
/// own, there and back to the cache. A longer one is a few by itself, and a disk is hardly slower
/// with those.
const MOST_VICTIM_BYTES: u32 = 64 << 10;

/// Of whole blocks, straight into the request's buffer.
#[inline(always)]
pub(super) fn hit_of_run(
    request: RequestIndex,
    volume: VolumeSlot,
    run: &ReadRun,
    slot: Slot,
) -> HitRead {
    HitRead {
        request,
        volume,
        key: run.key,
        slot,
        count: run.count,
        dest: run.dest,
        bounce: None,
        attempts: 0,
    }
}

/// A request that is being served.
#[derive(Clone, Copy, Debug)]
pub(super) struct Reading<'a> {
    pub(super) index: RequestIndex,
    pub(super) request: &'a Request,
    pub(super) passthrough: bool,
    sequential: bool,
}

impl Reading<'_> {
    #[inline(always)]
    fn slot_of(&self, engine: &Engine, key: BlockKey) -> Option<Slot> {
        let may_be_victim = || !self.sequential && self.request.len_bytes <= MOST_VICTIM_BYTES;
        engine.servable_slot(key, self.passthrough, may_be_victim)
    }
}

/// Consecutive bytes of a request that one transfer can serve.
#[derive(Clone, Copy, Debug)]
pub(super) struct ReadRun {
    pub(super) key: BlockKey,
    pub(super) count: u16,
    /// From where in the first block.
    pub(super) skip_bytes: usize,
    pub(super) dest: Buf,
}

impl ReadRun {
    pub(super) fn reader(&self, request: RequestIndex) -> Reader {
        Reader {
            request,
            skip_bytes: self.skip_bytes as u32,
            dest: self.dest,
        }
    }
}

impl Engine {
    pub(crate) fn read(&mut self, now: Nanos, request: Request, memory: &mut dyn Memory) {
        if request.buf.is_of_client() && !self.is_worth_a_try(&request) {
            return self.refuse_straight(&request);
        }
        self.store.stats.read_requests += 1;
        let sequential = self.reads_in_sequence(&request);
        let block_bytes = self.store.block_bytes();
        let first = self.store.key_at(request.volume, request.offset_bytes);
        let skip_bytes = request.offset_bytes as usize & (block_bytes - 1);
        let passthrough = self.bypasses_reads(request.volume);
        if skip_bytes + request.len_bytes as usize > block_bytes {
            let index = self.begin_request(now, request);
            let reading = Reading {
                index,
                request: &request,
                passthrough,
                sequential,
            };
            self.read_several(now, &reading, first, skip_bytes, memory);
            return self.finish_part(now, index, Ok(()));
        }
        let found = self.servable_slot(first, passthrough, || !sequential);
        let is_hit = found.is_some_and(|slot| self.store.index.flags(slot).live());
        if is_hit && found.is_some_and(|slot| self.read_whole(now, &request, first, slot)) {
            return;
        }
        self.read_block(
            now,
            &request,
            (first, skip_bytes),
            (found, is_hit),
            sequential,
            memory,
        );
    }

    /// Reads one block that is not cached, or a part of one, or zeroes.
    // On its own, as above.
    #[inline(never)]
    fn read_block(
        &mut self,
        now: Nanos,
        request: &Request,
        (key, skip_bytes): (BlockKey, usize),
        (found, is_hit): (Option<Slot>, bool),
        sequential: bool,
        memory: &mut dyn Memory,
    ) {
        let index = self.begin_request(now, *request);
        let run = ReadRun {
            key,
            count: 1,
            skip_bytes,
            dest: request.buf,
        };
        match found {
            Some(slot) if is_hit => self.read_hit(now, index, request.volume, run, slot, memory),
            Some(slot) => self.read_victim(now, index, request.volume, run, slot, memory),
            None => self.read_miss(now, index, request.volume, run, sequential, memory),
        }
        self.finish_part(now, index, Ok(()));
    }

    /// Reads more than one block, those that lie together in one transfer.
    // On its own: reads of one block are counted in instructions.
    #[inline(never)]
    fn read_several(
        &mut self,
        now: Nanos,
        reading: &Reading,
        first: BlockKey,
        mut skip_bytes: usize,
        memory: &mut dyn Memory,
    ) {
        let block_bytes = self.store.block_bytes();
        let (index, request) = (reading.index, reading.request);
        let total = request.len_bytes as usize;
        let mut at_bytes = 0;
        let mut key = first;
        while at_bytes < total {
            let found = reading.slot_of(self, key);
            let mut count: u16 = 1;
            let mut end_bytes = (at_bytes + block_bytes - skip_bytes).min(total);
            while end_bytes < total {
                let next = reading.slot_of(self, key.plus(u64::from(count)));
                if !self.continues(found, next, count) {
                    break;
                }
                count += 1;
                end_bytes = (end_bytes + block_bytes).min(total);
            }
            let run = ReadRun {
                key,
                count,
                skip_bytes,
                dest: request.buf.slice(at_bytes, end_bytes - at_bytes),
            };
            let is_whole =
                skip_bytes == 0 && end_bytes - at_bytes == usize::from(count) * block_bytes;
            if request.buf.is_of_client()
                && !self.goes_straight(found, is_whole, reading.passthrough)
            {
                self.add_part(index);
                return self.finish_part(now, index, Err(Failure::NotStraight));
            }
            match found {
                Some(slot) if self.store.index.flags(slot).live() => {
                    self.read_hits(now, reading, run, slot, memory);
                }
                Some(slot) => self.read_victim(now, index, request.volume, run, slot, memory),
                None => {
                    let sequential = reading.sequential;
                    self.read_miss(now, index, request.volume, run, sequential, memory);
                }
            }
            at_bytes = end_bytes;
            key = key.plus(u64::from(count));
            skip_bytes = 0;
        }
    }

    fn reads_in_sequence(&mut self, request: &Request) -> bool {
        if !self.store.has_cutoffs {
            return false;
        }
        let volume = self.store.volume(request.volume);
        let Some(cutoff) = volume.cutoff_bytes else {
            return false;
        };
        let len_bytes = u64::from(request.len_bytes);
        volume.reads.request(request.offset_bytes, len_bytes) > cutoff
    }

    /// Whether only dirty blocks are read from the cache.
    #[inline]
    pub(super) fn bypasses_reads(&mut self, volume: VolumeSlot) -> bool {
        !self.store.volume(volume).config.mode.caches_reads() || self.store.failed_cache()
    }

    /// The slot to read a block from, if not the origin. A slot that is not live held the block
    /// until it was evicted, and is read as a `victim`. Where the cache is passed by, only blocks
    /// that the origin does not have come from it.
    #[inline]
    pub(super) fn servable_slot(
        &self,
        key: BlockKey,
        dirty_only: bool,
        may_be_victim: impl Fn() -> bool,
    ) -> Option<Slot> {
        let slot = self.store.index.named(key)?;
        let flags = self.store.index.flags(slot);
        // Of what was evicted zeroes are not stored, and what is hidden counts as such.
        let serves = if flags.live() {
            !dirty_only || flags.dirty()
        } else {
            !dirty_only
                && !flags.zero()
                && self.store.settings.laboratory.victim_reads
                && may_be_victim()
        };
        serves.then_some(slot)
    }

    /// Whether the block `count` after one found at `first` can be read in the same transfer.
    #[inline]
    pub(super) fn continues(&self, first: Option<Slot>, next: Option<Slot>, count: u16) -> bool {
        match (first, next) {
            (None, None) => true,
            (Some(first), Some(next)) => {
                let flags = self.store.index.flags(first);
                let per_segment = self.store.log.per_segment();
                next.0 == first.0 + u32::from(count)
                    && per_segment.segment_of(first) == per_segment.segment_of(next)
                    && flags.live()
                    && self.store.index.flags(next).live()
                    && flags.zero() == self.store.index.flags(next).zero()
            }
            _ => false,
        }
    }

    pub(super) fn read_hit(
        &mut self,
        now: Nanos,
        request: RequestIndex,
        volume: VolumeSlot,
        run: ReadRun,
        slot: Slot,
        memory: &mut dyn Memory,
    ) {
        self.count_read_hits(now, run.key, run.count, slot);
        self.add_part(request);
        if self.store.index.flags(slot).zero() {
            memory.bytes_mut(run.dest).fill(0);
            return self.finish_part(now, request, Ok(()));
        }
        let block_bytes = self.store.block_bytes();
        let dest_bytes = run.dest.len_bytes as usize;
        if run.skip_bytes == 0 && dest_bytes == usize::from(run.count) * block_bytes {
            self.start_hit_read(hit_of_run(request, volume, &run, slot));
            return;
        }
        // A checksum covers a whole block, so parts of blocks are read whole: first and last block
        // apart, the blocks between them together.
        let mut at_bytes = 0;
        let mut index = 0;
        let mut skip_bytes = run.skip_bytes;
        while at_bytes < dest_bytes {
            let rest = dest_bytes - at_bytes;
            let whole = if skip_bytes == 0 {
                rest / block_bytes
            } else {
                0
            };
            let (count, len) = if whole > 0 {
                (whole, whole * block_bytes)
            } else {
                (1, rest.min(block_bytes - skip_bytes))
            };
            if at_bytes > 0 {
                self.add_part(request);
            }
            let read = HitRead {
                request,
                volume,
                key: run.key.plus(index as u64),
                slot: Slot(slot.0 + index as u32),
                count: count as u16,
                dest: run.dest.slice(at_bytes, len),
                bounce: None,
                attempts: 0,
            };
            if whole > 0 {
                self.start_hit_read(read);
            } else {
                self.start_partial_read(read, skip_bytes, memory);
            }
            at_bytes += len;
            index += count;
            skip_bytes = 0;
        }
    }

    fn start_partial_read(
        &mut self,
        mut read: HitRead,
        skip_bytes: usize,
        memory: &mut dyn Memory,
    ) {
        match memory.alloc(self.store.block_bytes()) {
            Some(buf) => {
                read.bounce = Some((buf, skip_bytes));
                self.start_hit_read(read);
            }
            None => {
                // The slot stays pinned while it waits, so that it still means the same then.
                self.store.log.segment_of(read.slot).pins += 1;
                read.bounce = Some((Buf::EMPTY, skip_bytes));
                self.stalled_reads.push(read);
            }
        }
    }

    pub(crate) fn retry_stalled_reads(&mut self, _now: Nanos, memory: &mut dyn Memory) {
        for read in std::mem::take(&mut self.stalled_reads) {
            let (_, skip_bytes) = read.bounce.expect("a part of a block");
            self.store.log.segment_of(read.slot).pins -= 1;
            self.start_partial_read(read, skip_bytes, memory);
        }
    }

    pub(super) fn start_hit_read(&mut self, read: HitRead) {
        self.store.log.segment_of(read.slot).pins += 1;
        let buf = read.buf();
        let operation = match read.attempts {
            0 => self.store.log.read_of_block(read.slot, one_buf(buf)),
            attempts => Operation::Read {
                offset_bytes: self.store.log.map.address_at(read.slot, attempts),
                bufs: one_buf(buf),
            },
        };
        self.store.stats.cache_data_read_bytes += u64::from(buf.len_bytes);
        self.store.issue_quietly(
            Op::HitRead(read),
            Device::Cache(0),
            operation,
            buf.len_bytes,
        );
    }

    pub(crate) fn hit_read_done(
        &mut self,
        now: Nanos,
        mut read: HitRead,
        result: Result<(), DeviceError>,
        memory: &mut dyn Memory,
    ) {
        self.store.unpin(read.slot);
        if read.dest.is_of_client() {
            return self.straight_hit_done(now, read, result, memory);
        }
        // A repeat is of a read that failed, whose block is mended with what another place has.
        let is_trusted = self.goes_unverified()
            && read.attempts == 0
            && self.request(read.request).id != scrub::REQUEST;
        if is_trusted && result.is_ok() {
            return self.deliver_hit(now, read, memory);
        }
        if read.count == 1 && result.is_ok() {
            let buf = read.buf();
            if crc32c(memory.bytes(buf)) == self.store.index.checksum(read.slot) {
                self.store.mend(read.slot, read.attempts, buf, memory);
                return self.deliver_hit(now, read, memory);
            }
        }
        let bad = match result {
            Ok(()) => self.bad_blocks(&read, memory),
            Err(_) => {
                self.store.stats.cache_read_errors += 1;
                (0..read.count).collect()
            }
        };
        if bad.is_empty() {
            let buf = read.buf();
            self.store.mend(read.slot, read.attempts, buf, memory);
            return self.deliver_hit(now, read, memory);
        }
        read.attempts += 1;
        let attempts = self.attempts_to_read();
        if read.attempts < attempts && self.store.index.find(read.key) == Some(read.slot) {
            return self.start_hit_read(read);
        }
        if let Some((buf, _)) = read.bounce {
            memory.free(buf);
        }
        for index in bad {
            self.read_elsewhere(now, &read, index, memory);
        }
        self.finish_part(now, read.request, Ok(()));
    }

    /// The blocks of a finished read whose contents are wrong.
    fn bad_blocks(
        &mut self,
        read: &HitRead,
        memory: &mut dyn Memory,
    ) -> smallvec::SmallVec<[u16; 4]> {
        let block_bytes = self.store.block_bytes();
        let buf = read.buf();
        let mut bad = smallvec::SmallVec::new();
        for (index, block) in memory.bytes(buf).chunks_exact(block_bytes).enumerate() {
            if crc32c(block) != self.store.index.checksum(Slot(read.slot.0 + index as u32)) {
                self.store.stats.checksum_errors += 1;
                bad.push(index as u16);
            }
        }
        bad
    }

    pub(super) fn deliver_hit(&mut self, now: Nanos, read: HitRead, memory: &mut dyn Memory) {
        if let Some((buf, skip_bytes)) = read.bounce {
            memory.copy(
                buf.slice(skip_bytes, read.dest.len_bytes as usize),
                read.dest,
            );
            memory.free(buf);
        }
        if self.policy.gate.watches {
            let took = now.since(self.submitted_at(read.request));
            self.policy.gate.answered(Direction::Read, now, took);
        }
        self.finish_part(now, read.request, Ok(()));
    }

    /// A block could not be read from its slot: it is taken from where it is now, from the origin
    /// if it is clean, or not at all. Never something old.
    fn read_elsewhere(&mut self, now: Nanos, read: &HitRead, index: u16, memory: &mut dyn Memory) {
        let block_bytes = self.store.block_bytes();
        let key = read.key.plus(u64::from(index));
        let slot = Slot(read.slot.0 + u32::from(index));
        let (dest, skip_bytes) = match read.bounce {
            Some((_, skip_bytes)) => (read.dest, skip_bytes),
            None => (
                read.dest
                    .slice(usize::from(index) * block_bytes, block_bytes),
                0,
            ),
        };
        let run = ReadRun {
            key,
            count: 1,
            skip_bytes,
            dest,
        };
        match self.store.index.find(key) {
            Some(now_at) if now_at != slot => {
                self.read_hit(now, read.request, read.volume, run, now_at, memory)
            }
            // Other blocks of the transfer moved meanwhile, or each of its two copies has another bad
            // block: this one has a try of its own.
            Some(_) if read.bounce.is_none() && self.may_try_alone(read) => {
                let attempts = read.attempts % READ_ATTEMPTS;
                self.add_part(read.request);
                self.start_hit_read(HitRead {
                    key,
                    slot,
                    count: 1,
                    dest,
                    attempts,
                    ..read.clone()
                });
            }
            Some(_) if self.store.index.flags(slot).dirty() => {
                self.add_part(read.request);
                self.finish_part(now, read.request, Err(Failure::Io));
            }
            Some(_) => {
                self.drop_damaged(now, key, memory);
                self.read_origin(now, read.request, read.volume, run);
            }
            None => self.read_origin(now, read.request, read.volume, run),
        }
    }

    fn may_try_alone(&self, read: &HitRead) -> bool {
        let segment = self.store.log.per_segment().segment_of(read.slot);
        read.attempts < READ_ATTEMPTS || (read.count > 1 && self.store.log.is_on_two(segment))
    }

    /// Reads of a slot before its block is taken from elsewhere. Where there may be two places, each
    /// is asked: also if the device that failed the first reads was lost meanwhile.
    fn attempts_to_read(&self) -> u8 {
        match self.store.log.has_two_copies() {
            true => 2 * READ_ATTEMPTS,
            false => READ_ATTEMPTS,
        }
    }

    /// Removes a clean block whose slot is damaged, unless somebody is about to replace it.
    fn drop_damaged(&mut self, now: Nanos, key: BlockKey, memory: &mut dyn Memory) {
        if self.store.locks.owner(key).is_none() && !self.store.failed_cache() {
            self.store.drop_block(now, key, false, memory);
        }
    }

    /// Why missed blocks are not promoted, if they are not.
    pub(super) fn read_bypass(
        &mut self,
        now: Nanos,
        volume: VolumeSlot,
        key: BlockKey,
        count: u16,
        sequential: bool,
    ) -> Option<BypassReason> {
        let missed = Missed {
            volume,
            key,
            count,
            sequential,
        };
        self.policy.read_bypass(&self.store, now, missed)
    }

    // On its own, so that a hit needs fewer registers.
    #[inline(never)]
    fn read_miss(
        &mut self,
        now: Nanos,
        request: RequestIndex,
        volume: VolumeSlot,
        run: ReadRun,
        sequential: bool,
        memory: &mut dyn Memory,
    ) {
        if let Some(reason) = self.read_bypass(now, volume, run.key, run.count, sequential) {
            return self.bypass_read(now, request, volume, run, reason);
        }
        let ReadRun { key, count, .. } = run;
        let reader = run.reader(request);
        if self.start_promotion(now, volume, key, count, reader, memory) {
            self.count_read_misses(count);
        } else {
            self.bypass_read(now, request, volume, run, BypassReason::NoMemory);
        }
    }

    /// Reads a missed range from the origin only.
    pub(super) fn bypass_read(
        &mut self,
        now: Nanos,
        request: RequestIndex,
        volume: VolumeSlot,
        run: ReadRun,
        reason: BypassReason,
    ) {
        self.count_read_misses(run.count);
        self.note_read_bypass(now, volume, run, reason);
        self.read_origin(now, request, volume, run);
    }

    fn note_read_bypass(
        &mut self,
        now: Nanos,
        volume: VolumeSlot,
        run: ReadRun,
        reason: BypassReason,
    ) {
        let (start_bytes, _) = self.store.origin_range(volume, run.key, 1);
        let what = Bypassed {
            volume,
            offset_bytes: start_bytes + run.skip_bytes as u64,
            len_bytes: u64::from(run.dest.len_bytes),
            write: false,
            at: now,
        };
        let blocks = u64::from(run.count);
        self.store.stats.bypasses.count(reason, blocks, what);
    }

    pub(super) fn read_origin(
        &mut self,
        now: Nanos,
        request: RequestIndex,
        volume: VolumeSlot,
        run: ReadRun,
    ) {
        self.add_part(request);
        self.note_bypass(request);
        let read = MissRead {
            volume,
            key: run.key,
            reader: run.reader(request),
        };
        self.start_miss_read(now, read);
    }

    pub(super) fn start_miss_read(&mut self, now: Nanos, read: MissRead) {
        self.foreground_read(now, read.volume);
        let (start, _) = self.store.origin_range(read.volume, read.key, 1);
        let offset_bytes = start + u64::from(read.reader.skip_bytes);
        let bufs = one_buf(read.reader.dest);
        self.store.issue(
            Op::MissRead(read),
            Device::Origin(read.volume),
            Operation::Read { offset_bytes, bufs },
        );
    }

    pub(crate) fn foreground_read(&mut self, now: Nanos, volume: VolumeSlot) {
        let state = self.store.volume(volume);
        state.client_waits(now);
        state.foreground_reads += 1;
    }

    /// The origin was read for a client.
    pub(crate) fn origin_was_read(&mut self, now: Nanos, volume: VolumeSlot) {
        let state = self.store.volume(volume);
        state.foreground_reads -= 1;
        state.client_has_waited(now);
    }

    pub(crate) fn miss_read_done(
        &mut self,
        now: Nanos,
        read: MissRead,
        result: Result<(), DeviceError>,
        _memory: &mut dyn Memory,
    ) {
        self.origin_was_read(now, read.volume);
        if result.is_err_and(|error| error != DeviceError::NotStraight) {
            self.store.stats.origin_read_errors += 1;
        }
        let failure = match read.reader.dest.is_of_client() {
            true => Failure::NotStraight,
            false => Failure::Io,
        };
        self.finish_part(now, read.reader.request, result.map_err(|_| failure));
    }
}
