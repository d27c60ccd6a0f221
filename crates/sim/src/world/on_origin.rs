//! Changes that clients made on an origin themselves. A failed flush of the origin is theirs to hear
//! of for these alone. What write-back wrote there stays dirty in the cache until a flush covers it
//! (I10), and a file system that hears of an error aborts its journal.

use forebay_engine::Mode;

use super::{Kind, Pending, World};

/// The changes of a volume that its origin has, or may have.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct OnOrigin {
    answered: u64,
    /// Changes among them that a flush covers.
    flushed: u64,
    /// The mode may be one that writes each change to the origin.
    all: bool,
}

impl OnOrigin {
    pub(super) fn serve(&mut self, mode: Mode) {
        self.all = mode != Mode::Writeback;
    }

    /// When the mode of a request changes nobody can tell.
    pub(super) fn serve_in_another_mode(&mut self) {
        self.all = true;
    }
}

impl World<'_> {
    /// A client asks: of a flush, what it is to make durable.
    pub(super) fn asks_of_origin(&self, pending: &mut Pending) {
        let volume = pending.range.volume;
        pending.on_origin = self.volumes[usize::from(volume)].on_origin.answered;
        pending.is_owed = self.has_changes_on_origin(volume);
    }

    /// A client has its answer.
    pub(super) fn changed_origin(&mut self, pending: &Pending, ok: bool, bypassed: bool) {
        let volume = pending.range.volume;
        let on_origin = &mut self.volumes[usize::from(volume)].on_origin;
        match pending.kind {
            Kind::Read { .. } => {}
            Kind::Flush if ok => on_origin.flushed = on_origin.flushed.max(pending.on_origin),
            Kind::Flush => {}
            Kind::Write { .. } => {
                if bypassed || !ok || on_origin.all {
                    on_origin.answered += 1;
                    let waiting = self.requests.values_mut();
                    waiting
                        .filter(|other| other.kind == Kind::Flush && other.range.volume == volume)
                        .for_each(|flush| flush.is_owed = true);
                }
            }
        }
    }

    /// Whether an origin may have changes of clients that no flush covers.
    pub(super) fn has_changes_on_origin(&self, volume: u16) -> bool {
        let on_origin = self.volumes[usize::from(volume)].on_origin;
        let mut waiting = self.requests.values();
        // A cache that failed has write-back alone to save what is dirty.
        self.touched.any_failed
            || on_origin.answered > on_origin.flushed
            || waiting.any(|other| {
                matches!(other.kind, Kind::Write { .. }) && other.range.volume == volume
            })
    }
}
