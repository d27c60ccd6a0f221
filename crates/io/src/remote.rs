//! Origins that no file stands for: somebody else carries their operations out, such as a client of
//! a server on the network.

use std::fmt::Debug;
use std::sync::mpsc::{Receiver, Sender, SyncSender, channel, sync_channel};
use std::time::Duration;

use forebay_engine::{Bufs, DeviceError};

use crate::device::device_error;
use crate::event::Event;
use crate::pool::PoolView;

/// Carries out the operations of an origin.
pub trait Remote: Send + Sync + Debug {
    /// Takes a job over. It may answer at once, later, and from any thread; jobs of which a write
    /// overlaps another are carried out one after the other.
    fn submit(&self, job: RemoteJob);

    /// Whether the origin belongs to another host now, for ever: every job fails.
    fn has_shut_out(&self) -> bool;

    /// The longest time that a job waits for a server that is away or silent.
    fn timeout(&self) -> Duration;

    /// Changes that time, also of jobs that wait now; `None` is as it was at first.
    fn set_timeout(&self, timeout: Option<Duration>);
}

/// Facts about a remote origin.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RemoteFacts {
    /// Its size, in bytes.
    pub size_bytes: u64,
    /// Unit of offsets and lengths, in bytes.
    pub logical_block_bytes: u32,
    /// The length of requests that is best, in bytes, if it is known.
    pub optimal_bytes: Option<u32>,
    /// Whether discards may have an effect.
    pub can_discard: bool,
    /// A name that stays with it, as of [`crate::RealDevice::identity`].
    pub identity: String,
}

/// Kind of a job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RemoteKind {
    /// Read into the job's memory.
    Read,
    /// Write the job's memory.
    Write,
    /// Make durable all that was answered before.
    Flush,
    /// Mark a range as unused.
    Discard,
    /// Make a range read as zeroes.
    WriteZeroes,
}

#[derive(Debug)]
enum JobMemory {
    None,
    Pool { view: PoolView, bufs: Bufs },
    Own(Vec<u8>),
}

#[derive(Debug)]
enum Reply {
    Driver { slot: u32, results: ResultSender },
    Caller(SyncSender<(i32, Vec<u8>)>),
}

/// An operation for a remote origin. One that is dropped is answered as failed.
#[derive(Debug)]
pub struct RemoteJob {
    kind: RemoteKind,
    offset_bytes: u64,
    len_bytes: u64,
    memory: JobMemory,
    reply: Option<Reply>,
}

impl RemoteJob {
    /// A job of a driver, with buffers of its ring's pool. They are the job's until its answer.
    pub(crate) fn of_driver(
        kind: RemoteKind,
        range: (u64, u64),
        bufs: &Bufs,
        view: &PoolView,
        slot: u32,
        results: &ResultSender,
    ) -> RemoteJob {
        let memory = match kind {
            RemoteKind::Read | RemoteKind::Write => JobMemory::Pool {
                view: view.clone(),
                bufs: bufs.clone(),
            },
            _ => JobMemory::None,
        };
        let results = results.clone();
        RemoteJob {
            kind,
            offset_bytes: range.0,
            len_bytes: range.1,
            memory,
            reply: Some(Reply::Driver { slot, results }),
        }
    }

    /// The kind of the job.
    #[must_use]
    pub fn kind(&self) -> RemoteKind {
        self.kind
    }

    /// Where it begins, in bytes.
    #[must_use]
    pub fn offset_bytes(&self) -> u64 {
        self.offset_bytes
    }

    /// Its length, in bytes.
    #[must_use]
    pub fn len_bytes(&self) -> u64 {
        self.len_bytes
    }

    /// Whether it changes the origin.
    #[must_use]
    pub fn is_change(&self) -> bool {
        use RemoteKind::{Discard, Write, WriteZeroes};
        matches!(self.kind, Write | WriteZeroes | Discard)
    }

    /// Appends bytes of the job's memory from `start` on, as many as `len` at most.
    pub fn copy_to(&self, start: u64, len: u64, into: &mut Vec<u8>) {
        let mut left = len as usize;
        let mut skip = start as usize;
        for slice in self.slices() {
            let rest = slice.get(skip..).unwrap_or_default();
            skip = skip.saturating_sub(slice.len());
            let part = rest.get(..left).unwrap_or(rest);
            into.extend_from_slice(part);
            left -= part.len();
        }
    }

    /// The job's memory, part by part.
    fn slices(&self) -> Vec<&[u8]> {
        match &self.memory {
            JobMemory::None => Vec::new(),
            JobMemory::Own(bytes) => vec![bytes],
            JobMemory::Pool { view, bufs } => bufs
                .iter()
                .map(|buf| {
                    let (base, len) = (view.pointer(*buf), buf.len_bytes as usize);
                    // SAFETY: the view keeps the pool's memory alive, and by the pool's rule the
                    // buffer is the job's until its answer: nobody writes to it.
                    unsafe { std::slice::from_raw_parts(base.as_ptr(), len) }
                })
                .collect(),
        }
    }

    /// Puts bytes that were read into the job's memory, from `start` on.
    ///
    /// # Panics
    /// If they do not fit, or the job is no read.
    pub fn fill(&mut self, start: u64, bytes: &[u8]) {
        assert_eq!(self.kind, RemoteKind::Read, "only a read is filled");
        let end = start + bytes.len() as u64;
        assert!(end <= self.len_bytes, "a read is filled within its range");
        let mut skip = start as usize;
        let mut rest = bytes;
        let mut put = |part: &mut [u8]| {
            let room = part.get_mut(skip..).unwrap_or_default();
            let taken = room.len().min(rest.len());
            let (now, later) = rest.split_at(taken);
            if let Some(room) = room.get_mut(..taken) {
                room.copy_from_slice(now);
            }
            rest = later;
            skip = skip.saturating_sub(part.len());
        };
        match &mut self.memory {
            JobMemory::None => {}
            JobMemory::Own(bytes) => put(bytes),
            JobMemory::Pool { view, bufs } => {
                for buf in bufs.iter() {
                    let (base, len) = (view.pointer(*buf), buf.len_bytes as usize);
                    // SAFETY: as in `slices`, and nobody else reads it either.
                    put(unsafe { std::slice::from_raw_parts_mut(base.as_ptr(), len) });
                }
            }
        }
    }

    /// Answers the job: zero, or the kernel's number for a failure.
    pub fn answer(mut self, errno: i32) {
        self.reply_with(errno);
    }

    fn reply_with(&mut self, errno: i32) {
        match self.reply.take() {
            None => {}
            Some(Reply::Driver { slot, results }) => results.send(slot, -errno),
            Some(Reply::Caller(sender)) => {
                let memory = std::mem::replace(&mut self.memory, JobMemory::None);
                let bytes = match memory {
                    JobMemory::Own(bytes) => bytes,
                    _ => Vec::new(),
                };
                // A caller that is gone wants no answer.
                let _ = sender.send((-errno, bytes));
            }
        }
    }
}

impl Drop for RemoteJob {
    fn drop(&mut self) {
        self.reply_with(libc::EIO);
    }
}

/// Carries out one operation and waits for it; the memory comes back with a read's data.
pub(crate) fn carry_out(
    remote: &dyn Remote,
    kind: RemoteKind,
    offset_bytes: u64,
    memory: Vec<u8>,
) -> Result<Vec<u8>, DeviceError> {
    let (sender, receiver) = sync_channel(1);
    remote.submit(RemoteJob {
        kind,
        offset_bytes,
        len_bytes: memory.len() as u64,
        memory: JobMemory::Own(memory),
        reply: Some(Reply::Caller(sender)),
    });
    match receiver.recv() {
        Ok((0, bytes)) => Ok(bytes),
        Ok((result, _)) => Err(device_error(-result)),
        Err(_) => Err(DeviceError::Gone),
    }
}

/// The end of a driver's results that answers go to.
#[derive(Clone, Debug)]
pub(crate) struct ResultSender {
    results: Sender<(u32, i32)>,
    event: Event,
}

impl ResultSender {
    fn send(&self, slot: u32, result: i32) {
        // A driver that is gone wants no answer.
        if self.results.send((slot, result)).is_ok() {
            self.event.notify();
        }
    }
}

/// Results of a driver's jobs.
#[derive(Debug)]
pub(crate) struct Results {
    receiver: Receiver<(u32, i32)>,
    sender: ResultSender,
}

impl Results {
    pub(crate) fn new() -> std::io::Result<Results> {
        let (results, receiver) = channel();
        let event = Event::new()?;
        Ok(Results {
            receiver,
            sender: ResultSender { results, event },
        })
    }

    pub(crate) fn sender(&self) -> &ResultSender {
        &self.sender
    }

    /// Readable when results may be had.
    pub(crate) fn event(&self) -> &Event {
        &self.sender.event
    }

    /// The next finished job's slot, with zero or a negated errno.
    pub(crate) fn next(&self) -> Option<(u32, i32)> {
        self.receiver.try_recv().ok()
    }
}
