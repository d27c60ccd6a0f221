//! The load of the members of arrays, looked at each second.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::time::{Duration, Instant};

use crate::device::members::{MemberCounters, members_of};
use crate::lock::lock;
use crate::report::members::MemberLoad;

/// Looks closer together than this say nothing of a rate.
const LEAST_APART: Duration = Duration::from_millis(200);

/// Members by the path of the device that they make up.
#[derive(Debug, Default)]
pub(in crate::daemon) struct Members(Mutex<BTreeMap<PathBuf, Looked>>);

/// The last look at a device, and what came of the last two.
#[derive(Debug)]
struct Looked {
    at: Instant,
    counters: Vec<MemberCounters>,
    loads: Vec<MemberLoad>,
}

impl Members {
    /// Looks at the members of these devices, and forgets all others.
    pub(super) fn look(&self, now: Instant, devices: impl Iterator<Item = PathBuf>) {
        // The kernel is asked without the lock.
        let found: Vec<_> = devices
            .map(|device| {
                let counters = members_of(&device);
                (device, counters)
            })
            .filter(|(_, counters)| !counters.is_empty())
            .collect();
        let mut looked = lock(&self.0);
        let mut before = std::mem::take(&mut *looked);
        looked.extend(found.into_iter().map(|(device, counters)| {
            let next = Looked::next(before.remove(&device), now, counters);
            (device, next)
        }));
    }

    /// The members of a device, if it is an array and was looked at twice.
    pub(super) fn of(&self, device: &Path) -> Vec<MemberLoad> {
        let looked = lock(&self.0);
        let loads = looked.get(device).map(|looked| looked.loads.clone());
        loads.unwrap_or_default()
    }
}

impl Looked {
    fn next(before: Option<Looked>, now: Instant, counters: Vec<MemberCounters>) -> Looked {
        let Some(before) = before else {
            return Looked {
                at: now,
                counters,
                loads: Vec::new(),
            };
        };
        let apart = now.saturating_duration_since(before.at);
        if apart < LEAST_APART {
            return before;
        }
        let loads = counters.iter().filter_map(|counters| {
            let mut earlier = before.counters.iter();
            let earlier = earlier.find(|earlier| earlier.name == counters.name)?;
            Some(load(earlier, counters, apart))
        });
        Looked {
            at: now,
            loads: loads.collect(),
            counters,
        }
    }
}

fn load(earlier: &MemberCounters, now: &MemberCounters, apart: Duration) -> MemberLoad {
    let per_second = |earlier: u64, now: u64| {
        (now.saturating_sub(earlier) as f64 / apart.as_secs_f64()).round() as u64
    };
    // A millisecond of a second is a tenth of a percent.
    let busy_percent = per_second(earlier.busy_ms, now.busy_ms)
        .div_ceil(10)
        .min(100);
    MemberLoad {
        name: now.name.clone(),
        in_flight: now.in_flight,
        busy_percent,
        read_bytes_per_second: per_second(earlier.read_bytes, now.read_bytes),
        written_bytes_per_second: per_second(earlier.written_bytes, now.written_bytes),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counters(mib: u64, busy_ms: u64) -> Vec<MemberCounters> {
        vec![MemberCounters {
            name: "sda".to_owned(),
            read_bytes: mib << 20,
            written_bytes: mib << 21,
            in_flight: 3,
            busy_ms,
        }]
    }

    #[test]
    fn a_load_is_the_difference_of_two_looks() {
        let began = Instant::now();
        let at = |ms| began + Duration::from_millis(ms);
        let first = Looked::next(None, began, counters(10, 100));
        assert_eq!(first.loads, []);
        let second = Looked::next(Some(first), at(2000), counters(30, 600));
        let wanted = MemberLoad {
            name: "sda".to_owned(),
            in_flight: 3,
            busy_percent: 25,
            read_bytes_per_second: 10 << 20,
            written_bytes_per_second: 20 << 20,
        };
        assert_eq!(second.loads, std::slice::from_ref(&wanted));
        let soon = Looked::next(Some(second), at(2100), counters(99, 700));
        assert_eq!(soon.loads, [wanted], "too soon to say");
        let other = Looked::next(Some(soon), at(4000), Vec::new());
        assert_eq!(other.loads, [], "a member that is gone");
    }
}
