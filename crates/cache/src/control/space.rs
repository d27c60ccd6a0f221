//! More space for the cache, or less of it, on one or several devices, and another use of it.

use std::ops::Range;
use std::sync::Arc;

use forebay_engine::SuperblockError;

use super::{Books, Change, Happened, Progress, Refusal, Step, left, not_recorded, refusal};
use crate::instruction::{Answer, Instruction};

fn claim(books: &mut Books) -> Result<(), Refusal> {
    if std::mem::replace(&mut books.space_changes, true) {
        return Err(Refusal::SpaceIsChanging);
    }
    Ok(())
}

fn ended(books: &mut Books, result: Result<(), Refusal>) -> Step {
    books.space_changes = false;
    Step::Ended(result)
}

/// Settling before a change of the space. If it is unknown whether the emptied segments are still
/// on record, writing the superblock anew decides that first.
#[derive(Debug, Default)]
enum Settling {
    #[default]
    Begun,
    Recording,
    Keeping,
}

impl Settling {
    /// The next step of that, or none if all is known.
    fn go_on(&mut self, books: &mut Books, happened: &Happened) -> Option<Step> {
        match (&self, happened) {
            (Settling::Begun, _) if books.emptied => {
                *self = Settling::Recording;
                Some(Step::Record(Change::Again))
            }
            (Settling::Recording, Happened::Recorded(Ok(()))) => {
                *self = Settling::Keeping;
                books.emptied = false;
                Some(Step::Instruct(Instruction::KeepEmptied))
            }
            (Settling::Recording, Happened::Recorded(Err(error))) => {
                let why = Refusal::Uncertain(error.clone());
                Some(ended(books, Err(why)))
            }
            _ => None,
        }
    }
}

fn use_extents(books: &Books) -> Step {
    Step::Instruct(Instruction::UseExtents(Arc::new(books.superblock.clone())))
}

#[derive(Debug)]
enum Growing {
    Begun,
    Recording,
    Undoing(SuperblockError),
    Adding,
    Using,
}

/// 1. The superblock names the space. 2. Hosts flush the device it is on with the others. 3. Shards
///    use it: what they write there is found again from 1 on.
///
/// Another number of copies goes the same way, without 2. A crash between 1 and 3 leaves a cache that
/// keeps more copies than it has to, or copies at its next start.
#[derive(Debug)]
pub(super) struct Grow {
    change: Change,
    /// The devices before.
    known: Vec<u8>,
    settling: Settling,
    at: Growing,
}

impl Grow {
    pub(super) fn new(books: &mut Books, change: Change) -> Result<Grow, Refusal> {
        claim(books)?;
        Ok(Grow {
            change,
            known: numbers(books),
            settling: Settling::default(),
            at: Growing::Begun,
        })
    }

    /// Has dirty data on so many devices, 1 or 2.
    pub(super) fn copies(books: &mut Books, copies: u8) -> Result<Grow, Refusal> {
        if copies > 1 && books.superblock.devices_in_use().count() < 2 {
            return Err(Refusal::Refused(
                "dirty data cannot be on two devices: the cache has one",
            ));
        }
        Grow::new(books, Change::Copies(copies))
    }

    pub(super) fn go_on(&mut self, books: &mut Books, happened: Happened) -> Step {
        if matches!(self.at, Growing::Begun)
            && let Some(step) = self.settling.go_on(books, &happened)
        {
            return step;
        }
        match (&self.at, happened) {
            (Growing::Begun, _) => {
                self.at = Growing::Recording;
                Step::Record(self.change.clone())
            }
            (Growing::Recording, Happened::Recorded(Ok(()))) => {
                let new = numbers(books)
                    .into_iter()
                    .find(|on| !self.known.contains(on));
                match new {
                    Some(number) => {
                        self.at = Growing::Adding;
                        Step::Instruct(Instruction::AddDevice(number))
                    }
                    None => {
                        self.at = Growing::Using;
                        use_extents(books)
                    }
                }
            }
            (Growing::Recording, Happened::Recorded(Err(error))) => {
                self.at = Growing::Undoing(error);
                Step::Record(Change::Again)
            }
            (Growing::Undoing(error), happened) => {
                // Space that may be on record and is not used fits both.
                let why = not_recorded(error, &happened);
                ended(books, Err(why))
            }
            (Growing::Adding, _) => {
                self.at = Growing::Using;
                use_extents(books)
            }
            _ => ended(books, Ok(())),
        }
    }
}

fn numbers(books: &Books) -> Vec<u8> {
    books
        .superblock
        .devices
        .iter()
        .map(|on| on.number)
        .collect()
}

#[derive(Debug)]
enum Shrinking {
    Begun,
    /// Dirty data may come to a device that stays alone: that goes on record.
    Warning,
    Unwarned(SuperblockError),
    Beginning,
    Emptying,
    Recording,
    Undoing(SuperblockError),
    /// The departing segments are used again.
    Keeping(Refusal),
    Using,
    LettingGo,
}

/// 1. Every shard empties what is to leave. 2. Once all have, the superblock no longer names it.
///    3. Shards forget it. 4. Hosts let devices go that hold nothing then.
///
/// Before 1 it goes on record that a start needs those devices that stay (I28): from 1 on dirty data may
/// come to one of them alone, since no other stays, or none with room.
///
/// Until 2 it can be taken back. If 2 fails, and what was on record cannot be written anew either, the
/// emptied segments stay out of use, which fits both.
#[derive(Debug)]
pub(super) struct Shrink {
    gone: Vec<Range<u32>>,
    known: Vec<u8>,
    settling: Settling,
    at: Shrinking,
}

impl Shrink {
    pub(super) fn new(books: &mut Books, gone: Vec<Range<u32>>) -> Result<Shrink, Refusal> {
        claim(books)?;
        Ok(Shrink {
            gone,
            known: numbers(books),
            settling: Settling::default(),
            at: Shrinking::Begun,
        })
    }

    pub(super) fn go_on(
        &mut self,
        books: &mut Books,
        happened: Happened,
        interrupted: bool,
        progress: &mut Progress,
    ) -> Step {
        if matches!(self.at, Shrinking::Begun)
            && let Some(step) = self.settling.go_on(books, &happened)
        {
            return step;
        }
        match (&self.at, happened) {
            (Shrinking::Begun, _) if books.superblock.keeps_two() => {
                self.at = Shrinking::Warning;
                Step::Record(Change::Alone(self.staying(books)))
            }
            (Shrinking::Warning, Happened::Recorded(Err(error))) => {
                self.at = Shrinking::Unwarned(error);
                Step::Record(Change::Again)
            }
            (Shrinking::Unwarned(error), happened) => {
                let why = not_recorded(error, &happened);
                ended(books, Err(why))
            }
            (Shrinking::Begun | Shrinking::Warning, _) => {
                self.at = Shrinking::Beginning;
                Step::Instruct(Instruction::Empty(self.gone.clone()))
            }
            (Shrinking::Beginning, Happened::Instructed(answers)) => match refusal(&answers) {
                Some(why) => self.keep(why),
                None => {
                    self.at = Shrinking::Emptying;
                    Step::Look(Instruction::CountEmptying)
                }
            },
            (Shrinking::Emptying, Happened::Instructed(_)) if interrupted => {
                self.keep(Refusal::Interrupted)
            }
            (Shrinking::Emptying, Happened::Instructed(answers)) => {
                self.emptied(&answers, progress)
            }
            (Shrinking::Recording, Happened::Recorded(Ok(()))) => {
                self.at = Shrinking::Using;
                use_extents(books)
            }
            (Shrinking::Recording, Happened::Recorded(Err(error))) => {
                self.at = Shrinking::Undoing(error);
                Step::Record(Change::Again)
            }
            (Shrinking::Undoing(error), Happened::Recorded(Ok(()))) => {
                let why = Refusal::NotRecorded(error.clone());
                self.keep(why)
            }
            (Shrinking::Undoing(error), _) => {
                let error = error.clone();
                books.emptied = true;
                ended(books, Err(Refusal::Uncertain(error)))
            }
            (Shrinking::Keeping(why), _) => {
                let why = why.clone();
                ended(books, Err(why))
            }
            (Shrinking::Using, _) => {
                self.at = Shrinking::LettingGo;
                self.let_go(books)
            }
            (Shrinking::LettingGo, Happened::Instructed(answers)) => {
                if left(&answers) == 0 {
                    let number = self
                        .known
                        .iter()
                        .position(|on| !numbers(books).contains(on));
                    self.known.remove(number.expect("it was let go"));
                }
                self.let_go(books)
            }
            (at, happened) => unreachable!("{happened:?} while {at:?}"),
        }
    }

    /// Devices that stay, by number.
    fn staying(&self, books: &Books) -> Vec<u8> {
        let mut left = books.superblock.clone();
        left.shrink(&self.gone);
        left.devices_in_use().map(|on| on.number).collect()
    }

    fn emptied(&mut self, answers: &[Answer], progress: &mut Progress) -> Step {
        if let Some(why) = refusal(answers) {
            return self.keep(why);
        }
        (progress.segments_left, progress.segments) = (0, 0);
        for answer in answers {
            if let Answer::Emptying { left, all } = answer {
                progress.segments_left += left;
                progress.segments += all;
            }
        }
        if progress.segments_left > 0 {
            return Step::Look(Instruction::CountEmptying);
        }
        self.at = Shrinking::Recording;
        Step::Record(Change::Shrink(self.gone.clone()))
    }

    fn keep(&mut self, why: Refusal) -> Step {
        self.at = Shrinking::Keeping(why);
        Step::Instruct(Instruction::KeepEmptied)
    }

    fn let_go(&mut self, books: &mut Books) -> Step {
        let now = numbers(books);
        match self.known.iter().find(|on| !now.contains(on)) {
            Some(number) => Step::Look(Instruction::RemoveDevice(*number)),
            None => ended(books, Ok(())),
        }
    }
}
