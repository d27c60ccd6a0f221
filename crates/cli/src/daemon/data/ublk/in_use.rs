//! Whether a block device can be taken away without anyone losing it.

use std::fs::OpenOptions;
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

/// O_EXCL of open(2): of a block device, fails while it is mounted or otherwise claimed.
const EXCLUSIVE: i32 = 0o200;

/// The user of a block device, in words for a message, if it is claimed: mounted, part of LVM or a
/// RAID, swapped to.
pub(crate) fn user_of(path: &Path) -> io::Result<Option<String>> {
    let opened = OpenOptions::new()
        .read(true)
        .custom_flags(EXCLUSIVE)
        .open(path);
    match opened {
        Ok(_) => Ok(None),
        Err(error) if error.kind() == io::ErrorKind::ResourceBusy => {
            let user = forebay_io::block_device_user(path)?;
            Ok(Some(user.unwrap_or_else(|| "in use".to_owned())))
        }
        Err(error) => Err(error),
    }
}
