//! Taking a volume off whose origin is not there, with the loss of its dirty data (I25).

use forebay_engine::{SuperblockError, VolumeSlot};

use super::{Books, Change, Happened, Refusal, Step, left, not_recorded};
use crate::instruction::Instruction;

#[derive(Debug)]
enum At {
    Begun,
    Recording,
    Undoing(SuperblockError),
    Removing,
}

/// 1. The superblock says that nothing of the volume counts (I15). 2. Hosts forget it.
///
/// Were 2 before 1, blocks that had left could come back with the next start, and others not.
#[derive(Debug)]
pub(super) struct Forget {
    volume: VolumeSlot,
    id: u32,
    at: At,
}

impl Forget {
    pub(super) fn new(books: &mut Books, volume: VolumeSlot) -> Result<Forget, Refusal> {
        let absent = books.absent(volume)?;
        absent.leaves = true;
        Ok(Forget {
            volume,
            id: absent.id,
            at: At::Begun,
        })
    }

    pub(super) fn go_on(&mut self, books: &mut Books, happened: Happened) -> Step {
        match (&self.at, happened) {
            (At::Begun, _) => {
                self.at = At::Recording;
                Step::Record(Change::Detach(self.id))
            }
            (At::Recording, Happened::Recorded(Ok(()))) => {
                self.at = At::Removing;
                Step::Instruct(Instruction::RemoveVolume(self.volume))
            }
            (At::Recording, Happened::Recorded(Err(error))) => {
                self.at = At::Undoing(error);
                Step::Record(Change::Again)
            }
            (At::Undoing(error), happened) => {
                let why = not_recorded(error, &happened);
                books.volume(self.volume).leaves = false;
                Step::Ended(Err(why))
            }
            (At::Removing, Happened::Instructed(answers)) if left(&answers) == 0 => {
                books.volumes[usize::from(self.volume.0)] = None;
                Step::Ended(Ok(()))
            }
            (At::Removing, _) => Step::Look(Instruction::RemoveVolume(self.volume)),
            (at, happened) => unreachable!("{happened:?} while {at:?}"),
        }
    }
}
