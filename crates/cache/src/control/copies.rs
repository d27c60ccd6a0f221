//! The number of devices that each dirty block is on.

use std::sync::Arc;

use forebay_engine::SuperblockError;

use super::{Books, Change, Happened, Refusal, Step};
use crate::instruction::Instruction;

#[derive(Debug)]
enum At {
    Begun,
    Recording,
    Undoing(SuperblockError),
    Using,
}

/// 1. On record. 2. Hosts write dirty data to so many devices, and copy what is on one. A crash
///    between the two leaves a cache that keeps more copies than it has to, or copies at its next
///    start.
#[derive(Debug)]
pub(super) struct Copies {
    copies: u8,
    at: At,
}

impl Copies {
    pub(super) fn new(books: &mut Books, copies: u8) -> Result<Copies, Refusal> {
        let in_use = books.superblock.devices.iter().filter(|on| !on.out);
        if copies > 1 && in_use.count() < 2 {
            return Err(Refusal::Refused(
                "dirty data cannot be on two devices: the cache has one",
            ));
        }
        super::space::claim(books)?;
        Ok(Copies {
            copies,
            at: At::Begun,
        })
    }

    pub(super) fn go_on(&mut self, books: &mut Books, happened: Happened) -> Step {
        match (&self.at, happened) {
            (At::Begun, _) => {
                self.at = At::Recording;
                Step::Record(Change::Copies(self.copies))
            }
            (At::Recording, Happened::Recorded(Ok(()))) => {
                self.at = At::Using;
                let superblock = Arc::new(books.superblock.clone());
                Step::Instruct(Instruction::UseExtents(superblock))
            }
            (At::Recording, Happened::Recorded(Err(error))) => {
                self.at = At::Undoing(error);
                Step::Record(Change::Again)
            }
            (At::Undoing(error), Happened::Recorded(result)) => {
                let error = error.clone();
                let why = match result {
                    Ok(()) => Refusal::NotRecorded(error),
                    Err(_) => Refusal::Uncertain(error),
                };
                super::space::ended(books, Err(why))
            }
            _ => super::space::ended(books, Ok(())),
        }
    }
}
