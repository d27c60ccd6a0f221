//! Shared memory that outlives the daemon but not the machine: a file below /dev/shm (I16). Crash
//! journals of shards, and their memory buffers.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use crate::file_lock;
use crate::map::Map;

/// Why shared memory cannot be had.
#[derive(Debug, thiserror::Error)]
pub enum SharedMemoryError {
    /// The file system or the kernel refused.
    #[error("cannot {doing} the shared memory {}", path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// The step that failed, in words.
        doing: &'static str,
        /// The kernel's error.
        source: io::Error,
    },
    /// Another process has it.
    #[error("the shared memory {} is in use: another forebay daemon runs this cache; \
             stop it first", path.display())]
    InUse {
        /// The file.
        path: PathBuf,
    },
    /// A file of another size, kind or owner, or one that others may write.
    #[error("{} is not shared memory that a daemon of this user left: {what}", path.display())]
    Foreign {
        /// The file.
        path: PathBuf,
        /// Its fault, in words.
        what: String,
    },
}

impl SharedMemoryError {
    /// Whether there is no such file.
    #[must_use]
    pub fn is_absence(&self) -> bool {
        matches!(self, SharedMemoryError::Io { source, .. } if source.kind() == io::ErrorKind::NotFound)
    }
}

/// Shared memory, mapped and locked against a second daemon until dropped. Dropping it keeps
/// the file.
#[derive(Debug)]
pub struct SharedMemory {
    map: Map,
    path: PathBuf,
    // Holds the lock.
    _file: File,
}

impl SharedMemory {
    /// Makes a file of `len_bytes` zeroes that only this user may read or write.
    ///
    /// # Errors
    /// If the file exists or there is no memory for it.
    pub fn create(path: &Path, len_bytes: usize) -> Result<SharedMemory, SharedMemoryError> {
        let failed = |doing| move |source| io_error(path, doing, source);
        let file = OpenOptions::new()
            .read(true)
            .write(true)
            .create_new(true)
            .mode(0o600)
            .custom_flags(libc::O_NOFOLLOW | libc::O_CLOEXEC)
            .open(path)
            .map_err(failed("create"))?;
        let made = lock(path, &file)
            .and_then(|()| allocate(&file, len_bytes as u64).map_err(failed("allocate")))
            .and_then(|()| Map::shared(&file, len_bytes).map_err(failed("map")));
        match made {
            Ok(map) => Ok(SharedMemory {
                map,
                path: path.to_owned(),
                _file: file,
            }),
            Err(error) => {
                // Half a file would only stand in the way of the next attempt; the error that
                // matters is the first.
                let _ = std::fs::remove_file(path);
                Err(error)
            }
        }
    }

    /// Maps the file that an earlier daemon left.
    ///
    /// # Errors
    /// If it does not exist, is in use, or is not a file of this user with `len_bytes`.
    pub fn open(path: &Path, len_bytes: usize) -> Result<SharedMemory, SharedMemoryError> {
        SharedMemory::open_file(path, Some(len_bytes))
    }

    /// Maps what an earlier daemon left, as long as it is. An empty file, of a daemon that was killed while
    /// it made it, is removed and does not exist.
    ///
    /// # Errors
    /// If it does not exist, is in use, or is not a file of this user.
    pub fn open_whole(path: &Path) -> Result<SharedMemory, SharedMemoryError> {
        SharedMemory::open_file(path, None)
    }

    fn open_file(path: &Path, len_bytes: Option<usize>) -> Result<SharedMemory, SharedMemoryError> {
        let failed = |doing| move |source| io_error(path, doing, source);
        let file = OpenOptions::new()
            .read(true)
            .write(true)
            .custom_flags(libc::O_NOFOLLOW | libc::O_CLOEXEC)
            .open(path)
            .map_err(failed("open"))?;
        lock(path, &file)?;
        let metadata = file.metadata().map_err(failed("examine"))?;
        let foreign = |what: String| SharedMemoryError::Foreign {
            path: path.to_owned(),
            what,
        };
        if !metadata.is_file() {
            return Err(foreign("it is no regular file; remove it".to_owned()));
        }
        let found = metadata.len() as usize;
        // SAFETY: geteuid has no preconditions and cannot fail.
        let user = unsafe { libc::geteuid() };
        if found == 0 && metadata.uid() == user {
            // The kernel gives it its size once all of it is allocated: a daemon was killed before.
            std::fs::remove_file(path).map_err(failed("remove"))?;
            let absent = io::Error::from(io::ErrorKind::NotFound);
            return Err(io_error(path, "open", absent));
        }
        let len_bytes = len_bytes.unwrap_or(found);
        if found != len_bytes {
            return Err(foreign(format!(
                "it has {found} bytes instead of {len_bytes}; was it left by another version of forebay? Start that one again"
            )));
        }
        if metadata.uid() != user || metadata.mode() & 0o077 != 0 {
            let (owner, mode) = (metadata.uid(), metadata.mode() & 0o777);
            return Err(foreign(format!(
                "it belongs to user {owner} and has mode {mode:o}; run this as that user, or see to it that nobody else may read or write it"
            )));
        }
        let map = Map::shared(&file, len_bytes).map_err(failed("map"))?;
        Ok(SharedMemory {
            map,
            path: path.to_owned(),
            _file: file,
        })
    }

    /// Removes the file; its contents are gone with the mapping.
    ///
    /// # Errors
    /// If the file cannot be removed.
    pub fn remove(self) -> Result<(), SharedMemoryError> {
        std::fs::remove_file(&self.path).map_err(|source| io_error(&self.path, "remove", source))
    }

    /// Gives the file another name, in place of one that has it.
    ///
    /// # Errors
    /// If it cannot be renamed.
    pub fn move_to(&mut self, path: &Path) -> Result<(), SharedMemoryError> {
        std::fs::rename(&self.path, path).map_err(|source| io_error(&self.path, "move", source))?;
        path.clone_into(&mut self.path);
        Ok(())
    }

    /// The file.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Its bytes.
    pub fn bytes_mut(&mut self) -> &mut [u8] {
        self.map.bytes_mut()
    }
}

fn io_error(path: &Path, doing: &'static str, source: io::Error) -> SharedMemoryError {
    SharedMemoryError::Io {
        path: path.to_owned(),
        doing,
        source,
    }
}

fn lock(path: &Path, file: &File) -> Result<(), SharedMemoryError> {
    file_lock::lock_whole(file, false).map_err(|source| match source.kind() {
        io::ErrorKind::WouldBlock => SharedMemoryError::InUse {
            path: path.to_owned(),
        },
        _ => io_error(path, "lock", source),
    })
}

/// Allocates the first `len_bytes` of a file now, zeroes where there was nothing. Later writes
/// there cannot run out of space, and memory mapped from there is no SIGBUS.
///
/// # Errors
/// If the file system is full or cannot do this.
pub fn allocate(file: &File, len_bytes: u64) -> io::Result<()> {
    let len =
        libc::off_t::try_from(len_bytes).map_err(|_| io::Error::from_raw_os_error(libc::EFBIG))?;
    // SAFETY: posix_fallocate takes a descriptor, which `file` keeps open.
    match unsafe { libc::posix_fallocate(file.as_raw_fd(), 0, len) } {
        0 => Ok(()),
        errno => Err(io::Error::from_raw_os_error(errno)),
    }
}
