//! Links to workers: a queue and a waker each. With one worker nothing of the data path passes
//! through here.

use std::sync::mpsc::{Sender, channel};

use forebay_engine::VolumeSlot;
use forebay_frontend::nbd::StatusExtent;
use forebay_io::Waker;

use super::admitted::Admitted;
use super::worker::Worker;

/// A message to a worker.
pub(in crate::daemon) enum Message {
    /// A client that has opened an export, to look after.
    Client(Box<Admitted>),
    /// A message of another worker's part of the cache to this worker's.
    Host(forebay_cache::Message),
    /// A query about blocks of a shard of this worker.
    StatusQuery(StatusQuery),
    /// The reply to such a query.
    StatusReply(u32, Vec<StatusExtent>),
    /// Something to be done between two turns of the loop.
    Task(Box<dyn FnOnce(&mut Worker) + Send>),
}

/// Which blocks of a shard are cached and dirty?
#[derive(Clone, Copy, Debug)]
pub(in crate::daemon) struct StatusQuery {
    pub(in crate::daemon) shard: u16,
    pub(in crate::daemon) volume: VolumeSlot,
    pub(in crate::daemon) offset_bytes: u64,
    pub(in crate::daemon) len_bytes: u32,
    /// The worker that asks, and its number for the query.
    pub(super) requester: usize,
    pub(super) in_flight: u32,
}

/// The worker has ended.
#[derive(Debug, thiserror::Error)]
#[error("a thread of the daemon has ended; see its log, and start it again")]
pub(in crate::daemon) struct WorkerGone;

/// A worker, from outside.
#[derive(Clone)]
pub(in crate::daemon) struct Link {
    pub(in crate::daemon) sender: Sender<Message>,
    pub(in crate::daemon) waker: Waker,
}

impl Link {
    /// Sends a message. A worker that has ended has nobody left to answer to.
    pub(in crate::daemon) fn send(&self, message: Message) {
        if self.sender.send(message).is_ok() {
            self.waker.wake();
        }
    }

    /// Has the worker do something and waits for the result.
    pub(in crate::daemon) fn call<T: Send + 'static>(
        &self,
        task: impl FnOnce(&mut Worker) -> T + Send + 'static,
    ) -> Result<T, WorkerGone> {
        let (sender, receiver) = channel();
        self.send(Message::Task(Box::new(move |worker| {
            // The caller waits until it has this.
            let _ = sender.send(task(worker));
        })));
        receiver.recv().map_err(|_| WorkerGone)
    }
}
