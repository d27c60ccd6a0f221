//! Requests that wait for the rate of their volume: clients are not read from, and tags of block
//! devices not begun, until it is their time.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use forebay_engine::{Nanos, VolumeSlot};

use super::worker::Worker;
use crate::settings::Rates;

/// Client or queue with a request that waits for its volume's rate.
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
}
