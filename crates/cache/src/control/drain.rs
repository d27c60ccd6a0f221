//! Writing everything of a volume back.

use forebay_engine::VolumeSlot;

use super::{Books, Happened, Progress, Refusal, Step, backlog};
use crate::instruction::Instruction;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum At {
    Begun,
    Watching,
    Ceasing,
}

/// 1. Every shard writes back. 2. It is watched until nothing is dirty in any of them, each at the
///    moment it was asked: clients may write meanwhile. 3. The shards cease, unless another command
///    has them write the volume back too.
#[derive(Debug)]
pub(super) struct Drain {
    volume: VolumeSlot,
    at: At,
    result: Result<(), Refusal>,
}

impl Drain {
    pub(super) fn new(books: &mut Books, volume: VolumeSlot) -> Result<Drain, Refusal> {
        books.hold(volume)?;
        Ok(Drain {
            volume,
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
            (At::Watching, Happened::Told(answers)) => match watch(&answers, progress) {
                Some(0) => self.cease(books),
                _ if interrupted => {
                    self.result = Err(Refusal::Interrupted);
                    self.cease(books)
                }
                _ => Step::Look(Instruction::CountDirty(self.volume)),
            },
            _ => self.ended(books),
        }
    }

    fn cease(&mut self, books: &mut Books) -> Step {
        self.at = At::Ceasing;
        match end(books, self.volume) {
            Some(instruction) => Step::Tell(instruction),
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
    Step::Tell(Instruction::SetDraining(volume, true))
}

/// The command that began it ceases; what hosts are to be told, if no other goes on.
pub(super) fn end(books: &mut Books, volume: VolumeSlot) -> Option<Instruction> {
    let served = books.volume(volume);
    served.drains -= 1;
    (served.drains == 0).then_some(Instruction::SetDraining(volume, false))
}

/// Notes how far it is; how many blocks are dirty, if hosts were asked for that.
pub(super) fn watch(answers: &[crate::Answer], progress: &mut Progress) -> Option<u64> {
    let now = backlog(answers)?;
    progress.began_with_blocks = progress.began_with_blocks.max(now.dirty_blocks);
    progress.backlog = now;
    Some(now.dirty_blocks)
}
