//! Taps: another thread watches the requests of a volume, at next to no cost for the data path. The
//! data path appends to a bounded queue, without waiting for anything or waking anybody. The
//! watcher looks from time to time; requests that do not fit into the queue are counted and
//! forgotten.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use crossbeam_queue::ArrayQueue;
use forebay_cache::ClientRequest;
use forebay_engine::{Nanos, RequestKind, VolumeSlot};
use forebay_trace::Kind;
use smallvec::SmallVec;

/// A client's request as it is taken off.
#[derive(Clone, Copy, Debug)]
pub(in crate::daemon) struct Seen {
    /// By the daemon's clock, at the beginning of the turn in which it is taken off.
    pub(in crate::daemon) at: Nanos,
    pub(in crate::daemon) offset_bytes: u64,
    pub(in crate::daemon) len_bytes: u32,
    pub(in crate::daemon) kind: Kind,
}

/// Requests on their way from the threads that serve a volume to the one that watches it.
#[derive(Debug)]
pub(in crate::daemon) struct Tap {
    queue: ArrayQueue<Seen>,
    dropped: AtomicU64,
    closed: AtomicBool,
}

impl Tap {
    /// With room for so many requests between two looks.
    pub(in crate::daemon) fn new(room: usize) -> Tap {
        Tap {
            queue: ArrayQueue::new(room),
            dropped: AtomicU64::new(0),
            closed: AtomicBool::new(false),
        }
    }

    fn see(&self, seen: Seen) {
        if self.queue.push(seen).is_err() {
            self.dropped.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// The oldest request that is waiting.
    pub(in crate::daemon) fn take(&self) -> Option<Seen> {
        self.queue.pop()
    }

    /// The number of requests that did not fit.
    pub(in crate::daemon) fn dropped(&self) -> u64 {
        self.dropped.load(Ordering::Relaxed)
    }

    /// Whether nothing more comes: the volume is no longer served.
    pub(in crate::daemon) fn is_closed(&self) -> bool {
        self.closed.load(Ordering::Acquire)
    }

    fn close(&self) {
        self.closed.store(true, Ordering::Release);
    }
}

/// The taps of a worker, by volume.
#[derive(Debug, Default)]
pub(in crate::daemon) struct Taps(Vec<SmallVec<[Arc<Tap>; 2]>>);

impl Taps {
    pub(in crate::daemon) fn add(&mut self, volume: VolumeSlot, tap: Arc<Tap>) {
        let at = usize::from(volume.0);
        if self.0.len() <= at {
            self.0.resize_with(at + 1, SmallVec::new);
        }
        self.0[at].push(tap);
    }

    pub(in crate::daemon) fn remove(&mut self, volume: VolumeSlot, tap: &Arc<Tap>) {
        if let Some(taps) = self.0.get_mut(usize::from(volume.0)) {
            taps.retain(|other| !Arc::ptr_eq(other, tap));
        }
    }

    /// Shows a request to those who watch its volume. `at` is the beginning of the turn.
    pub(in crate::daemon) fn show(&self, at: Nanos, request: &ClientRequest) {
        let Some(taps) = self.0.get(usize::from(request.volume.0)) else {
            return;
        };
        if taps.is_empty() {
            return;
        }
        let kind = match request.kind {
            RequestKind::Read => Kind::Read,
            RequestKind::Write { .. } => Kind::Write,
            RequestKind::WriteZeroes { .. } => Kind::WriteZeroes,
            RequestKind::Discard => Kind::Discard,
            RequestKind::Flush => Kind::Flush,
            // Asks for no data and changes none.
            RequestKind::Prefetch => return,
        };
        let seen = Seen {
            at,
            offset_bytes: request.offset_bytes,
            len_bytes: request.len_bytes,
            kind,
        };
        taps.iter().for_each(|tap| tap.see(seen));
    }

    /// Closes all taps of a volume.
    pub(in crate::daemon) fn end(&mut self, volume: VolumeSlot) {
        if let Some(taps) = self.0.get_mut(usize::from(volume.0)) {
            taps.drain(..).for_each(|tap| tap.close());
        }
    }

    /// Tells all who watch that nothing more comes.
    pub(in crate::daemon) fn end_all(&mut self) {
        self.0.drain(..).flatten().for_each(|tap| tap.close());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_does_not_fit_is_counted() {
        let tap = Tap::new(2);
        let seen = |offset_bytes| Seen {
            at: Nanos(1),
            offset_bytes,
            len_bytes: 512,
            kind: Kind::Read,
        };
        (0..5).for_each(|at| tap.see(seen(at)));
        let taken: Vec<u64> = std::iter::from_fn(|| tap.take())
            .map(|seen| seen.offset_bytes)
            .collect();
        assert_eq!((taken, tap.dropped()), (vec![0, 1], 3));
    }

    #[test]
    fn a_tap_is_closed_with_its_volume_only() {
        let [first, second, third] = [(); 3].map(|()| Arc::new(Tap::new(1)));
        let mut taps = Taps::default();
        taps.add(VolumeSlot(3), Arc::clone(&first));
        taps.add(VolumeSlot(3), Arc::clone(&second));
        taps.add(VolumeSlot(0), Arc::clone(&third));
        taps.remove(VolumeSlot(3), &second);
        taps.end(VolumeSlot(3));
        taps.end(VolumeSlot(9));
        let closed = [&first, &second, &third].map(|tap| tap.is_closed());
        assert_eq!(closed, [true, false, false]);
        taps.end_all();
        assert!(third.is_closed());
    }
}
