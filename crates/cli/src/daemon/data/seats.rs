//! Places for clients that have opened an export. Each worker has so many; each listener has some
//! that no other listener's clients can take.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

/// The most places that are kept for each listener.
const KEPT: usize = 16;

/// The places of all workers, and who has them.
#[derive(Debug)]
pub(in crate::daemon) struct Seats {
    /// The most of a worker.
    each: usize,
    of_workers: Vec<AtomicUsize>,
    of_listeners: Vec<AtomicUsize>,
    /// Somebody waits for a place.
    wanted: AtomicBool,
}

/// A client's place, free again when it is dropped.
#[derive(Debug)]
pub(in crate::daemon) struct Seat {
    seats: Arc<Seats>,
    worker: usize,
    listener: usize,
}

impl Seats {
    pub(in crate::daemon) fn new(each: usize, workers: usize, listeners: usize) -> Arc<Seats> {
        let none = |count| std::iter::repeat_with(AtomicUsize::default).take(count);
        Arc::new(Seats {
            each,
            of_workers: none(workers).collect(),
            of_listeners: none(listeners).collect(),
            wanted: AtomicBool::default(),
        })
    }

    pub(super) fn count(&self) -> usize {
        self.each * self.of_workers.len()
    }

    /// A place for a client of a listener, with the worker that has most left. Only the entrance
    /// takes places, so none is taken between the look and the taking.
    pub(super) fn take(self: &Arc<Seats>, listener: usize) -> Option<Seat> {
        let taken = |count: &AtomicUsize| count.load(Ordering::Acquire);
        let workers = self.of_workers.iter().map(taken).enumerate();
        let (worker, fewest) = workers.min_by_key(|(_, taken)| *taken)?;
        let total: usize = self.of_workers.iter().map(taken).sum();
        let kept = KEPT.min(self.count() / (2 * self.of_listeners.len()));
        let others = self.of_listeners.iter().map(taken).enumerate();
        let kept_for_others: usize = others
            .filter(|(other, _)| *other != listener)
            .map(|(_, taken)| kept.saturating_sub(taken))
            .sum();
        if fewest >= self.each || total + kept_for_others >= self.count() {
            return None;
        }
        self.of_workers[worker].fetch_add(1, Ordering::AcqRel);
        self.of_listeners[listener].fetch_add(1, Ordering::AcqRel);
        Some(Seat {
            seats: Arc::clone(self),
            worker,
            listener,
        })
    }

    pub(super) fn want(&self, wanted: bool) {
        self.wanted.store(wanted, Ordering::Release);
    }
}

impl Seat {
    pub(super) fn worker(&self) -> usize {
        self.worker
    }

    /// Whether somebody waits for a place.
    pub(super) fn is_wanted(&self) -> bool {
        self.seats.wanted.load(Ordering::Acquire)
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        self.seats.of_workers[self.worker].fetch_sub(1, Ordering::AcqRel);
        self.seats.of_listeners[self.listener].fetch_sub(1, Ordering::AcqRel);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_listener_leaves_places_to_the_others_and_workers_fill_evenly() {
        let seats = Seats::new(32, 2, 3);
        let all = |listener| -> Vec<Seat> { std::iter::from_fn(|| seats.take(listener)).collect() };
        // Ten of 64 are kept for each listener.
        let first = all(0);
        assert_eq!(first.len(), 44);
        let of = |worker| first.iter().filter(|seat| seat.worker == worker).count();
        assert_eq!((of(0), of(1)), (22, 22));
        let (second, third) = (all(1), all(2));
        assert_eq!((second.len(), third.len()), (10, 10));
        drop(first);
        assert_eq!(all(2).len(), 34, "ten are kept for the first listener");
    }
}
