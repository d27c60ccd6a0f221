//! The short way of a read: one whole block that is cached, into the request's buffer. It makes no
//! request state. A read that fails, or brings other contents, gets one then (`read`).

use crate::bypass::Direction;
use crate::checksum::crc32c;
use crate::format::{BlockKey, Slot};
use crate::interface::{Ack, Device, DeviceError, Memory, Nanos, Request, RequestKind, one_buf};
use crate::parts::Engine;
use crate::settings::Verify;
use crate::store::op::{HitRead, Op, WholeHit};

impl Engine {
    /// Reads the block of a request from this slot, which holds it. Returns false, and changes
    /// nothing, if the request is for a part of it, or the block is not stored.
    #[inline(always)]
    pub(super) fn read_whole(
        &mut self,
        now: Nanos,
        request: &Request,
        key: BlockKey,
        slot: Slot,
    ) -> bool {
        // The request is within the block: with its length it has its beginning too.
        let is_whole = request.len_bytes as usize == self.store.block_bytes();
        if !is_whole || self.store.index.flags(slot).zero() {
            return false;
        }
        self.count_read_hits(now, key, 1, slot);
        self.jobs.hits_alone += 1;
        self.store.log.segment_of(slot).pins += 1;
        self.store.stats.cache_data_read_bytes += u64::from(request.len_bytes);
        let hit = WholeHit {
            id: request.id,
            volume: request.volume,
            started: now,
            key,
            slot,
            dest: request.buf,
        };
        let operation = self.store.log.read_of_block(slot, one_buf(request.buf));
        self.store.issue_quietly(
            Op::WholeHit(hit),
            Device::Cache(0),
            operation,
            request.len_bytes,
        );
        true
    }

    #[inline(always)]
    pub(crate) fn whole_hit_done(
        &mut self,
        now: Nanos,
        hit: WholeHit,
        result: Result<(), DeviceError>,
        memory: &mut dyn Memory,
    ) {
        self.jobs.hits_alone -= 1;
        if hit.dest.is_of_client() || self.store.settings.verify == Verify::Background {
            return self.unseen_hit_done(now, hit, result, memory);
        }
        let is_sound = || crc32c(memory.bytes(hit.dest)) == self.store.index.checksum(hit.slot);
        if result.is_err() || !is_sound() {
            return self.whole_hit_goes_on(now, hit, result, memory);
        }
        self.answer_whole_hit(now, &hit);
    }

    /// Likewise where hits may go unverified. Out of the way of those that do not.
    #[inline(never)]
    fn unseen_hit_done(
        &mut self,
        now: Nanos,
        hit: WholeHit,
        result: Result<(), DeviceError>,
        memory: &mut dyn Memory,
    ) {
        let is_straight = hit.dest.is_of_client();
        let is_sound = || {
            self.goes_unverified()
                || !is_straight
                    && crc32c(memory.bytes(hit.dest)) == self.store.index.checksum(hit.slot)
        };
        if result.is_err() || !is_sound() {
            return self.whole_hit_goes_on(now, hit, result, memory);
        }
        self.store.stats.straight_requests += u64::from(is_straight);
        self.answer_whole_hit(now, &hit);
    }

    #[inline(always)]
    fn answer_whole_hit(&mut self, now: Nanos, hit: &WholeHit) {
        self.store.unpin(hit.slot);
        let took = now.since(hit.started);
        if self.policy.gate.watches {
            self.policy.gate.answered(Direction::Read, now, took);
        }
        self.acks.push_back(Ack {
            id: hit.id,
            result: Ok(()),
            bypassed: false,
        });
        self.store.stats.read_latency.record(took);
    }

    /// Goes on as a request with a read that failed or brought other contents.
    #[cold]
    fn whole_hit_goes_on(
        &mut self,
        now: Nanos,
        hit: WholeHit,
        result: Result<(), DeviceError>,
        memory: &mut dyn Memory,
    ) {
        let blocks_before = hit.key.0 - self.store.volume(hit.volume).config.base.0;
        let request = Request {
            id: hit.id,
            volume: hit.volume,
            kind: RequestKind::Read,
            offset_bytes: blocks_before * self.store.block_bytes() as u64,
            len_bytes: hit.dest.len_bytes,
            buf: hit.dest,
        };
        let read = HitRead {
            request: self.begin_request(hit.started, request),
            volume: hit.volume,
            key: hit.key,
            slot: hit.slot,
            count: 1,
            dest: hit.dest,
            bounce: None,
            attempts: 0,
        };
        self.hit_read_done(now, read, result, memory);
    }
}
