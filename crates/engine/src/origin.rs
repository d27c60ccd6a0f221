//! Origins: how dirty data gets there, and how writers are slowed down for it.

mod backoff;
mod hanging;
mod hurry;
mod idle_cache;
mod pace;
mod portions;
mod run;
mod sweep;
#[cfg(test)]
mod tests;
pub(crate) mod throttle;
pub(crate) mod writeback;
mod writeback_reads;

use crate::ids::WritebackId;
use crate::interface::{Memory, VolumeSlot};
use crate::origin::idle_cache::IdleCache;
use crate::origin::portions::Portion;
use crate::origin::throttle::Throttle;
use crate::origin::writeback::{Writeback, WritebackJob};
use crate::slab::Slab;
use crate::spare::Spare;

/// Write-back, and the writers that wait for it.
#[derive(Debug)]
pub(crate) struct Origin {
    pub(crate) writeback: Writeback,
    pub(crate) throttle: Throttle,
    /// Runs of blocks on their way.
    runs: Slab<WritebackId, Box<WritebackJob>>,
    portion: Portion,
    idle_cache: IdleCache,
    spare: Spare,
}

impl Origin {
    /// Write-back of a shard with blocks of this size.
    pub(crate) fn new(block_bytes: usize, memory: &mut dyn Memory) -> Origin {
        Origin {
            writeback: Writeback::default(),
            throttle: Throttle::default(),
            runs: Slab::default(),
            portion: Portion::default(),
            idle_cache: IdleCache::default(),
            spare: Spare::new(block_bytes, memory),
        }
    }

    /// The number of runs of blocks on their way.
    pub(crate) fn runs(&self) -> usize {
        self.runs.len()
    }

    /// The number of runs on their way to a volume.
    pub(crate) fn runs_to(&self, volume: VolumeSlot) -> usize {
        let runs = self.runs.iter();
        runs.filter(|run| run.volume == volume).count()
    }
}
