//! A changed configuration, applied as far as that is possible while clients use the cache.

use anyhow::Result;
use forebay_engine::Mode;
use serde_json::{Value, json};

use super::Daemon;
use crate::config::{self, Plan, VolumePlan};
use crate::failure::refuse;

impl Daemon {
    /// Reads the configuration again and applies what it can; says what that was, and what waits
    /// for a restart. Nothing is changed by a file that is wrong.
    pub(super) fn reload(&self) -> Result<Value> {
        // One at a time.
        let mut current = self
            .plan
            .lock()
            .unwrap_or_else(std::sync::PoisonError::into_inner);
        let Some(source) = &current.source else {
            refuse!(
                "this daemon was started without a configuration file: use `forebay set`, `mode` and `attach`"
            )
        };
        let new = config::plan((**source).clone())?;
        let mut waiting: Vec<String> = current
            .needs_restart_for(&new)
            .into_iter()
            .map(str::to_owned)
            .collect();
        let mut changed = Vec::new();
        if self.apply_settings(&new)? {
            changed.push("settings".to_owned());
        }
        self.apply_volumes(&current, &new, &mut changed, &mut waiting)?;
        note_applied(&mut current, new);
        for note in &current.notes {
            tracing::warn!("configuration read again: {note}");
        }
        for what in &changed {
            tracing::info!("configuration read again: {what} changed");
            self.events
                .note("reload", format!("configuration read again: {what}"));
        }
        for what in &waiting {
            tracing::warn!("configuration read again: {what} waits for a restart");
        }
        Ok(json!({ "changed": changed, "needs_restart": waiting }))
    }

    /// Says whether they were others.
    fn apply_settings(&self, new: &Plan) -> Result<bool> {
        let settings = &new.settings;
        let mut admin = self.admin();
        admin.profile = new.profile;
        if admin.settings == *settings || admin.cache.is_none() {
            return Ok(false);
        }
        self.put_into_force(&mut admin, settings.clone())?;
        Ok(true)
    }

    fn apply_volumes(
        &self,
        current: &Plan,
        new: &Plan,
        changed: &mut Vec<String>,
        waiting: &mut Vec<String>,
    ) -> Result<()> {
        for volume in &new.volumes {
            let name = volume.called();
            let known = current.volumes.iter().find(|known| known.called() == name);
            match known {
                _ if self.volume(&name).is_none() => {
                    self.attach_planned(volume)?;
                    changed.push(format!("volume {name} is attached"));
                }
                Some(known) if known.origin != volume.origin || known.emulate != volume.emulate => {
                    waiting.push(format!("volume {name}, which is on another origin"));
                }
                _ => {
                    if let Some(mode) = volume.mode.filter(|_| mode_of(known) != volume.mode) {
                        self.set_mode(&name, mode)?;
                        changed.push(format!("volume {name} is in mode {}", mode.name()));
                    }
                }
            }
        }
        for gone in &current.volumes {
            let name = gone.called();
            let stays = new.volumes.iter().any(|volume| volume.called() == name);
            if !stays && self.volume(&name).is_some() {
                waiting.push(format!(
                    "volume {name}, which is gone from the file (`forebay detach {name}` takes it off now)"
                ));
            }
        }
        Ok(())
    }

    fn attach_planned(&self, volume: &VolumePlan) -> Result<()> {
        let emulation = volume.emulate.clone();
        self.attach(&volume.origin, volume.name.clone(), volume.mode, emulation)?;
        Ok(())
    }
}

/// What waits for a restart stays as it is in force, so that the next reload names it too.
fn note_applied(current: &mut Plan, new: Plan) {
    current.settings = new.settings;
    current.profile = new.profile;
    current.notes = new.notes;
    for volume in new.volumes {
        let name = volume.called();
        match current
            .volumes
            .iter_mut()
            .find(|known| known.called() == name)
        {
            Some(known) => known.mode = volume.mode,
            None => current.volumes.push(volume),
        }
    }
}

fn mode_of(volume: Option<&VolumePlan>) -> Option<Mode> {
    volume.and_then(|volume| volume.mode)
}
