//! Writes that cover a block only in part: the rest of it is read first, from the cache or the
//! origin.

use crate::checksum::crc32c;
use crate::format::{BlockKey, Slot};
use crate::ids::JobId;
use crate::interface::{Buf, Device, DeviceError, Failure, Memory, Nanos, Operation, one_buf};
use crate::jobs::write::Edge;
use crate::parts::Engine;
use crate::store::op::Op;

use super::FILL_ATTEMPTS;

impl Engine {
    /// Starts the reads that complete the first and last block, if the request has only part of
    /// them. False if memory is short.
    pub(super) fn fill_edges(
        &mut self,
        now: Nanos,
        job: JobId,
        volume: crate::interface::VolumeSlot,
        memory: &mut dyn Memory,
    ) -> bool {
        let block_bytes = self.store.block_bytes();
        let (request, first, end) = {
            let state = self.write_job(job);
            (state.request, state.first, state.end)
        };
        let start_bytes = request.offset_bytes;
        let end_bytes = start_bytes + u64::from(request.len_bytes);
        let last = BlockKey(end.0 - 1);
        for (at, key) in [(0, first), (1, last)] {
            if at == 1 && last == first
                || !self.is_logged(job, key)
                || self.write_job(job).edges[at].is_some()
            {
                continue;
            }
            let (block_start, valid_bytes) = self.store.origin_range(volume, key, 1);
            let covers =
                start_bytes <= block_start && end_bytes >= block_start + valid_bytes as u64;
            if covers && valid_bytes == block_bytes {
                continue;
            }
            let Some(buf) = memory.alloc(block_bytes) else {
                return false;
            };
            memory.bytes_mut(buf).fill(0);
            self.write_job(job).edges[at] = Some(Edge {
                key,
                buf,
                attempts: 0,
            });
            if !covers {
                self.start_fill(now, job, at as u8, memory);
            }
        }
        true
    }

    pub(super) fn is_logged(&mut self, job: JobId, key: BlockKey) -> bool {
        let logged = &self.write_job(job).logged;
        logged.iter().any(|run| run.contains(key))
    }

    fn start_fill(&mut self, now: Nanos, job: JobId, edge: u8, memory: &mut dyn Memory) {
        let volume = self.write_job(job).request.volume;
        let Edge { key, buf, attempts } =
            self.write_job(job).edges[usize::from(edge)].expect("an edge");
        match self.store.index.find(key) {
            Some(slot) if self.store.index.flags(slot).zero() => memory.bytes_mut(buf).fill(0),
            Some(slot) => {
                self.write_job(job).outstanding += 1;
                self.store.log.segment_of(slot).pins += 1;
                let offset_bytes = self.store.log.map.address_at(slot, attempts);
                let bufs = one_buf(buf);
                self.store.issue(
                    Op::FillFromCache { job, edge, slot },
                    Device::Cache(0),
                    Operation::Read { offset_bytes, bufs },
                );
            }
            None => self.fill_from_origin(now, job, edge, volume, key, buf),
        }
    }

    fn fill_from_origin(
        &mut self,
        now: Nanos,
        job: JobId,
        edge: u8,
        volume: crate::interface::VolumeSlot,
        key: BlockKey,
        buf: Buf,
    ) {
        self.write_job(job).outstanding += 1;
        self.foreground_read(now, volume);
        let (offset_bytes, len_bytes) = self.store.origin_range(volume, key, 1);
        let bufs = one_buf(buf.slice(0, len_bytes));
        self.store.issue(
            Op::FillFromOrigin { job, edge },
            Device::Origin(volume),
            Operation::Read { offset_bytes, bufs },
        );
    }

    pub(crate) fn fill_from_cache_done(
        &mut self,
        now: Nanos,
        job: JobId,
        edge: u8,
        slot: Slot,
        result: Result<(), DeviceError>,
        memory: &mut dyn Memory,
    ) {
        self.store.log.segment_of(slot).pins -= 1;
        let volume = self.write_job(job).request.volume;
        let state = self.write_job(job);
        state.outstanding -= 1;
        let Edge { key, buf, attempts } = state.edges[usize::from(edge)].expect("an edge");
        let sound = result.is_ok() && crc32c(memory.bytes(buf)) == self.store.index.checksum(slot);
        if !sound {
            self.store.stats.cache_read_errors += u64::from(result.is_err());
            self.store.stats.checksum_errors += u64::from(result.is_ok());
            let segment = self.store.log.per_segment().segment_of(slot);
            let is_on_two = self.store.log.is_on_two(segment);
            if attempts + 1 < FILL_ATTEMPTS << u8::from(is_on_two) {
                self.write_job(job).edges[usize::from(edge)] = Some(Edge {
                    key,
                    buf,
                    attempts: attempts + 1,
                });
                self.start_fill(now, job, edge, memory);
            } else if self.store.is_dirty(key) {
                // Wherever it is by now: reclaim may have carried it on to another slot.
                self.write_job(job).failure = Some(Failure::Io);
            } else {
                self.fill_from_origin(now, job, edge, volume, key, buf);
            }
        }
        self.resume_write(now, job, memory);
    }

    pub(crate) fn fill_from_origin_done(
        &mut self,
        now: Nanos,
        job: JobId,
        edge: u8,
        result: Result<(), DeviceError>,
        memory: &mut dyn Memory,
    ) {
        let volume = self.write_job(job).request.volume;
        let state = self.store.volume(volume);
        state.foreground_reads -= 1;
        state.client_has_waited(now);
        let Edge { key, buf, .. } = self.write_job(job).edges[usize::from(edge)].expect("an edge");
        let (_, valid_bytes) = self.store.origin_range(volume, key, 1);
        memory.bytes_mut(buf)[valid_bytes..].fill(0);
        let state = self.write_job(job);
        state.outstanding -= 1;
        if result.is_err() {
            state.failure = Some(Failure::Io);
            self.store.stats.origin_read_errors += 1;
        }
        self.resume_write(now, job, memory);
    }

    pub(super) fn merge_edge(&mut self, job: JobId, edge: Edge, memory: &mut dyn Memory) {
        let request = self.write_job(job).request;
        let is_zero = self.write_job(job).is_zero();
        let block_bytes = self.store.block_bytes() as u64;
        let (block_start, _) = self.store.origin_range(request.volume, edge.key, 1);
        let from = request.offset_bytes.max(block_start);
        let to =
            (request.offset_bytes + u64::from(request.len_bytes)).min(block_start + block_bytes);
        let into = edge
            .buf
            .slice((from - block_start) as usize, (to - from) as usize);
        if is_zero {
            memory.bytes_mut(into).fill(0);
        } else {
            memory.copy(
                request
                    .buf
                    .slice((from - request.offset_bytes) as usize, (to - from) as usize),
                into,
            );
        }
    }
}
