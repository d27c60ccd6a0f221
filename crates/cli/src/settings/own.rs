//! Settings of one volume: some in place of those of its cache, some that only a volume has.

use std::ops::RangeInclusive;
use std::time::Duration;

use forebay_engine::{MOST_KEPT_PERCENT, Settings, VolumeSettings};

use super::kind::{count, percent, size};
use super::table::Setting;
use super::{DEFAULT, Difference};
use crate::device::network::uri;
use crate::nearest::suggestion;
use crate::units;

/// Settings that a volume has of its own.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct OwnSettings {
    /// Settings for the engines.
    pub(crate) engine: VolumeSettings,
    /// Limits for its clients.
    pub(crate) rates: Rates,
    /// The longest wait for the server of its network origin.
    pub(crate) origin_timeout: Option<Duration>,
}

/// The most that clients of a volume are served, in a second.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Rates {
    /// Bytes that they read and write.
    pub(crate) bytes: Option<u64>,
    /// Requests of all kinds.
    pub(crate) operations: Option<u64>,
}

/// The least rate: a request of the largest size takes a few seconds at it.
const BYTES: RangeInclusive<u64> = 64 << 10..=1 << 40;
const OPERATIONS: RangeInclusive<u64> = 1..=1_000_000_000;

/// A setting that only volumes have.
struct Limit {
    name: &'static str,
    values: &'static str,
    /// The word for a volume without it.
    unset: &'static str,
    read: fn(&str) -> Result<u64, String>,
    show: fn(u64) -> String,
    get: fn(&OwnSettings) -> Option<u64>,
    put: fn(&mut OwnSettings, Option<u64>),
}

const OFF: &str = "off";
const ORIGIN_TIMEOUT: &str = "origin-timeout";

static LIMITS: [Limit; 5] = [
    Limit {
        name: "share-min",
        values: "percent of the cache, 0 to 50; off",
        unset: OFF,
        read: |text| percent(text, 0..=MOST_KEPT_PERCENT),
        show: |percent| format!("{percent} %"),
        get: |own| own.engine.least_share_percent.map(u64::from),
        put: |own, value| own.engine.least_share_percent = value.map(|percent| percent as u8),
    },
    Limit {
        name: "share-max",
        values: "percent of the cache, 0 to 100; off",
        unset: OFF,
        read: |text| percent(text, 0..=100),
        show: |percent| format!("{percent} %"),
        get: |own| own.engine.most_share_percent.map(u64::from),
        put: |own, value| own.engine.most_share_percent = value.map(|percent| percent as u8),
    },
    Limit {
        name: "bytes-per-second",
        values: "a size of at least 64K, such as 100M; off",
        unset: OFF,
        read: |text| size(text, BYTES),
        show: units::size,
        get: |own| own.rates.bytes,
        put: |own, value| own.rates.bytes = value,
    },
    Limit {
        name: "operations-per-second",
        values: "a number, at least 1; off",
        unset: OFF,
        read: |text| count(text, OPERATIONS),
        show: |operations| operations.to_string(),
        get: |own| own.rates.operations,
        put: |own, value| own.rates.operations = value,
    },
    Limit {
        name: ORIGIN_TIMEOUT,
        values: "seconds that requests wait for the server of a network origin, such as 90 s",
        unset: DEFAULT,
        read: |text| uri::timeout(text).map(|timeout| timeout.as_secs()),
        show: |seconds| format!("{seconds} s"),
        get: |own| own.origin_timeout.map(|timeout| timeout.as_secs()),
        put: |own, value| own.origin_timeout = value.map(Duration::from_secs),
    },
];

/// A setting of the cache that a volume can have of its own.
struct Inherited {
    name: &'static str,
    is_given: fn(&VolumeSettings) -> bool,
    /// Takes it from settings of a cache, or lets go of it.
    put: fn(&mut VolumeSettings, Option<&Settings>),
    /// Puts it in place of the cache's.
    over: fn(&VolumeSettings, &mut Settings),
}

macro_rules! inherited {
    ($($name:literal: $own:ident of $of_cache:ident;)*) => {
        [$(Inherited {
            name: $name,
            is_given: |own| own.$own.is_some(),
            put: |own, given| own.$own = given.map(|given| given.$of_cache),
            over: |own, settings| {
                if let Some(given) = own.$own {
                    settings.$of_cache = given;
                }
            },
        }),*]
    };
}

static INHERITED: [Inherited; 4] = inherited! {
    "sequential-cutoff": sequential_cutoff_bytes of sequential_cutoff_bytes;
    "admission": read_admission of read_admission;
    "write-admission": write_admission of write_admission;
    "age": age_limit of age_limit;
};

/// The names of all settings that a volume can have.
pub(crate) fn own_names() -> Vec<&'static str> {
    let inherited = INHERITED.iter().map(|inherited| inherited.name);
    inherited
        .chain(LIMITS.iter().map(|limit| limit.name))
        .collect()
}

/// Changes a setting of a volume by name; `default` is as the cache has it, or off.
///
/// # Errors
/// Says which setting, and what its values are; nothing is changed then.
pub(crate) fn change_own(own: &mut OwnSettings, name: &str, value: &str) -> Result<(), String> {
    check_own_name(name)?;
    if let Some(limit) = LIMITS.iter().find(|limit| limit.name == name) {
        let given = match value {
            DEFAULT => None,
            _ if value == limit.unset => None,
            _ => Some((limit.read)(value).map_err(|why| {
                format!(
                    "{name} {value}: {why} ({name} is {}; or default)",
                    limit.values
                )
            })?),
        };
        let mut changed = *own;
        (limit.put)(&mut changed, given);
        check_shares(&changed)?;
        *own = changed;
        return Ok(());
    }
    let setting = Setting::named(name).ok_or_else(|| unknown(name))?;
    let mut settings = Settings::default();
    if value != DEFAULT {
        (setting.kind.set(&mut settings, value)).map_err(|why| setting.refusal(value, &why))?;
    }
    let mut inherited = INHERITED.iter();
    if let Some(inherited) = inherited.find(|inherited| inherited.name == name) {
        (inherited.put)(&mut own.engine, (value != DEFAULT).then_some(&settings));
    }
    Ok(())
}

fn check_shares(own: &OwnSettings) -> Result<(), String> {
    let VolumeSettings {
        least_share_percent,
        most_share_percent,
        ..
    } = own.engine;
    match (least_share_percent, most_share_percent) {
        (Some(least), Some(most)) if least > most => Err(format!(
            "share-min {least} % is more than share-max {most} %"
        )),
        _ => Ok(()),
    }
}

/// Refuses shares of several volumes that reclaim could not keep together.
///
/// # Errors
/// Says how much they are together.
pub(crate) fn check_kept<'a>(all: impl Iterator<Item = &'a OwnSettings>) -> Result<(), String> {
    let kept = all.filter_map(|own| own.engine.least_share_percent);
    let sum: u32 = kept.map(u32::from).sum();
    if sum > u32::from(MOST_KEPT_PERCENT) {
        return Err(format!(
            "share-min of all volumes together would be {sum} % of the cache, and may be {MOST_KEPT_PERCENT} %"
        ));
    }
    Ok(())
}

/// The settings that a volume has of its own, by name, with their values for people.
pub(crate) fn shown_own(own: &OwnSettings) -> Vec<(&'static str, String)> {
    let mut shown = in_force(own, &Settings::default());
    shown.retain(|(name, _)| is_given(own, name));
    shown
}

fn is_given(own: &OwnSettings, name: &str) -> bool {
    let mut inherited = INHERITED.iter();
    if let Some(inherited) = inherited.find(|inherited| inherited.name == name) {
        return (inherited.is_given)(&own.engine);
    }
    let mut limits = LIMITS.iter();
    limits.any(|limit| limit.name == name && (limit.get)(own).is_some())
}

/// The settings in force for a volume, by name: its own, or else its cache's.
fn in_force(own: &OwnSettings, cache: &Settings) -> Vec<(&'static str, String)> {
    let settings = over(own, cache);
    let inherited = INHERITED.iter();
    let inherited = inherited.filter_map(|inherited| {
        Some((
            inherited.name,
            Setting::named(inherited.name)?.show(&settings),
        ))
    });
    let limits = LIMITS.iter().map(|limit| {
        let value = (limit.get)(own);
        (limit.name, value.map_or(limit.unset.to_owned(), limit.show))
    });
    inherited.chain(limits).collect()
}

/// The settings in force for a volume whose requests wait for a server for `timeout`, if it has one.
pub(crate) fn in_force_over(
    own: &OwnSettings,
    cache: &Settings,
    timeout: Option<Duration>,
) -> Vec<(&'static str, String)> {
    let mut shown = in_force(own, cache);
    for (_, value) in shown.iter_mut().filter(|(name, _)| *name == ORIGIN_TIMEOUT) {
        *value = timeout.map_or(OFF.to_owned(), |timeout| format!("{} s", timeout.as_secs()));
    }
    shown
}

/// Refuses settings that mean nothing on an origin of this host.
///
/// # Errors
/// Says which.
pub(crate) fn check_origin(own: &OwnSettings, is_network: bool) -> Result<(), String> {
    if own.origin_timeout.is_some() && !is_network {
        return Err(format!(
            "{ORIGIN_TIMEOUT} is for network origins, and this origin is a device of this host; leave it out"
        ));
    }
    Ok(())
}

/// The settings in force that differ.
pub(crate) fn own_differences(
    before: &OwnSettings,
    after: &OwnSettings,
    cache: &Settings,
) -> Vec<Difference> {
    super::differing(in_force(before, cache), in_force(after, cache))
}

fn over(own: &OwnSettings, cache: &Settings) -> Settings {
    let mut settings = cache.clone();
    for inherited in &INHERITED {
        (inherited.over)(&own.engine, &mut settings);
    }
    settings
}

/// Whether a setting is there, and no volume has it of its own.
pub(crate) fn is_of_cache_alone(name: &str) -> bool {
    Setting::named(name).is_some() && !own_names().contains(&name)
}

/// Refuses what is no setting of a volume.
///
/// # Errors
/// Says that it has none of this name.
pub(crate) fn check_own_name(name: &str) -> Result<(), String> {
    if own_names().contains(&name) {
        return Ok(());
    }
    if is_of_cache_alone(name) {
        return Err(format!(
            "{name} is a setting of the cache as a whole: leave --volume out (a volume has {})",
            own_names().join(", ")
        ));
    }
    Err(unknown(name))
}

fn unknown(name: &str) -> String {
    format!(
        "a volume has no setting `{name}`{}: it has {}",
        suggestion(name, own_names().into_iter()),
        own_names().join(", ")
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn value_of(list: Vec<(&'static str, String)>, name: &str) -> String {
        let mut list = list.into_iter();
        list.find(|(known, _)| *known == name).unwrap().1
    }

    #[test]
    fn a_volume_has_what_it_is_given_and_else_what_the_cache_has() {
        let mut own = OwnSettings::default();
        let cache = Settings {
            sequential_cutoff_bytes: Some(4096),
            ..Settings::default()
        };
        assert_eq!(
            value_of(in_force(&own, &cache), "sequential-cutoff"),
            "4 KiB"
        );
        let given = [
            ("sequential-cutoff", "off"),
            ("write-admission", "touch-3"),
            ("age", "90 s"),
            ("share-max", "20 %"),
            ("bytes-per-second", "100 MiB"),
            ("operations-per-second", "500"),
            ("origin-timeout", "90 s"),
        ];
        for (name, value) in given {
            change_own(&mut own, name, value).unwrap();
        }
        let given = given.map(|(name, value)| (name, value.to_owned()));
        assert_eq!(shown_own(&own), given);
        assert_eq!(value_of(in_force(&own, &cache), "sequential-cutoff"), "off");
        assert_eq!(value_of(in_force(&own, &cache), "share-min"), "off");
        assert_eq!(check_origin(&own, true), Ok(()));
        let said = check_origin(&own, false).unwrap_err();
        assert!(said.contains("origin-timeout is for network"), "{said}");
        let timeout = own.origin_timeout;
        let shown = |timeout| value_of(in_force_over(&own, &cache, timeout), "origin-timeout");
        assert_eq!((&*shown(timeout), &*shown(None)), ("90 s", "off"));
        for name in own_names() {
            assert!(change_own(&mut own, name, "-5").is_err(), "{name}");
            change_own(&mut own, name, DEFAULT).unwrap();
        }
        assert_eq!(own, OwnSettings::default());
        let said = change_own(&mut own, "dirty-high", "50").unwrap_err();
        assert!(said.contains("leave --volume out"), "{said}");
        let said = change_own(&mut own, "admision", "always").unwrap_err();
        assert!(said.contains("did you mean `admission`"), "{said}");
    }

    #[test]
    fn shares_that_cannot_be_kept_are_refused() {
        let mut own = OwnSettings::default();
        change_own(&mut own, "share-min", "30%").unwrap();
        let said = change_own(&mut own, "share-max", "20%").unwrap_err();
        assert!(
            said.contains("share-min 30 % is more than share-max 20 %"),
            "{said}"
        );
        assert_eq!(shown_own(&own), [("share-min", "30 %".to_owned())]);
        assert!(change_own(&mut own, "share-min", "51").is_err());
        assert!(change_own(&mut own, "bytes-per-second", "100").is_err());
        assert_eq!(check_kept([own].iter()), Ok(()));
        let said = check_kept([own, own].iter()).unwrap_err();
        assert!(said.contains("would be 60 % of the cache"), "{said}");
    }
}
