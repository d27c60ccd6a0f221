//! The rate of long writes in the long run, with the flushes among them.
//!
//! A device takes a burst into memory of its own, a disk 64 MiB and four disks 256, so that its rate
//! over a few MiB says nothing of the rate at which it goes on. So a window ends with a flush, which
//! leaves nothing there. One in which the device was idle for most of the time does not count: it
//! emptied its memory meanwhile.

use crate::interface::Nanos;

/// A window has so many bytes at least.
const WINDOW_BYTES: u64 = 64 << 20;
/// A rate that was not renewed for so long tells nothing of now: an SSD left alone recovers, and a
/// disk has other clients. Long, as a device that is the slower one is not written to meanwhile, and
/// each attempt costs a window.
const STALE: Nanos = Nanos(60 * Nanos::SECOND.0);

/// Long writes and flushes of a device.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct LongRun {
    in_flight: u32,
    /// The beginning of the window.
    began_at: Option<Nanos>,
    busy_since: Nanos,
    busy: Nanos,
    bytes: u64,
    /// The last window, and its end.
    known: Option<(Rates, Nanos)>,
}

/// Rates of a device in a window, in bytes a second.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Rates {
    /// Of the time in which it was busy: it may have emptied its memory in the rest.
    pub(super) while_busy: u64,
    /// Of all time: no more than it can go on with.
    pub(super) lasting: u64,
}

impl LongRun {
    pub(super) fn begins(&mut self, now: Nanos) {
        if self.in_flight == 0 {
            self.busy_since = now;
        }
        self.began_at.get_or_insert(now);
        self.in_flight += 1;
    }

    /// A long write of so many bytes has ended, or a flush.
    pub(super) fn ends(&mut self, now: Nanos, written_bytes: Option<u64>) {
        self.in_flight -= 1;
        self.busy.0 += now.since(self.busy_since).0;
        self.busy_since = now;
        if let Some(bytes) = written_bytes {
            self.bytes += bytes;
        } else if self.bytes >= WINDOW_BYTES {
            let took = now.since(self.began_at.unwrap_or(now));
            if self.busy.0 >= took.0 / 2 {
                let rates = Rates {
                    while_busy: rate(self.bytes, self.busy),
                    lasting: rate(self.bytes, took),
                };
                self.known = Some((rates, now));
            }
            (self.bytes, self.busy, self.began_at) = (0, Nanos(0), None);
        }
    }

    /// A device that refuses has no rate.
    pub(super) fn fails(&mut self) {
        self.in_flight -= 1;
        (self.bytes, self.busy, self.known) = (0, Nanos(0), None);
        self.began_at = None;
    }

    /// The rates, if they are known. Of a window that no flush has ended yet the device may still hold a
    /// part in its memory, so that its rate is the most that the device can go on with. A stream that
    /// nobody flushes would hide for its whole length that the window before was too good.
    pub(super) fn rates(&self, now: Nanos) -> Option<Rates> {
        let (rates, at) = self.known?;
        let most = match self.bytes {
            WINDOW_BYTES.. => rate(self.bytes, self.busy),
            _ => u64::MAX,
        };
        let rates = Rates {
            while_busy: rates.while_busy.min(most),
            lasting: rates.lasting.min(most),
        };
        (now.since(at) <= STALE).then_some(rates)
    }
}

/// Bytes a second.
fn rate(bytes: u64, time: Nanos) -> u64 {
    (bytes as f64 * 1e9 / time.0.max(1) as f64) as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Writes of 1 MiB one after the other, each of which takes so long, a flush after each eight.
    fn writes(run: &mut LongRun, now: &mut Nanos, count: u32, each: Nanos, flush: Nanos) {
        for at in 1..=count {
            run.begins(*now);
            *now = now.after(each);
            run.ends(*now, Some(1 << 20));
            if at.is_multiple_of(8) {
                run.begins(*now);
                *now = now.after(flush);
                run.ends(*now, None);
            }
        }
    }

    #[test]
    fn flushes_count_and_a_burst_does_not() {
        let (mut run, mut now) = (LongRun::default(), Nanos(0));
        writes(&mut run, &mut now, 63, Nanos(2_000_000), Nanos(0));
        assert_eq!(run.rates(now), None, "a burst");
        run.begins(now);
        run.ends(now, Some(1 << 30));
        assert_eq!(run.rates(now), None, "no flush has shown what it holds");
        let (mut run, mut now) = (LongRun::default(), Nanos(0));
        writes(&mut run, &mut now, 256, Nanos(2_000_000), Nanos(64_000_000));
        // 2 ms a MiB, and 8 for its part of a flush.
        let rate = run.rates(now).expect("known").while_busy;
        assert!((100_000_000..112_000_000).contains(&rate), "{rate}");
    }

    #[test]
    fn a_device_that_is_mostly_idle_shows_no_rate() {
        let (mut run, mut now) = (LongRun::default(), Nanos(0));
        for _ in 0..32 {
            writes(&mut run, &mut now, 8, Nanos(2_000_000), Nanos(2_000_000));
            now = now.after(Nanos(40_000_000));
        }
        assert_eq!(run.rates(now), None);
    }

    #[test]
    fn a_pause_between_bursts_is_no_speed() {
        let (mut run, mut now) = (LongRun::default(), Nanos(0));
        for _ in 0..8 {
            writes(&mut run, &mut now, 8, Nanos(2_000_000), Nanos(2_000_000));
            now = now.after(Nanos(14_000_000));
        }
        let rates = run.rates(now).expect("known");
        assert!(rates.while_busy > 440_000_000, "{rates:?}");
        assert!(rates.lasting < 300_000_000, "{rates:?}");
    }

    #[test]
    fn a_stream_without_a_flush_is_no_faster_than_it_goes() {
        let (mut run, mut now) = (LongRun::default(), Nanos(0));
        writes(&mut run, &mut now, 64, Nanos(2_000_000), Nanos(0));
        assert!(
            run.rates(now)
                .is_some_and(|rates| rates.lasting > 500_000_000)
        );
        let unflushed = |run: &mut LongRun, now: &mut Nanos, count: u32, each: Nanos| {
            for _ in 0..count {
                run.begins(*now);
                *now = now.after(each);
                run.ends(*now, Some(1 << 20));
            }
        };
        unflushed(&mut run, &mut now, 63, Nanos(8_000_000));
        assert!(
            run.rates(now)
                .is_some_and(|rates| rates.lasting > 500_000_000)
        );
        unflushed(&mut run, &mut now, 1, Nanos(8_000_000));
        let rates = run.rates(now).expect("known");
        assert!(rates.lasting < 132_000_000, "{rates:?}");
        unflushed(&mut run, &mut now, 1000, Nanos(1_000_000));
        let rates = run.rates(now).expect("known");
        assert!(rates.lasting > 400_000_000, "it recovered: {rates:?}");
    }

    #[test]
    fn a_rate_is_forgotten_after_a_minute_or_a_failure() {
        let (mut run, mut now) = (LongRun::default(), Nanos(0));
        writes(&mut run, &mut now, 64, Nanos(2_000_000), Nanos(0));
        assert!(run.rates(now).is_some());
        assert!(run.rates(now.after(Nanos(61 * Nanos::SECOND.0))).is_none());
        run.begins(now);
        run.fails();
        assert!(run.rates(now).is_none());
    }
}
