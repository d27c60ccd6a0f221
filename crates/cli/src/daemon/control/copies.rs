//! Dirty data on one device or on two, by command (I28).

use anyhow::Result;
use forebay_cache::control::Command;
use forebay_engine::{Mode, Storage, Superblock, VolumeSlot};

use super::commands::cache_of;
use super::who::Who;
use crate::daemon::life::lost_devices::{LostDevice, needs_two};
use crate::daemon::state::Daemon;
use crate::device::cache_storage;
use crate::failure::{describe, wrong_usage};
use crate::lock::lock;
use crate::report::copies::Copies;
use crate::report::status::{CacheStatus, Status};
use crate::settings::OnDegraded;

/// Dirty data that is to be on two devices, in all shards.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(in crate::daemon) struct Exposed {
    /// On one device alone.
    pub(in crate::daemon) bytes: u64,
    /// It is being copied.
    pub(in crate::daemon) is_mirroring: bool,
}

impl Exposed {
    pub(super) fn is_none(self) -> bool {
        self.bytes == 0 && !self.is_mirroring
    }
}

/// Whether it is not on record yet that any one device may be missing.
pub(in crate::daemon) fn awaits_record(superblock: &Superblock) -> bool {
    superblock.keeps_two() && !superblock.is_all_on_two()
}

impl Daemon {
    /// The number of devices that each dirty block is on.
    pub(in crate::daemon) fn copies(&self) -> Option<u8> {
        let admin = self.admin();
        admin.cache.as_ref().map(|cache| cache.superblock().copies)
    }

    /// Has dirty data on so many devices from now on. What is on one is copied.
    pub(super) fn set_copies(&self, copies: u8, who: &Who) -> Result<bool> {
        let mut admin = self.admin();
        let cache = cache_of(&mut admin)?;
        let before = cache.superblock().copies;
        if before == copies {
            return Ok(false);
        }
        if copies > 1 && cache.storage.device_numbers().len() < 2 {
            wrong_usage!("{}", needs_two(&cache_storage::names(&cache.storage)));
        }
        drop(admin);
        self.carry_out_at_once(Command::Copies(copies))?;
        tracing::info!("copies is now {copies}, was {before}: by {who}");
        let said = format!("copies is now {copies}, was {before}");
        self.events.note("settings", said);
        Ok(true)
    }

    /// Sets the conduct of volumes in write-back while there is one device for dirty data that is to
    /// be on two. They do it within a second.
    pub(super) fn set_on_degraded(&self, word: OnDegraded, who: &Who) -> Result<bool> {
        let mut admin = self.admin();
        let cache = cache_of(&mut admin)?;
        let before = std::mem::replace(&mut cache.on_degraded, word);
        if before != word {
            let said = format!("on-degraded is now {}, was {}", word.name(), before.name());
            tracing::info!("{said}: by {who}");
            self.events.note("settings", said);
        }
        Ok(before != word)
    }

    /// Has volumes in write-back write through while there is one device, if that is wanted, and
    /// write back again afterwards. The mode on record stays.
    pub(in crate::daemon) fn heed_degraded(&self, status: &Status) -> Result<()> {
        let Some(cache) = &status.cache else {
            return Ok(());
        };
        for volume in &status.volumes {
            let Some((slot, on_record, writes_through)) = self.wanted_mode(&volume.name, cache)
            else {
                continue;
            };
            let wanted = match writes_through {
                true => Mode::Writethrough,
                false => on_record,
            };
            let now: Option<Mode> = volume.mode.parse().ok();
            let is_other = now.is_some_and(|now| now != wanted);
            if !is_other || on_record != Mode::Writeback {
                continue;
            }
            // A command that changes the mode, as a freeze does, has precedence; a look follows.
            if let Err(error) = self.carry_out_at_once(Command::PassingMode(slot, wanted)) {
                tracing::debug!("the mode of {} stays: {}", volume.name, describe(&error));
                continue;
            }
            let said = format!(
                "volume {} is now in mode {}, while {}",
                volume.name,
                wanted.name(),
                match writes_through {
                    true => "dirty data would be on one device alone (on-degraded)",
                    false => "dirty data is on two devices",
                }
            );
            tracing::warn!("{said}");
            self.events.note_of(&volume.name, "mode", said);
        }
        Ok(())
    }

    /// Puts on record that all dirty data is on two devices, as soon as it is. From then on a start may do
    /// without any one of them (I28). A device that is being lost has the next look do it.
    pub(in crate::daemon) fn record_all_on_two(&self) -> Result<()> {
        let admin = self.admin();
        let is_due = (admin.cache.as_ref()).is_some_and(|cache| awaits_record(cache.superblock()));
        drop(admin);
        if !is_due || !self.exposed()?.is_none() {
            return Ok(());
        }
        if let Err(error) = self.carry_out_at_once(Command::AllOnTwo) {
            tracing::debug!(
                "that dirty data is on two devices is not on record yet: {}",
                describe(&error)
            );
        }
        Ok(())
    }

    /// The number of a served volume, its mode on record, and whether it is to write through.
    fn wanted_mode(&self, name: &str, cache: &CacheStatus) -> Option<(VolumeSlot, Mode, bool)> {
        let admin = self.admin();
        let slot = admin
            .volumes
            .iter()
            .find(|volume| volume.name == name)?
            .slot;
        let on_record = admin.mode_of(name)?;
        let policy = admin.cache.as_ref()?.on_degraded;
        let is_degraded = cache.copies() == Copies::Alone && cache.failure.is_none();
        let through = is_degraded && policy == OnDegraded::Writethrough;
        Some((slot, on_record, through))
    }

    /// Puts into force at the start what the plan says of copies.
    pub(in crate::daemon) fn copies_as_planned(&self) -> Result<()> {
        let planned = lock(&self.plan)
            .cache
            .as_ref()
            .and_then(|cache| cache.copies);
        match planned {
            // One that goes on with one device keeps two again once it has another.
            Some(copies) if self.copies() != Some(copies) => {
                self.set_copies(copies, &Who::daemon()).map(drop)
            }
            _ => Ok(()),
        }
    }

    /// Says which devices this start went on without.
    pub(in crate::daemon) fn note_lost_at_start(&self) {
        let admin = self.admin();
        let lost = admin.cache.iter().flat_map(|cache| &cache.lost);
        for lost in lost.filter(|lost| lost.lately) {
            let said = format!(
                "the cache started without {} and goes on without it: no data is lost. Put another in its place with \
                 `forebay cache replace`",
                LostDevice::in_words(lost)
            );
            tracing::warn!("{said}");
            self.events.note("device-lost", said);
        }
    }

    /// Dirty data that is on one device alone, where it is to be on two.
    pub(in crate::daemon) fn exposed(&self) -> Result<Exposed> {
        let block_bytes = self.admin().block_bytes();
        let mut all = Exposed::default();
        for link in &self.links {
            let (blocks, mirrors) = link.call(|worker| {
                worker
                    .engines()
                    .fold((0, false), |(blocks, mirrors), engine| {
                        (
                            blocks + engine.exposed_blocks(),
                            mirrors || engine.is_mirroring(),
                        )
                    })
            })?;
            all.bytes += blocks * block_bytes;
            all.is_mirroring |= mirrors;
        }
        Ok(all)
    }
}
