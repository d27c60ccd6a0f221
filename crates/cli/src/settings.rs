//! The settings that can change while the cache runs, as one table: options, keys of the
//! configuration file, `forebay set`, `forebay get`, status and the manual are made from it.
//!
//! | module | subject |
//! |---|---|
//! | [`table`] | a row for each setting |
//! | [`kind`] | how values are read and shown |
//! | [`mod@copies`] | on how many devices dirty data is |
//! | [`on_degraded`] | what happens while they cannot be on two |
//! | [`own`] | settings of one volume |
//! | [`given`] | settings that somebody gave, as options or in a file |

mod copies;
mod given;
mod kind;
mod on_degraded;
mod own;
mod table;

use forebay_engine::Settings;
use serde_json::{Map, Value};

use crate::nearest::suggestion;
pub(crate) use copies::{COPIES, copies};
pub(crate) use given::GivenSettings;
pub(crate) use on_degraded::{ON_DEGRADED, OnDegraded};
pub(crate) use own::{
    OwnSettings, Rates, change_own, check_kept, check_origin, check_own_name, in_force_over,
    is_of_cache_alone, own_differences, own_names, shown_own,
};
use table::SETTINGS;
pub(crate) use table::{NAMES, Setting};

/// The value that every setting takes: that which it has unless somebody sets it.
const DEFAULT: &str = "default";

impl Setting {
    /// The setting of this name.
    pub(crate) fn named(name: &str) -> Option<&'static Setting> {
        SETTINGS.iter().find(|setting| setting.name == name)
    }

    /// Reads a value, or `default`, into its place.
    fn set(&self, settings: &mut Settings, text: &str) -> Result<(), String> {
        match text {
            DEFAULT => self.kind.set(settings, &self.show(&Settings::default())),
            _ => self.kind.set(settings, text),
        }
    }

    /// The words on a value that it cannot have.
    fn refusal(&self, value: &str, why: &str) -> String {
        let Setting { name, values, .. } = self;
        let values = values.replace('`', "");
        format!("{name} {value}: {why} ({name} is {values}; or default)")
    }

    /// Its value, for people.
    fn show(&self, settings: &Settings) -> String {
        self.kind.show(&mut settings.clone())
    }
}

/// All settings by name, with their values for people.
pub(crate) fn shown(settings: &Settings) -> Vec<(&'static str, String)> {
    let all = SETTINGS.iter();
    all.map(|setting| (setting.name, setting.show(settings)))
        .collect()
}

/// The values for people of one setting or of all, by name.
///
/// # Errors
/// Says that there is none of this name.
pub(crate) fn shown_as_json(
    settings: &Settings,
    key: Option<&str>,
) -> Result<Map<String, Value>, String> {
    if let Some(key) = key.filter(|key| Setting::named(key).is_none()) {
        return Err(unknown(key, "MODE"));
    }
    let mut all = shown(settings);
    all.retain(|(name, _)| key.is_none_or(|key| key == *name));
    let named = all.into_iter();
    Ok(named
        .map(|(name, value)| (name.to_owned(), value.into()))
        .collect())
}

/// All settings as a status has them: plain numbers, with units in their names.
pub(crate) fn as_json(settings: &Settings) -> Map<String, Value> {
    let mut settings = settings.clone();
    let all = SETTINGS.iter();
    all.map(|setting| (setting.status.to_owned(), setting.kind.json(&mut settings)))
        .collect()
}

/// A setting that differs: its name, and its values before and after.
#[derive(Debug)]
pub(crate) struct Difference {
    pub(crate) name: &'static str,
    pub(crate) before: String,
    pub(crate) after: String,
}

/// The settings that differ.
pub(crate) fn differences(old: &Settings, new: &Settings) -> Vec<Difference> {
    differing(shown(old), shown(new))
}

/// The differences of two lists with one order.
fn differing(
    before: Vec<(&'static str, String)>,
    after: Vec<(&'static str, String)>,
) -> Vec<Difference> {
    let both = before.into_iter().zip(after);
    let differing = both.filter(|(before, after)| before != after);
    differing
        .map(|((name, before), (_, after))| Difference {
            name,
            before,
            after,
        })
        .collect()
}

/// Changes one setting by name.
///
/// # Errors
/// Says which setting, and what its values are; nothing is changed then.
pub(crate) fn change(settings: &mut Settings, name: &str, value: &str) -> Result<(), String> {
    let Some(setting) = Setting::named(name) else {
        return Err(unknown(name, value));
    };
    let mut changed = settings.clone();
    let valid = setting.set(&mut changed, value);
    let valid = valid.and_then(|()| changed.validate());
    valid.map_err(|why| setting.refusal(value, &why))?;
    *settings = changed;
    Ok(())
}

/// Changes one setting by name, whatever the others are: the caller sees to it that they agree.
///
/// # Errors
/// Says that there is none of this name, or lists its values.
pub(crate) fn assign(settings: &mut Settings, name: &str, value: &str) -> Result<(), String> {
    match Setting::named(name) {
        Some(setting) => setting.set(settings, value),
        None => Err(unknown(name, value)),
    }
}

/// Whether a setting is as it is unless somebody sets it.
pub(crate) fn is_default(settings: &Settings, name: &str) -> bool {
    Setting::named(name)
        .is_none_or(|setting| setting.show(settings) == setting.show(&Settings::default()))
}

fn unknown(name: &str, value: &str) -> String {
    if name == "mode" {
        return format!(
            "the mode is not a setting of the cache, each volume has its own: `forebay mode NAME {value}`"
        );
    }
    format!(
        "there is no setting `{name}`{}: known are {}",
        suggestion(name, NAMES.iter().copied()),
        NAMES.join(", ")
    )
}

/// Settings whose values are words, with these words, for completions.
pub(crate) fn words() -> Vec<(&'static str, Vec<&'static str>)> {
    let of = |setting: &'static Setting| {
        let quoted = setting.values.split('`').skip(1).step_by(2);
        let words = quoted.filter(|word| {
            let mut settings = Settings::default();
            setting.kind.set(&mut settings, word).is_ok()
        });
        (setting.name, words.collect::<Vec<_>>())
    };
    let words = SETTINGS.iter().filter(|setting| setting.kind.is_word());
    words.map(of).filter(|(_, words)| words.len() > 1).collect()
}

/// The text after the help of `forebay set`.
pub(crate) fn help_of_set() -> String {
    format!(
        "Example: forebay set sequential-cutoff 4M\n         forebay set sequential-cutoff default\n\nKeys: {}; and the settings of other caches, such as \
         bcache.writeback_percent (forebay profile show bcache). With --volume: {}. They hold until the daemon stops.",
        NAMES.join(", "),
        own_names().join(", ")
    )
}

/// The table of the manual.
pub(crate) fn manual_table() -> String {
    let head = "| setting | values | default | effect |\n|---|---|---|---|\n";
    let defaults = Settings::default();
    SETTINGS.iter().fold(head.to_owned(), |table, setting| {
        let (values, default) = (setting.values, setting.show(&defaults));
        format!(
            "{table}| `{}` | {values} | {default} | {} |\n",
            setting.name, setting.effect
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use forebay_engine::Nanos;

    fn changed(name: &str, value: &str) -> Result<Settings, String> {
        let mut settings = Settings::default();
        change(&mut settings, name, value).map(|()| settings)
    }

    #[test]
    fn every_setting_takes_what_it_says_and_refuses_what_it_does_not() {
        let good = "write touch-3 second-touch 2ms off 200G 4M 32M 40% background 12h clock 30% rate 5% 60 80 5min 20ms 256 64K 50% 1 yes";
        let good: Vec<&str> = good.split(' ').collect();
        assert_eq!(SETTINGS.len(), good.len());
        for (setting, value) in SETTINGS.iter().zip(good) {
            let name = setting.name;
            let settings = changed(name, value);
            assert!(settings.is_ok(), "{name} {value}: {settings:?}");
            let said = changed(name, "-5").unwrap_err();
            assert!(said.starts_with(&format!("{name} -5: ")), "{said}");
        }
        let seconds = |seconds: u64| Nanos(seconds * Nanos::SECOND.0);
        assert_eq!(changed("age", "5min").unwrap().age_limit, seconds(300));
        assert_eq!(changed("age", "7").unwrap().age_limit, seconds(7));
    }

    #[test]
    fn what_is_shown_is_taken_again() {
        let mut settings = Settings::default();
        for (name, value) in shown(&Settings::default()) {
            change(&mut settings, name, &value).unwrap();
        }
        assert_eq!(settings, Settings::default());
    }

    #[test]
    fn the_default_of_every_setting_can_be_set() {
        let other = "write touch-3 second-touch 2ms 3ms 200G 4M 32M 40% background 12h clock 30% rate 5% 50 80 5min 20ms 256 64K 50% 1 yes";
        for (setting, value) in SETTINGS.iter().zip(other.split(' ')) {
            let mut settings = changed(setting.name, value).unwrap();
            let before = settings.clone();
            change(&mut settings, setting.name, "default").unwrap();
            assert_eq!(settings, Settings::default(), "{}", setting.name);
            let [difference] = &differences(&before, &settings)[..] else {
                panic!("{} is one setting", setting.name)
            };
            assert_eq!(difference.name, setting.name);
        }
    }

    #[test]
    fn a_size_without_a_unit_is_refused() {
        let said = changed("sequential-cutoff", "4").unwrap_err();
        assert!(said.contains("write 4K, 4M or 4G"), "{said}");
        assert!(changed("write-budget", "100").is_err());
        assert!(changed("memory-buffer", "64").is_err());
    }

    #[test]
    fn numbers_beyond_their_range_are_refused_and_not_cut() {
        for (name, value) in [
            ("writeback-depth", "65537"),
            ("writeback-run", "4294967296"),
            ("writeback-run", "32K"),
            ("promotion-hits", "257"),
            ("probation", "0"),
            ("record-delay", "2h"),
            ("record-delay", "3601s"),
            ("discard-freed", "perhaps"),
        ] {
            assert!(changed(name, value).is_err(), "{name} {value}");
        }
    }

    #[test]
    fn what_is_refused_is_named_and_changes_nothing() {
        let mut settings = Settings::default();
        let said = change(&mut settings, "dirty-low", "88").unwrap_err();
        assert!(
            said.starts_with("dirty-low 88: dirty-low 88 % must be at most dirty-high"),
            "{said}"
        );
        assert_eq!(settings.dirty_low_percent, 10);
        let said = changed("write-budget", "10B").unwrap_err();
        assert!(said.contains("10 B a day") && said.contains("1M"), "{said}");
        let said = changed("dirty-lo", "5").unwrap_err();
        assert!(said.contains("did you mean `dirty-low`?"), "{said}");
        let said = changed("mode", "writeback").unwrap_err();
        assert!(said.contains("`forebay mode NAME writeback`"), "{said}");
    }
}
