//! The record of a cache that failed: the reports of all its hosts together.

use forebay_engine::{Promise, Unsaved};

use crate::failure::Report;

/// Gathers the reports of all hosts.
#[derive(Clone, Debug)]
pub struct Reports {
    reports: Vec<Option<Report>>,
}

impl Reports {
    /// For a cache with so many hosts.
    #[must_use]
    pub fn new(hosts: usize) -> Reports {
        Reports {
            reports: vec![None; hosts],
        }
    }

    /// Takes the report of a host. If there is one of every host now, all of them together: it is
    /// to be put on record, in place of what may be there, and then every host is told.
    pub fn take(&mut self, host: u16, report: Report) -> Option<Abandonment> {
        self.reports[usize::from(host)] = Some(report);
        let reports: Option<Vec<&Report>> = self.reports.iter().map(Option::as_ref).collect();
        let reports = reports?;
        let first = reports.first()?;
        let unsaved = reports.iter().flat_map(|report| &report.unsaved);
        Some(Abandonment {
            epoch: first.epoch,
            reason: first.reason,
            unsaved: merged(unsaved.copied().collect()),
            promises: reports
                .iter()
                .flat_map(|report| report.promises.clone())
                .collect(),
            serials: reports.iter().map(|report| report.serial).collect(),
        })
    }
}

/// The record of a cache that failed (I15).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Abandonment {
    /// The epoch in which the cache failed.
    pub epoch: u32,
    /// The reason.
    pub reason: &'static str,
    /// Dirty blocks: newer in the cache than on their origin.
    pub unsaved: Vec<Unsaved>,
    /// The sequence number up to which each shard is durable: a cache that lacks some of that is
    /// not the cache that failed.
    pub promises: Vec<Promise>,
    /// The serial of each host's report in it, for [`crate::Host::recorded`].
    pub serials: Vec<u64>,
}

/// Sorted, with neighbours as one.
fn merged(mut unsaved: Vec<Unsaved>) -> Vec<Unsaved> {
    unsaved.sort_unstable_by_key(|range| (range.in_memory, range.volume.0, range.offset_bytes));
    let mut merged: Vec<Unsaved> = Vec::new();
    for range in unsaved {
        match merged.last_mut() {
            Some(last)
                if (last.in_memory, last.volume) == (range.in_memory, range.volume)
                    && last.offset_bytes + last.len_bytes == range.offset_bytes =>
            {
                last.len_bytes += range.len_bytes;
            }
            _ => merged.push(range),
        }
    }
    merged
}

#[cfg(test)]
mod tests {
    use forebay_engine::VolumeSlot;

    use super::*;

    fn report(offset_bytes: u64) -> Report {
        Report {
            serial: 1,
            epoch: 3,
            reason: "a test",
            unsaved: vec![Unsaved {
                volume: VolumeSlot(0),
                offset_bytes,
                len_bytes: 4096,
                in_memory: false,
            }],
            promises: Vec::new(),
        }
    }

    #[test]
    fn nothing_is_recorded_before_every_host_has_reported() {
        let mut reports = Reports::new(2);
        assert_eq!(reports.take(1, report(4096)), None);
        let all = reports.take(0, report(0)).expect("both have reported");
        let [only] = all.unsaved.as_slice() else {
            panic!("neighbours are one range: {all:?}")
        };
        assert_eq!((only.offset_bytes, only.len_bytes), (0, 8192));
    }
}
