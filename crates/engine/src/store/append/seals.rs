//! Seals: the summary of a segment that is full and complete. Recovery then reads the summary and
//! scans no headers. An example:
//!
//! 1. Segment 3, generation 3000, has no room left after slot 255. It takes no more appends, and
//!    its end slot is 256.
//! 2. The headers of its last two records, at slots 200 and 230, are in flight.
//! 3. The header at slot 230 is on the device. Its record waits for the earlier one (I13).
//! 4. The header at slot 200 is on the device: both records are complete.
//! 5. Summary 0 of the segment counts, from an earlier generation. The seal goes to summary 1 with
//!    every entry and generation 3000.
//! 6. The seal is on the device: summary 1 counts from now on. A crash before that finds the
//!    entries in the headers.

use crate::format::{SegmentId, Summary, SummaryKind};
use crate::interface::{Buf, Device, DeviceError, Memory, Operation, one_buf};
use crate::store::Store;
use crate::store::append::ATTEMPTS;
use crate::store::log::SegmentState;
use crate::store::op::Op;

impl Store {
    pub(crate) fn seal_if_complete(&mut self, id: SegmentId, memory: &mut dyn Memory) {
        let segment = self.log.segment(id);
        if segment.state != SegmentState::Filled {
            return;
        }
        let Some(filling) = &segment.filling else {
            return;
        };
        // The link to a renewal that goes before it must be in its seal (see `renew_below`).
        let waits = !filling.outstanding.is_empty() || self.renewals.is_renewing_before(id);
        if waits || self.failed_cache() {
            return;
        }
        self.write_seal(id, memory);
    }

    /// Writes the summary of a full segment into the slot that does not count (I19).
    pub(crate) fn write_seal(&mut self, id: SegmentId, memory: &mut dyn Memory) {
        let shard = self.log.shard;
        let state = self.state_in(id);
        let last_number = self.log.next_number - 1;
        let segment = self.log.segment(id);
        let which = segment.summary.map_or(0, |counts| 1 - counts);
        let filling = segment.filling.as_mut().expect("not sealed yet");
        let summary = Summary {
            shard,
            segment: id,
            which,
            kind: SummaryKind::Seal,
            stream: segment.stream,
            generation: segment.generation,
            end_slot: segment.end_slot,
            last_number,
            state,
            entries: std::mem::take(&mut filling.entries),
        };
        let encoded_bytes = summary.encoded_bytes();
        let buf = self.spare_summary.alloc(encoded_bytes, memory);
        if let Some(buf) = buf {
            summary.encode(self.log.map.id_in(id), memory.bytes_mut(buf));
            self.durable_is_said();
        }
        self.log.filling(id).entries = summary.entries;
        let Some(buf) = buf else {
            self.waiting.seals.push(id);
            return;
        };
        let places = self.log.summary_written_at(id, which);
        self.stats.cache_metadata_written_bytes += u64::from(buf.len_bytes);
        self.issue(
            Op::Seal {
                segment: id,
                which,
                buf,
            },
            Device::Cache(0),
            Operation::write_at(places, one_buf(buf)),
        );
    }

    pub(crate) fn seal_done(
        &mut self,
        segment: SegmentId,
        which: u8,
        buf: Buf,
        result: Result<(), DeviceError>,
        memory: &mut dyn Memory,
    ) {
        self.spare_summary.free(buf, memory);
        if result.is_err() {
            self.stats.cache_write_errors += 1;
            let filling = self.log.filling(segment);
            filling.attempts += 1;
            if filling.attempts < ATTEMPTS && !self.failed_cache() {
                return self.write_seal(segment, memory);
            }
            if self.is_to_promise(segment) {
                return self.fail_cache("summaries cannot be written to the cache device");
            }
            // The headers list the same entries; recovery will scan them. Nobody knows the contents
            // of the slot now, so it counts as taken and the other slot is not touched by mistake.
        } else {
            self.log.segment(segment).summary = Some(which);
            self.seal_promises(segment);
        }
        let segment = self.log.segment(segment);
        segment.state = SegmentState::Sealed;
        segment.filling = None;
    }
}
