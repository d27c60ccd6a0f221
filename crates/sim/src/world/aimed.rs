//! Faults aimed at one operation or one place, for scripts: random faults hit these once in a
//! hundred thousand runs.

use forebay_engine::format::geometry::DATA_OFFSET_BYTES;
use forebay_engine::{Device as DeviceName, Nanos, Operation};

use super::World;
use crate::device::{Fate, How};
use crate::disk::PAGE_BYTES;
use crate::payload::{self, SECTOR_BYTES};
use crate::plan::{Harm, Target, Trap};

impl World<'_> {
    /// Applies the traps to an operation that is submitted now.
    pub(super) fn spring(
        &mut self,
        device: DeviceName,
        operation: &Operation,
        fate: Fate,
    ) -> (Fate, Nanos) {
        let target = match (device, operation) {
            (DeviceName::Cache(_), Operation::Read { .. }) => Target::CacheRead,
            (DeviceName::Cache(_), Operation::Write { .. }) => Target::CacheWrite,
            (DeviceName::Cache(_), Operation::Flush) => Target::CacheFlush,
            (DeviceName::Origin(_), Operation::Read { .. }) => Target::OriginRead,
            (DeviceName::Origin(_), Operation::Write { .. }) => Target::OriginWrite,
            (DeviceName::Origin(_), Operation::Flush) => Target::OriginFlush,
            (
                _,
                Operation::Discard { .. }
                | Operation::WriteZeroes { .. }
                | Operation::ReadEither { .. }
                | Operation::WriteBoth(_),
            ) => {
                return (fate, Nanos(0));
            }
        };
        let Some(at) = self.traps.iter().position(|trap| trap.target == target) else {
            return (fate, Nanos(0));
        };
        let trap = &mut self.traps[at];
        let Trap { fails, slow_ms, .. } = *trap;
        trap.times -= 1;
        if trap.times == 0 {
            self.traps.remove(at);
        }
        self.outcome.counts.add("aimed faults", 1);
        let fate = if fails {
            Fate::Fails {
                landing: 0,
                sticky: false,
            }
        } else {
            fate
        };
        (fate, Nanos(slow_ms * 1_000_000))
    }

    /// Harms the newest copy of a block on the cache device, if there is one.
    pub(super) fn harm(&mut self, volume: u16, block: u64, harm: Harm) {
        let block_bytes = u64::from(self.plan.config.geometry.block_bytes);
        let sector = block * block_bytes / SECTOR_BYTES as u64;
        let pages = (self.cache.disk.size_bytes() - DATA_OFFSET_BYTES) / PAGE_BYTES as u64;
        let copies = (0..pages).filter_map(|page| {
            let offset_bytes = DATA_OFFSET_BYTES + page * PAGE_BYTES as u64;
            let mut bytes = [0; SECTOR_BYTES];
            self.cache.disk.read(offset_bytes, &mut bytes);
            let value = payload::decode(&bytes, volume, sector).ok()?;
            Some((value, offset_bytes)).filter(|_| value != payload::ZERO)
        });
        let Some((_, offset_bytes)) = copies.max() else {
            return;
        };
        self.tell(|_| format!("{harm:?} at {offset_bytes:#x}"));
        self.outcome.counts.add("aimed faults", 1);
        match harm {
            Harm::Rot => {
                self.harm_here(offset_bytes);
                self.cache.disk.rot(offset_bytes, 3);
                self.cache.tally.damage += 1;
            }
            Harm::HeaderRot => {
                self.harm_here(offset_bytes - PAGE_BYTES as u64);
                self.cache.disk.rot(offset_bytes - PAGE_BYTES as u64, 3);
                self.cache.tally.damage += 1;
            }
            Harm::Unreadable => self.cache.make_unreadable(offset_bytes, block_bytes),
            Harm::SegmentUnreadable => {
                let segment_bytes = u64::from(self.plan.config.geometry.segment_bytes);
                let start = offset_bytes - (offset_bytes - DATA_OFFSET_BYTES) % segment_bytes;
                self.cache.make_unreadable(start, segment_bytes);
            }
        }
    }

    /// Notes that the contents of a place are about to be wrong.
    fn harm_here(&mut self, offset_bytes: u64) {
        self.cache
            .harm(How::Lasting, offset_bytes, PAGE_BYTES as u64, &[]);
        self.look_at_harm();
    }
}
