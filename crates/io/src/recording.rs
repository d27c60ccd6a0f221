//! A log of everything that changes devices, for tests: from it the devices can be rebuilt as a
//! power cut at any moment might have left them.
//!
//! The log begins with [`MAGIC`]. Every record has a head of 32 bytes, little-endian:
//!
//! | bytes | field |
//! |---|---|
//! | 1 | kind: 1 device, 2 write, 3 zeroes, 4 discard, 5 flush, 6 end |
//! | 1 | number of the device |
//! | 1 | of an end: 1 if the operation succeeded |
//! | 5 | zero |
//! | 8 | number of the operation; an end has that of what it ends |
//! | 8 | offset; of a device: its size |
//! | 8 | length |
//!
//! A device is followed by its path and a write by its data, as long as the length says. An
//! operation stands in the log before the device hears of it, and its end before whoever asked
//! for it: so a write whose end comes before a flush is one that this flush makes durable.

use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

use forebay_engine::DeviceError;

/// First bytes of a log.
const MAGIC: &[u8; 8] = b"FBRECRD1";
const HEAD_BYTES: usize = 32;

/// Kind of a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Kind {
    Device = 1,
    Write = 2,
    Zeroes = 3,
    Discard = 4,
    Flush = 5,
    End = 6,
}

/// A log that several devices share.
#[derive(Debug)]
pub struct Recording {
    log: Mutex<Log>,
}

#[derive(Debug)]
struct Log {
    file: File,
    devices: u8,
    operations: u64,
    /// A log with a gap would tell lies: after a failure nothing more is written.
    failed: bool,
}

impl Recording {
    /// Begins a log in a file that must not exist yet.
    ///
    /// # Errors
    /// If the file exists or cannot be written.
    pub fn create(path: &Path) -> io::Result<Arc<Recording>> {
        let mut file = OpenOptions::new()
            .append(true)
            .create_new(true)
            // All that the devices hold passes through it.
            .mode(0o600)
            .open(path)?;
        file.write_all(MAGIC)?;
        let log = Log {
            file,
            devices: 0,
            operations: 0,
            failed: false,
        };
        Ok(Arc::new(Recording {
            log: Mutex::new(log),
        }))
    }

    fn with<T>(&self, work: impl FnOnce(&mut Log) -> T) -> T {
        // A panic within leaves at most a torn record, after which `failed` or the end of the
        // process keeps others from following.
        work(&mut self.log.lock().unwrap_or_else(PoisonError::into_inner))
    }

    pub(crate) fn add_device(
        self: &Arc<Self>,
        path: &Path,
        size_bytes: u64,
    ) -> io::Result<Recorder> {
        let device = self.with(|log| {
            let device = log.devices;
            log.devices = device.checked_add(1).ok_or(io::ErrorKind::OutOfMemory)?;
            let name = path.as_os_str().as_bytes();
            let numbers = [0, size_bytes, name.len() as u64];
            log.append(Kind::Device, device, false, numbers, |bytes| {
                bytes.extend_from_slice(name);
            })?;
            Ok::<u8, io::Error>(device)
        })?;
        Ok(Recorder {
            recording: Arc::clone(self),
            device,
        })
    }
}

impl Log {
    fn append(
        &mut self,
        kind: Kind,
        device: u8,
        ok: bool,
        numbers: [u64; 3],
        payload: impl FnOnce(&mut Vec<u8>),
    ) -> io::Result<()> {
        if self.failed {
            return Err(io::ErrorKind::StorageFull.into());
        }
        let mut bytes = Vec::with_capacity(HEAD_BYTES);
        bytes.extend([kind as u8, device, u8::from(ok), 0, 0, 0, 0, 0]);
        for number in numbers {
            bytes.extend(number.to_le_bytes());
        }
        payload(&mut bytes);
        let written = self.file.write_all(&bytes);
        self.failed = written.is_err();
        written
    }
}

/// A device's part in a log. An operation that cannot be recorded counts as failed, so that nothing
/// is ever acknowledged that the log does not explain.
#[derive(Debug)]
pub(crate) struct Recorder {
    recording: Arc<Recording>,
    device: u8,
}

/// An operation that has begun.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Begun(Option<u64>);

impl Recorder {
    /// Notes that an operation begins; `data` appends what a write is to write.
    pub(crate) fn begin(
        &self,
        kind: Kind,
        offset_bytes: u64,
        len_bytes: u64,
        data: impl FnOnce(&mut Vec<u8>),
    ) -> Begun {
        let begun = self.recording.with(|log| {
            let number = log.operations;
            log.operations += 1;
            let numbers = [number, offset_bytes, len_bytes];
            log.append(kind, self.device, false, numbers, data)
                .map(|()| number)
        });
        Begun(begun.ok())
    }

    /// Notes how an operation ended; returns what whoever asked for it may be told.
    pub(crate) fn end(
        &self,
        begun: Begun,
        result: Result<(), DeviceError>,
    ) -> Result<(), DeviceError> {
        let number = begun.0.ok_or(DeviceError::NoSpace)?;
        let numbers = [number, 0, 0];
        self.recording
            .with(|log| log.append(Kind::End, self.device, result.is_ok(), numbers, |_| {}))
            .map_err(|_| DeviceError::NoSpace)?;
        result
    }
}
