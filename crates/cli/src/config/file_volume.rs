//! A section `[[volume]]` of a configuration file. The settings that it can have are those that a
//! volume can have ([`own_names`]).

use std::fmt;
use std::ops::Range;
use std::path::PathBuf;
use std::sync::LazyLock;

use forebay_engine::Mode;
use serde::de::{Error, MapAccess, Visitor};
use serde::{Deserialize, Deserializer};
use toml::Spanned;

use super::file::{Model, Text};
use super::plan::name_of;
use crate::device::image_format::OriginFormat;
use crate::settings::{OwnSettings, change_own, own_names};

const ORIGIN: &str = "origin";

static KEYS: LazyLock<Vec<&str>> = LazyLock::new(|| {
    let mut keys = vec![ORIGIN, "name", "mode", "format", "emulate"];
    keys.extend(own_names());
    keys
});

#[derive(Debug)]
pub(super) struct FileVolume {
    pub(super) origin: Spanned<PathBuf>,
    pub(super) name: Option<Spanned<String>>,
    pub(super) mode: Option<Spanned<Text<Mode>>>,
    pub(super) format: Option<Text<OriginFormat>>,
    pub(super) emulate: Option<Text<Model>>,
    /// Settings of its own by name, as they are written.
    own: Vec<(&'static str, Spanned<Text<String>>)>,
}

impl FileVolume {
    /// Its settings of its own, and what is wrong with each that is: where it is, and why.
    pub(super) fn own(&self) -> (OwnSettings, Vec<(Range<usize>, String)>) {
        let mut own = OwnSettings::default();
        let mut faults = Vec::new();
        for (name, value) in &self.own {
            if let Err(why) = change_own(&mut own, name, &value.get_ref().0) {
                faults.push((value.span(), why));
            }
        }
        (own, faults)
    }

    /// Its name, and where that is said.
    pub(super) fn called(&self) -> (String, Range<usize>) {
        if let Some(name) = &self.name {
            return (name.get_ref().clone(), name.span());
        }
        (name_of(self.origin.get_ref()), self.origin.span())
    }
}

impl<'de> Deserialize<'de> for FileVolume {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<FileVolume, D::Error> {
        from.deserialize_struct("volume", &KEYS, Section)
    }
}

struct Section;

impl<'de> Visitor<'de> for Section {
    type Value = FileVolume;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a volume")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<FileVolume, A::Error> {
        let (mut origin, mut name, mut mode, mut format, mut emulate) =
            (None, None, None, None, None);
        let mut own = Vec::new();
        while let Some(Key(key)) = map.next_key()? {
            match key {
                ORIGIN => origin = Some(map.next_value()?),
                "name" => name = Some(map.next_value()?),
                "mode" => mode = Some(map.next_value()?),
                "format" => format = Some(map.next_value()?),
                "emulate" => emulate = Some(map.next_value()?),
                setting => own.push((setting, map.next_value()?)),
            }
        }
        Ok(FileVolume {
            origin: origin.ok_or_else(|| A::Error::missing_field(ORIGIN))?,
            name,
            mode,
            format,
            emulate,
            own,
        })
    }
}

struct Key(&'static str);

impl<'de> Deserialize<'de> for Key {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Key, D::Error> {
        let name = String::deserialize(from)?;
        let mut keys = KEYS.iter();
        let known = keys.find(|key| **key == name).map(|key| Key(key));
        known.ok_or_else(|| D::Error::unknown_field(&name, &KEYS))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_setting_of_a_volume_is_a_key() {
        for name in own_names() {
            let text = format!("origin = \"disk\"\n{name} = \"default\"\n");
            let volume: FileVolume = toml::from_str(&text).unwrap();
            let (own, faults) = volume.own();
            assert_eq!((own, faults.len()), (OwnSettings::default(), 0), "{name}");
            let wrong: FileVolume = toml::from_str(&text.replace("default", "-5")).unwrap();
            let place = wrong.own().1[0].0.clone();
            assert_eq!(&text.replace("default", "-5")[place], "\"-5\"", "{name}");
        }
        let said = toml::from_str::<FileVolume>("name = \"disk\"").unwrap_err();
        assert!(said.message().contains("missing field `origin`"), "{said}");
        let said = toml::from_str::<FileVolume>("orign = \"disk\"").unwrap_err();
        assert!(said.message().contains("unknown field `orign`"), "{said}");
    }
}
