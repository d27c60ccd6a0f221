//! Taking a volume off, so that its origin is whole by itself.

use forebay_engine::planted::{self, Bug};
use forebay_engine::{SuperblockError, VolumeSlot};

use super::drain::Watched;
use super::{Books, Change, Frozen, Happened, Progress, Refusal, Step, drain, left};
use crate::instruction::Instruction;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum At {
    Begun,
    Draining,
    Releasing,
    Detaching,
    LastRequests,
    DrainingRest,
    Flushing,
    Recording,
    Undoing,
    ServingAgain,
    Ceasing,
    /// Commands that have its number come first.
    Waiting,
    Removing,
}

/// In this order, each step only after the one before:
///
/// 1. The volume is written back while clients go on, which is most of it.
/// 2. Its users let go. 3. Every host refuses its requests. 4. Those on their way end: after that
///    nothing of it becomes dirty, in any shard.
/// 5. The rest is written back. 6. A flush as a client sends it: bypassed writes are durable too,
///    and a loss that nobody was told of ends the command.
/// 7. The superblock says that nothing of the volume counts (I15). 8. Hosts forget it.
///
/// Example of what the order is for: were 7 before 4, a write that is answered between the two
/// would be in a log that does not count.
#[derive(Debug)]
pub(super) struct Detach {
    volume: VolumeSlot,
    id: u32,
    at: At,
    why: Option<Refusal>,
    failure: Option<SuperblockError>,
}

impl Detach {
    pub(super) fn new(books: &mut Books, volume: VolumeSlot) -> Result<Detach, Refusal> {
        if books.staying(volume)?.frozen != Frozen::No {
            return Err(Refusal::Frozen);
        }
        Detach::of_frozen(books, volume)
    }

    /// Of a volume that the command has frozen itself.
    pub(super) fn of_frozen(books: &mut Books, volume: VolumeSlot) -> Result<Detach, Refusal> {
        let served = books.staying(volume)?;
        served.leaves = true;
        Ok(Detach {
            volume,
            id: served.id,
            at: At::Begun,
            why: None,
            failure: None,
        })
    }

    pub(super) fn go_on(
        &mut self,
        books: &mut Books,
        happened: Happened,
        interrupted: bool,
        progress: &mut Progress,
    ) -> Step {
        let volume = self.volume;
        match (self.at, happened) {
            (At::Begun, _) => {
                self.at = At::Draining;
                drain::begin(books, volume)
            }
            (At::Draining, Happened::Instructed(answers)) => match drain::watch(&answers, progress)
            {
                Watched::Clean => self.to(At::Releasing, Step::Release(volume)),
                Watched::Unreadable(blocks) => self.cease(books, Refusal::Unreadable(blocks)),
                Watched::Dirty if interrupted => self.cease(books, Refusal::Interrupted),
                Watched::Dirty => Step::Look(Instruction::CountDirty(volume)),
            },
            (At::Releasing, Happened::Released(true)) => self.to(
                At::Detaching,
                Step::Instruct(Instruction::SetDetaching(volume, true)),
            ),
            (At::Releasing, _) => self.cease(books, Refusal::InUse),
            (At::Detaching, Happened::Instructed(_)) if planted::is(Bug::DetachedEarly) => {
                self.to(At::Recording, Step::Record(Change::Detach(self.id)))
            }
            (At::Detaching, Happened::Instructed(_)) => self.to(
                At::LastRequests,
                Step::Look(Instruction::CountRequests(volume)),
            ),
            (At::LastRequests, Happened::Instructed(answers)) => match left(&answers) {
                0 => self.to(
                    At::DrainingRest,
                    Step::Look(Instruction::CountDirty(volume)),
                ),
                _ if interrupted => self.serve_again(Refusal::Interrupted),
                _ => Step::Look(Instruction::CountRequests(volume)),
            },
            (At::DrainingRest, Happened::Instructed(answers)) => {
                match drain::watch(&answers, progress) {
                    Watched::Clean => self.to(At::Flushing, Step::Flush(volume)),
                    Watched::Unreadable(blocks) => self.serve_again(Refusal::Unreadable(blocks)),
                    Watched::Dirty if interrupted => self.serve_again(Refusal::Interrupted),
                    Watched::Dirty => Step::Look(Instruction::CountDirty(volume)),
                }
            }
            (At::Flushing, Happened::Flushed(true)) => {
                self.to(At::Recording, Step::Record(Change::Detach(self.id)))
            }
            (At::Flushing, _) => self.serve_again(Refusal::Flush(volume)),
            (At::Recording, Happened::Recorded(Ok(()))) | (At::Waiting, _) => {
                if books.volume(volume).holds > 0 {
                    return self.to(At::Waiting, Step::Wait);
                }
                self.to(
                    At::Removing,
                    Step::Instruct(Instruction::RemoveVolume(volume)),
                )
            }
            (At::Recording, Happened::Recorded(Err(error))) => {
                self.failure = Some(error);
                self.to(At::Undoing, Step::Record(Change::Again))
            }
            (At::Undoing, Happened::Recorded(result)) => {
                let error = self.failure.take().expect("it failed");
                match result {
                    Ok(()) => self.serve_again(Refusal::NotRecorded(error)),
                    Err(_) => {
                        // It takes no requests, which fits both, and may be tried again.
                        books.volume(volume).leaves = false;
                        self.why = Some(Refusal::Uncertain(error));
                        match drain::end(books, volume) {
                            Some(instruction) => self.to(At::Ceasing, Step::Instruct(instruction)),
                            None => Step::Ended(Err(self.why.take().expect("just set"))),
                        }
                    }
                }
            }
            (At::ServingAgain, _) => {
                let why = self.why.take().expect("there is a reason");
                self.cease(books, why)
            }
            (At::Ceasing, _) => Step::Ended(Err(self.why.take().expect("there is a reason"))),
            (At::Removing, Happened::Instructed(answers)) if left(&answers) == 0 => {
                books.volumes[usize::from(volume.0)] = None;
                Step::Ended(Ok(()))
            }
            (At::Removing, _) => Step::Look(Instruction::RemoveVolume(volume)),
            (at, happened) => unreachable!("{happened:?} while {at:?}"),
        }
    }

    fn to(&mut self, at: At, step: Step) -> Step {
        self.at = at;
        step
    }

    fn serve_again(&mut self, why: Refusal) -> Step {
        self.why = Some(why);
        let step = Step::Instruct(Instruction::SetDetaching(self.volume, false));
        self.to(At::ServingAgain, step)
    }

    /// Everything is as it was.
    fn cease(&mut self, books: &mut Books, why: Refusal) -> Step {
        books.volume(self.volume).leaves = false;
        match drain::end(books, self.volume) {
            None => Step::Ended(Err(why)),
            Some(instruction) => {
                self.why = Some(why);
                self.to(At::Ceasing, Step::Instruct(instruction))
            }
        }
    }
}
