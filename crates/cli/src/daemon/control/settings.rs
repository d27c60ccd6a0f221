//! Settings changed while clients use the cache: ours, and those of other caches.

use anyhow::Result;
use forebay_engine::Settings;
use serde_json::{Value, json};

use super::who::Who;
use crate::daemon::state::{Admin, Daemon};
use crate::failure::{Usage, wrong_usage};
use crate::settings::Difference;
use crate::settings::{COPIES, ON_DEGRADED, OnDegraded};
use crate::{profiles, settings};

impl Daemon {
    /// Changes a setting, of ours or of another cache, until the daemon stops. Says what that
    /// was for the second kind, in JSON.
    pub(super) fn set(&self, key: &str, value: &str, who: &Who) -> Result<Value> {
        let mut answer = json!({ "key": key, "value": value });
        if key.contains('.') {
            self.set_foreign(key, value, who, &mut answer)?;
        } else if key == COPIES {
            let copies = settings::copies(value).map_err(Usage)?;
            self.set_copies(copies, who)?;
            answer["in_force"] = copies.to_string().into();
        } else if key == ON_DEGRADED {
            let word: OnDegraded = value.parse().map_err(Usage)?;
            self.set_on_degraded(word, who)?;
            answer["in_force"] = word.name().into();
        } else {
            let mut admin = self.admin();
            let mut changed = admin.settings.clone();
            settings::change(&mut changed, key, value).map_err(Usage)?;
            self.put_into_force(&mut admin, changed, who)?;
            let now = settings::shown_as_json(&admin.settings, Some(key)).map_err(Usage)?;
            answer["in_force"] = now[key].clone();
        }
        Ok(answer)
    }

    /// The settings in force, or one of them, in words.
    pub(in crate::daemon) fn get(&self, key: Option<&str>) -> Result<Value> {
        let of_cache = self.shown_of_cache();
        if let Some((name, value)) = of_cache.iter().find(|(name, _)| Some(*name) == key) {
            return Ok(json!({ "settings": { *name: value } }));
        }
        let mut shown = settings::shown_as_json(&self.admin().settings, key).map_err(Usage)?;
        if key.is_none() {
            let of_cache = of_cache.into_iter();
            shown.extend(of_cache.map(|(name, value)| (name.to_owned(), value.into())));
        }
        Ok(json!({ "settings": shown }))
    }

    /// Settings that are the cache's and not an engine's.
    fn shown_of_cache(&self) -> Vec<(&'static str, String)> {
        let admin = self.admin();
        let Some(cache) = &admin.cache else {
            return Vec::new();
        };
        vec![
            (COPIES, cache.superblock().copies.to_string()),
            (ON_DEGRADED, cache.on_degraded.name().to_owned()),
        ]
    }

    fn set_foreign(&self, key: &str, value: &str, who: &Who, answer: &mut Value) -> Result<()> {
        let mut admin = self.admin();
        let mut settings = admin.settings.clone();
        let change = profiles::change(&mut settings, key, value).map_err(Usage)?;
        let changed: serde_json::Map<String, Value> = change
            .changed
            .into_iter()
            .map(|(name, value)| (name.to_owned(), Value::from(value)))
            .collect();
        answer["changed"] = Value::from(changed);
        answer["notes"] = Value::from(change.notes);
        let Some(mode) = change.mode else {
            return self.put_into_force(&mut admin, settings, who);
        };
        let [volume] = &*admin.volumes else {
            let message = format!(
                "`{key}` is a mode, and each volume has its own here: `forebay mode NAME {}`",
                mode.name()
            );
            return Err(Usage(message).into());
        };
        let name = volume.name.clone();
        self.put_into_force(&mut admin, settings, who)?;
        drop(admin);
        self.set_mode(&name, mode, who)?;
        answer["changed"]["mode"] = Value::from(mode.name());
        Ok(())
    }

    /// Gives settings to all shards, and says in the log which changed, and by whom.
    pub(super) fn put_into_force(
        &self,
        admin: &mut Admin,
        settings: Settings,
        who: &Who,
    ) -> Result<()> {
        if admin.cache.is_none() {
            wrong_usage!(
                "this daemon serves no cache whose settings could change; start one with --cache"
            );
        }
        if let Err(error) = self.give(&settings) {
            // Some shards may have taken them: all go on with those they had.
            self.give(&admin.settings)?;
            return Err(error);
        }
        for changed in settings::differences(&admin.settings, &settings) {
            let Difference {
                name,
                before,
                after,
            } = changed;
            tracing::info!("setting {name} is now {after}, was {before}: by {who}");
            let said = format!("{name} is now {after}, was {before}");
            self.events.note("settings", said);
        }
        admin.settings = settings;
        Ok(())
    }

    fn give(&self, settings: &Settings) -> Result<()> {
        self.links.iter().try_for_each(|link| {
            let settings = settings.clone();
            link.call(move |worker| worker.set_settings(&settings))?
                .map_err(anyhow::Error::msg)
        })
    }
}
