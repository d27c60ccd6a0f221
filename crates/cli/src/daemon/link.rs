//! How threads reach a worker: a queue and a waker. With one worker nothing of the data path
//! passes through here.

use std::sync::mpsc::{Sender, channel};

use forebay_engine::VolumeSlot;
use forebay_frontend::nbd::{Extent, TlsPolicy};
use forebay_io::Waker;

use super::socket::Socket;
use super::worker::Worker;

/// What a worker is sent.
pub(super) enum Message {
    /// A client to look after.
    Client(Socket, TlsPolicy),
    /// What another worker's part of the cache has to say to this one's.
    Host(forebay_cache::Message),
    /// A question about blocks of a shard of this worker.
    Ask(Question),
    /// The answer to such a question.
    Told(u32, Vec<Extent>),
    /// Something to be done between two turns of the loop.
    Task(Box<dyn FnOnce(&mut Worker) + Send>),
}

/// Which blocks of a shard are cached and dirty?
#[derive(Clone, Copy, Debug)]
pub(super) struct Question {
    pub(super) shard: u16,
    pub(super) volume: VolumeSlot,
    pub(super) offset_bytes: u64,
    pub(super) len_bytes: u32,
    /// The worker that asks, and its name for the question.
    pub(super) asker: usize,
    pub(super) flight: u32,
}

/// The worker has ended.
#[derive(Debug, thiserror::Error)]
#[error("a thread of the daemon has ended; see its log, and start it again")]
pub(super) struct WorkerGone;

/// One worker, from outside.
#[derive(Clone)]
pub(super) struct Link {
    pub(super) sender: Sender<Message>,
    pub(super) waker: Waker,
}

impl Link {
    /// Sends a message. A worker that has ended has nobody left to answer to.
    pub(super) fn send(&self, message: Message) {
        if self.sender.send(message).is_ok() {
            self.waker.wake();
        }
    }

    /// Has the worker do something and waits for the result.
    pub(super) fn call<T: Send + 'static>(
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
