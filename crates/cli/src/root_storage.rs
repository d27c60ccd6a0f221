//! A daemon that the root file system is on, as <https://systemd.io/ROOT_STORAGE_DAEMONS> has it:
//! started in the initramfs, it goes on when that is left.
//!
//! Its supervisor ([`crate::commands`]) has made /proc/1 the working directory of both. Nothing
//! else leads from an initramfs that was left to the root that took its place: `root` in that
//! directory is the root of process 1, whichever that is by now.
//!
//! A daemon that takes another's place has that root, and may read nothing in it before it serves:
//! it would wait for itself. /dev, /proc, /run and /sys are other file systems, in memory, whose
//! mount points the kernel keeps at hand; all else it needs is in a directory in /run.

use std::os::unix::fs::{MetadataExt, chroot};
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result};

use crate::{failure, thread};

/// A copy of the configuration in the daemon's directory in memory: before the daemon serves nobody
/// can read the file itself.
pub(crate) fn configuration(directory: &Path) -> PathBuf {
    directory.join("configuration")
}

/// Makes the copy, or makes it anew of a file that has changed.
///
/// # Errors
/// If the file cannot be read or the copy not be written.
pub(crate) fn copy_configuration(file: &Path, directory: &Path) -> std::io::Result<()> {
    let copy = configuration(directory);
    let new = copy.with_extension("new");
    std::fs::copy(file, &new)?;
    std::fs::rename(&new, &copy)
}

/// The root of process 1, from the working directory.
const ROOT_OF_INIT: &str = "root";
/// Interval at which it is looked for. Until it is found, paths lead into what is left of the
/// initramfs: no command that needs a path can reach the daemon by then.
const INTERVAL: Duration = Duration::from_millis(200);

/// Makes the daemon independent of its own volumes, and has it follow process 1.
///
/// # Errors
/// If the root of process 1 cannot be found, or a thread cannot be started.
pub(crate) fn settle() -> Result<()> {
    stay_in_memory();
    if !follow().context(
        "cannot find the root of process 1 from the working directory, which must be /proc/1",
    )? {
        thread::start("forebay-root", wait_for_another)?;
    }
    Ok(())
}

/// A page of the daemon that had to be read from the daemon's own volume would never come; nor
/// would one that the kernel must make room for by writing to that volume.
pub(crate) fn stay_in_memory() {
    // Threads and processes that come of this one have it too.
    if let Err(error) = forebay_io::ublk::serve_storage_from_this_thread() {
        tracing::warn!(
            "the kernel may wait for its own devices when memory is short: {}",
            failure::in_words(&error)
        );
    }
    if let Err(error) = forebay_io::lock_all_memory() {
        tracing::warn!(
            "memory cannot be kept from being paged out ({}): when it runs short, the machine may stand still",
            failure::in_words(&error)
        );
    }
}

/// Takes on the root of process 1; whether that was another.
fn follow() -> std::io::Result<bool> {
    let identity = |path: &str| std::fs::metadata(path).map(|found| (found.dev(), found.ino()));
    if identity("/")? == identity(ROOT_OF_INIT)? {
        return Ok(false);
    }
    chroot(ROOT_OF_INIT)?;
    Ok(true)
}

fn wait_for_another() {
    loop {
        std::thread::sleep(INTERVAL);
        match follow() {
            Ok(false) => {}
            Ok(true) => {
                tracing::info!("the initramfs was left for the root file system");
                return;
            }
            Err(error) => {
                tracing::error!(
                    "cannot go over to the root file system: {}; the volumes are served, and whatever needs a path fails until the next boot",
                    failure::in_words(&error)
                );
                return;
            }
        }
    }
}
