//! Inputs that take too long, or never end.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};

/// The CPU time that no input may take.
pub const MOST: Duration = Duration::from_millis(100);
/// Time between two looks at the seed that is run.
const LOOK: Duration = Duration::from_secs(20);

/// CPU time of this thread.
#[must_use]
pub fn cpu_time() -> Duration {
    let now = clock_gettime(ClockId::ThreadCPUTime);
    let (seconds, nanos) = (now.tv_sec.unsigned_abs(), now.tv_nsec.unsigned_abs());
    Duration::from_secs(seconds) + Duration::from_nanos(nanos)
}

/// A thread that ends the process if an input hangs: no other thread could stop it.
#[derive(Debug)]
pub struct Watchdog {
    seed: Arc<AtomicU64>,
    ended: Arc<AtomicBool>,
}

impl Watchdog {
    /// Watches from now on.
    #[must_use]
    pub fn start(surface: &'static str) -> Watchdog {
        let seed = Arc::new(AtomicU64::new(0));
        let ended = Arc::new(AtomicBool::new(false));
        let (watched, over) = (Arc::clone(&seed), Arc::clone(&ended));
        std::thread::spawn(move || {
            let mut last = 0;
            while !over.load(Ordering::Relaxed) {
                std::thread::park_timeout(LOOK);
                let now = watched.load(Ordering::Relaxed);
                if now != 0 && now == last && !over.load(Ordering::Relaxed) {
                    eprintln!("{surface}: the input of seed {now} hangs");
                    std::process::abort();
                }
                last = now;
            }
        });
        Watchdog { seed, ended }
    }

    /// Notes which seed is run.
    pub fn note(&self, seed: u64) {
        self.seed.store(seed, Ordering::Relaxed);
    }
}

impl Drop for Watchdog {
    fn drop(&mut self) {
        self.ended.store(true, Ordering::Relaxed);
    }
}
