//! Long reads of clean cached blocks that the origin answers sooner than the cache device.
//!
//! Such blocks are in both places (I4, I6), so both devices together read faster than either. What
//! the origin brings counts if it has the checksums of the cached blocks. Otherwise they are read
//! from where they are then: somebody wrote them meanwhile, or the origin has rotted.

use crate::format::Slot;
use crate::ids::RequestIndex;
use crate::interface::{Device, DeviceError, Memory, Nanos, Operation, VolumeSlot, one_buf};
use crate::parts::Engine;
use crate::paths::read::{ReadRun, hit_of_run};
use crate::planted::{self, Bug};
use crate::store::device_times::LONG_BYTES;
use crate::store::op::{HitRead, Op, Reader};

impl Engine {
    /// Whether whole cached blocks, the first at `slot`, are to be read from the origin.
    pub(super) fn ends_sooner_on_origin(
        &self,
        volume: VolumeSlot,
        run: &ReadRun,
        slot: Slot,
    ) -> bool {
        let attached = self.store.attached(volume);
        if !attached.origin_answers_hits || attached.away {
            return false;
        }
        let len_bytes = u64::from(run.dest.len_bytes);
        // Misses first: a short read would stand behind a long one.
        let ends_sooner = || {
            let times = &self.store.operations.times;
            len_bytes >= LONG_BYTES
                && attached.foreground_reads == 0
                && times.long_read_ends_sooner_on_origin(volume, len_bytes)
        };
        (self.store.settings.laboratory.each_hit_from_origin || ends_sooner())
            && self.are_clean(slot, run.count)
    }

    /// Whether stored blocks, the first at `slot`, are what the origin holds.
    fn are_clean(&self, slot: Slot, count: u16) -> bool {
        let mut slots = (slot.0..).take(usize::from(count));
        slots.all(|slot| {
            let flags = self.store.index.flags(Slot(slot));
            !flags.zero() && (!flags.dirty() || planted::is(Bug::OriginBelieved))
        })
    }

    pub(super) fn read_hit_from_origin(
        &mut self,
        now: Nanos,
        request: RequestIndex,
        volume: VolumeSlot,
        run: ReadRun,
        slot: Slot,
    ) {
        self.count_read_hits(now, run.key, run.count, slot);
        self.store.stats.blocks_hit_on_origin += u64::from(run.count);
        self.add_part(request);
        // The checksums stay as long as the segment is pinned.
        self.store.log.segment_of(slot).pins += 1;
        let (offset_bytes, _) = self.store.origin_range(volume, run.key, 1);
        let bufs = one_buf(run.dest);
        self.store.issue(
            Op::HitFromOrigin(hit_of_run(request, volume, &run, slot)),
            Device::Origin(volume),
            Operation::Read { offset_bytes, bufs },
        );
    }

    pub(crate) fn hit_from_origin_done(
        &mut self,
        now: Nanos,
        read: HitRead,
        result: Result<(), DeviceError>,
        memory: &mut dyn Memory,
    ) {
        self.store.unpin(read.slot);
        if result.is_err() {
            self.store.stats.origin_read_errors += 1;
        }
        let is_theirs = planted::is(Bug::OriginBelieved)
            || (result.is_ok() && self.is_what_is_stored(read.slot, memory.bytes(read.dest)));
        if !is_theirs {
            let reader = Reader {
                request: read.request,
                skip_bytes: 0,
                dest: read.dest,
            };
            self.read_where_it_is(now, read.volume, read.key, reader, memory);
        }
        self.finish_part(now, read.request, Ok(()));
    }
}
