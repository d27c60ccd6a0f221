//! Origins that hang, beside others. The writes that wait for one take no part of the operations that
//! write-back has in flight, and it gets no more of them until they have ended.
//!
//! An example. The server of one volume is away, and all 32 operations of write-back wait for it. Two
//! seconds later it counts as hanging, and 32 others go to the volume beside it.

use smallvec::SmallVec;

use crate::format::BlockKey;
use crate::ids::WritebackId;
use crate::interface::{Nanos, VolumeSlot};
use crate::origin::writeback::WritebackJob;
use crate::slab::Slab;
use crate::store::Store;

/// A write hangs that has not ended after so long: a disk with a full queue takes a tenth of it.
const HANGS_AFTER: Nanos = Nanos(2_000_000_000);
/// An origin hangs of which so many writes do. Fewer may be of one bad place.
const LEAST_THAT_HANG: usize = 4;

/// See the module.
#[derive(Debug, Default)]
pub(super) struct Hanging {
    volumes: SmallVec<[VolumeSlot; 2]>,
    /// Runs on their way to these, and blocks in them.
    pub(super) runs: u32,
    pub(super) blocks: usize,
    /// When another may count as hanging, or one no longer.
    next_look: Option<Nanos>,
}

impl Hanging {
    /// A run begins.
    pub(super) fn run_begins(&mut self, now: Nanos) {
        self.next_look.get_or_insert(now.after(HANGS_AFTER));
    }

    /// A run has ended.
    pub(super) fn run_ended(&mut self, run: &WritebackJob) {
        if self.volumes.contains(&run.volume) {
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

    /// Looks at the runs on their way, if it is time. `paused_dirty`: dirty blocks of volumes that want
    /// no operations for now.
    pub(super) fn advance(
        &mut self,
        now: Nanos,
        store: &Store,
        paused_dirty: u64,
        runs: &Slab<WritebackId, Box<WritebackJob>>,
    ) {
        if !self.is_due(now) {
            return;
        }
        *self = Hanging {
            volumes: volumes_that_hang(now, runs),
            next_look: (!runs.is_empty()).then(|| now.after(HANGS_AFTER)),
            ..Hanging::default()
        };
        let its_dirty = store.present_dirty_in(self.volumes.iter().copied());
        let others_wait = its_dirty + paused_dirty < store.present_dirty();
        if !others_wait {
            self.volumes.clear();
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

    /// Whether a block's volume gets no more writes now.
    pub(super) fn holds(&self, store: &Store, key: BlockKey) -> bool {
        store.is_of(self.volumes.iter().copied(), key)
    }
}

/// Volumes of which several writes hang.
fn volumes_that_hang(
    now: Nanos,
    runs: &Slab<WritebackId, Box<WritebackJob>>,
) -> SmallVec<[VolumeSlot; 2]> {
    let hangs = |run: &WritebackJob| {
        let began_at = run.began_at;
        began_at.is_some_and(|at| now.since(at) >= HANGS_AFTER)
    };
    let hanging = || runs.iter().map(Box::as_ref).filter(|run| hangs(run));
    let mut volumes: SmallVec<[VolumeSlot; 2]> = SmallVec::new();
    for run in hanging() {
        let of_it = hanging().filter(|other| other.volume == run.volume);
        if !volumes.contains(&run.volume) && of_it.count() >= LEAST_THAT_HANG {
            volumes.push(run.volume);
        }
    }
    volumes
}
