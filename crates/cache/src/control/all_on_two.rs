//! Putting on record that all dirty data is on two devices, so that a start may do without any one
//! of them (I28).

use forebay_engine::SuperblockError;

use super::{Books, Change, Happened, Refusal, Step, left, not_recorded, refusal};
use crate::instruction::Instruction;

#[derive(Debug)]
enum At {
    Begun,
    Counting,
    Recording,
    Undoing(SuperblockError),
}

/// 1. Hosts look for segments that one device has alone. 2. If there are none, that goes on record.
///
/// A device that is lost between the two changes the membership. The record of its loss is the last
/// word, whichever of the two records is first. One that is added takes a serial, and was not looked at:
/// the count does not go on record then.
#[derive(Debug)]
pub(super) struct AllOnTwo {
    membership: u32,
    next_serial: u32,
    at: At,
}

impl AllOnTwo {
    pub(super) fn new(books: &Books) -> Result<AllOnTwo, Refusal> {
        if !books.superblock.keeps_two() {
            return Err(Refusal::Refused("there are no two copies of dirty data"));
        }
        if books.space_changes {
            return Err(Refusal::SpaceIsChanging);
        }
        Ok(AllOnTwo {
            membership: books.superblock.membership,
            next_serial: books.superblock.next_serial,
            at: At::Begun,
        })
    }

    pub(super) fn go_on(&mut self, happened: Happened) -> Step {
        match (&self.at, happened) {
            (At::Begun, _) => {
                self.at = At::Counting;
                Step::Instruct(Instruction::CountAlone)
            }
            (At::Counting, Happened::Instructed(answers)) => {
                if let Some(why) = refusal(&answers) {
                    return Step::Ended(Err(why));
                }
                if left(&answers) > 0 {
                    let why = "some dirty data is on one device alone";
                    return Step::Ended(Err(Refusal::Refused(why)));
                }
                self.at = At::Recording;
                Step::Record(Change::AllOnTwo {
                    membership: self.membership,
                    next_serial: self.next_serial,
                })
            }
            (At::Recording, Happened::Recorded(Err(error))) => {
                self.at = At::Undoing(error);
                Step::Record(Change::Again)
            }
            (At::Undoing(error), happened) => Step::Ended(Err(not_recorded(error, &happened))),
            _ => Step::Ended(Ok(())),
        }
    }
}
