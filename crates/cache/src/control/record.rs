//! Commands that are one change of the superblock and what hosts make of it: a volume's mode, its
//! name, its larger size, another volume, one whose origin is there again.

use forebay_engine::{Mode, SuperblockError, VolumeRecord, VolumeSlot, VolumeState};

use super::{Books, Change, Happened, NewVolume, Refusal, Step, not_recorded};
use crate::instruction::Instruction;

#[derive(Debug)]
enum At {
    Begun,
    Recording,
    Undoing(SuperblockError),
    Instructing,
}

/// 1. On record first: what is in force and not on record would be gone with a crash. 2. Hosts are
///    told. Where 1 fails, what is on record is written anew, and nothing has changed.
#[derive(Debug)]
pub(super) struct Recorded {
    volume: Option<VolumeSlot>,
    /// The volume's next name, if the change is a rename.
    name: Option<String>,
    change: Change,
    at: At,
}

impl Recorded {
    pub(super) fn mode(
        books: &mut Books,
        volume: VolumeSlot,
        mode: Mode,
    ) -> Result<Recorded, Refusal> {
        let id = books.hold_with_mode(volume)?;
        Ok(Recorded::new(Some(volume), None, Change::Mode(id, mode)))
    }

    pub(super) fn name(
        books: &mut Books,
        volume: VolumeSlot,
        name: String,
    ) -> Result<Recorded, Refusal> {
        books.staying(volume)?;
        books.reserve_name(&name)?;
        let id = books.hold(volume)?;
        let change = Change::Name(id, name.clone());
        Ok(Recorded::new(Some(volume), Some(name), change))
    }

    pub(super) fn size(
        books: &mut Books,
        volume: VolumeSlot,
        size_bytes: u64,
    ) -> Result<Recorded, Refusal> {
        let id = books.staying(volume)?.id;
        let record = books.record_of(id);
        let block_bytes = u64::from(books.superblock.geometry.block_bytes);
        if size_bytes <= record.size_bytes {
            return Err(Refusal::Size("the volume has that size already"));
        }
        if !record.size_bytes.is_multiple_of(block_bytes) {
            return Err(Refusal::Size("the volume ends within a block"));
        }
        if size_bytes > books.superblock.room_bytes(record) {
            return Err(Refusal::Size("so much is not set aside for the volume"));
        }
        if std::mem::replace(&mut books.volume(volume).grows, true) {
            return Err(Refusal::Size("the volume is growing already"));
        }
        books.hold(volume)?;
        let change = Change::VolumeSize(id, size_bytes);
        Ok(Recorded::new(Some(volume), None, change))
    }

    pub(super) fn enter(books: &mut Books, volume: NewVolume) -> Result<Recorded, Refusal> {
        if let Some(slot) = books.away_by_name(&volume.name) {
            books.absent(slot)?.comes = true;
            return Ok(Recorded::new(Some(slot), None, Change::Enter(volume)));
        }
        books.reserve_name(&volume.name)?;
        let name = Some(volume.name.clone());
        Ok(Recorded::new(None, name, Change::Enter(volume)))
    }

    fn new(volume: Option<VolumeSlot>, name: Option<String>, change: Change) -> Recorded {
        Recorded {
            volume,
            name,
            change,
            at: At::Begun,
        }
    }

    pub(super) fn go_on(&mut self, books: &mut Books, happened: Happened) -> Step {
        match (&self.at, happened) {
            (At::Begun, _) => {
                self.at = At::Recording;
                Step::Record(self.change.clone())
            }
            (At::Recording, Happened::Recorded(Ok(()))) => self.tell(books),
            (At::Recording, Happened::Recorded(Err(error))) => {
                self.at = At::Undoing(error);
                Step::Record(Change::Again)
            }
            (At::Undoing(error), happened) => {
                let why = not_recorded(error, &happened);
                self.ended(books, Err(why))
            }
            _ => self.ended(books, Ok(())),
        }
    }

    fn tell(&mut self, books: &mut Books) -> Step {
        self.at = At::Instructing;
        match (&self.change, self.volume) {
            (Change::Mode(_, mode), Some(volume)) => {
                Step::Instruct(Instruction::SetMode(volume, *mode))
            }
            (Change::VolumeSize(_, size_bytes), Some(volume)) => {
                Step::Instruct(Instruction::GrowVolume(volume, *size_bytes))
            }
            (Change::Enter(_), Some(slot)) => {
                let known = books.volume(slot);
                known.away = false;
                let id = known.id;
                Step::Instruct(Instruction::BringBack(slot, books.config_of(id)))
            }
            (Change::Enter(volume), None) => {
                let is_it = |record: &&VolumeRecord| {
                    record.state == VolumeState::Attached && record.name == volume.name
                };
                let mut records = books.superblock.volumes.iter();
                let id = records.find(is_it).expect("it was entered").id;
                let slot = books.add_volume(id);
                books.volume(slot).comes = true;
                self.volume = Some(slot);
                Step::Instruct(Instruction::AddVolume(slot, books.config_of(id)))
            }
            _ => self.ended(books, Ok(())),
        }
    }

    fn ended(&mut self, books: &mut Books, result: Result<(), Refusal>) -> Step {
        match (&self.change, self.volume) {
            (Change::Enter(_), Some(volume)) => books.volume(volume).comes = false,
            (change, Some(volume)) => {
                match change {
                    Change::Mode(..) => {
                        let served = books.volume(volume);
                        served.mode_changes = false;
                        if result.is_ok() {
                            served.passing_mode = None;
                        }
                    }
                    Change::VolumeSize(..) => books.volume(volume).grows = false,
                    _ => {}
                }
                books.let_go(volume);
            }
            (_, None) => {}
        }
        if let Some(name) = &self.name {
            books.names.retain(|taken| taken != name);
        }
        Step::Ended(result)
    }
}
