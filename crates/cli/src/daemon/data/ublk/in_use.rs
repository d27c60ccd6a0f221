//! Whether a block device can be taken away without anyone losing it.
//!
//! | user | how it is found |
//! |---|---|
//! | a mount, LVM, a RAID, swap | has a claim: an exclusive open fails |
//! | a program that has it open without a claim, as QEMU | is among the files of a process, where this one may see them |
//! | any that is left | the driver refuses to stop the device, since Linux 7.0 (see [`super::export::remove`]) |

use std::fs::{self, OpenOptions};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::time::Duration;

use forebay_io::retry_for;

/// O_EXCL of open(2): of a block device, fails while it is mounted or otherwise claimed.
const EXCLUSIVE: i32 = 0o200;

/// The longest time that somebody may look at a device without using it: udev does after each program
/// that wrote to it.
pub(super) const LOOK_TIMEOUT: Duration = Duration::from_secs(2);

/// Advice about a user of a volume's block device that a detach or a hand-over would take away.
pub(crate) const TAKE_OUT_OF_USE: &str = "unmount it or take it out of use first";
/// Likewise, of a stop.
pub(crate) const TAKE_OUT_OF_USE_OR_KEEP: &str = "unmount it or take it out of use first, or have its users wait for the next daemon with --keep-devices";

/// Says who uses a volume's block device.
pub(crate) fn in_use_by(user: &str, device: &str, volume: &str) -> String {
    format!("{device} (volume {volume}) is {user}")
}

/// The user of a block device, in words for a message, if one can be seen: it is mounted, part of LVM
/// or a RAID, swapped to, or open in a program.
pub(crate) fn user_of(path: &Path) -> io::Result<Option<String>> {
    let opened = OpenOptions::new()
        .read(true)
        .custom_flags(EXCLUSIVE)
        .open(path);
    match opened {
        Ok(opened) => {
            drop(opened);
            Ok(opener_of(path))
        }
        Err(error) if error.kind() == io::ErrorKind::ResourceBusy => {
            let user = forebay_io::block_device_user(path)?;
            Ok(Some(user.unwrap_or_else(|| "in use".to_owned())))
        }
        Err(error) => Err(error),
    }
}

/// A program that has a block device or a partition of it open, in words for a message, if this process
/// may see its files. One that only looks at the device is waited for.
pub(crate) fn opener_of(path: &Path) -> Option<String> {
    let looked = || opener_now(path).map_or(Ok(()), Err);
    retry_for(LOOK_TIMEOUT, looked, |_| true).err()
}

/// Files are told by their names: to look at each one could take as long as an origin that hangs.
fn opener_now(path: &Path) -> Option<String> {
    let processes = fs::read_dir("/proc").ok()?.flatten();
    for process in processes.map(|entry| entry.path()) {
        let number = process.file_name().unwrap_or_default().to_string_lossy();
        // The others are this process by another name, or none.
        if !number.bytes().all(|byte| byte.is_ascii_digit()) {
            continue;
        }
        // What goes meanwhile, and what this process may not see, is passed over.
        let Ok(files) = fs::read_dir(process.join("fd")) else {
            continue;
        };
        let mut files = files
            .flatten()
            .filter_map(|file| file.path().read_link().ok());
        if files.any(|file| is_of(path, &file)) {
            let name = fs::read_to_string(process.join("comm")).unwrap_or_default();
            return Some(format!("open in {} (process {number})", name.trim()));
        }
    }
    None
}

/// Whether a file is a block device whose name ends in a digit, or a partition of it.
fn is_of(device: &Path, file: &Path) -> bool {
    let [device, file] = [device, file].map(|path| path.as_os_str().as_bytes());
    match file.strip_prefix(device) {
        Some([]) => true,
        Some([b'p', number @ ..]) => {
            !number.is_empty() && number.iter().all(|byte| byte.is_ascii_digit())
        }
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_that_has_it_open_is_its_user_until_it_closes_it() {
        let path = std::env::temp_dir().join(format!("fb-in-use-{}", std::process::id()));
        let file = fs::File::create(&path).unwrap();
        let user = opener_now(&path).unwrap();
        let number = std::process::id();
        assert!(user.contains(&format!("(process {number})")), "{user}");
        drop(file);
        assert_eq!(user_of(&path).unwrap(), None);
        fs::remove_file(&path).unwrap();
    }

    #[test]
    fn partitions_are_told_from_other_devices() {
        let is_of = |file: &str| is_of("/dev/ublkb1".as_ref(), file.as_ref());
        assert!(is_of("/dev/ublkb1") && is_of("/dev/ublkb1p12"));
        for other in [
            "/dev/ublkb12",
            "/dev/ublkb",
            "/dev/ublkb1p",
            "/dev/ublkb1p1 (deleted)",
        ] {
            assert!(!is_of(other), "{other}");
        }
    }
}
