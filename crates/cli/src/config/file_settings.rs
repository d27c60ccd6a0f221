//! The section `[settings]` of a configuration file.

use std::fmt;

use serde::de::{DeserializeSeed, Error, MapAccess, Visitor};
use serde::{Deserialize, Deserializer};
use toml::Spanned;

use crate::settings::{GivenSettings, NAMES, Setting};

/// Settings of a file, and where in the file each is.
#[derive(Debug, Default)]
pub(super) struct FileSettings {
    pub(super) given: GivenSettings,
    /// Of each value its setting, and the byte at which it begins.
    places: Vec<(&'static str, usize)>,
}

impl FileSettings {
    /// Where a dirty limit is said, if one is.
    pub(super) fn dirty_limit_at(&self) -> Option<usize> {
        let limits = ["dirty-limit", "dirty-high", "dirty-low"].into_iter();
        let mut places = limits.filter_map(|limit| {
            let mut places = self.places.iter();
            places.find(|(name, _)| *name == limit)
        });
        places.next().map(|(_, at)| *at)
    }
}

impl<'de> Deserialize<'de> for FileSettings {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<FileSettings, D::Error> {
        from.deserialize_struct("settings", NAMES, Section)
    }
}

struct Section;

impl<'de> Visitor<'de> for Section {
    type Value = FileSettings;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("settings")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<FileSettings, A::Error> {
        let mut section = FileSettings::default();
        while let Some(Key(setting)) = map.next_key()? {
            map.next_value_seed(Value(setting, &mut section))?;
        }
        Ok(section)
    }
}

struct Key(&'static Setting);

impl<'de> Deserialize<'de> for Key {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Key, D::Error> {
        let name = String::deserialize(from)?;
        let known = Setting::named(&name).map(Key);
        known.ok_or_else(|| D::Error::unknown_field(&name, NAMES))
    }
}

/// A setting's value, added to the section where it can be judged with its place.
struct Value<'a>(&'static Setting, &'a mut FileSettings);

impl<'de> DeserializeSeed<'de> for Value<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, from: D) -> Result<(), D::Error> {
        let Value(setting, section) = self;
        let value = Spanned::<toml::Value>::deserialize(from)?;
        section.places.push((setting.name, value.span().start));
        let text = match value.into_inner() {
            toml::Value::String(text) => text,
            other => other.to_string(),
        };
        section.given.add(setting, text).map_err(D::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use forebay_engine::{Nanos, Settings};

    use super::*;

    #[test]
    fn values_are_numbers_words_or_what_an_option_takes() {
        let text = "dirty-low = 7\ndirty-high = \"50%\"\nage = 9\nrecord-delay = \"20ms\"\ndiscard-freed = true\n";
        let section: FileSettings = toml::from_str(text).unwrap();
        assert_eq!(section.dirty_limit_at(), text.find("\"50%"));
        let settings = section.given.over(Settings::default());
        assert_eq!(
            (settings.dirty_low_percent, settings.dirty_high_percent),
            (7, 50)
        );
        assert_eq!(settings.age_limit, Nanos(9 * Nanos::SECOND.0));
        assert_eq!(settings.record_delay, Nanos(20 * Nanos::MILLISECOND.0));
        assert!(settings.discard_freed_segments);
        for wrong in ["dirty-low = 101", "retain = [1]", "commit = true"] {
            assert!(toml::from_str::<FileSettings>(wrong).is_err(), "{wrong}");
        }
    }
}
