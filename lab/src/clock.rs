//! The slow clock that the guest and its devices share.
//!
//! `guest ns = (host ns - origin) / D + skipped`. `lab/shim/dilate.c`, inside QEMU, reads the same
//! page and adds to `skipped` while nothing can happen before a known moment. The order of the
//! words is that file's too.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use anyhow::Context as _;
use forebay_io::SharedWords;
use rustix::time::{ClockId, clock_gettime};

const VERSION: usize = 0;
const RATE: usize = 1;
const ORIGIN: usize = 2;
const SKIPPED: usize = 3;
const ACTIVITY: usize = 4;
const SKIPS: usize = 5;
const MAY_SKIP: usize = 6;
const DEVICES: usize = 7;
const NEXT: usize = 8;
const MAX_DEVICES: usize = 8;

const AWAKE: u64 = 0;
const NEVER: u64 = i64::MAX as u64;

/// A clock that runs at 1/D of the host's.
#[derive(Debug)]
pub struct Clock {
    page: SharedWords,
    directory: PathBuf,
}

fn host_ns() -> u64 {
    let now = clock_gettime(ClockId::Monotonic);
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}

impl Clock {
    /// Starts a clock for `devices` devices; its page is a file in `directory`.
    ///
    /// # Errors
    /// If the page cannot be made.
    ///
    /// # Panics
    /// If there are more devices than the page has room for.
    pub fn start(
        directory: &Path,
        rate: f64,
        devices: usize,
        may_skip: bool,
    ) -> anyhow::Result<Clock> {
        assert!(devices <= MAX_DEVICES, "the clock's page has room for them");
        let path = directory.join("clock");
        let file = File::options()
            .read(true)
            .write(true)
            .create(true)
            .truncate(true)
            .open(&path)
            .with_context(|| format!("cannot make the clock's page {}", path.display()))?;
        let page = SharedWords::map(&file, NEXT + MAX_DEVICES)
            .with_context(|| format!("cannot map the clock's page {}", path.display()))?;
        let clock = Clock {
            page,
            directory: directory.to_owned(),
        };
        for (word, value) in [
            (RATE, rate.to_bits()),
            (ORIGIN, host_ns()),
            (MAY_SKIP, u64::from(may_skip)),
            (DEVICES, devices as u64),
        ] {
            clock.word(word).store(value, Ordering::SeqCst);
        }
        Ok(clock)
    }

    fn word(&self, index: usize) -> &AtomicU64 {
        &self.page.words()[index]
    }

    fn rate(&self) -> f64 {
        f64::from_bits(self.word(RATE).load(Ordering::SeqCst))
    }

    /// Guest time, in nanoseconds.
    #[must_use]
    pub fn now_ns(&self) -> u64 {
        loop {
            let version = self.word(VERSION).load(Ordering::SeqCst);
            let host = host_ns().saturating_sub(self.word(ORIGIN).load(Ordering::SeqCst));
            let now =
                (host as f64 / self.rate()) as u64 + self.word(SKIPPED).load(Ordering::SeqCst);
            if version.is_multiple_of(2) && self.word(VERSION).load(Ordering::SeqCst) == version {
                return now;
            }
        }
    }

    /// Goes on from now at another rate. Only a single thread may change it.
    pub fn set_rate(&self, rate: f64) {
        self.word(VERSION).fetch_add(1, Ordering::SeqCst);
        let now = host_ns();
        let passed = now.saturating_sub(self.word(ORIGIN).load(Ordering::SeqCst)) as f64;
        let origin = now as f64 - passed / self.rate() * rate;
        self.word(ORIGIN).store(origin as u64, Ordering::SeqCst);
        self.word(RATE).store(rate.to_bits(), Ordering::SeqCst);
        self.word(VERSION).fetch_add(1, Ordering::SeqCst);
    }

    /// The host's time for a wait in guest time, in nanoseconds.
    #[must_use]
    pub fn host_ns_for(&self, guest_ns: u64) -> u64 {
        (guest_ns as f64 * self.rate()) as u64
    }

    /// The number of times that idle time was skipped, and its sum in nanoseconds.
    #[must_use]
    pub fn skipped(&self) -> (u64, u64) {
        (
            self.word(SKIPS).load(Ordering::SeqCst),
            self.word(SKIPPED).load(Ordering::SeqCst),
        )
    }

    /// Where the page and the devices' wake-up sockets are.
    #[must_use]
    pub fn directory(&self) -> &Path {
        &self.directory
    }

    /// The socket that wakes a device after a skip.
    #[must_use]
    pub fn wake_path(&self, device: usize) -> PathBuf {
        self.directory.join(format!("wake.{device}"))
    }

    /// A device goes to sleep until its next event, if it has one ahead.
    pub fn sleep(&self, device: usize, next_event_ns: Option<u64>) {
        let next = next_event_ns.map_or(NEVER, |at_ns| at_ns.clamp(AWAKE + 1, NEVER - 1));
        self.word(NEXT + device).store(next, Ordering::SeqCst);
        self.word(ACTIVITY).fetch_add(1, Ordering::SeqCst);
    }

    /// A device does something, so no time may be skipped.
    pub fn wake(&self, device: usize) {
        self.word(NEXT + device).store(AWAKE, Ordering::SeqCst);
        self.word(ACTIVITY).fetch_add(1, Ordering::SeqCst);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scratch::Scratch;

    #[test]
    fn a_dilated_clock_is_slower_than_the_hosts() {
        let scratch = Scratch::new("clock");
        let clock = Clock::start(scratch.path(), 1000.0, 1, false).unwrap();
        let before = host_ns();
        let guest = clock.now_ns();
        std::thread::sleep(std::time::Duration::from_millis(20));
        let passed = clock.now_ns() - guest;
        let host = host_ns() - before;
        assert!(
            passed >= 19_000 && passed <= host / 999,
            "{passed} of {host}"
        );
        assert_eq!(clock.host_ns_for(1000), 1_000_000);
    }
}
