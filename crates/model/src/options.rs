//! Models named in words: `hdd`, `ssd`, `hdd:rpm=5400,write-cache-mib=0`.

use crate::{DeviceModel, Disk, DiskParameters, Fill, Ssd, SsdParameters};

/// A model chosen and tuned, for a device whose size is not known yet.
#[derive(Clone, Debug, PartialEq)]
pub enum ModelOptions {
    /// A hard disk; its size is set when it is built.
    Disk(DiskParameters),
    /// A solid-state drive; its size is set when it is built.
    Ssd(SsdParameters),
}

/// Why an option string is not understood.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum OptionError {
    /// The word before the colon names no model.
    #[error("no device model is called `{name}`; known are hdd and ssd")]
    UnknownModel {
        /// The name given.
        name: String,
    },
    /// A setting without a value.
    #[error("`{setting}` is not of the form name=value")]
    NoValue {
        /// The setting given.
        setting: String,
    },
    /// The model has no such setting.
    #[error("{model} has no setting `{name}`; known are {}", known.join(", "))]
    UnknownSetting {
        /// The model.
        model: &'static str,
        /// The name given.
        name: String,
        /// The names that would do.
        known: &'static [&'static str],
    },
    /// A value that is no number in the setting's range.
    #[error("{name}={value} is out of range: {expected}")]
    BadValue {
        /// The setting.
        name: String,
        /// The value given.
        value: String,
        /// The values that would do.
        expected: &'static str,
    },
}

const DISK_SETTINGS: &[&str] = &[
    "rpm",
    "seek-ms",
    "seek-min-ms",
    "seek-max-ms",
    "outer-mb-s",
    "inner-mb-s",
    "queue-depth",
    "write-cache-mib",
    "read-ahead-mib",
    "read-ahead-segments",
];

const SSD_SETTINGS: &[&str] = &[
    "fill",
    "channels",
    "read-us",
    "write-us",
    "flush-us",
    "read-mb-s",
    "write-mb-s",
    "write-buffer-mib",
    "write-amplification",
];

impl ModelOptions {
    /// Reads `hdd`, `ssd`, or either with settings: `hdd:rpm=7200,seek-ms=8`.
    ///
    /// `hdd`: `rpm`; `seek-ms` (mean over the whole disk), or `seek-min-ms` and `seek-max-ms`;
    /// `outer-mb-s`, `inner-mb-s`; `queue-depth`; `write-cache-mib` (0: none); `read-ahead-mib`,
    /// `read-ahead-segments`. `ssd`: `fill` (clean or full), `channels`, `read-us`, `write-us`,
    /// `flush-us`, `read-mb-s`, `write-mb-s`, `write-buffer-mib`, `write-amplification` (when
    /// full).
    ///
    /// # Errors
    /// If the model or a setting is unknown, or a value is no number in its range; the message
    /// lists what is known.
    pub fn parse(text: &str) -> Result<ModelOptions, OptionError> {
        let (name, settings) = text.split_once(':').unwrap_or((text, ""));
        let mut options = match name {
            // Seek times and zones scale with the size, which comes later.
            "hdd" => ModelOptions::Disk(DiskParameters::sata_7200rpm(1)),
            "ssd" => ModelOptions::Ssd(SsdParameters::sata_850pro()),
            _ => {
                return Err(OptionError::UnknownModel {
                    name: name.to_owned(),
                });
            }
        };
        for setting in settings.split(',').filter(|setting| !setting.is_empty()) {
            let Some((name, value)) = setting.split_once('=') else {
                return Err(OptionError::NoValue {
                    setting: setting.to_owned(),
                });
            };
            match &mut options {
                ModelOptions::Disk(parameters) => set_disk(parameters, name, value)?,
                ModelOptions::Ssd(parameters) => set_ssd(parameters, name, value)?,
            }
        }
        Ok(options)
    }

    /// The model, for a device of `size_bytes` (at least one).
    #[must_use]
    pub fn build(&self, size_bytes: u64) -> Box<dyn DeviceModel> {
        let size_bytes = size_bytes.max(1);
        match self.clone() {
            ModelOptions::Disk(parameters) => Box::new(Disk::new(DiskParameters {
                size_bytes,
                ..parameters
            })),
            ModelOptions::Ssd(parameters) => Box::new(Ssd::new(SsdParameters {
                size_bytes,
                ..parameters
            })),
        }
    }
}

/// A setting's name with its value still in words.
struct Setting<'a> {
    name: &'a str,
    value: &'a str,
}

impl Setting<'_> {
    fn bad(&self, expected: &'static str) -> OptionError {
        OptionError::BadValue {
            name: self.name.to_owned(),
            value: self.value.to_owned(),
            expected,
        }
    }

    fn positive(&self) -> Result<f64, OptionError> {
        const EXPECTED: &str = "a number above 0, up to 1,000,000";
        match self.value.parse::<f64>() {
            Ok(number) if number > 0.0 && number <= 1e6 => Ok(number),
            _ => Err(self.bad(EXPECTED)),
        }
    }

    fn whole(&self, min: u64, expected: &'static str) -> Result<u64, OptionError> {
        match self.value.parse::<u64>() {
            Ok(number) if (min..=65_536).contains(&number) => Ok(number),
            _ => Err(self.bad(expected)),
        }
    }

    fn count(&self) -> Result<usize, OptionError> {
        Ok(self.whole(1, "a whole number from 1 to 65,536")? as usize)
    }

    fn mebibytes(&self) -> Result<u64, OptionError> {
        Ok(self.whole(0, "a whole number from 0 to 65,536")? << 20)
    }
}

fn set_disk(parameters: &mut DiskParameters, name: &str, value: &str) -> Result<(), OptionError> {
    let setting = Setting { name, value };
    match name {
        "rpm" => parameters.rotation_ns = ((60e9 / setting.positive()?) as u64).max(1),
        "seek-ms" => {
            // The mean of the root of the distance of two places chosen at random is 8/15.
            let mean_ns = setting.positive()? * 1e6;
            let min_ns = (parameters.seek_min_ns as f64).min(mean_ns);
            parameters.seek_min_ns = min_ns as u64;
            parameters.seek_max_ns = (min_ns + (mean_ns - min_ns) * 15.0 / 8.0) as u64;
        }
        "seek-min-ms" => parameters.seek_min_ns = (setting.positive()? * 1e6) as u64,
        "seek-max-ms" => parameters.seek_max_ns = (setting.positive()? * 1e6) as u64,
        "outer-mb-s" => parameters.outer_bytes_per_second = setting.positive()? * 1e6,
        "inner-mb-s" => parameters.inner_bytes_per_second = setting.positive()? * 1e6,
        "queue-depth" => parameters.queue_depth = setting.count()?,
        "write-cache-mib" => parameters.write_cache_bytes = setting.mebibytes()?,
        "read-ahead-mib" => parameters.read_ahead_bytes = setting.mebibytes()?,
        "read-ahead-segments" => parameters.read_ahead_segments = setting.count()?,
        _ => {
            return Err(OptionError::UnknownSetting {
                model: "hdd",
                name: name.to_owned(),
                known: DISK_SETTINGS,
            });
        }
    }
    Ok(())
}

fn set_ssd(parameters: &mut SsdParameters, name: &str, value: &str) -> Result<(), OptionError> {
    let setting = Setting { name, value };
    let microseconds = |setting: &Setting<'_>| Ok((setting.positive()? * 1e3) as u64);
    match name {
        "fill" => {
            parameters.fill = match value {
                "clean" => Fill::Clean,
                "full" => Fill::Full,
                _ => return Err(setting.bad("clean or full")),
            }
        }
        "channels" => parameters.channels = setting.count()?,
        "read-us" => {
            parameters.read_latency_ns = microseconds(&setting)?;
            parameters.sequential_read_latency_ns = parameters
                .sequential_read_latency_ns
                .min(parameters.read_latency_ns);
        }
        "write-us" => parameters.write_latency_ns = microseconds(&setting)?,
        "flush-us" => parameters.flush_latency_ns = microseconds(&setting)?,
        "read-mb-s" => parameters.read_bytes_per_second = setting.positive()? * 1e6,
        "write-mb-s" => {
            // The flash keeps its margin over the bus.
            let rate = setting.positive()? * 1e6;
            let margin = parameters.program_bytes_per_second / parameters.write_bytes_per_second;
            parameters.program_bytes_per_second = rate * margin;
            parameters.write_bytes_per_second = rate;
        }
        "write-buffer-mib" => parameters.write_buffer_bytes = setting.mebibytes()?,
        "write-amplification" => parameters.full_write_amplification = setting.positive()?,
        _ => {
            return Err(OptionError::UnknownSetting {
                model: "ssd",
                name: name.to_owned(),
                known: SSD_SETTINGS,
            });
        }
    }
    Ok(())
}
