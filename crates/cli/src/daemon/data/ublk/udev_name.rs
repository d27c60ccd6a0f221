//! The volume's name, told to udev before a block device's first event. The rule in
//! `packaging/udev` makes a link of it, which is how systemd learns that `/dev/forebay/NAME` is
//! there.

use std::io;
use std::path::{Path, PathBuf};

use crate::device::run_dir::run_dir;

fn note(number: u32) -> PathBuf {
    run_dir().join("udev").join(format!("ublkb{number}"))
}

/// Leaves a note for a device that is about to come.
pub(in crate::daemon) fn leave(name: &str, number: u32) -> io::Result<()> {
    if !is_plain(name) {
        return Err(io::Error::other(format!(
            "`{name}` has characters that are not for the name of a device; `forebay rename` gives the volume another"
        )));
    }
    let path = note(number);
    if let Some(directory) = path.parent() {
        std::fs::create_dir_all(directory)?;
    }
    std::fs::write(path, format!("FOREBAY_VOLUME={name}\n"))
}

/// Leaves another note for a device that is there, and has udev look at it again.
pub(in crate::daemon) fn change(name: &str, number: u32) -> io::Result<()> {
    // Without a note udev takes the old name away at least.
    forget(number);
    let left = leave(name, number);
    let disk = PathBuf::from(format!("/sys/class/block/ublkb{number}"));
    look_again(&disk)?;
    // Names of partitions are made of the disk's; udev comes to them after it.
    for entry in std::fs::read_dir(&disk)?.flatten() {
        if entry.path().join("partition").exists() {
            look_again(&entry.path())?;
        }
    }
    left
}

fn look_again(device: &Path) -> io::Result<()> {
    std::fs::write(device.join("uevent"), "change")
}

/// Removes it with the device.
pub(super) fn forget(number: u32) {
    // There is none for a name that udev cannot have.
    let _ = std::fs::remove_file(note(number));
}

/// The characters that udev leaves alone in a link's name, without the slash.
fn is_plain(name: &str) -> bool {
    let allowed = |byte: u8| byte.is_ascii_alphanumeric() || b"#+-.:=@_".contains(&byte);
    !name.is_empty() && !name.starts_with('.') && name.bytes().all(allowed)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_that_udev_would_change_are_not_for_it() {
        assert!(is_plain("sdb") && is_plain("vg0-root.img"));
        for name in ["", "..", ".hidden", "a b", "a/b", "a\"b", "a\nB=1", "ä"] {
            assert!(!is_plain(name), "{name}");
        }
    }
}
