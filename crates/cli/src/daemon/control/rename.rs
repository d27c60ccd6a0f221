//! Another name for a volume, while clients use it.

use anyhow::{Context, Result};
use forebay_cache::control::Command;
use forebay_engine::VolumeSlot;
use forebay_frontend::nbd::ExportName;
use serde_json::{Value, json};

use crate::config::Plan;
use crate::daemon::state::{Admin, AwayVolume, Daemon, VolumeSide};
use crate::device::attach;
use crate::failure::wrong_usage;
use crate::lock::lock;
use crate::quoting::in_shell;

/// Why a volume is not there that was.
pub(super) const DETACHED: &str = "the volume was detached meanwhile";

impl Admin {
    /// The present name of a volume.
    pub(in crate::daemon) fn name_of(&self, slot: VolumeSlot) -> Result<String> {
        let is_kept = |away: &&AwayVolume| away.kept.is_some_and(|(kept, _)| kept == slot);
        if let Some(away) = self.away.iter().find(is_kept) {
            return Ok(away.name.clone());
        }
        let volume = self.volume(slot).context(DETACHED)?;
        Ok(volume.name.clone())
    }

    /// A name that a volume takes is no other's former one.
    pub(super) fn give_name_away(&mut self, name: &str) {
        for volume in &mut self.volumes {
            volume.formerly.retain(|former| former != name);
        }
    }
}

impl Daemon {
    /// The present name of the volume that had this name before.
    pub(in crate::daemon) fn renamed(&self, old: &str) -> Option<String> {
        let admin = self.admin();
        let mut volumes = admin.volumes.iter();
        let volume = volumes.find(|volume| volume.formerly.iter().any(|former| former == old))?;
        Some(volume.name.clone())
    }

    /// Gives a volume another name. Its users go on; new users must know the new name.
    pub(in crate::daemon) fn rename(&self, old: &str, new: &str) -> Result<Value> {
        attach::check_new_name(new, "choose another")?;
        let export_name = ExportName::new(new)?;
        // A reload compares names with those of the plan: one after the other.
        let mut plan = lock(&self.plan);
        if let Some(volume) = self.volume(new)
            && (old == new || volume.formerly.iter().any(|former| former == old))
        {
            return Ok(self.answer(old, &volume, false, &[]));
        }
        let slot = self.find_volume(Some(old))?.slot;
        let renamed = self.enter_name(slot, new)?;
        self.exports.rename(slot, export_name);
        self.rename_block_device(&renamed);
        let to_do = what_to_change(&plan, old, &renamed);
        note_in_plan(&mut plan, old, new);
        let said = format!("volume {old} is called {new} now");
        tracing::info!("{said}");
        self.events.note_of(new, "rename", said);
        Ok(self.answer(old, &renamed, true, &to_do))
    }

    fn enter_name(&self, slot: VolumeSlot, new: &str) -> Result<VolumeSide> {
        let old = {
            let admin = self.admin();
            let old = admin.name_of(slot)?;
            if admin.volumes.iter().any(|other| other.name == new) {
                wrong_usage!("there is a volume `{new}` already; choose another name");
            }
            if admin.cache.is_none() {
                wrong_usage!(
                    "volume `{old}` is served without a cache, which is what remembers names: give it another one with --name, \
                     or name = \"{new}\" in its configuration file, at its next start"
                );
            }
            old
        };
        self.carry_out_at_once(Command::Rename(slot, new.to_owned()))
            .with_context(|| format!("volume `{old}` keeps its name for now"))?;
        let mut admin = self.admin();
        admin.give_name_away(new);
        let volume = admin.volume_mut(slot).context(DETACHED)?;
        volume.name = new.to_owned();
        volume.formerly.push(old);
        Ok(volume.clone())
    }

    fn answer(&self, old: &str, volume: &VolumeSide, renamed: bool, to_do: &[String]) -> Value {
        json!({
            "name": volume.name,
            "formerly": old,
            "renamed": renamed,
            "exports": self.uris_for(volume),
            "to_do": to_do,
        })
    }
}

/// Places that name the volume outside the cache, and would be wrong from now on.
fn what_to_change(plan: &Plan, old: &str, volume: &VolumeSide) -> Vec<String> {
    let new = &volume.name;
    let file = plan.source.as_ref().and_then(|args| args.config.as_deref());
    let in_file = plan.volumes.iter().any(|planned| planned.called() == old);
    let mut to_do = vec![match file {
        Some(file) if in_file => format!(
            "{}: with the old name the next start or reload is refused",
            attach::how_to_name(new, &volume.device, file)
        ),
        Some(file) => format!(
            "before the next start {}",
            attach::how_to_give(new, Some(file))
        ),
        None => format!("give it with --name {} at the next start", in_shell(new)),
    }];
    if volume.block_device.is_some() {
        to_do.push(format!(
            "write /dev/forebay/{new} where /dev/forebay/{old} is named, as in /etc/fstab"
        ));
    }
    to_do
}

fn note_in_plan(plan: &mut Plan, old: &str, new: &str) {
    let mut planned = plan.volumes.iter_mut();
    if let Some(planned) = planned.find(|planned| planned.called() == old) {
        planned.name = Some(new.to_owned());
    }
}
