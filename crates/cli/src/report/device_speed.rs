//! The speed of a device, as the engine has learnt it from its own operations.

use std::collections::BTreeMap;

use forebay_engine::{DeviceTimes, Transfer};
use serde::{Deserialize, Serialize};

use crate::units::{latency, size};

/// Kinds of operations by name, with the speed of each; kinds that did not occur are left out.
pub(crate) type DeviceSpeed = BTreeMap<String, Speed>;

/// Speed of a kind of operation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Speed {
    /// Operations that were timed: all long ones and flushes, and one of 64 short ones.
    pub(crate) timed: u64,
    /// The moving average of their durations.
    pub(crate) mean_ns: u64,
    /// Of long transfers: bytes a second while any was in flight.
    pub(crate) bytes_per_second: u64,
}

/// The speed of a device that several shards use: durations as on average, and the rate of the shard
/// that had most of it.
pub(crate) fn of_shards<'a>(shards: impl Iterator<Item = &'a DeviceTimes> + Clone) -> DeviceSpeed {
    let mut speed = DeviceSpeed::new();
    for (transfer, name) in Transfer::NAMES {
        let of_kind = || shards.clone().map(|times| times.of(transfer));
        let timed: u64 = of_kind().map(|times| times.timed).sum();
        if timed == 0 {
            continue;
        }
        let spent = of_kind().map(|times| u128::from(times.mean_ns) * u128::from(times.timed));
        let mean_ns = (spent.sum::<u128>() / u128::from(timed)) as u64;
        let rates = of_kind().map(|times| times.bytes_per_second);
        let speed_of_kind = Speed {
            timed,
            mean_ns,
            bytes_per_second: rates.max().unwrap_or(0),
        };
        speed.insert(name.to_owned(), speed_of_kind);
    }
    speed
}

/// `long writes 310 MiB/s, short reads 101 µs`; nothing where nothing is known.
pub(crate) fn in_words(speed: &DeviceSpeed) -> Option<String> {
    let words: Vec<String> = [
        ("long-read", "long reads"),
        ("long-write", "long writes"),
        ("short-read", "short reads"),
        ("short-write", "short writes"),
        ("flush", "flushes"),
    ]
    .into_iter()
    .filter_map(|(name, words)| {
        let speed = speed.get(name)?;
        Some(match speed.bytes_per_second {
            0 => format!("{words} {}", latency(speed.mean_ns)),
            rate => format!("{words} {}/s", size(rate)),
        })
    })
    .collect();
    (!words.is_empty()).then(|| words.join(", "))
}

/// The rate of long writes, if it is known.
pub(crate) fn long_writes(speed: &DeviceSpeed) -> Option<u64> {
    let rate = speed.get("long-write")?.bytes_per_second;
    (rate > 0).then_some(rate)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn speed(rate: u64) -> Speed {
        Speed {
            timed: 3,
            mean_ns: 101_000,
            bytes_per_second: rate,
        }
    }

    #[test]
    fn rates_and_durations_are_told_by_kind() {
        assert_eq!(in_words(&DeviceSpeed::new()), None);
        let speeds = DeviceSpeed::from([
            ("short-read".to_owned(), speed(0)),
            ("long-write".to_owned(), speed(310 << 20)),
        ]);
        let words = in_words(&speeds).expect("two kinds");
        assert!(words.starts_with("long writes 310"), "{words}");
        assert!(
            words.ends_with(&format!("short reads {}", latency(101_000))),
            "{words}"
        );
        assert_eq!(long_writes(&speeds), Some(310 << 20));
        assert_eq!(long_writes(&DeviceSpeed::new()), None);
    }

    #[test]
    fn shards_that_timed_nothing_leave_a_kind_out() {
        let nothing = [DeviceTimes::default(), DeviceTimes::default()];
        assert_eq!(of_shards(nothing.iter()), DeviceSpeed::new());
    }
}
