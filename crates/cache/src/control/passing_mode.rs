//! A mode for a while, which does not go on record: volumes in write-back write through while their
//! cache has one device for dirty data that is to be on two.

use forebay_engine::{Mode, VolumeSlot};

use super::{Books, Refusal, Step};
use crate::instruction::Instruction;

/// No other command changes the mode meanwhile: of two at a time some hosts could hear the one last,
/// some the other. So it does not end what a freeze does for a busy client either.
#[derive(Debug)]
pub(super) struct PassingMode {
    volume: VolumeSlot,
    mode: Mode,
    is_told: bool,
}

impl PassingMode {
    pub(super) fn new(
        books: &mut Books,
        volume: VolumeSlot,
        mode: Mode,
    ) -> Result<PassingMode, Refusal> {
        books.hold_with_mode(volume)?;
        Ok(PassingMode {
            volume,
            mode,
            is_told: false,
        })
    }

    pub(super) fn go_on(&mut self, books: &mut Books) -> Step {
        if !self.is_told {
            self.is_told = true;
            return Step::Instruct(Instruction::SetMode(self.volume, self.mode));
        }
        let served = books.volume(self.volume);
        served.mode_changes = false;
        served.passing_mode = Some(self.mode);
        books.let_go(self.volume);
        Step::Ended(Ok(()))
    }
}
