//! Targets of a replay: an NBD server, a block device, a file.

use std::path::Path;
use std::sync::Arc;

use anyhow::{Context, Result};
use forebay_engine::{DeviceError, Storage};
use forebay_io::{BlockingStorage, DirectIo, OpenHow, RealDevice};
use forebay_random::SplitMix64;
use forebay_trace::Kind;

use super::nbd;
use super::operations::Operation;

/// The most that is read or written at once where a transfer may be in pieces.
const PIECE_BYTES: usize = 1 << 20;

/// Why an operation did not succeed.
#[derive(Debug)]
pub(super) enum Failed {
    /// The target says so; it can be asked other things.
    Refused(String),
    /// The target cannot be asked any more.
    Lost(String),
}

/// A thread's way to the target.
pub(super) trait Session: Send {
    /// Does it and waits for it.
    fn carry_out(&mut self, operation: &Operation) -> Result<(), Failed>;
}

type Open = Box<dyn Fn() -> Result<Box<dyn Session>>>;

/// A target and what it takes.
pub(super) struct Target {
    pub(super) size_bytes: u64,
    /// Unit of offsets and lengths.
    pub(super) block_bytes: u64,
    pub(super) discards: bool,
    pub(super) zeroes: bool,
    pub(super) open: Open,
}

impl Target {
    /// Opens what a name means, to be used from up to `depth` threads.
    pub(super) fn open(name: &str, read_only: bool, depth: u16) -> Result<Target> {
        if name.contains("://") {
            nbd::open(name, read_only, depth)
        } else {
            open_path(Path::new(name), read_only)
        }
    }
}

fn open_path(path: &Path, read_only: bool) -> Result<Target> {
    let how = OpenHow {
        direct: DirectIo::IfPossible,
        read_only,
    };
    let device = RealDevice::open(path, how)
        .with_context(|| format!("cannot replay on {}", path.display()))?;
    if !device.is_direct() {
        tracing::warn!(
            "{} is used through the page cache, which answers for it",
            path.display()
        );
    }
    Ok(Target {
        size_bytes: device.size_bytes(),
        block_bytes: u64::from(device.logical_block_bytes()),
        discards: false,
        zeroes: true,
        open: Box::new(move || {
            Ok(Box::new(DeviceSession {
                storage: Arc::clone(&device)
                    .storage()
                    .context("no memory for a thread's buffers; replay with a smaller --depth")?,
                read: vec![0; PIECE_BYTES],
                data: Data::new(),
                zeroes: vec![0; PIECE_BYTES],
            }))
        }),
    })
}

struct DeviceSession {
    storage: BlockingStorage,
    read: Vec<u8>,
    data: Data,
    zeroes: Vec<u8>,
}

impl DeviceSession {
    fn piece(&mut self, kind: Kind, offset_bytes: u64, len: usize) -> Result<(), DeviceError> {
        match kind {
            Kind::Read => self.storage.read(offset_bytes, &mut self.read[..len]),
            Kind::Write => self.storage.write(offset_bytes, self.data.next(len)),
            Kind::WriteZeroes => self.storage.write(offset_bytes, &self.zeroes[..len]),
            Kind::Flush | Kind::Discard => self.storage.flush(),
        }
    }
}

impl Session for DeviceSession {
    fn carry_out(&mut self, operation: &Operation) -> Result<(), Failed> {
        for (offset_bytes, len) in pieces(operation, PIECE_BYTES as u32) {
            self.piece(operation.kind, offset_bytes, len as usize)
                .map_err(|error| {
                    let kind = operation.kind;
                    Failed::Refused(format!(
                        "{} of {len} bytes at {offset_bytes}: {error}",
                        kind.name()
                    ))
                })?;
        }
        Ok(())
    }
}

/// An operation in pieces of at most `longest`; a flush is one.
pub(super) fn pieces(operation: &Operation, longest: u32) -> impl Iterator<Item = (u64, u32)> {
    let (offset_bytes, len_bytes) = (operation.offset_bytes, operation.len_bytes);
    (0..len_bytes.div_ceil(longest).max(1)).map(move |piece| {
        let skip = piece * longest;
        (
            offset_bytes + u64::from(skip),
            (len_bytes - skip).min(longest),
        )
    })
}

/// Data that compresses badly and differs from one write to the next.
pub(super) struct Data {
    bytes: Vec<u8>,
    at: usize,
}

impl Data {
    /// The longest piece.
    pub(super) const PIECE_BYTES: usize = PIECE_BYTES;

    pub(super) fn new() -> Data {
        let mut random = SplitMix64::new(1);
        let words = (PIECE_BYTES + STEPS * STEP_BYTES).div_ceil(8);
        Data {
            bytes: (0..words)
                .flat_map(|_| random.bits().to_le_bytes())
                .collect(),
            at: 0,
        }
    }

    /// The next piece, of at most [`Data::PIECE_BYTES`].
    pub(super) fn next(&mut self, len: usize) -> &[u8] {
        self.at = (self.at + 1) % STEPS;
        let begin = self.at * STEP_BYTES;
        &self.bytes[begin..begin + len.min(PIECE_BYTES)]
    }
}

/// From one piece to the next; no multiple of a block, so that no two blocks are alike.
const STEP_BYTES: usize = 40;
const STEPS: usize = 1000;
