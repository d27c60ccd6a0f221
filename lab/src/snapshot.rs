//! The counters the guest writes down before and after each job.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// A device's counters since boot, or their difference.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct DeviceCounters {
    /// Read requests.
    pub reads: u64,
    /// KiB read.
    pub read_kib: u64,
    /// Write requests.
    pub writes: u64,
    /// KiB written.
    pub written_kib: u64,
    /// Flushes.
    pub flushes: u64,
}

impl DeviceCounters {
    /// The counts since an earlier look.
    #[must_use]
    pub fn since(self, earlier: DeviceCounters) -> DeviceCounters {
        DeviceCounters {
            reads: self.reads.saturating_sub(earlier.reads),
            read_kib: self.read_kib.saturating_sub(earlier.read_kib),
            writes: self.writes.saturating_sub(earlier.writes),
            written_kib: self.written_kib.saturating_sub(earlier.written_kib),
            flushes: self.flushes.saturating_sub(earlier.flushes),
        }
    }

    /// The kernel's block layer statistics, as in /sys/block/NAME/stat.
    fn parse<'a>(words: impl Iterator<Item = &'a str>) -> DeviceCounters {
        let numbers: Vec<u64> = words.filter_map(|word| word.parse().ok()).collect();
        let number = |index: usize| numbers.get(index).copied().unwrap_or(0);
        DeviceCounters {
            reads: number(0),
            read_kib: number(2) / 2,
            writes: number(4),
            written_kib: number(6) / 2,
            flushes: number(15),
        }
    }
}

/// All counters at one moment.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Snapshot {
    /// Seconds since the guest's boot.
    pub uptime: f64,
    /// Ticks of a hundredth of a second in which a processor was not idle, and all.
    pub cpu: (u64, u64),
    /// By serial number.
    pub devices: BTreeMap<String, DeviceCounters>,
    /// Dirty data, in KiB.
    pub dirty_kib: u64,
    /// The system's own counters, in its own words.
    pub counters: BTreeMap<String, String>,
}

impl Snapshot {
    /// Reads the output of `snapshot` in `lab/guest/library.sh`. Unreadable parts are left out.
    #[must_use]
    pub fn parse(text: &str) -> Snapshot {
        let mut snapshot = Snapshot::default();
        for line in text.lines() {
            let (word, rest) = line.split_once(' ').unwrap_or((line, ""));
            let mut words = rest.split_whitespace();
            match word {
                "uptime" => {
                    let uptime = words.next().and_then(|word| word.parse().ok());
                    snapshot.uptime = uptime.unwrap_or(0.0);
                }
                "cpu" => {
                    let ticks: Vec<u64> = words.filter_map(|word| word.parse().ok()).collect();
                    let all: u64 = ticks.iter().take(8).sum();
                    let idle: u64 = ticks.iter().skip(3).take(2).sum();
                    snapshot.cpu = (all - idle, all);
                }
                "device" => {
                    if let Some(name) = words.next() {
                        let counters = DeviceCounters::parse(words);
                        snapshot.devices.insert(name.to_owned(), counters);
                    }
                }
                "dirty_kib" => {
                    let kib: Option<f64> = words.next().and_then(|word| word.parse().ok());
                    snapshot.dirty_kib = kib.unwrap_or(0.0) as u64;
                }
                "counter" => {
                    let (name, value) = rest.split_once(' ').unwrap_or((rest, ""));
                    snapshot.counters.insert(name.to_owned(), value.to_owned());
                }
                _ => {}
            }
        }
        snapshot
    }

    /// Metadata that the system has written so far, in KiB, if it counts that.
    #[must_use]
    pub fn metadata_kib(&self) -> Option<f64> {
        if let Some(size) = self.counters.get("metadata_written") {
            return human_kib(size);
        }
        if let Some(stat) = self.counters.get("metadata_stat") {
            return Some(DeviceCounters::parse(stat.split_whitespace()).written_kib as f64);
        }
        let status: serde_json::Value = serde_json::from_str(self.counters.get("forebay")?).ok()?;
        let bytes = find(&status, "cache_metadata_written_bytes")?;
        Some(bytes / 1024.0)
    }
}

/// A number by its name, wherever it is.
fn find(value: &serde_json::Value, name: &str) -> Option<f64> {
    match value {
        serde_json::Value::Object(members) => members
            .get(name)
            .and_then(serde_json::Value::as_f64)
            .or_else(|| members.values().find_map(|member| find(member, name))),
        serde_json::Value::Array(items) => items.iter().find_map(|item| find(item, name)),
        _ => None,
    }
}

/// Sizes as bcache prints them: `1.2G`, `300k`, `17`.
fn human_kib(text: &str) -> Option<f64> {
    let text = text.trim();
    let unit = text.chars().last()?;
    let number = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let number: f64 = number.parse().ok()?;
    Some(match unit {
        'k' => number,
        'M' => number * 1024.0,
        'G' => number * 1024.0 * 1024.0,
        _ => number / 1024.0,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "uptime 12.50 20.00\ncpu cpu  100 0 50 800 50 0 0 0 0 0\n\
        device hdd 10 0 80 5 3 0 24 1 0 0 0 0 0 0 0 7 2\ndirty_kib 2048\n\
        counter metadata_written 1.5M\ncounter state dirty\n";

    #[test]
    fn a_snapshot_is_read() {
        let snapshot = Snapshot::parse(TEXT);
        assert_eq!(snapshot.uptime, 12.5);
        assert_eq!(snapshot.cpu, (150, 1000));
        let hdd = snapshot.devices["hdd"];
        let expected = DeviceCounters {
            reads: 10,
            read_kib: 40,
            writes: 3,
            written_kib: 12,
            flushes: 7,
        };
        assert_eq!(hdd, expected);
        assert_eq!(hdd.since(hdd), DeviceCounters::default());
        assert_eq!(snapshot.dirty_kib, 2048);
        assert_eq!(snapshot.metadata_kib(), Some(1536.0));
    }

    #[test]
    fn metadata_is_found_in_forebays_status() {
        let text =
            "counter forebay {\"caches\":[{\"traffic\":{\"cache_metadata_written_bytes\":4096}}]}";
        assert_eq!(Snapshot::parse(text).metadata_kib(), Some(4.0));
        assert_eq!(Snapshot::parse("").metadata_kib(), None);
    }
}
