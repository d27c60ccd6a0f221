//! Operations of devices that failed lately: which device, what, and the kernel's reason. The first
//! of a kind is logged at once, and then one a minute with a count.

use std::collections::BTreeMap;
use std::io;
use std::path::PathBuf;
use std::sync::Mutex;
use std::time::{Duration, Instant};

use forebay_io::FailedOperation;

use crate::failure::in_words;
use crate::lock::lock;
use crate::report::status::FailingDevice;

/// Interval of log lines of a kind, and how long a failure is told of.
const MINUTE: Duration = Duration::from_secs(60);

/// Failures by device and operation.
#[derive(Debug, Default)]
pub(in crate::daemon) struct Failing(Mutex<BTreeMap<(PathBuf, &'static str), Failures>>);

#[derive(Debug)]
struct Failures {
    error: String,
    last: Instant,
    logged: Instant,
    left_out: u64,
}

impl Failing {
    /// Notes a failure.
    pub(in crate::daemon) fn note(&self, failed: &FailedOperation) {
        if let Some(line) = self.line(failed, Instant::now()) {
            tracing::warn!("{line}");
        }
    }

    /// The line for the log, if it is time for one.
    fn line(&self, failed: &FailedOperation, now: Instant) -> Option<String> {
        let path = failed.device.path();
        let error = cause(failed.errno);
        let line = format!(
            "cannot {} {} bytes at {} of {}: {error}",
            failed.doing,
            failed.len_bytes,
            failed.offset_bytes,
            path.display()
        );
        let mut known = lock(&self.0);
        let before = known.get_mut(&(path.to_owned(), failed.doing));
        let Some(failures) = before else {
            let failures = Failures {
                error,
                last: now,
                logged: now,
                left_out: 0,
            };
            known.insert((path.to_owned(), failed.doing), failures);
            return Some(line);
        };
        failures.last = now;
        let is_new = failures.error != error;
        failures.error = error;
        if !is_new && now.saturating_duration_since(failures.logged) < MINUTE {
            failures.left_out += 1;
            return None;
        }
        failures.logged = now;
        Some(match std::mem::take(&mut failures.left_out) {
            0 => line,
            more => format!("{line}; {more} more since the last such line"),
        })
    }

    /// Devices with failures in the last minute.
    pub(super) fn lately(&self) -> Vec<FailingDevice> {
        let known = lock(&self.0);
        let told = known.iter().map(|((path, doing), failures)| {
            let ago = failures.last.elapsed();
            let device = FailingDevice {
                device: path.display().to_string(),
                doing: (*doing).to_owned(),
                error: failures.error.clone(),
                seconds_ago: ago.as_secs_f64(),
            };
            (ago, device)
        });
        told.filter(|(ago, _)| *ago < MINUTE)
            .map(|(_, device)| device)
            .collect()
    }
}

/// The kernel's reason in words. Without one the device ended before its operation did.
fn cause(errno: Option<i32>) -> String {
    match errno {
        Some(errno) => in_words(&io::Error::from_raw_os_error(errno)),
        None => "it ends before that; was it cut short?".to_owned(),
    }
}
