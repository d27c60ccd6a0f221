//! Writing a volume back.

use forebay_engine::VolumeSlot;

use super::{Books, Happened, Progress, Refusal, Step, backlog};
use crate::Backlog;
use crate::instruction::Instruction;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum At {
    Begun,
    Watching,
    Ceasing,
}

/// 1. Every shard writes back. 2. It is watched until nothing is dirty in any of them, or no more than
///    may be left, each at the moment it was asked: clients may write meanwhile. 3. The shards cease,
///    unless another command has them write the volume back too.
#[derive(Debug)]
pub(super) struct Drain {
    volume: VolumeSlot,
    left_blocks: u64,
    at: At,
    result: Result<(), Refusal>,
}

impl Drain {
    pub(super) fn new(
        books: &mut Books,
        volume: VolumeSlot,
        left_blocks: u64,
    ) -> Result<Drain, Refusal> {
        books.hold(volume)?;
        Ok(Drain {
            volume,
            left_blocks,
            at: At::Begun,
            result: Ok(()),
        })
    }

    pub(super) fn go_on(
        &mut self,
        books: &mut Books,
        happened: Happened,
        interrupted: bool,
        progress: &mut Progress,
    ) -> Step {
        match (self.at, happened) {
            (At::Begun, _) => {
                self.at = At::Watching;
                begin(books, self.volume)
            }
            (At::Watching, Happened::Instructed(answers)) => {
                match watch(&answers, progress) {
                    Watched::Clean => {}
                    _ if self.may_leave(&answers) => {}
                    Watched::Unreadable(blocks) => self.result = Err(Refusal::Unreadable(blocks)),
                    Watched::Dirty if interrupted => self.result = Err(Refusal::Interrupted),
                    Watched::Dirty => return Step::Look(Instruction::CountDirty(self.volume)),
                }
                self.cease(books)
            }
            _ => self.ended(books),
        }
    }

    /// Whether so little is dirty that it may be left: blocks that cannot be read are no fault then.
    fn may_leave(&self, answers: &[crate::Answer]) -> bool {
        let is_little = |now: Backlog| now.dirty_blocks <= self.left_blocks;
        self.left_blocks > 0 && backlog(answers).is_some_and(is_little)
    }

    fn cease(&mut self, books: &mut Books) -> Step {
        self.at = At::Ceasing;
        match end(books, self.volume) {
            Some(instruction) => Step::Instruct(instruction),
            None => self.ended(books),
        }
    }

    fn ended(&mut self, books: &mut Books) -> Step {
        books.let_go(self.volume);
        Step::Ended(self.result.clone())
    }
}

/// Has a volume written back.
pub(super) fn begin(books: &mut Books, volume: VolumeSlot) -> Step {
    books.volume(volume).drains += 1;
    Step::Instruct(Instruction::SetDraining(volume, true))
}

/// Ends the command that began it; returns the instruction for hosts, if no other goes on.
pub(super) fn end(books: &mut Books, volume: VolumeSlot) -> Option<Instruction> {
    let served = books.volume(volume);
    served.drains -= 1;
    (served.drains == 0).then_some(Instruction::SetDraining(volume, false))
}

/// The state of writing back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Watched {
    /// Nothing is dirty.
    Clean,
    /// All that is left is these blocks, which cannot be read.
    Unreadable(u64),
    /// Something is left.
    Dirty,
}

/// Notes how far it is, if hosts were asked for that.
pub(super) fn watch(answers: &[crate::Answer], progress: &mut Progress) -> Watched {
    let Some(now) = backlog(answers) else {
        return Watched::Dirty;
    };
    progress.began_with_blocks = progress.began_with_blocks.max(now.dirty_blocks);
    progress.backlog = now;
    match now.dirty_blocks {
        0 => Watched::Clean,
        dirty if dirty == now.unreadable_blocks => Watched::Unreadable(dirty),
        _ => Watched::Dirty,
    }
}
