//! Another device in the place of one of the cache's, that is sound or lost (I28).
//!
//! 1. The new device is added. 2. Dirty data is on two devices again, if it is to be. 3. The old one
//!    leaves. Whoever interrupts it finds the cache with one device more than before.

use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};

use super::resize::{Emptying, Resized};
use crate::daemon::state::Daemon;
use crate::failure::{Interrupted, refuse};

/// Interval between looks at what is still to be copied.
const LOOK: Duration = Duration::from_millis(100);

impl Daemon {
    /// Puts `new` in the place of `old`. The contents of `new` are lost, which is refused without
    /// `force`. `tell` hears the progress, and ends it by saying that nobody listens.
    pub(super) fn replace_cache_device(
        &self,
        old: &Path,
        new: &Path,
        force: bool,
        tell: &mut dyn FnMut(Emptying) -> bool,
    ) -> Result<Resized> {
        let began = Instant::now();
        let number = self.number_of(old)?;
        let added = self.add_cache_device(new, force)?;
        self.wait_for_two(new, tell)?;
        let removed = self
            .remove_cache_device((number, old), tell)
            .with_context(|| in_both(old, new))?;
        Ok(Resized {
            before_bytes: added.before_bytes,
            seconds: began.elapsed().as_secs_f64(),
            ..removed
        })
    }

    /// Waits until all dirty data that is to be on two devices is.
    fn wait_for_two(&self, new: &Path, tell: &mut dyn FnMut(Emptying) -> bool) -> Result<()> {
        let began = Instant::now();
        let mut most = 0;
        loop {
            let exposed = self.exposed()?;
            if exposed.is_none() {
                return Ok(());
            }
            if let Some(failure) = self.after_failure() {
                refuse!("{failure}");
            }
            most = most.max(exposed.bytes);
            let goes_on = tell(Emptying {
                left_bytes: exposed.bytes,
                all_bytes: most,
                seconds: began.elapsed().as_secs_f64(),
            });
            if !goes_on {
                let what = format!(
                    "{} is in the cache and stays, and so does the device that was to leave",
                    new.display()
                );
                return Err(Interrupted(what).into());
            }
            std::thread::sleep(LOOK);
        }
    }
}

fn in_both(old: &Path, new: &Path) -> String {
    format!(
        "{} is in the cache, and {} did not leave it: give `forebay cache remove {1}` once the cause is mended",
        new.display(),
        old.display()
    )
}
