//! Handing a volume over: its origin is whole, and another host may serve it.

use forebay_engine::VolumeSlot;

use super::detach::Detach;
use super::freeze::Freeze;
use super::{Books, Frozen, Happened, Progress, Refusal, Step};
use crate::instruction::Instruction;

#[derive(Debug)]
enum At {
    Freezing(Freeze),
    Detaching(Detach),
    /// It could not be detached, for this reason.
    Thawing(Refusal),
}

/// 1. The volume is frozen: clients wait for the rest alone, and not for most of it.
/// 2. It is thawed again, for its users to let go: to take a block device away, the kernel waits for
///    each of its requests. A program that has the device without a claim would wait for this command,
///    and the command for that program.
/// 3. It is detached, which finds hardly anything dirty.
///
/// Where one of them fails the volume is served as before.
#[derive(Debug)]
pub(super) struct HandOver {
    volume: VolumeSlot,
    at: At,
    /// It is being thawed, so that its users can let go.
    thaws_for_release: bool,
}

impl HandOver {
    pub(super) fn new(books: &mut Books, volume: VolumeSlot) -> Result<HandOver, Refusal> {
        Ok(HandOver {
            volume,
            at: At::Freezing(Freeze::new(books, volume)?),
            thaws_for_release: false,
        })
    }

    pub(super) fn go_on(
        &mut self,
        books: &mut Books,
        happened: Happened,
        interrupted: bool,
        progress: &mut Progress,
    ) -> Step {
        match &mut self.at {
            At::Freezing(freeze) => match freeze.go_on(books, happened, interrupted, progress) {
                Step::Ended(Ok(())) => match Detach::of_frozen(books, self.volume) {
                    Ok(detach) => {
                        self.at = At::Detaching(detach);
                        self.go_on(books, Happened::Begun, interrupted, progress)
                    }
                    Err(why) => self.thaws(why),
                },
                step => step,
            },
            At::Detaching(_) if self.thaws_for_release => {
                self.thaws_for_release = false;
                Step::Release(self.volume)
            }
            At::Detaching(detach) => match detach.go_on(books, happened, interrupted, progress) {
                // Where it is not known whether it counts, the volume takes no requests.
                Step::Ended(Err(why)) if !matches!(why, Refusal::Uncertain(_)) => self.thaws(why),
                Step::Release(_) => {
                    books.volume(self.volume).frozen = Frozen::No;
                    self.thaws_for_release = true;
                    Step::Instruct(Instruction::SetFrozen(self.volume, false))
                }
                step => step,
            },
            At::Thawing(why) => {
                if let Some(served) = books.volumes[usize::from(self.volume.0)].as_mut() {
                    served.frozen = Frozen::No;
                }
                Step::Ended(Err(why.clone()))
            }
        }
    }

    fn thaws(&mut self, why: Refusal) -> Step {
        self.at = At::Thawing(why);
        Step::Instruct(Instruction::SetFrozen(self.volume, false))
    }
}
