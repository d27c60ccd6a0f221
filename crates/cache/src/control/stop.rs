//! Ending in order, so that the next start is quick and notices an origin that changed meanwhile.

use std::collections::VecDeque;

use forebay_engine::VolumeSlot;

use super::{Books, Change, Happened, Refusal, Step, left};
use crate::instruction::Instruction;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum At {
    #[default]
    Begun,
    Waiting,
    LimitingWriteback,
    Flushing,
    Settling,
    Unsettled,
    Holding,
    Unheld,
    Seeing,
    Recording,
}

/// The driver takes no more requests before it begins. Then:
///
/// 1. Other commands end.
/// 2. Write-back begins only what somebody waits for, however much is dirty.
/// 3. Each volume is flushed, as by a client.
/// 4. Every shard writes down how far it is durable, and everything on its way ends.
/// 5. Write-back ceases, its operations end, and a shard that is at rest begins nothing more.
/// 6. Origins are flushed and looked at.
/// 7. Their fingerprints are on record.
///
/// 5 comes after 4 because requests may have waited for write-back. 6 comes after 5, or the
/// fingerprint would be of an origin that changes.
#[derive(Debug, Default)]
pub(super) struct Stop {
    at: At,
    to_flush: VecDeque<VolumeSlot>,
    flushing: Option<VolumeSlot>,
}

impl Stop {
    pub(super) fn go_on(
        &mut self,
        books: &mut Books,
        happened: Happened,
        interrupted: bool,
        others: usize,
    ) -> Step {
        if interrupted {
            return Step::Ended(Err(Refusal::Interrupted));
        }
        match (self.at, happened) {
            (At::Begun | At::Waiting, _) if others > 0 => {
                self.at = At::Waiting;
                Step::Wait
            }
            (At::Begun | At::Waiting, _) => self.to(
                At::LimitingWriteback,
                Step::Instruct(Instruction::LimitWriteback),
            ),
            (At::LimitingWriteback, _) => {
                self.to_flush = served(books).map(|(_, slot)| slot).collect();
                self.at = At::Flushing;
                self.flush_next()
            }
            (At::Flushing, Happened::Flushed(true)) => self.flush_next(),
            (At::Flushing, _) => {
                let volume = self.flushing.expect("a flush was sent");
                Step::Ended(Err(Refusal::Flush(volume)))
            }
            (At::Settling, _) => self.to(At::Unsettled, Step::Look(Instruction::CountUnsettled)),
            (At::Unsettled, Happened::Instructed(answers)) => match left(&answers) {
                0 => self.to(At::Holding, Step::Instruct(Instruction::Hold)),
                _ => Step::Look(Instruction::CountUnsettled),
            },
            (At::Holding, _) => self.to(At::Unheld, Step::Look(Instruction::CountUnsettled)),
            (At::Unheld, Happened::Instructed(answers)) => match left(&answers) {
                0 => self.to(At::Seeing, Step::See(served(books).collect())),
                _ => Step::Look(Instruction::CountUnsettled),
            },
            (At::Seeing, Happened::Seen(Ok(seen))) => {
                self.to(At::Recording, Step::Record(Change::Fingerprints(seen)))
            }
            (At::Seeing, Happened::Seen(Err(error))) => Step::Ended(Err(Refusal::Unseen(error))),
            (At::Recording, Happened::Recorded(Err(error))) => {
                Step::Ended(Err(Refusal::Uncertain(error)))
            }
            (At::Recording, _) => Step::Ended(Ok(())),
            (at, happened) => unreachable!("{happened:?} while {at:?}"),
        }
    }

    fn to(&mut self, at: At, step: Step) -> Step {
        self.at = at;
        step
    }

    fn flush_next(&mut self) -> Step {
        self.flushing = self.to_flush.pop_front();
        match self.flushing {
            Some(volume) => Step::Flush(volume),
            None => self.to(At::Settling, Step::Instruct(Instruction::Settle)),
        }
    }
}

/// The volumes that are served: their ids and numbers. What is on record of an origin that is away
/// stays as it is.
fn served(books: &Books) -> impl Iterator<Item = (u32, VolumeSlot)> {
    let volumes = (0..).zip(&books.volumes);
    volumes.filter_map(|(slot, volume)| {
        let volume = volume.as_ref().filter(|volume| !volume.away)?;
        Some((volume.id, VolumeSlot(slot)))
    })
}
