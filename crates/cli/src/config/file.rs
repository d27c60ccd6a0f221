//! Tables and keys of the TOML file.

use std::path::PathBuf;
use std::str::FromStr;

use forebay_model::ModelOptions;
use serde::{Deserialize, Deserializer};
use toml::Spanned;

use super::file_settings::FileSettings;
use super::file_volume::FileVolume;
use super::profile::FileProfile;
use crate::network::access::{Group, SocketMode, User};
use crate::network::http::HttpPlan;
use crate::network::nbd::Address;
use crate::settings::OnDegraded;
use crate::units::parse_size_with_unit;

/// A value written as a string.
#[derive(Clone, Debug)]
pub(super) struct Text<T>(pub(super) T);

impl<'de, T> Deserialize<'de> for Text<T>
where
    T: FromStr,
    T::Err: std::fmt::Display,
{
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        // Of another type too: what is wrong is then said as of an option.
        let text = match toml::Value::deserialize(from)? {
            toml::Value::String(text) => text,
            other => other.to_string(),
        };
        text.parse().map(Text).map_err(serde::de::Error::custom)
    }
}

#[derive(Clone, Debug)]
pub(super) struct Model(pub(super) ModelOptions);

impl FromStr for Model {
    type Err = String;

    fn from_str(text: &str) -> Result<Model, String> {
        ModelOptions::parse(text)
            .map(Model)
            .map_err(|error| error.to_string())
    }
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Size(pub(super) u64);

impl FromStr for Size {
    type Err = String;

    fn from_str(text: &str) -> Result<Size, String> {
        parse_size_with_unit(text).map(Size)
    }
}

/// A device, or a list of some.
#[derive(Debug)]
pub(super) struct FileDevices(pub(super) Vec<Spanned<PathBuf>>);

impl<'de> Deserialize<'de> for FileDevices {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let wrong = |what: String| serde::de::Error::custom(what);
        let value = Spanned::<toml::Value>::deserialize(from)?;
        let span = value.span();
        let path = |value: toml::Value| match value {
            toml::Value::String(path) => Ok(Spanned::new(span.clone(), PathBuf::from(path))),
            other => Err(wrong(format!("a device is a path, and {other} is none"))),
        };
        let devices = match value.into_inner() {
            toml::Value::Array(list) => {
                list.into_iter().map(path).collect::<Result<Vec<_>, _>>()?
            }
            one => vec![path(one)?],
        };
        if devices.is_empty() {
            return Err(wrong("a cache needs a device at least".to_owned()));
        }
        Ok(FileDevices(devices))
    }
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub(super) struct File {
    pub(super) cache: Option<FileCache>,
    #[serde(default)]
    pub(super) nbd: FileNbd,
    #[serde(default)]
    pub(super) ublk: FileUblk,
    pub(super) profile: Option<FileProfile>,
    #[serde(default)]
    pub(super) http: FileHttp,
    #[serde(default)]
    pub(super) settings: FileSettings,
    #[serde(default)]
    pub(super) daemon: FileDaemon,
    pub(super) volume: Vec<FileVolume>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub(super) struct FileCache {
    pub(super) device: FileDevices,
    #[serde(default)]
    pub(super) create: bool,
    pub(super) emulate: Option<Text<Model>>,
    pub(super) copies: Option<FileCopies>,
    pub(super) on_degraded: Option<Text<OnDegraded>>,
}

/// The number of devices that each dirty block is on.
#[derive(Clone, Copy, Debug)]
pub(super) struct FileCopies(pub(super) u8);

impl<'de> Deserialize<'de> for FileCopies {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let value = toml::Value::deserialize(from)?;
        let copies = crate::settings::copies(&match &value {
            toml::Value::String(text) => text.clone(),
            other => other.to_string(),
        });
        copies.map(FileCopies).map_err(serde::de::Error::custom)
    }
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub(super) struct FileUblk {
    pub(super) enabled: bool,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub(super) struct FileNbd {
    #[serde(default)]
    pub(super) listen: Vec<Spanned<Text<Address>>>,
    pub(super) tls_cert: Option<PathBuf>,
    pub(super) tls_key: Option<PathBuf>,
    pub(super) tls_ca: Option<PathBuf>,
    pub(super) socket_owner: Option<Text<User>>,
    pub(super) socket_group: Option<Text<Group>>,
    pub(super) socket_mode: Option<Text<SocketMode>>,
    #[serde(default)]
    pub(super) insecure: bool,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub(super) struct FileHttp {
    pub(super) listen: Option<Spanned<Text<HttpPlan>>>,
    pub(super) token: Option<PathBuf>,
    #[serde(default)]
    pub(super) insecure: bool,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub(super) struct FileDaemon {
    pub(super) memory: Option<Text<Size>>,
    pub(super) threads: Option<usize>,
    pub(super) control: Option<Spanned<PathBuf>>,
    pub(super) control_group: Option<Text<Group>>,
    pub(super) state_dir: Option<PathBuf>,
    pub(super) hook: Option<PathBuf>,
    pub(super) record: Option<PathBuf>,
    #[serde(default)]
    pub(super) direct_required: bool,
    pub(super) initramfs: Option<Spanned<bool>>,
}

impl FileDaemon {
    /// Where it says that the cache is for the initramfs, if it says so.
    pub(super) fn initramfs_span(&self) -> Option<std::ops::Range<usize>> {
        let wanted = self.initramfs.as_ref()?;
        wanted.get_ref().then(|| wanted.span())
    }
}
