//! A changed configuration, applied as far as that is possible while clients use the cache.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use forebay_engine::{Mode, Settings};
use serde_json::{Value, json};

use super::who::Who;
use crate::args::ServeArgs;
use crate::config::{self, Plan, VolumePlan};
use crate::daemon::state::Daemon;
use crate::device::attach::{self, Origin};
use crate::device::network::uri;
use crate::device::same_device::Identity;
use crate::failure::{self, wrong_usage};
use crate::lock::lock;
use crate::profiles::Profile;
use crate::root_storage;
use crate::settings::{OnDegraded, OwnSettings};

/// Changes of a file that can be had now, and those that wait for a restart. They are checked as
/// far as that goes without changing anything.
struct Changes {
    profile: Option<&'static Profile>,
    settings: Option<Settings>,
    /// On how many devices dirty data is to be.
    copies: Option<u8>,
    on_degraded: Option<OnDegraded>,
    new_volumes: Vec<(Origin, VolumePlan)>,
    modes: Vec<(String, Mode)>,
    own_settings: Vec<(String, OwnSettings)>,
    /// Another hook, or none any more.
    hook: Option<Option<PathBuf>>,
    waiting: Vec<String>,
    /// Volumes that are still not served, and why.
    left_out: Vec<String>,
}

impl Daemon {
    /// Reads the configuration again and applies what it can; says what that was, and what waits
    /// for a restart. Nothing is changed by a file that is wrong, or that asks for a volume that
    /// cannot be had.
    pub(super) fn reload(&self, who: &Who) -> Result<Value> {
        // Reloads come one at a time.
        let mut current = lock(&self.plan);
        let Some(source) = &current.source else {
            wrong_usage!(
                "this daemon was started without a configuration file: use `forebay set`, `mode` and `attach`"
            )
        };
        let source = source.clone();
        let new = config::plan((*source).clone())?;
        let changes = self
            .changes(&current, &new)
            .context("nothing was changed")?;
        let waiting = changes.waiting.clone();
        let left_out = changes.left_out.clone();
        let mut changed = Vec::new();
        let applied = self.apply(changes, who, &mut current, &mut changed);
        changed.extend(self.grow_volumes());
        self.note_reload(&changed, &waiting, &new.notes);
        applied.with_context(|| stopped_half_way(&changed))?;
        note_applied(&mut current, new);
        // A change that waits for a restart is not for the daemon that takes this one's place: the
        // initramfs may need it as well.
        if waiting.is_empty()
            && let Err(error) = keep_in_memory(&source)
        {
            tracing::warn!("{}", failure::describe(&error));
        }
        Ok(json!({ "changed": changed, "needs_restart": waiting, "left_out": left_out }))
    }

    /// As [`Daemon::reload`], for SIGHUP.
    pub(in crate::daemon) fn reload_by_signal(&self) -> Result<()> {
        self.reload(&Who::daemon()).map(drop)
    }

    fn changes(&self, current: &Plan, new: &Plan) -> Result<Changes> {
        let waiting = current.needs_restart_for(new);
        let mut changes = Changes {
            profile: new.profile,
            settings: None,
            copies: None,
            on_degraded: None,
            new_volumes: Vec::new(),
            modes: Vec::new(),
            own_settings: Vec::new(),
            hook: (current.hook != new.hook).then(|| new.hook.clone()),
            waiting: waiting.into_iter().map(str::to_owned).collect(),
            left_out: Vec::new(),
        };
        for cache in new.cache.iter().filter(|_| current.cache != new.cache) {
            for device in &cache.devices {
                check_is_there(device)?;
            }
        }
        let (on_degraded, settings) = {
            let admin = self.admin();
            let on_degraded = admin.cache.as_ref().map(|cache| cache.on_degraded);
            (on_degraded, admin.settings.clone())
        };
        // What is in force counts, not what the file said before: `forebay set` and `forebay mode`
        // change the one and not the other.
        let served_cache = on_degraded.is_some();
        changes.settings = (served_cache && settings != new.settings).then(|| new.settings.clone());
        if let (Some(on_degraded), Some(planned)) = (on_degraded, &new.cache) {
            let copies = planned.copies;
            changes.copies = copies.filter(|copies| self.copies() != Some(*copies));
            changes.on_degraded =
                (planned.on_degraded != on_degraded).then_some(planned.on_degraded);
        }
        for volume in &new.volumes {
            self.changes_of_volume(current, new, volume, served_cache, &mut changes)?;
        }
        self.note_gone_volumes(current, new, &mut changes.waiting);
        Ok(changes)
    }

    fn changes_of_volume(
        &self,
        current: &Plan,
        new: &Plan,
        volume: &VolumePlan,
        served_cache: bool,
        changes: &mut Changes,
    ) -> Result<()> {
        let name = volume.called();
        let known = current.volumes.iter().find(|known| known.called() == name);
        let served = self.volume(&name);
        if served_cache
            && served
                .as_ref()
                .is_some_and(|served| served.own != volume.own)
        {
            changes.own_settings.push((name.clone(), volume.own));
        }
        if served.is_none() {
            if !served_cache {
                check_is_there(&volume.origin)?;
                let what = format!("volume {name}: this daemon serves no cache to attach it to");
                changes.waiting.push(what);
                return Ok(());
            }
            self.check_not_renamed(&name, volume, new)?;
            let origin = self.open_new_origin(volume);
            match origin {
                Ok(origin) => changes.new_volumes.push((origin, volume.clone())),
                // The others do not wait for it.
                Err(why) if self.away_volume(&name).is_some() => {
                    let why = failure::describe(&why);
                    changes.left_out.push(format!("volume {name}: {why}"));
                }
                Err(why) => return Err(why),
            }
            return Ok(());
        }
        if known
            .is_some_and(|known| known.origin != volume.origin || known.emulate != volume.emulate)
        {
            check_is_there(&volume.origin)?;
            let what = format!("volume {name}, which is on another origin");
            changes.waiting.push(what);
            return Ok(());
        }
        let in_force = self.admin().mode_of(&name);
        let mode_before = in_force.or_else(|| known.and_then(|known| known.mode));
        if let Some(mode) = volume.mode.filter(|mode| mode_before != Some(*mode)) {
            if served_cache {
                changes.modes.push((name, mode));
            } else {
                let what = format!("the mode of volume {name}, which has no cache yet");
                changes.waiting.push(what);
            }
        }
        Ok(())
    }

    /// Refuses a file that calls a served volume by a name it does not have (any more).
    fn check_not_renamed(&self, name: &str, volume: &VolumePlan, new: &Plan) -> Result<()> {
        let wanted = Identity::of(&volume.origin);
        let admin = self.admin();
        let file = new.source.as_ref().and_then(|args| args.config.as_deref());
        if let (Some(served), Some(file)) = (admin.volume_on(&wanted), file) {
            wrong_usage!(
                "the file calls volume `{0}` `{name}`: {1}, or rename it with `forebay rename {0} {name}`",
                served.name,
                attach::how_to_name(&served.name, &served.device, file),
            );
        }
        Ok(())
    }

    fn note_gone_volumes(&self, current: &Plan, new: &Plan, waiting: &mut Vec<String>) {
        for gone in &current.volumes {
            let name = gone.called();
            let stays = new.volumes.iter().any(|volume| volume.called() == name);
            if !stays && self.volume(&name).is_some() {
                waiting.push(format!(
                    "volume {name}, which is gone from the file (`forebay detach {name}` takes it off now)"
                ));
            }
        }
    }

    /// Puts one thing after the other into force; `changed` has those that are, and `current` the hook
    /// and the volumes that are served, whatever happens.
    fn apply(
        &self,
        changes: Changes,
        who: &Who,
        current: &mut Plan,
        changed: &mut Vec<String>,
    ) -> Result<()> {
        let mut admin = self.admin();
        if let Some(settings) = changes.settings {
            self.put_into_force(&mut admin, settings, who)?;
            changed.push("settings".to_owned());
        }
        admin.profile = changes.profile;
        drop(admin);
        if let Some(copies) = changes.copies
            && self.set_copies(copies, who)?
        {
            changed.push("copies".to_owned());
        }
        if let Some(on_degraded) = changes.on_degraded
            && self.set_on_degraded(on_degraded, who)?
        {
            changed.push("on-degraded".to_owned());
        }
        if let Some(hook) = changes.hook {
            self.events.hook.set(hook.clone());
            current.hook = hook;
            changed.push("the hook".to_owned());
        }
        for (name, mode) in changes.modes {
            self.set_mode(&name, mode, who)?;
            changed.push(format!("volume {name} is in mode {}", mode.name()));
        }
        for (name, own) in changes.own_settings {
            self.put_own_into_force(&name, own, who)?;
            changed.push(format!("settings of volume {name}"));
        }
        for (mut origin, volume) in changes.new_volumes {
            let attached = self.attach_planned(&mut origin, &volume, who);
            if self.volume(&origin.name).is_some() {
                // Also one that could not be made a block device.
                changed.push(format!("volume {} is attached", origin.name));
                // A volume that was away is in the plan already, maybe on another device.
                current
                    .volumes
                    .retain(|known| known.called() != origin.name);
                current.volumes.push(volume);
            }
            attached?;
        }
        self.export_block_devices()
    }

    fn note_reload(&self, changed: &[String], waiting: &[String], notes: &[String]) {
        for note in notes {
            tracing::warn!("configuration read again: {note}");
        }
        for what in changed {
            tracing::info!("configuration read again: {what} changed");
            self.events
                .note("reload", format!("configuration read again: {what}"));
        }
        for what in waiting {
            tracing::warn!("configuration read again: {what} waits for a restart");
        }
    }
}

/// A restart would end there, so that it must not be waited for.
fn check_is_there(device: &Path) -> Result<()> {
    if uri::as_uri(device).is_some() {
        // The next start waits for a server that is away.
        return Ok(());
    }
    std::fs::metadata(device)
        .map(drop)
        .with_context(|| format!("cannot find {}, which the file names", device.display()))
}

/// For the next daemon, which cannot read the file if the root file system is on its volume.
pub(super) fn keep_in_memory(source: &ServeArgs) -> Result<()> {
    let (Some(file), Some(directory)) = (&source.config, &source.root_storage) else {
        return Ok(());
    };
    root_storage::copy_configuration(file, directory).with_context(|| {
        format!(
            "a daemon that takes this one's place will have the configuration of before: it cannot be copied to {}",
            directory.display()
        )
    })
}

fn stopped_half_way(changed: &[String]) -> String {
    match changed {
        [] => "nothing was changed".to_owned(),
        changed => format!(
            "stopped half way: in force now: {}; the rest of the file is not; mend the cause and `forebay reload` again",
            changed.join(", ")
        ),
    }
}

/// Notes the changes applied. A setting that waits for a restart stays as it is in force, so that
/// the next reload names it too.
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
            Some(known) => {
                known.mode = volume.mode;
                known.own = volume.own;
            }
            None => current.volumes.push(volume),
        }
    }
}
