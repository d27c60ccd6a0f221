//! Conditions that must hold whenever the engine says that the origin is whole by itself.

use forebay_engine::VolumeSlot;

use super::{Check, Kind, World};
use crate::model::Range;
use crate::payload;

impl World<'_> {
    /// Dirty blocks of a volume, over all shards.
    pub(super) fn dirty_blocks(&self, volume: u16) -> u64 {
        let blocks = self
            .engines()
            .filter_map(|engine| engine.volume_blocks(VolumeSlot(volume)));
        blocks.map(|(dirty, _)| dirty).sum()
    }

    /// Notices volumes that became clean.
    pub(super) fn look_for_clean(&mut self) -> Check {
        if self.hosts.is_empty() {
            return Ok(());
        }
        for volume in 0..self.volumes.len() as u16 {
            let clean = self.dirty_blocks(volume) == 0;
            let state = &mut self.volumes[usize::from(volume)];
            // Of a volume that is forgotten nothing is dirty, and its origin is old.
            let became = clean && !state.was_clean && !state.forgotten;
            state.was_clean = clean;
            if became {
                self.counts().add("became clean", 1);
                self.origin_alone(volume, "the volume is clean")?;
            }
        }
        Ok(())
    }

    /// A flush was answered: a volume that writes through is whole on its origin.
    pub(super) fn after_flush(&mut self, volume: u16) -> Check {
        let clean = self.dirty_blocks(volume) == 0;
        if clean || self.volumes[usize::from(volume)].through {
            self.origin_alone(volume, "a flush ended and everything was written through")?;
        }
        Ok(())
    }

    /// I6, I9: whatever a power cut leaves of the origin, it alone satisfies the model.
    pub(super) fn origin_alone(&mut self, volume: u16, why: &str) -> Check {
        let disk = &self.origins[usize::from(volume)].disk;
        for sector in 0..self.volumes[usize::from(volume)].sectors {
            let mut versions = disk.versions(sector * 512, 512).peekable();
            while let Some(bytes) = versions.next() {
                let place = || format!("{why}, but its origin, volume {volume} sector {sector},");
                let value = payload::decode(bytes, volume, sector)
                    .map_err(|stray| format!("{} holds {stray}", place()))?;
                let current = versions.peek().is_none();
                self.model
                    .origin_alone(volume, sector, value, current)
                    .map_err(|what| {
                        let all: Vec<_> = disk
                            .versions(sector * 512, 512)
                            .map(|bytes| payload::decode(bytes, volume, sector))
                            .collect();
                        format!("{} {what}; it has {all:?}, durable first", place())
                    })?;
            }
        }
        Ok(())
    }

    /// Reads blocks, all of them or this share.
    pub(super) fn verify(&mut self, percent: u64) -> Check {
        let block = u64::from(self.plan.config.geometry.block_bytes) / 512;
        for volume in 0..self.volumes.len() as u16 {
            let sectors = self.volumes[usize::from(volume)].sectors;
            for sector in (0..sectors).step_by(block as usize) {
                if self.rng.percent(percent) {
                    let count = block.min(sectors - sector);
                    self.request(
                        Range {
                            volume,
                            sector,
                            count,
                        },
                        Kind::Read { prefetch: false },
                    )?;
                }
            }
        }
        self.quiesce()
    }
}
