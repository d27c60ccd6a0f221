//! Settings of one volume, in place of those of its cache.

use forebay_engine::{Settings, VolumeSettings};

use super::table::Setting;
use super::{DEFAULT, unknown};

/// The settings that a volume can have of its own.
pub(crate) const OWN: [&str; 3] = ["sequential-cutoff", "admission", "write-admission"];

/// Changes a setting of a volume by name; `default` is as the cache has it.
///
/// # Errors
/// Says which setting, and what its values are; nothing is changed then.
pub(crate) fn change_own(own: &mut VolumeSettings, name: &str, value: &str) -> Result<(), String> {
    let setting = own_setting(name, value)?;
    let mut settings = Settings::default();
    if value != DEFAULT {
        (setting.kind.set(&mut settings, value)).map_err(|why| setting.refusal(value, &why))?;
    }
    let is_given = value != DEFAULT;
    match name {
        "sequential-cutoff" => {
            own.sequential_cutoff_bytes = is_given.then_some(settings.sequential_cutoff_bytes);
        }
        "admission" => own.read_admission = is_given.then_some(settings.read_admission),
        _ => own.write_admission = is_given.then_some(settings.write_admission),
    }
    Ok(())
}

/// The settings that a volume has of its own, by name, with their values for people.
pub(crate) fn shown_own(own: &VolumeSettings) -> Vec<(&'static str, String)> {
    let settings = own_over(own, &Settings::default());
    let given = [
        own.sequential_cutoff_bytes.is_some(),
        own.read_admission.is_some(),
        own.write_admission.is_some(),
    ];
    let named = OWN.into_iter().zip(given).filter(|(_, given)| *given);
    let settings =
        named.filter_map(|(name, _)| Some((name, Setting::named(name)?.show(&settings))));
    settings.collect()
}

/// The settings in force for a volume: its own over those of its cache.
pub(crate) fn own_over(own: &VolumeSettings, cache: &Settings) -> Settings {
    Settings {
        sequential_cutoff_bytes: (own.sequential_cutoff_bytes)
            .unwrap_or(cache.sequential_cutoff_bytes),
        read_admission: own.read_admission.unwrap_or(cache.read_admission),
        write_admission: own.write_admission.unwrap_or(cache.write_admission),
        ..cache.clone()
    }
}

/// Whether a setting is there, and no volume has it of its own.
pub(crate) fn is_of_cache_alone(name: &str) -> bool {
    Setting::named(name).is_some() && !OWN.contains(&name)
}

/// A setting that a volume can have.
///
/// # Errors
/// Says that it has none of this name.
pub(crate) fn own_setting(name: &str, value: &str) -> Result<&'static Setting, String> {
    match Setting::named(name) {
        Some(setting) if OWN.contains(&name) => Ok(setting),
        Some(_) => Err(format!(
            "{name} is a setting of the cache as a whole: leave --volume out (a volume has {})",
            OWN.join(", ")
        )),
        None => Err(unknown(name, value)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_volume_has_what_it_is_given_and_else_what_the_cache_has() {
        let mut own = VolumeSettings::default();
        let cache = Settings {
            sequential_cutoff_bytes: Some(4096),
            ..Settings::default()
        };
        assert_eq!(own_over(&own, &cache), cache);
        change_own(&mut own, "sequential-cutoff", "off").unwrap();
        change_own(&mut own, "write-admission", "touch-3").unwrap();
        let shown = [("sequential-cutoff", "off"), ("write-admission", "touch-3")];
        let shown = shown.map(|(name, value)| (name, value.to_owned()));
        assert_eq!(shown_own(&own), shown);
        assert_eq!(own_over(&own, &cache).sequential_cutoff_bytes, None);
        for name in OWN {
            assert!(change_own(&mut own, name, "-5").is_err(), "{name}");
            change_own(&mut own, name, DEFAULT).unwrap();
        }
        assert_eq!(own, VolumeSettings::default());
        let said = change_own(&mut own, "dirty-high", "50").unwrap_err();
        assert!(said.contains("leave --volume out"), "{said}");
        let said = change_own(&mut own, "admision", "always").unwrap_err();
        assert!(said.contains("did you mean `admission`"), "{said}");
    }
}
