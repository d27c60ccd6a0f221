//! Frozen volumes: their origins stay as they are, so that a snapshot of one is whole (I27).
//!
//! Changes wait here and reads go on. A flush goes on too: what it is asked to make durable was
//! answered before the freeze, and is on the origin.

use forebay_engine::{Buf, Memory, Nanos, RequestKind, VolumeSlot};

use crate::host::Host;
use crate::requests::ClientRequest;

/// A change that waits for its volume.
#[derive(Debug)]
pub(crate) struct Waiting<T> {
    payload: T,
    request: ClientRequest,
    bufs: Vec<Buf>,
}

/// The frozen volumes of a host.
#[derive(Debug)]
pub(crate) struct Frozen<T> {
    volumes: Vec<VolumeSlot>,
    waiting: Vec<Waiting<T>>,
}

impl<T> Default for Frozen<T> {
    fn default() -> Frozen<T> {
        Frozen {
            volumes: Vec::new(),
            waiting: Vec::new(),
        }
    }
}

impl<T> Frozen<T> {
    /// Whether a request waits for its volume.
    #[inline]
    pub(crate) fn holds(&self, request: &ClientRequest) -> bool {
        !self.volumes.is_empty() && is_change(request.kind) && self.has(request.volume)
    }

    fn has(&self, volume: VolumeSlot) -> bool {
        self.volumes.contains(&volume)
    }

    pub(crate) fn wait(&mut self, payload: T, request: ClientRequest, bufs: Vec<Buf>) {
        self.waiting.push(Waiting {
            payload,
            request,
            bufs,
        });
    }

    pub(crate) fn set(&mut self, volume: VolumeSlot, frozen: bool) {
        self.volumes.retain(|other| *other != volume);
        if frozen {
            self.volumes.push(volume);
        }
    }

    /// Takes those whose volume is not frozen any more, in the order in which they came.
    fn thawed(&mut self) -> Vec<Waiting<T>> {
        let all = std::mem::take(&mut self.waiting);
        let (waiting, thawed) = all
            .into_iter()
            .partition(|waiting| self.has(waiting.request.volume));
        self.waiting = waiting;
        thawed
    }
}

fn is_change(kind: RequestKind) -> bool {
    match kind {
        RequestKind::Read | RequestKind::Prefetch | RequestKind::Flush => false,
        RequestKind::Write { .. } | RequestKind::WriteZeroes { .. } | RequestKind::Discard => true,
    }
}

impl<T> Host<T> {
    /// Submits the changes whose volume is not frozen any more, before any that come later.
    pub fn submit_thawed(&mut self, now: Nanos, memory: &mut dyn Memory) {
        if self.frozen.waiting.is_empty() {
            return;
        }
        for waiting in self.frozen.thawed() {
            self.submit(now, waiting.payload, waiting.request, waiting.bufs, memory);
        }
    }

    /// Whether a change has to wait before it begins: its volume is frozen (I27), or no answer may
    /// promise anything as a cache that failed is not on record yet (I22).
    pub fn is_held(&self, volume: VolumeSlot, kind: RequestKind) -> bool {
        is_change(kind) && (self.frozen.has(volume) || self.may_not_promise())
    }

    /// Whether requests that wait for that have memory, which comes back once they need not.
    #[must_use]
    pub fn holds_requests(&self) -> bool {
        !self.frozen.waiting.is_empty() || !self.failure.promises.is_empty()
    }

    /// The number of changes of a volume on their way to the shards. Those that wait are not among
    /// them.
    pub(crate) fn changes_of(&mut self, slot: VolumeSlot) -> u64 {
        self.joins
            .iter_mut()
            .filter(|join| join.volume == slot && join.promises && !join.is_flush)
            .count() as u64
    }
}
