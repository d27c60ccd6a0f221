//! The end of a volume in a shard. Only its own requests stand in the way: an origin that hangs keeps
//! no other volume.

use crate::format::Slot;
use crate::interface::VolumeSlot;
use crate::jobs::Job;
use crate::parts::Engine;
use crate::store::op::Op;

impl Engine {
    /// Forgets a volume that has no dirty data, or whose origin is not there, and no requests in
    /// progress. Its blocks leave the index; entries of it in the log are void once the superblock
    /// says the volume is detached (I15).
    ///
    /// # Errors
    /// With the number of dirty blocks if there are any, or of requests in progress.
    pub fn remove_volume(&mut self, slot: VolumeSlot) -> Result<(), u64> {
        let Some(volume) = self.store.find_volume(slot) else {
            return Ok(());
        };
        if volume.dirty_blocks > 0 && !volume.away {
            return Err(volume.dirty_blocks);
        }
        let busy = self.in_progress_of(slot);
        if busy > 0 {
            return Err(busy);
        }
        let (first, end) = volume.keys();
        for at in 0..self.store.log.geometry.slots() {
            let slot = Slot(at);
            let key = self.store.index.key(slot);
            if !(first..end).contains(&key) {
                continue;
            }
            if self.store.index.flags(slot).live() {
                let (slot, flags) = self.store.index.remove(key).expect("live");
                self.store.slot_dies(key, slot, flags);
            } else if self.store.index.named(key) == Some(slot) {
                // Its keys may be those of another volume next.
                self.store.index.hide_evicted(slot);
            }
        }
        self.store.unreadable.forget(first, end);
        self.store.forget_away(slot);
        self.origin.writeback.forget(slot);
        self.store.operations.times.forget_origin(slot);
        self.store.volumes[usize::from(slot.0)] = None;
        Ok(())
    }

    /// The number of things in progress that would take the next volume in this place for this one.
    fn in_progress_of(&self, slot: VolumeSlot) -> u64 {
        let volume = self.store.attached(slot);
        let (first, end) = volume.keys();
        let requests = self.requests.iter();
        let requests = requests.filter(|state| state.request.volume == slot);
        let jobs = self.jobs.table.iter().filter(|job| match job {
            Job::Write(job) => job.request.volume == slot,
            Job::Promote(job) => job.volume == slot,
        });
        let alone = self.store.operations.iter();
        let alone = alone.filter(|op| is_alone_for(op, slot));
        // A flush of its origin that ends later would be taken for one of the next volume in
        // this place, which began before that volume's writes (I6).
        let flushes = usize::from(volume.is_flushing());
        let here = requests.count() + jobs.count() + alone.count() + flushes;
        let moved = self.space.copied_between(first, end);
        let runs = self.origin.runs_to(slot);
        (here + moved + runs) as u64
            + self.buffer.requests_of(slot)
            + self.buffer.blocks_unfinished(first, end)
    }
}

/// Whether it is for this volume, and has no state of a request or of a job besides.
fn is_alone_for(op: &Op, volume: VolumeSlot) -> bool {
    match op {
        Op::WholeHit(hit) => hit.volume == volume,
        Op::FastWrite(write) => write.volume == volume,
        Op::PastWrite(write) => write.volume == volume,
        Op::PromoteOneRead(promotion, _) | Op::PromoteOneWrite(promotion, ..) => {
            promotion.volume == volume
        }
        Op::DoubtfulRead(op) => is_alone_for(op, volume),
        _ => false,
    }
}
