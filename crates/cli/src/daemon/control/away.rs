//! Volumes whose origins are not there while the daemon runs: how they come back, and how they are
//! given up.

use std::sync::Arc;
use std::time::Duration;

use anyhow::Result;
use forebay_cache::control::Command;
use forebay_engine::VolumeSlot;
use serde_json::{Value, json};

use super::who::Who;
use crate::config::VolumePlan;
use crate::daemon::state::{AwayVolume, Daemon};
use crate::device::network;
use crate::failure::{self, refuse};
use crate::lock::lock;
use crate::thread;
use crate::units::size;

/// Time between looks whether a missing device is there, or one has grown.
const LOOK: Duration = Duration::from_secs(2);

impl Daemon {
    /// A volume that is not served, by name.
    pub(in crate::daemon) fn away_volume(&self, name: &str) -> Option<AwayVolume> {
        let admin = self.admin();
        admin.away.iter().find(|away| away.name == name).cloned()
    }

    /// A volume that is not served, by name; without a name the only one.
    pub(super) fn only_away(&self, name: Option<&str>) -> Option<AwayVolume> {
        let Some(name) = name else {
            let admin = self.admin();
            let is_only = admin.away.len() == 1;
            return admin.away.first().filter(|_| is_only).cloned();
        };
        self.away_volume(name)
    }

    /// Gives up a volume whose origin is not there, with what the cache holds of it.
    pub(super) fn forget(&self, away: &AwayVolume, force: bool) -> Result<Value> {
        let dirty_bytes = self.dirty_bytes_of(away)?;
        if dirty_bytes > 0 && !force {
            refuse!(
                "{}; {} of it are in the cache alone, acknowledged and on no disk, and would be lost. Bring the disk \
                 back, or lose them with `forebay detach {} --force`",
                away.in_words(),
                size(dirty_bytes),
                away.name
            );
        }
        if let Some((slot, _)) = away.kept {
            self.carry_out_at_once(Command::Forget(slot))?;
        }
        self.admin().away.retain(|other| other.name != away.name);
        let lost = match dirty_bytes {
            0 => "nothing was dirty".to_owned(),
            bytes => format!("{} of dirty data are lost", size(bytes)),
        };
        let told = format!("volume {} is given up: {lost}", away.name);
        tracing::warn!("{told}");
        self.events.note_of(&away.name, "detach", told);
        Ok(json!({ "name": away.name, "lost_bytes": dirty_bytes }))
    }

    pub(super) fn dirty_bytes_of(&self, away: &AwayVolume) -> Result<u64> {
        match away.kept {
            Some((slot, _)) => self.dirty_bytes_in(slot),
            None => Ok(0),
        }
    }

    /// Bytes of a volume that are newer in the cache.
    pub(super) fn dirty_bytes_in(&self, slot: VolumeSlot) -> Result<u64> {
        let mut blocks = 0;
        for link in &self.links {
            blocks += link.call(move |worker| worker.host.backlog(slot).dirty_blocks)?;
        }
        Ok(blocks * self.admin().block_bytes())
    }

    /// Serves a volume whose origin is there again.
    pub(super) fn bring_back(&self, planned: &VolumePlan) -> Result<()> {
        let mut origin = self.open_new_origin(planned)?;
        self.attach_planned(&mut origin, planned, &Who::daemon())
    }

    /// Serves volumes whose missing devices have come. One that was refused waits for a reload.
    fn bring_back_found(&self) {
        let missing: Vec<VolumePlan> = {
            let plan = lock(&self.plan);
            let is_away = |planned: &&VolumePlan| {
                let away = self.away_volume(&planned.called());
                away.is_some_and(|away| !away.is_refused)
            };
            plan.volumes.iter().filter(is_away).cloned().collect()
        };
        for planned in missing
            .iter()
            .filter(|planned| network::may_be_there(&planned.origin))
        {
            if let Err(error) = self.bring_back(planned)
                && network::was_refused(&planned.origin, &error)
            {
                self.refuse_for_now(&planned.called(), &error);
            }
        }
    }

    /// Notes why a volume still is not served, once.
    fn refuse_for_now(&self, name: &str, error: &anyhow::Error) {
        let why = failure::describe(error);
        tracing::warn!("volume {name} is still not served: {why}");
        let mut admin = self.admin();
        if let Some(away) = admin.away.iter_mut().find(|away| away.name == name) {
            (away.why, away.is_refused) = (why, true);
        }
    }
}

/// Looks for devices that come, and for those that grew, from a thread of its own.
pub(in crate::daemon) fn watch(daemon: &Arc<Daemon>) -> Result<()> {
    let daemon = Arc::clone(daemon);
    thread::start("forebay-origins", move || {
        loop {
            std::thread::sleep(LOOK);
            daemon.bring_back_found();
            daemon.grow_volumes();
        }
    })?;
    Ok(())
}
