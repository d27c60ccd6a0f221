//! Settings of one volume, changed while clients use it.

use crate::settings::OwnSettings;
use anyhow::{Context, Result};
use forebay_engine::VolumeSettings;
use serde_json::{Value, json};

use super::who::Who;
use crate::daemon::state::Daemon;
use crate::failure::{Usage, wrong_usage};
use crate::quoting::in_shell;
use crate::settings;

impl Daemon {
    /// Changes a setting of one volume until the daemon stops; `default` is as the cache has it.
    pub(super) fn set_of_volume(
        &self,
        name: &str,
        key: &str,
        value: &str,
        who: &Who,
    ) -> Result<Value> {
        let mut own = self.find_volume(Some(name))?.own;
        settings::change_own(&mut own, key, value)
            .map_err(|why| self.of_the_cache(why, key, Some(value)))?;
        self.put_own_into_force(name, own, who)?;
        let in_force = self.in_force(name)?;
        let in_force = in_force.into_iter().find(|(known, _)| *known == key);
        let in_force = in_force.map(|(_, value)| value);
        Ok(json!({ "name": name, "key": key, "value": value, "in_force": in_force }))
    }

    /// The settings in force for a volume that it can have of its own, or one of them, in words.
    pub(super) fn get_of_volume(&self, name: &str, key: Option<&str>) -> Result<Value> {
        if let Some(key) = key {
            settings::check_own_name(key).map_err(|why| self.of_the_cache(why, key, None))?;
        }
        let mut shown = self.in_force(name)?;
        shown.retain(|(name, _)| key.is_none_or(|key| key == *name));
        let shown: serde_json::Map<String, Value> = shown
            .into_iter()
            .map(|(name, value)| (name.to_owned(), value.into()))
            .collect();
        Ok(json!({ "name": name, "settings": shown }))
    }

    /// A refusal, with the command that does it for the cache of the volume, if it is the cache's.
    fn of_the_cache(&self, why: String, key: &str, value: Option<&str>) -> Usage {
        if !settings::is_of_cache_alone(key) {
            return Usage(why);
        }
        let control = in_shell(&self.control_path.display().to_string());
        Usage(match value {
            Some(value) => format!(
                "{why}; `forebay set {key} {} --control {control}`",
                in_shell(value)
            ),
            None => format!("{why}; `forebay get {key} --control {control}`"),
        })
    }

    fn in_force(&self, name: &str) -> Result<Vec<(&'static str, String)>> {
        let volume = self.find_volume(Some(name))?;
        let timeout = volume.device.server_timeout();
        let cache = &self.admin().settings;
        Ok(settings::in_force_over(&volume.own, cache, timeout))
    }

    /// Gives a volume settings of its own in all shards, and says in the log which changed, and by
    /// whom.
    pub(super) fn put_own_into_force(&self, name: &str, own: OwnSettings, who: &Who) -> Result<()> {
        // Held all the while: of two changes at a time some shards could hear the one last, some
        // the other.
        let mut admin = self.admin();
        if admin.cache.is_none() && own.engine != VolumeSettings::default() {
            wrong_usage!(
                "volume `{name}` is served without a cache whose settings could change; start it with --cache"
            );
        }
        let others = admin.volumes.iter().filter(|volume| volume.name != name);
        let all = others
            .map(|volume| &volume.own)
            .chain(std::iter::once(&own));
        settings::check_kept(all).map_err(Usage)?;
        let cache = admin.settings.clone();
        let mut volumes = admin.volumes.iter_mut();
        let volume = volumes
            .find(|volume| volume.name == name)
            .context("the volume was detached or renamed meanwhile")?;
        let is_network = volume.device.server_timeout().is_some();
        settings::check_origin(&own, is_network).map_err(Usage)?;
        let slot = volume.slot;
        for link in &self.links {
            link.call(move |worker| worker.set_volume_settings(slot, own))?;
        }
        volume.device.set_server_timeout(own.origin_timeout);
        let before = std::mem::replace(&mut volume.own, own);
        for changed in settings::own_differences(&before, &own, &cache) {
            let said = format!(
                "{} of volume {name} is now {}, was {}",
                changed.name, changed.after, changed.before
            );
            tracing::info!("setting {said}: by {who}");
            self.events.note_of(name, "settings", said);
        }
        Ok(())
    }
}
