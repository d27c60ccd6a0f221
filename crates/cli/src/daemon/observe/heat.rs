//! Where on a volume requests go, and when: counts for each part of its address space and each
//! half minute of the last hour, 31 kB for each volume at most.

use std::collections::VecDeque;

use forebay_engine::Nanos;
use serde::Serialize;

/// Parts of the address space, each as large.
const PARTS: usize = 64;
const ROW_SECONDS: u64 = 30;
/// Half minutes in an hour.
const ROWS: u64 = 120;

#[derive(Debug)]
struct Row {
    /// Half minutes since the daemon started.
    number: u64,
    requests: [u32; PARTS],
}

/// The heat of one volume.
#[derive(Debug)]
pub(super) struct Heat {
    /// Of each part of the address space. The last may be shorter.
    part_bytes: u64,
    rows: VecDeque<Row>,
}

/// A row of heat, as reported.
#[derive(Debug, Serialize)]
pub(super) struct HeatRow {
    /// Rows between this row and the present one.
    pub(super) rows_ago: u64,
    /// Requests that touched each part of the address space, from its beginning.
    pub(in crate::daemon) requests: Vec<u32>,
}

impl Heat {
    pub(in crate::daemon) fn new(size_bytes: u64) -> Heat {
        Heat {
            part_bytes: size_bytes.div_ceil(PARTS as u64).max(1),
            rows: VecDeque::new(),
        }
    }

    /// Counts over a larger address space, from nothing.
    pub(super) fn grow(&mut self, size_bytes: u64) {
        *self = Heat::new(size_bytes);
    }

    pub(in crate::daemon) fn see(&mut self, at: Nanos, offset_bytes: u64, len_bytes: u32) {
        let number = row_number(at);
        if self.rows.back().is_none_or(|last| last.number < number) {
            self.rows.push_back(Row {
                number,
                requests: [0; PARTS],
            });
            let oldest = (number + 1).saturating_sub(ROWS);
            while self.rows.front().is_some_and(|row| row.number < oldest) {
                self.rows.pop_front();
            }
        }
        let last_byte = offset_bytes + u64::from(len_bytes.max(1)) - 1;
        let parts = self.part(offset_bytes)..=self.part(last_byte);
        // Threads take requests off in turn, so that one may come a moment late: it counts as new.
        if let Some(row) = self.rows.back_mut() {
            for count in &mut row.requests[parts] {
                *count = count.saturating_add(1);
            }
        }
    }

    fn part(&self, offset_bytes: u64) -> usize {
        ((offset_bytes / self.part_bytes) as usize).min(PARTS - 1)
    }

    /// The rows of the last hour in which there were requests, the oldest first.
    pub(super) fn rows(&self, now: Nanos) -> Vec<HeatRow> {
        let present = row_number(now);
        let rows = self.rows.iter().map(|row| HeatRow {
            rows_ago: present.saturating_sub(row.number),
            requests: row.requests.to_vec(),
        });
        rows.filter(|row| row.rows_ago < ROWS).collect()
    }
}

fn row_number(at: Nanos) -> u64 {
    at.0 / (ROW_SECONDS * Nanos::SECOND.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn second(number: u64) -> Nanos {
        Nanos(number * Nanos::SECOND.0)
    }

    #[test]
    fn requests_count_where_and_when_they_are() {
        let mut heat = Heat::new(64 << 20);
        heat.see(second(1), 0, 4096);
        heat.see(second(2), (1 << 20) - 1, 2);
        heat.see(second(40), u64::from(u32::MAX), 4096);
        let rows = heat.rows(second(65));
        assert_eq!(rows.len(), 2);
        assert_eq!((rows[0].rows_ago, rows[1].rows_ago), (2, 1));
        assert_eq!(rows[0].requests[..3], [2, 1, 0]);
        assert_eq!(rows[1].requests[PARTS - 1], 1);
    }

    #[test]
    fn an_hour_is_kept() {
        let mut heat = Heat::new(1 << 20);
        for half_minute in 0..1000 {
            heat.see(second(half_minute * ROW_SECONDS), 0, 1);
        }
        assert_eq!(heat.rows.len() as u64, ROWS);
        assert_eq!(heat.rows(second(1000 * ROW_SECONDS)).len() as u64, ROWS - 1);
        assert!(heat.rows(second(3000 * ROW_SECONDS)).is_empty());
    }
}
