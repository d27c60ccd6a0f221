//! Real devices: block devices and regular files, opened for this process alone.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::os::unix::fs::{FileTypeExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use forebay_engine::{DeviceError, Stripe};

use crate::blocking::BlockingStorage;
use crate::file_lock;
use crate::probe::{self, Numbers};
use crate::recording::{Recorder, Recording};
use crate::remote::{Remote, RemoteFacts};
use crate::retry::retry_for;

/// Whether a device must be used past the page cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DirectIo {
    /// Refuse a file system that cannot.
    Required,
    /// Use the page cache where it cannot be avoided.
    IfPossible,
}

/// Options for opening a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OpenHow {
    /// Whether it must be used past the page cache.
    pub direct: DirectIo,
    /// Whether it is only read.
    pub read_only: bool,
}

/// Kind of the file that holds the data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DeviceKind {
    /// A block device.
    Block,
    /// A regular file.
    File,
    /// A server on the network or on this machine.
    Remote,
}

/// Why a device cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// Somebody else has it.
    #[error("{} is in use: it {reason}; {remedy}", path.display())]
    Busy {
        /// The device.
        path: PathBuf,
        /// The user of the device, in words.
        reason: String,
        /// Advice.
        remedy: &'static str,
    },
    /// Neither a block device nor a regular file.
    #[error("{} is {what}; a block device or a regular file is needed", path.display())]
    WrongKind {
        /// The path.
        path: PathBuf,
        /// Kind of the file, in words.
        what: &'static str,
    },
    /// The file system has no direct I/O.
    #[error("the file system of {} cannot do direct I/O (tmpfs and some network file systems \
             cannot); choose another place, or allow the page cache", path.display())]
    NoDirectIo {
        /// The file.
        path: PathBuf,
    },
    /// No room for data.
    #[error("{} is empty; give it a size first (truncate -s, or insert a medium)",
            path.display())]
    Empty {
        /// The device.
        path: PathBuf,
    },
    /// Anything else the kernel says.
    #[error("cannot {doing} {}", path.display())]
    Io {
        /// The device.
        path: PathBuf,
        /// The step that failed, in words.
        doing: &'static str,
        /// The kernel's error.
        source: io::Error,
    },
}

/// An open device and the facts about it. Shared by all threads that do I/O on it; no other
/// process can open it for use, or mount it, until it is dropped.
#[derive(Debug)]
pub struct RealDevice {
    backing: Backing,
    path: PathBuf,
    kind: DeviceKind,
    size_bytes: AtomicU64,
    logical_block_bytes: u32,
    optimal_bytes: Option<u32>,
    stripe: Option<Stripe>,
    direct: bool,
    volatile_cache: bool,
    can_discard: bool,
    in_memory: bool,
    identity: String,
    born: Option<std::time::Duration>,
    recorder: OnceLock<Recorder>,
}

/// The way to a device's data.
#[derive(Debug)]
enum Backing {
    File(File),
    Remote(Box<dyn Remote>),
}

impl RealDevice {
    /// A device whose operations somebody else carries out, under the name that users give it.
    #[must_use]
    pub fn remote(name: &Path, facts: RemoteFacts, remote: Box<dyn Remote>) -> Arc<RealDevice> {
        Arc::new(RealDevice {
            backing: Backing::Remote(remote),
            path: name.to_owned(),
            kind: DeviceKind::Remote,
            size_bytes: AtomicU64::new(facts.size_bytes),
            logical_block_bytes: facts.logical_block_bytes,
            optimal_bytes: facts.optimal_bytes,
            stripe: None,
            direct: true,
            volatile_cache: true,
            can_discard: facts.can_discard,
            in_memory: false,
            identity: facts.identity,
            born: None,
            recorder: OnceLock::new(),
        })
    }

    /// Opens a block device or a regular file for exclusive use.
    ///
    /// # Errors
    /// If it is in use, of another kind, empty, or cannot do direct I/O where that is required.
    pub fn open(path: &Path, how: OpenHow) -> Result<Arc<RealDevice>, OpenError> {
        let failed = |doing| {
            move |source| OpenError::Io {
                path: path.to_owned(),
                doing,
                source,
            }
        };
        let metadata = std::fs::metadata(path).map_err(failed("find"))?;
        let kind = kind_of(path, &metadata)?;
        let (file, direct) = open_file(path, kind, metadata.rdev(), how)?;
        // Looked up again from the open file: the path may name something else by now.
        let metadata = file.metadata().map_err(failed("examine"))?;
        let kind_now = kind_of(path, &metadata)?;
        if kind_now == DeviceKind::File {
            file_lock::lock(path, &file, &metadata, how.read_only)?;
        }
        let numbers = Numbers::of(metadata.rdev());
        let block = kind_now == DeviceKind::Block;
        let device = RealDevice {
            path: path.to_owned(),
            kind: kind_now,
            size_bytes: AtomicU64::new(size_of(&file, block).map_err(failed("find the size of"))?),
            logical_block_bytes: if block {
                logical_block_bytes(&file).map_err(failed("find the block size of"))?
            } else {
                file_alignment_bytes(&file)
            },
            optimal_bytes: block.then(|| probe::optimal_bytes(numbers)).flatten(),
            stripe: block.then(|| probe::stripe(numbers)).flatten(),
            direct,
            volatile_cache: !block || probe::has_volatile_cache(numbers),
            can_discard: !block || probe::can_discard(numbers),
            in_memory: !block && is_in_memory(&file),
            identity: if block {
                probe::identity(numbers)
            } else {
                format!("file:{}:{}", metadata.dev(), metadata.ino())
            },
            born: (!block).then(|| born(&metadata)).flatten(),
            recorder: OnceLock::new(),
            backing: Backing::File(file),
        };
        if device.size_bytes() == 0 {
            return Err(OpenError::Empty {
                path: path.to_owned(),
            });
        }
        Ok(Arc::new(device))
    }

    /// The path it was opened by.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The kind of file that holds the data.
    #[must_use]
    pub fn kind(&self) -> DeviceKind {
        self.kind
    }

    /// Its size when it was opened or last looked at, in bytes.
    #[must_use]
    pub fn size_bytes(&self) -> u64 {
        self.size_bytes.load(Ordering::Acquire)
    }

    /// Its size at this moment, which transfers do not go by.
    ///
    /// # Errors
    /// If the kernel does not say.
    pub fn size_now(&self) -> io::Result<u64> {
        match &self.backing {
            Backing::File(file) => size_of(file, self.kind == DeviceKind::Block),
            // The size of an export is that of its connection.
            Backing::Remote(_) => Ok(self.size_bytes()),
        }
    }

    /// Looks at its size again: it may have been made larger or smaller meanwhile.
    ///
    /// # Errors
    /// If the kernel does not say.
    pub fn look_at_size(&self) -> io::Result<u64> {
        let size_bytes = self.size_now()?;
        self.size_bytes.store(size_bytes, Ordering::Release);
        Ok(size_bytes)
    }

    /// Unit of offsets and lengths, in bytes.
    #[must_use]
    pub fn logical_block_bytes(&self) -> u32 {
        self.logical_block_bytes
    }

    /// The length of requests that the device says is best, in bytes, if it says.
    #[must_use]
    pub fn optimal_bytes(&self) -> Option<u32> {
        self.optimal_bytes
    }

    /// The stripe of a RAID with parity, if it is one or a part of one. Files have none.
    #[must_use]
    pub fn stripe(&self) -> Option<Stripe> {
        self.stripe
    }

    /// Whether transfers go past the page cache.
    #[must_use]
    pub fn is_direct(&self) -> bool {
        self.direct
    }

    /// Whether completed writes may be lost at a power cut until a flush. Always so for files.
    #[must_use]
    pub fn has_volatile_cache(&self) -> bool {
        self.volatile_cache
    }

    /// Whether discards may have an effect.
    #[must_use]
    pub fn can_discard(&self) -> bool {
        self.can_discard
    }

    /// Whether it is a file of a file system in memory (tmpfs, ramfs), of which no transfer has
    /// anything to wait for.
    #[must_use]
    pub fn is_in_memory(&self) -> bool {
        self.in_memory
    }

    /// A name that stays with the device over reboots where the hardware has one: `wwid:...`,
    /// `serial:...`, `file:DEVICE:INODE`.
    #[must_use]
    pub fn identity(&self) -> &str {
        &self.identity
    }

    /// When a file was made, since 1970, where its file system remembers that. A copy has another
    /// time, and so has a file of another file system that happens to have the same inode.
    #[must_use]
    pub fn born(&self) -> Option<std::time::Duration> {
        self.born
    }

    /// The open file, unless the device is a remote one.
    #[must_use]
    pub fn as_fd(&self) -> Option<BorrowedFd<'_>> {
        match &self.backing {
            Backing::File(file) => Some(file.as_fd()),
            Backing::Remote(_) => None,
        }
    }

    /// Carries the operations out, if no file does.
    pub(crate) fn as_remote(&self) -> Option<&dyn Remote> {
        match &self.backing {
            Backing::File(_) => None,
            Backing::Remote(remote) => Some(&**remote),
        }
    }

    /// Whether the device's server has shut this host out: nothing is written to it any more.
    #[must_use]
    pub fn has_shut_out(&self) -> bool {
        self.as_remote().is_some_and(|remote| remote.has_shut_out())
    }

    /// The longest time that operations wait for the device's server; `None` without one.
    #[must_use]
    pub fn server_timeout(&self) -> Option<std::time::Duration> {
        self.as_remote().map(|remote| remote.timeout())
    }

    /// Changes that time; `None` is as the device's name says.
    pub fn set_server_timeout(&self, timeout: Option<std::time::Duration>) {
        if let Some(remote) = self.as_remote() {
            remote.set_timeout(timeout);
        }
    }

    /// Has everything that changes the device from now on recorded, whoever asks for it.
    ///
    /// # Errors
    /// If the log cannot be written.
    pub fn record(&self, recording: &Arc<Recording>) -> io::Result<()> {
        let recorder = recording.add_device(&self.path, self.size_bytes())?;
        self.recorder
            .set(recorder)
            .map_err(|_| io::ErrorKind::AlreadyExists.into())
    }

    pub(crate) fn recorder(&self) -> Option<&Recorder> {
        self.recorder.get()
    }

    /// The open file of a device that has one: callers ask [`RealDevice::as_remote`] first.
    pub(crate) fn file(&self) -> &File {
        match &self.backing {
            Backing::File(file) => file,
            Backing::Remote(_) => unreachable!("a remote device has no file"),
        }
    }

    /// The device for the control plane: one thing at a time, waiting for each.
    ///
    /// # Errors
    /// If there is no memory for its buffers.
    pub fn storage(self: &Arc<Self>) -> io::Result<BlockingStorage> {
        BlockingStorage::new(Arc::clone(self))
    }
}

fn size_of(file: &File, is_block: bool) -> io::Result<u64> {
    if is_block {
        block_size_bytes(file)
    } else {
        Ok(file.metadata()?.len())
    }
}

/// Translates the errno of a device operation for the engine.
fn born(metadata: &std::fs::Metadata) -> Option<std::time::Duration> {
    let made = metadata.created().ok()?;
    made.duration_since(std::time::UNIX_EPOCH).ok()
}

pub(crate) fn device_error(errno: i32) -> DeviceError {
    match errno {
        libc::ENOSPC | libc::EDQUOT | libc::EFBIG => DeviceError::NoSpace,
        libc::ENODEV | libc::ENXIO | libc::ENOMEDIUM | libc::ESHUTDOWN => DeviceError::Gone,
        libc::EOPNOTSUPP | libc::ENOTTY | libc::ENOSYS => DeviceError::Unsupported,
        _ => DeviceError::Io,
    }
}

pub(crate) fn device_error_of(error: &io::Error) -> DeviceError {
    error.raw_os_error().map_or(DeviceError::Io, device_error)
}

fn kind_of(path: &Path, metadata: &std::fs::Metadata) -> Result<DeviceKind, OpenError> {
    let kind = metadata.file_type();
    let what = if kind.is_block_device() {
        return Ok(DeviceKind::Block);
    } else if kind.is_file() {
        return Ok(DeviceKind::File);
    } else if kind.is_dir() {
        "a directory"
    } else if kind.is_char_device() {
        "a character device"
    } else {
        "a pipe or a socket"
    };
    Err(OpenError::WrongKind {
        path: path.to_owned(),
        what,
    })
}

fn open_file(
    path: &Path,
    kind: DeviceKind,
    device: u64,
    how: OpenHow,
) -> Result<(File, bool), OpenError> {
    // On a block device O_EXCL keeps mounts, dm, md and other users of O_EXCL away.
    let exclusive = if kind == DeviceKind::Block {
        libc::O_EXCL
    } else {
        0
    };
    let open_as = |flags| {
        OpenOptions::new()
            .read(true)
            .write(!how.read_only)
            .custom_flags(flags | exclusive | libc::O_CLOEXEC)
            .open(path)
    };
    // Each read would look whether the time of the last one is to be noted. Who does not own the file
    // may not do without.
    let open = |flags| match open_as(flags | libc::O_NOATIME) {
        Err(error) if error.raw_os_error() == Some(libc::EPERM) => open_as(flags),
        opened => opened,
    };
    let busy = |error: &io::Error| error.raw_os_error() == Some(libc::EBUSY);
    let opened = match retry_for(IN_USE_TIMEOUT, || open(libc::O_DIRECT), busy) {
        Ok(file) => return Ok((file, true)),
        Err(error) if error.raw_os_error() == Some(libc::EINVAL) => match how.direct {
            DirectIo::Required => {
                return Err(OpenError::NoDirectIo {
                    path: path.to_owned(),
                });
            }
            DirectIo::IfPossible => open(0),
        },
        Err(error) => Err(error),
    };
    match opened {
        Ok(file) => Ok((file, false)),
        Err(error) if busy(&error) => Err(OpenError::Busy {
            path: path.to_owned(),
            reason: probe::user(Numbers::of(device))
                .unwrap_or_else(|| "is held by another process".to_owned()),
            remedy: "unmount it, or stop what holds it (see lsblk and fuser), and try again",
        }),
        Err(source) => Err(OpenError::Io {
            path: path.to_owned(),
            doing: "open",
            source,
        }),
    }
}

/// Time in which a device may become free: a daemon that is restarted at once would be refused for
/// its own predecessor.
pub(crate) const IN_USE_TIMEOUT: Duration = Duration::from_secs(1);
/// From linux/fs.h: `_IOR(0x12, 114, size_t)`.
const BLKGETSIZE64: libc::Ioctl = 0x8008_1272u32 as libc::Ioctl;
/// From linux/fs.h: `_IO(0x12, 104)`.
const BLKSSZGET: libc::Ioctl = 0x1268;

fn block_size_bytes(file: &File) -> io::Result<u64> {
    let mut bytes = 0u64;
    // SAFETY: BLKGETSIZE64 writes one u64 to the address given.
    if unsafe { libc::ioctl(file.as_raw_fd(), BLKGETSIZE64, &raw mut bytes) } < 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(bytes)
}

fn logical_block_bytes(file: &File) -> io::Result<u32> {
    let mut bytes: libc::c_int = 0;
    // SAFETY: BLKSSZGET writes one int to the address given.
    if unsafe { libc::ioctl(file.as_raw_fd(), BLKSSZGET, &raw mut bytes) } < 0 {
        return Err(io::Error::last_os_error());
    }
    u32::try_from(bytes)
        .ok()
        .filter(|bytes| bytes.is_power_of_two())
        .ok_or_else(|| io::Error::from_raw_os_error(libc::EINVAL))
}

fn is_in_memory(file: &File) -> bool {
    // From linux/magic.h.
    const RAMFS_MAGIC: i64 = 0x8584_58f6;
    // SAFETY: a statfs structure is plain data for which all zeroes mean "nothing".
    let mut facts: libc::statfs = unsafe { std::mem::zeroed() };
    // SAFETY: fstatfs takes a descriptor, which `file` keeps open, and writes one structure.
    let told = unsafe { libc::fstatfs(file.as_raw_fd(), &raw mut facts) } == 0;
    let kind = facts.f_type as i64;
    told && (kind == libc::TMPFS_MAGIC || kind == RAMFS_MAGIC)
}

/// The alignment of direct I/O on a file, in bytes. Kernels before 6.1 do not report it; disks then
/// want 512 bytes.
fn file_alignment_bytes(file: &File) -> u32 {
    const ASSUMED_BYTES: u32 = 512;
    // SAFETY: a statx structure is plain data for which all zeroes mean "nothing".
    let mut facts: libc::statx = unsafe { std::mem::zeroed() };
    // SAFETY: with AT_EMPTY_PATH and an empty path the descriptor itself is examined, and the
    // kernel writes one statx structure.
    let result = unsafe {
        libc::statx(
            file.as_raw_fd(),
            c"".as_ptr(),
            libc::AT_EMPTY_PATH,
            libc::STATX_DIOALIGN,
            &raw mut facts,
        )
    };
    let told = result == 0 && facts.stx_mask & libc::STATX_DIOALIGN != 0;
    let bytes = facts.stx_dio_offset_align;
    if told && bytes.is_power_of_two() {
        bytes.max(ASSUMED_BYTES)
    } else {
        ASSUMED_BYTES
    }
}
