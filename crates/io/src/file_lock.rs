//! Locks on files that are devices, against every other user that can be seen.
//!
//! | user | how it is kept away |
//! |---|---|
//! | another daemon of ours | flock(2) |
//! | QEMU, libvirt | locks of byte ranges (fcntl(2), `F_OFD_SETLK`), which flock does not see |
//! | a loop device | takes no lock; sysfs names its file |

use std::fs::{File, Metadata};
use std::io;
use std::os::fd::AsRawFd;
use std::path::Path;

use crate::device::{IN_USE_TIMEOUT, OpenError};
use crate::probe;
use crate::retry::retry_for;

/// Locks an open file, shared if it is only read.
///
/// # Errors
/// If somebody else uses it.
pub(crate) fn lock(
    path: &Path,
    file: &File,
    metadata: &Metadata,
    read_only: bool,
) -> Result<(), OpenError> {
    if !read_only && let Some(device) = probe::loop_device_of(metadata) {
        return Err(OpenError::Busy {
            path: path.to_owned(),
            reason: format!("is the file of {device}"),
            remedy: "use the loop device in its place, or detach it (losetup -d), and try again",
        });
    }
    let attempt = || lock_whole(file, read_only).and_then(|()| lock_bytes(file, read_only));
    let locked = |error: &io::Error| error.kind() == io::ErrorKind::WouldBlock;
    retry_for(IN_USE_TIMEOUT, attempt, locked).map_err(|source| {
        if locked(&source) {
            OpenError::Busy {
                path: path.to_owned(),
                reason: "is locked by another process".to_owned(),
                remedy: "find it with lslocks or fuser, stop it, and try again",
            }
        } else {
            OpenError::Io {
                path: path.to_owned(),
                doing: "lock",
                source,
            }
        }
    })
}

/// On SMB both kinds are one lock of the server's, and the second could be refused for the first.
fn is_on_smb(file: &File) -> bool {
    const CIFS: u32 = 0xff53_4d42;
    const SMB2: u32 = 0xfe53_4d42;
    // SAFETY: statfs has numbers only, of which 0 is one.
    let mut found: libc::statfs = unsafe { std::mem::zeroed() };
    // SAFETY: fstatfs takes a descriptor, which `file` keeps open, and writes the struct.
    let told = unsafe { libc::fstatfs(file.as_raw_fd(), &raw mut found) } == 0;
    told && [CIFS, SMB2].contains(&(found.f_type as u32))
}

/// Locks a file by flock(2), shared if it is only read; `WouldBlock` if somebody else has it.
pub(crate) fn lock_whole(file: &File, read_only: bool) -> io::Result<()> {
    let kind = if read_only {
        libc::LOCK_SH
    } else {
        libc::LOCK_EX
    };
    // SAFETY: flock takes a descriptor, which `file` keeps open.
    match unsafe { libc::flock(file.as_raw_fd(), kind | libc::LOCK_NB) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

fn lock_bytes(file: &File, read_only: bool) -> io::Result<()> {
    if is_on_smb(file) {
        return Ok(());
    }
    let kind = if read_only {
        libc::F_RDLCK
    } else {
        libc::F_WRLCK
    };
    // SAFETY: all fields are numbers, of which 0 is one: from the beginning to the end, whatever that
    // becomes, of no process but of this open file.
    let mut all: libc::flock = unsafe { std::mem::zeroed() };
    all.l_type = kind as libc::c_short;
    all.l_whence = libc::SEEK_SET as libc::c_short;
    // SAFETY: fcntl takes a descriptor, which `file` keeps open, and reads the struct.
    if unsafe { libc::fcntl(file.as_raw_fd(), libc::F_OFD_SETLK, &raw const all) } == 0 {
        return Ok(());
    }
    let error = io::Error::last_os_error();
    match error.raw_os_error() {
        Some(libc::EAGAIN | libc::EACCES) => Err(io::ErrorKind::WouldBlock.into()),
        // A file system without such locks has no other user that takes them either.
        _ => Ok(()),
    }
}
