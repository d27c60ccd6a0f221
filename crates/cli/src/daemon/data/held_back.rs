//! Requests that wait before they begin: clients are not read from, and tags of block devices not begun,
//! until it is their time.
//!
//! - A volume's requests wait for its rate.
//! - Changes of a frozen volume wait for the thaw, and all while a cache that failed is not on record.
//!   They do without memory, as far as that can be, so that reads and other volumes have it. A tag waits
//!   by itself. An NBD client sends a write's data behind its header, and whatever comes after that waits
//!   with it: so its writes have memory until half of the thread's is in use.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use forebay_engine::{Nanos, RequestKind, VolumeSlot};

use super::worker::Worker;
use crate::settings::Rates;

/// Client or queue with a request that waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(in crate::daemon) enum HeldBack {
    /// A client that is not read from.
    Client(u32),
    /// A request of a block device: the place of its queue, and its tag.
    Tag(u32, u16),
}

/// All that wait, the earliest first.
#[derive(Debug, Default)]
pub(in crate::daemon) struct HeldBackList(BinaryHeap<Reverse<(Nanos, HeldBack)>>);

impl HeldBackList {
    /// When the first of them may go on.
    pub(super) fn next(&self) -> Option<Nanos> {
        self.0.peek().map(|Reverse((at, _))| *at)
    }

    fn pop_due(&mut self, now: Nanos) -> Option<HeldBack> {
        self.next().filter(|at| *at <= now)?;
        self.0.pop().map(|Reverse((_, who))| who)
    }
}

/// A change that waits without memory.
#[derive(Debug)]
pub(super) struct HeldChange {
    who: HeldBack,
    volume: VolumeSlot,
    kind: RequestKind,
    len_bytes: u32,
}

impl Worker {
    /// Whether `who` waits for the rate of a volume; it is told when it may go on.
    pub(super) fn hold_back(&mut self, volume: VolumeSlot, who: HeldBack) -> bool {
        let Some(Some((served, _))) = self.volumes.get(usize::from(volume.0)) else {
            return false;
        };
        let Some(at) = served.rate.waits_until(self.now) else {
            return false;
        };
        self.held_back.0.push(Reverse((at, who)));
        true
    }

    /// Lets those go on whose time has come.
    pub(super) fn wake_held_back(&mut self) {
        while let Some(who) = self.held_back.pop_due(self.now) {
            self.go_on(who);
        }
    }

    /// Gives a volume other rates. Those that wait look again.
    pub(in crate::daemon) fn set_rates(&mut self, volume: VolumeSlot, rates: Rates) {
        if let Some(Some((served, _))) = self.volumes.get(usize::from(volume.0)) {
            served.rate.set(rates);
        }
        for Reverse((_, who)) in std::mem::take(&mut self.held_back.0) {
            self.go_on(who);
        }
    }

    fn go_on(&mut self, who: HeldBack) {
        match who {
            HeldBack::Client(id) => self.read_on(id),
            HeldBack::Tag(place, tag) => self.ublk.begin_again(place, tag),
        }
    }

    /// Whether a change has to wait without memory; it begins again once it need not.
    pub(super) fn hold_change(
        &mut self,
        who: HeldBack,
        volume: VolumeSlot,
        (kind, len_bytes): (RequestKind, u32),
    ) -> bool {
        let change = HeldChange {
            who,
            volume,
            kind,
            len_bytes,
        };
        let waits = self.waits(&change);
        if waits {
            self.held_changes.push(change);
        }
        waits
    }

    fn waits(&self, change: &HeldChange) -> bool {
        self.host.is_held(change.volume, change.kind)
            && match change.who {
                HeldBack::Tag(..) => true,
                HeldBack::Client(_) => {
                    let kept_bytes = self.arena_share_bytes() / 2;
                    self.arena.free_bytes() < kept_bytes + change.len_bytes as usize
                }
            }
    }

    /// Has changes begin again that need not wait any more.
    pub(super) fn wake_held_changes(&mut self) {
        if self.held_changes.is_empty() {
            return;
        }
        for change in std::mem::take(&mut self.held_changes) {
            match self.waits(&change) {
                true => self.held_changes.push(change),
                false => self.go_on(change.who),
            }
        }
    }
}
