//! Another device in the place of one of the cache's, that is sound or lost (I28).
//!
//! 1. The new device is added. 2. Dirty data is on two devices again, if it is to be. 3. The old one
//!    leaves. Whoever interrupts it finds the cache with one device more than before.

use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};

use super::reload::keep_in_memory;
use super::resize::{Emptying, Resized};
use crate::config;
use crate::daemon::state::Daemon;
use crate::device::same_device::Identity;
use crate::failure::{Interrupted, refuse};
use crate::lock::lock;

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
        self.prepare_under_root(old, new)?;
        // It may be in the cache since an attempt that was interrupted.
        let before_bytes = match self.space_with(new, number)? {
            Some(before_bytes) => before_bytes,
            None => self.add_cache_device(new, force)?.before_bytes,
        };
        self.wait_for_two(new, tell)?;
        let removed = self
            .remove_cache_device((number, old), tell)
            .with_context(|| in_both(old, new))?;
        Ok(Resized {
            before_bytes,
            seconds: began.elapsed().as_secs_f64(),
            ..removed
        })
    }

    /// Refuses what the next daemon would not know of, if the root file system is on a volume: it has
    /// its configuration alone, as the initramfs has it. So that one has to name both devices, of which
    /// the new one is left out until it is in the cache, and the old one from when it has left.
    fn prepare_under_root(&self, old: &Path, new: &Path) -> Result<()> {
        if !self.is_under_root() {
            return Ok(());
        }
        let plan = lock(&self.plan);
        let source = plan.source.as_ref();
        let source = source.context("the root file system is on a volume of a file")?;
        let planned = config::plan((**source).clone())?;
        let waiting = plan.needs_restart_for(&planned);
        let devices = planned.cache.map(|cache| cache.devices).unwrap_or_default();
        let named: Vec<Identity> = devices.iter().map(|named| Identity::of(named)).collect();
        let names = |device: &Path| named.contains(&Identity::of(device));
        let file = source.config.as_deref().unwrap_or(Path::new("the file"));
        if !names(new) || !names(old) {
            refuse!(
                "the root file system is on this cache, and the next daemon knows {file} only: write {new} there beside {old}, \
                 make the initramfs anew, and give this command again",
                file = file.display(),
                new = new.display(),
                old = old.display(),
            );
        }
        if let Some(other) = waiting.iter().find(|other| **other != "[cache]") {
            refuse!(
                "{} also has a change that waits for a restart ({other}), and the next daemon would have it: take it back first",
                file.display()
            );
        }
        keep_in_memory(source)
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
        "{} is in the cache, and {} did not leave it: give the same command again once the cause is mended",
        new.display(),
        old.display()
    )
}
