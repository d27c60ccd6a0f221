//! Origins that hang, beside others. The writes that wait for one take no part of the operations that
//! write-back has in flight, and it gets no more of them until they have ended, or one has if they are
//! few.
//!
//! An example. The server of one volume is away, and all 32 operations of write-back wait for it. Two
//! seconds later it counts as hanging, and 32 others go to the volume beside it.

use smallvec::SmallVec;

use crate::format::BlockKey;
use crate::ids::WritebackId;
use crate::interface::{Nanos, VolumeSlot};
use crate::origin::backoff::Backoff;
use crate::origin::writeback::WritebackJob;
use crate::slab::Slab;
use crate::store::Store;
use crate::store::volumes::HANGS_AFTER;

/// An origin hangs of which so many writes do. Fewer may be of one bad place, and count only where
/// they keep all others from beginning: write-back may have so few in flight.
const LEAST_THAT_HANG: usize = 4;

/// See the module.
#[derive(Debug, Default)]
pub(super) struct Hanging {
    volumes: SmallVec<[VolumeSlot; 2]>,
    /// Volumes among them of which few writes hang, and none has ended since.
    held_up_all: SmallVec<[VolumeSlot; 2]>,
    /// Runs on their way to all of these, and blocks in them.
    pub(super) runs: u32,
    pub(super) blocks: usize,
    /// When another may count as hanging, or one no longer.
    next_look: Option<Nanos>,
    /// As many runs go on as may.
    is_full: bool,
}

impl Hanging {
    /// A run begins.
    pub(super) fn run_begins(&mut self, now: Nanos) {
        self.next_look.get_or_insert(now.after(HANGS_AFTER));
    }

    /// Says whether as many runs go on as may.
    pub(super) fn set_full(&mut self, is_full: bool) {
        self.is_full = is_full;
    }

    /// A run has ended.
    pub(super) fn run_ended(&mut self, run: &WritebackJob) {
        self.is_full = false;
        if self.volumes.contains(&run.volume) {
            self.held_up_all.retain(|slot| *slot != run.volume);
            self.runs -= 1;
            self.blocks -= run.versions.len();
            self.next_look = Some(Nanos(0));
        }
    }

    /// Whether it is time to look again.
    #[inline]
    pub(super) fn is_due(&self, now: Nanos) -> bool {
        self.next_look.is_some_and(|at| at <= now)
    }

    /// Whether any origin hangs.
    pub(super) fn any(&self) -> bool {
        !self.volumes.is_empty()
    }

    /// When to look again.
    pub(super) fn next_look(&self) -> Option<Nanos> {
        self.next_look
    }

    /// Looks at the runs on their way, if it is time. `backoff` has volumes that want none for now.
    pub(super) fn advance(
        &mut self,
        now: Nanos,
        store: &Store,
        backoff: &Backoff,
        runs: &Slab<WritebackId, Box<WritebackJob>>,
    ) {
        if !self.is_due(now) {
            return;
        }
        let (volumes, held_up_all) = self.volumes_that_hang(now, runs);
        *self = Hanging {
            volumes,
            held_up_all,
            next_look: (!runs.is_empty()).then(|| now.after(HANGS_AFTER)),
            is_full: self.is_full,
            ..Hanging::default()
        };
        let hang = self.volumes.iter().copied();
        let pause = backoff.paused().filter(|slot| !self.volumes.contains(slot));
        let others_wait = store.present_dirty_in(hang.chain(pause)) < store.present_dirty();
        if !others_wait {
            self.volumes.clear();
            self.held_up_all.clear();
        }
        for run in runs.iter() {
            if self.volumes.contains(&run.volume) {
                self.runs += 1;
                self.blocks += run.versions.len();
            } else if let Some(began_at) = run.began_at {
                let hangs_at = began_at.after(HANGS_AFTER);
                let is_earlier = |next: &Nanos| now < hangs_at && hangs_at < *next;
                if self.next_look.as_ref().is_some_and(is_earlier) {
                    self.next_look = Some(hangs_at);
                }
            }
        }
    }

    /// Volumes of which several writes hang, or that hold up the rest: as many runs go on as may, and
    /// all of these hang. Those of the second kind also apart.
    fn volumes_that_hang(
        &self,
        now: Nanos,
        runs: &Slab<WritebackId, Box<WritebackJob>>,
    ) -> (SmallVec<[VolumeSlot; 2]>, SmallVec<[VolumeSlot; 2]>) {
        let hangs = |run: &WritebackJob| {
            let began_at = run.began_at;
            began_at.is_some_and(|at| now.since(at) >= HANGS_AFTER)
        };
        let all = || runs.iter().map(Box::as_ref);
        let hanging = || all().filter(|run| hangs(run));
        let mut that_go_on = all().filter(|run| !self.volumes.contains(&run.volume));
        let hold_up_all = self.is_full && that_go_on.all(hangs);
        let (mut volumes, mut held_up_all) = (SmallVec::new(), SmallVec::new());
        for run in hanging() {
            let slot = run.volume;
            let of_it = hanging().filter(|other| other.volume == slot);
            let are_many = of_it.count() >= LEAST_THAT_HANG;
            let is_one = are_many || hold_up_all || self.held_up_all.contains(&slot);
            if is_one && !volumes.contains(&slot) {
                volumes.push(slot);
                if !are_many {
                    held_up_all.push(slot);
                }
            }
        }
        (volumes, held_up_all)
    }

    /// Whether a block's volume gets no more writes now.
    pub(super) fn holds(&self, store: &Store, key: BlockKey) -> bool {
        store.is_of(self.volumes.iter().copied(), key)
    }
}
