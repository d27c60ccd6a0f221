//! The directory that shows the devices as files.

use std::ffi::OsStr;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, UNIX_EPOCH};

use fuser::{
    BackgroundSession, Config, Errno, FileAttr, FileHandle, FileType, Filesystem, FopenFlags,
    Generation, INodeNo, LockOwner, MountOption, OpenFlags, ReplyAttr, ReplyData, ReplyDirectory,
    ReplyEmpty, ReplyEntry, ReplyOpen, ReplyWrite, Request, TimeOrNow, WriteFlags,
};

use rustix::mount::UnmountFlags;

use crate::device::FaultyDevice;
use crate::fault::Error;

/// Time for which the kernel may believe names and attributes, which never change.
const FOR_EVER: Duration = Duration::from_secs(3600);
/// The first device's inode; the directory is 1.
const FIRST_INODE: u64 = 2;
/// Threads that answer, so that an operation that is delayed does not delay others.
const THREADS: usize = 8;
/// fallocate: a hole reads as zeroes; a range of zeroes. With or without keeping the size.
const PUNCH_HOLE: i32 = 2;
const ZERO_RANGE: i32 = 16;

/// A mounted directory of devices; unmounted when dropped.
pub struct FaultyDevices {
    devices: Vec<(String, Arc<FaultyDevice>)>,
    session: Option<BackgroundSession>,
    directory: PathBuf,
}

impl FaultyDevices {
    /// The device of that name.
    ///
    /// # Panics
    /// If none of that name was mounted.
    #[must_use]
    pub fn device(&self, name: &str) -> &FaultyDevice {
        let found = self.devices.iter().find(|(known, _)| known == name);
        &found.unwrap_or_else(|| panic!("no device {name}")).1
    }
}

impl Drop for FaultyDevices {
    fn drop(&mut self) {
        // A process that was killed lets go of its files a little after it has ended: the mount
        // is out of sight at once, and its threads end when the last file is closed.
        let _ = rustix::mount::unmount(&self.directory, UnmountFlags::DETACH);
        if let Some(session) = self.session.take() {
            let _ = session.umount_and_join();
        }
    }
}

/// Mounts devices of these names and sizes (bytes) as files in an empty directory.
///
/// # Errors
/// Without `/dev/fuse`, or without the right to mount (root, or `fusermount3`).
pub fn mount(directory: &Path, devices: &[(&str, u64)]) -> io::Result<FaultyDevices> {
    let devices: Vec<(String, Arc<FaultyDevice>)> = devices
        .iter()
        .map(|(name, size)| ((*name).to_owned(), Arc::new(FaultyDevice::new(*size))))
        .collect();
    let mut config = Config::default();
    config.mount_options = vec![MountOption::FSName("forebay-faulty".to_owned())];
    config.n_threads = Some(THREADS);
    let shown = Directory(devices.clone());
    let session = fuser::spawn_mount(shown, directory, &config)?;
    Ok(FaultyDevices {
        devices,
        session: Some(session),
        directory: directory.to_owned(),
    })
}

struct Directory(Vec<(String, Arc<FaultyDevice>)>);

impl Directory {
    fn device(&self, inode: INodeNo) -> Result<&FaultyDevice, Errno> {
        let index = u64::from(inode).checked_sub(FIRST_INODE);
        let found = index.and_then(|index| self.0.get(index as usize));
        found.map(|(_, device)| &**device).ok_or(Errno::ENOENT)
    }

    fn attributes(&self, inode: INodeNo) -> Result<FileAttr, Errno> {
        let directory = inode == INodeNo::ROOT;
        let size = if directory {
            0
        } else {
            self.device(inode)?.size_bytes()
        };
        Ok(FileAttr {
            ino: inode,
            size,
            blocks: size / 512,
            atime: UNIX_EPOCH,
            mtime: UNIX_EPOCH,
            ctime: UNIX_EPOCH,
            crtime: UNIX_EPOCH,
            kind: if directory {
                FileType::Directory
            } else {
                FileType::RegularFile
            },
            perm: if directory { 0o755 } else { 0o600 },
            nlink: 1,
            uid: 0,
            gid: 0,
            rdev: 0,
            blksize: 4096,
            flags: 0,
        })
    }
}

fn errno(error: Error) -> Errno {
    match error {
        Error::Failed => Errno::EIO,
        Error::Full => Errno::ENOSPC,
    }
}

impl Filesystem for Directory {
    fn lookup(&self, _: &Request, _parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        let index = self.0.iter().position(|(known, _)| name == known.as_str());
        let inode = index.map(|index| INodeNo(FIRST_INODE + index as u64));
        match inode
            .ok_or(Errno::ENOENT)
            .and_then(|inode| self.attributes(inode))
        {
            Ok(attributes) => reply.entry(&FOR_EVER, &attributes, Generation(0)),
            Err(error) => reply.error(error),
        }
    }

    fn getattr(&self, _: &Request, inode: INodeNo, _: Option<FileHandle>, reply: ReplyAttr) {
        match self.attributes(inode) {
            Ok(attributes) => reply.attr(&FOR_EVER, &attributes),
            Err(error) => reply.error(error),
        }
    }

    /// Times may be set, to no effect; a size may not, as of a disk.
    fn setattr(
        &self,
        _: &Request,
        inode: INodeNo,
        _mode: Option<u32>,
        _uid: Option<u32>,
        _gid: Option<u32>,
        size: Option<u64>,
        _atime: Option<TimeOrNow>,
        _mtime: Option<TimeOrNow>,
        _ctime: Option<std::time::SystemTime>,
        _handle: Option<FileHandle>,
        _crtime: Option<std::time::SystemTime>,
        _chgtime: Option<std::time::SystemTime>,
        _bkuptime: Option<std::time::SystemTime>,
        _flags: Option<fuser::BsdFileFlags>,
        reply: ReplyAttr,
    ) {
        match self.attributes(inode) {
            Ok(attributes) if size.is_none_or(|size| size == attributes.size) => {
                reply.attr(&FOR_EVER, &attributes);
            }
            Ok(_) => reply.error(Errno::EPERM),
            Err(error) => reply.error(error),
        }
    }

    fn readdir(
        &self,
        _: &Request,
        _: INodeNo,
        _: FileHandle,
        offset: u64,
        mut reply: ReplyDirectory,
    ) {
        let names = (0..).zip(&self.0).skip(offset as usize);
        for (index, (name, _)) in names {
            let inode = INodeNo(FIRST_INODE + index);
            if reply.add(inode, index + 1, FileType::RegularFile, name) {
                break;
            }
        }
        reply.ok();
    }

    fn open(&self, _: &Request, _: INodeNo, _: OpenFlags, reply: ReplyOpen) {
        let past_the_page_cache =
            FopenFlags::FOPEN_DIRECT_IO | FopenFlags::FOPEN_PARALLEL_DIRECT_WRITES;
        reply.opened(FileHandle(0), past_the_page_cache);
    }

    fn read(
        &self,
        _: &Request,
        inode: INodeNo,
        _: FileHandle,
        offset: u64,
        len: u32,
        _: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyData,
    ) {
        let read = |device: &FaultyDevice| device.read(offset, u64::from(len)).map_err(errno);
        match self.device(inode).and_then(read) {
            Ok(data) => reply.data(&data),
            Err(error) => reply.error(error),
        }
    }

    fn write(
        &self,
        _: &Request,
        inode: INodeNo,
        _: FileHandle,
        offset: u64,
        data: &[u8],
        _: WriteFlags,
        _: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyWrite,
    ) {
        let write = |device: &FaultyDevice| device.write(offset, data).map_err(errno);
        match self.device(inode).and_then(write) {
            Ok(len) => reply.written(len as u32),
            Err(error) => reply.error(error),
        }
    }

    /// The end of a file descriptor, which is no flush of the device.
    fn flush(&self, _: &Request, _: INodeNo, _: FileHandle, _: LockOwner, reply: ReplyEmpty) {
        reply.ok();
    }

    fn fsync(&self, _: &Request, inode: INodeNo, _: FileHandle, _: bool, reply: ReplyEmpty) {
        let flush = |device: &FaultyDevice| device.flush().map_err(errno);
        answer(self.device(inode).and_then(flush), reply);
    }

    fn fallocate(
        &self,
        _: &Request,
        inode: INodeNo,
        _: FileHandle,
        offset: u64,
        len: u64,
        mode: i32,
        reply: ReplyEmpty,
    ) {
        let zeroes = |device: &FaultyDevice| match mode {
            0 => Ok(()),
            mode if mode & (PUNCH_HOLE | ZERO_RANGE) != 0 => {
                let inside = len.min(device.size_bytes().saturating_sub(offset));
                let zeroes = vec![0; inside as usize];
                device.write(offset, &zeroes).map(|_| ()).map_err(errno)
            }
            _ => Err(Errno::EOPNOTSUPP),
        };
        answer(self.device(inode).and_then(zeroes), reply);
    }
}

fn answer(result: Result<(), Errno>, reply: ReplyEmpty) {
    match result {
        Ok(()) => reply.ok(),
        Err(error) => reply.error(error),
    }
}
