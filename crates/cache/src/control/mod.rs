//! The life of a cache's volumes and of its space: the steps of commands and their order, so that a
//! crash between any two steps loses nothing.
//!
//! A command is a state machine like the engine: it is told events and returns the next step. The
//! driver carries the step out: it has every host do something, writes the superblock, sends a
//! flush. In the daemon that is the thread of the command's giver; in the simulator each of these
//! takes its time, and crashes come in between.
//!
//! ```text
//! begin ─> Instruct ─> hosts ─> instructed ─> Record ─> devices ─> recorded ─> ... ─> Ended
//! ```
//!
//! A superblock that could not be written counts or not. So a change that writes the record anew
//! ([`Change::Again`]) follows a failed change. A command ends in a state that fits both only if
//! that fails too.

mod all_on_two;
mod change;
mod detach;
mod drain;
mod forget;
mod freeze;
mod hand_over;
mod passing_mode;
mod record;
mod space;
mod stop;

use forebay_engine::{
    DeviceError, Mode, Superblock, SuperblockError, VolumeConfig, VolumeRecord, VolumeSlot,
};

use crate::instruction::{Answer, Backlog, Instruction};
use all_on_two::AllOnTwo;
pub use change::{Change, Fingerprint, NewVolume};
use detach::Detach;
use drain::Drain;
use forebay_engine::Slots;
use forget::Forget;
use freeze::{Freeze, Thaw};
use hand_over::HandOver;
use passing_mode::PassingMode;
use record::Recorded;
use space::{Grow, Shrink};
use stop::Stop;

/// A command of the user.
#[derive(Clone, Debug)]
pub enum Command {
    /// A volume's mode, now and for the next attach.
    SetMode(VolumeSlot, Mode),
    /// A volume's mode until another is set, which does not go on record.
    PassingMode(VolumeSlot, Mode),
    /// A volume's name.
    Rename(VolumeSlot, String),
    /// Serve a volume in this larger size (bytes), which its origin has now.
    GrowVolume(VolumeSlot, u64),
    /// Write a volume back.
    Drain {
        /// The volume.
        volume: VolumeSlot,
        /// So many blocks may be left: 0 for everything.
        left_blocks: u64,
    },
    /// Serve another volume.
    Attach(NewVolume),
    /// Take a volume off, so that its origin is whole by itself.
    Detach(VolumeSlot),
    /// Write a volume back and have changes of it wait, so that its origin stays as it is.
    Freeze(VolumeSlot),
    /// Let changes of a frozen volume go on.
    Thaw(VolumeSlot),
    /// Freeze a volume and take it off, for another host to serve its origin.
    HandOver(VolumeSlot),
    /// Take a volume off whose origin is away. Its dirty data is lost.
    Forget(VolumeSlot),
    /// Use a device of the cache up to this offset, in bytes.
    Grow(u8, u64),
    /// Take in another device, of this size in bytes.
    AddDevice(u64),
    /// Have dirty data on so many devices, 1 or 2.
    Copies(u8),
    /// Put on record that all dirty data is on two devices, if it is.
    AllOnTwo,
    /// Empty these segments and give them back, and the devices that hold no others.
    Shrink(Vec<std::ops::Range<u32>>),
    /// End in order.
    Stop,
}

/// The next step of a command.
#[derive(Clone, Debug)]
pub enum Step {
    /// Have every host do this: [`Happened::Instructed`].
    Instruct(Instruction),
    /// Have every host do this after a while: nothing is in a hurry.
    Look(Instruction),
    /// Change the superblock: [`Happened::Recorded`].
    Record(Change),
    /// Send a flush of the volume, as a client does: [`Happened::Flushed`].
    Flush(VolumeSlot),
    /// Have whoever uses the volume let go of it: [`Happened::Released`].
    Release(VolumeSlot),
    /// Read something from the volume's origin, past the cache: [`Happened::Asked`].
    Ask(VolumeSlot),
    /// Flush each origin and see what it looks like: [`Happened::Seen`].
    See(Vec<(u32, VolumeSlot)>),
    /// Other commands end first: ask again in a while ([`Happened::Waited`]).
    Wait,
    /// It is over.
    Ended(Result<(), Refusal>),
}

/// The outcome of a step.
#[derive(Clone, Debug)]
pub enum Happened {
    /// Nothing yet.
    Begun,
    /// Every host answered.
    Instructed(Vec<Answer>),
    /// The superblock was written, or it was not.
    Recorded(Result<(), SuperblockError>),
    /// A flush was answered.
    Flushed(bool),
    /// The volume is free, or it is not.
    Released(bool),
    /// The origin answered, or did not.
    Asked(Result<(), DeviceError>),
    /// The origins look like this, or could not be read.
    Seen(Result<Vec<Fingerprint>, DeviceError>),
    /// Other commands may have ended.
    Waited,
}

/// Why a command did not do what it should.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// It was interrupted: everything is as before.
    #[error("it was interrupted")]
    Interrupted,
    /// The daemon stops.
    #[error("the daemon stops")]
    Stopping,
    /// The volume is gone, or going, or only coming.
    #[error("the volume is being attached or detached")]
    Gone,
    /// Another command changes the mode.
    #[error("the mode of the volume is being changed already; give the command again")]
    ModeIsChanging,
    /// Changes of the volume wait, or are about to.
    #[error("the volume is frozen or about to be: thaw it first")]
    Frozen,
    /// Changes of the volume do not wait.
    #[error("the volume is not frozen")]
    NotFrozen,
    /// Clients waited, and what was left became no less.
    #[error("clients waited, and the origin device took nothing more")]
    Stuck,
    /// The volume cannot have that size.
    #[error("{0}")]
    Size(&'static str),
    /// The origin of the volume is not there.
    #[error("the origin device of the volume is not there")]
    Away,
    /// The origin of the volume is there.
    #[error("the origin device of the volume is there")]
    NotAway,
    /// The volume is in use.
    #[error("the volume is in use")]
    InUse,
    /// Another volume is called so, or will be.
    #[error("another volume has that name")]
    NameTaken,
    /// Another command changes the space of the cache.
    #[error("the cache is being resized already; wait for that, or interrupt it")]
    SpaceIsChanging,
    /// It was not put on record, and everything is as before.
    #[error("{0}")]
    NotRecorded(SuperblockError),
    /// It may be on record or not.
    #[error("{0}; whether it counts is known at the next start")]
    Uncertain(SuperblockError),
    /// A flush failed: data written before may not be durable.
    #[error("a flush failed")]
    Flush(VolumeSlot),
    /// So many blocks that are newer in the cache cannot be read there; all others are written
    /// back.
    #[error("{0} blocks that are newer in the cache cannot be read")]
    Unreadable(u64),
    /// A host cannot do it.
    #[error("{0}")]
    Refused(&'static str),
    /// An origin could not be read or flushed.
    #[error("an origin device cannot be read: {0}")]
    Unseen(DeviceError),
}

/// Progress of a command.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Progress {
    /// Blocks to be written back.
    pub backlog: Backlog,
    /// Blocks to be written back when the command began.
    pub began_with_blocks: u64,
    /// Segments that are to be emptied.
    pub segments_left: u64,
    /// All segments that leave, emptied or not.
    pub segments: u64,
}

/// Whether changes of a volume wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Frozen {
    No,
    /// A command has them wait, or is about to.
    Begun,
    Yes,
}

/// A volume that is served.
#[derive(Clone, Debug)]
struct Served {
    /// In the superblock.
    id: u32,
    /// Hosts are being told of it; no command may begin with it.
    comes: bool,
    /// A command takes it off; no other may begin with it.
    leaves: bool,
    /// Its origin is not there: it can come back, or be forgotten.
    away: bool,
    /// Commands that have begun with it, that one aside: its number is theirs until they end.
    holds: u32,
    /// Commands that write it back.
    drains: u32,
    /// A command changes its mode: of two at a time some hosts could hear the one last, some the
    /// other.
    mode_changes: bool,
    /// The mode in force, if it is not for certain that on record.
    passing_mode: Option<Mode>,
    /// A command makes it larger, likewise.
    grows: bool,
    frozen: Frozen,
}

/// State that commands know and change together.
#[derive(Debug)]
struct Books {
    superblock: Superblock,
    /// Somebody writes it just now.
    is_written: bool,
    volumes: Vec<Option<Served>>,
    /// Names that commands are about to give.
    names: Vec<String>,
    space_changes: bool,
    /// Segments are empty and out of use because it is not known whether they are on record.
    emptied: bool,
    stops: bool,
}

#[derive(Debug)]
enum Procedure {
    Recorded(Recorded),
    PassingMode(PassingMode),
    Drain(Drain),
    Detach(Detach),
    Freeze(Freeze),
    Thaw(Thaw),
    HandOver(HandOver),
    Forget(Forget),
    Grow(Grow),
    AllOnTwo(AllOnTwo),
    Shrink(Shrink),
    Stop(Stop),
}

#[derive(Debug)]
struct Running {
    procedure: Procedure,
    progress: Progress,
    /// Nobody waits for it any more.
    interrupted: bool,
}

/// See the module.
#[derive(Debug)]
pub struct Control {
    books: Books,
    commands: Slots<Running>,
}

impl Control {
    /// The commands of a cache with this superblock, which serves no volume yet.
    #[must_use]
    pub fn new(superblock: Superblock) -> Control {
        Control {
            books: Books {
                superblock,
                is_written: false,
                volumes: Vec::new(),
                names: Vec::new(),
                space_changes: false,
                emptied: false,
                stops: false,
            },
            commands: Slots::default(),
        }
    }

    /// Returns the superblock on record.
    #[must_use]
    pub fn superblock(&self) -> &Superblock {
        &self.books.superblock
    }

    /// A volume that is served from the start; says under which number.
    pub fn add_volume(&mut self, id: u32) -> VolumeSlot {
        self.books.add_volume(id)
    }

    /// A volume whose origin is not there at the start; says under which number. Hosts add it and
    /// are told [`Instruction::SetAway`].
    pub fn add_away(&mut self, id: u32) -> VolumeSlot {
        let slot = self.books.add_volume(id);
        self.books.volume(slot).away = true;
        slot
    }

    /// Whether the origin of a volume is away.
    #[must_use]
    pub fn is_away(&self, slot: VolumeSlot) -> bool {
        self.books.served(slot).is_some_and(|volume| volume.away)
    }

    /// Whether a command takes a volume off, or ends them all, or it is not served at all.
    #[must_use]
    pub fn leaves(&self, slot: VolumeSlot) -> bool {
        let served = self.books.served(slot);
        self.books.stops || served.is_none_or(|volume| volume.leaves)
    }

    /// The id of a served volume.
    #[must_use]
    pub fn id_of(&self, slot: VolumeSlot) -> Option<u32> {
        Some(self.books.served(slot)?.id)
    }

    /// The number of a served volume.
    #[must_use]
    pub fn slot_of(&self, id: u32) -> Option<VolumeSlot> {
        let mut volumes = (0..).zip(&self.books.volumes);
        let is_it = |(_, volume): &(u16, &Option<Served>)| {
            volume.as_ref().is_some_and(|volume| volume.id == id)
        };
        volumes.find(is_it).map(|(slot, _)| VolumeSlot(slot))
    }

    /// Begins a command; [`Control::go_on`] returns its first step for [`Happened::Begun`].
    ///
    /// # Errors
    /// If it cannot be begun now.
    pub fn begin(&mut self, command: Command) -> Result<u32, Refusal> {
        let books = &mut self.books;
        if books.stops {
            return Err(Refusal::Stopping);
        }
        let procedure = match command {
            Command::SetMode(volume, mode) => {
                Procedure::Recorded(Recorded::mode(books, volume, mode)?)
            }
            Command::PassingMode(volume, mode) => {
                Procedure::PassingMode(PassingMode::new(books, volume, mode)?)
            }
            Command::Rename(volume, name) => {
                Procedure::Recorded(Recorded::name(books, volume, name)?)
            }
            Command::GrowVolume(volume, size_bytes) => {
                Procedure::Recorded(Recorded::size(books, volume, size_bytes)?)
            }
            Command::Attach(volume) => Procedure::Recorded(Recorded::enter(books, volume)?),
            Command::Drain {
                volume,
                left_blocks,
            } => Procedure::Drain(Drain::new(books, volume, left_blocks)?),
            Command::Detach(volume) => Procedure::Detach(Detach::new(books, volume)?),
            Command::Freeze(volume) => Procedure::Freeze(Freeze::new(books, volume)?),
            Command::Thaw(volume) => Procedure::Thaw(Thaw::new(books, volume)?),
            Command::HandOver(volume) => Procedure::HandOver(HandOver::new(books, volume)?),
            Command::Forget(volume) => Procedure::Forget(Forget::new(books, volume)?),
            Command::Grow(device, end_bytes) => {
                Procedure::Grow(Grow::new(books, Change::Grow(device, end_bytes))?)
            }
            Command::AddDevice(size_bytes) => {
                Procedure::Grow(Grow::new(books, Change::AddDevice(size_bytes))?)
            }
            Command::Copies(copies) => Procedure::Grow(Grow::copies(books, copies)?),
            Command::AllOnTwo => Procedure::AllOnTwo(AllOnTwo::new(books)?),
            Command::Shrink(gone) => Procedure::Shrink(Shrink::new(books, gone)?),
            Command::Stop => {
                books.stops = true;
                Procedure::Stop(Stop::default())
            }
        };
        Ok(self.commands.insert(Running {
            procedure,
            progress: Progress::default(),
            interrupted: false,
        }))
    }

    /// Tells a command what happened; says what is to be done next for it.
    ///
    /// # Panics
    /// If there is no such command, or it did not ask for that.
    pub fn go_on(&mut self, command: u32, happened: Happened) -> Step {
        let others = self.commands.len() - 1;
        let running = self.commands.get_mut(command);
        let Running {
            procedure,
            progress,
            interrupted,
        } = running.expect("a command that has not ended");
        let books = &mut self.books;
        let gives_way = *interrupted || books.stops;
        let step = match procedure {
            Procedure::Recorded(on) => on.go_on(books, happened),
            Procedure::PassingMode(on) => on.go_on(books),
            Procedure::Drain(on) => on.go_on(books, happened, gives_way, progress),
            Procedure::Detach(on) => on.go_on(books, happened, gives_way, progress),
            Procedure::Freeze(on) => on.go_on(books, happened, gives_way, progress),
            Procedure::Thaw(on) => on.go_on(books),
            Procedure::HandOver(on) => on.go_on(books, happened, gives_way, progress),
            Procedure::Forget(on) => on.go_on(books, happened),
            Procedure::Grow(on) => on.go_on(books, happened),
            Procedure::AllOnTwo(on) => on.go_on(happened),
            Procedure::Shrink(on) => on.go_on(books, happened, gives_way, progress),
            Procedure::Stop(on) => on.go_on(books, happened, *interrupted, others),
        };
        if matches!(step, Step::Ended(_)) {
            self.commands.remove(command);
        }
        step
    }

    /// Returns the progress of a command that has not ended.
    #[must_use]
    pub fn progress(&mut self, command: u32) -> Option<Progress> {
        Some(self.commands.get_mut(command)?.progress)
    }

    /// Nobody waits for a command any more: it ends where that can be without harm, and leaves
    /// everything as it was. A stop interrupts all others.
    pub fn interrupt(&mut self, command: u32) {
        if let Some(running) = self.commands.get_mut(command) {
            running.interrupted = true;
        }
    }

    /// The superblock, for whoever writes it; nobody else may until it is given back. `None` while
    /// somebody has it.
    pub fn take_superblock(&mut self) -> Option<Superblock> {
        if self.books.is_written {
            return None;
        }
        self.books.is_written = true;
        Some(self.books.superblock.clone())
    }

    /// The superblock as it is on record now, or may be.
    pub fn give_superblock(&mut self, superblock: Superblock) {
        self.books.is_written = false;
        self.books.superblock = superblock;
    }
}

impl Books {
    fn add_volume(&mut self, id: u32) -> VolumeSlot {
        let volume = Served {
            id,
            comes: false,
            leaves: false,
            away: false,
            holds: 0,
            drains: 0,
            mode_changes: false,
            passing_mode: None,
            grows: false,
            frozen: Frozen::No,
        };
        let free = self.volumes.iter().position(Option::is_none);
        let at = free.unwrap_or(self.volumes.len());
        if at == self.volumes.len() {
            self.volumes.push(None);
        }
        self.volumes[at] = Some(volume);
        VolumeSlot(at as u16)
    }

    fn served(&self, slot: VolumeSlot) -> Option<&Served> {
        self.volumes.get(usize::from(slot.0))?.as_ref()
    }

    /// A volume that no command takes off.
    fn staying(&mut self, slot: VolumeSlot) -> Result<&mut Served, Refusal> {
        let volume = self.volumes.get_mut(usize::from(slot.0));
        let volume = volume.and_then(Option::as_mut).ok_or(Refusal::Gone)?;
        if volume.comes || volume.leaves {
            return Err(Refusal::Gone);
        }
        if volume.away {
            return Err(Refusal::Away);
        }
        Ok(volume)
    }

    /// A volume whose origin is away, and that no command brings back or takes off.
    fn absent(&mut self, slot: VolumeSlot) -> Result<&mut Served, Refusal> {
        let volume = self.volumes.get_mut(usize::from(slot.0));
        let volume = volume.and_then(Option::as_mut).ok_or(Refusal::Gone)?;
        if volume.comes || volume.leaves {
            return Err(Refusal::Gone);
        }
        if !volume.away {
            return Err(Refusal::NotAway);
        }
        Ok(volume)
    }

    /// The number of a volume of this name whose origin is away.
    fn away_by_name(&self, name: &str) -> Option<VolumeSlot> {
        let mut volumes = (0..).zip(&self.volumes);
        let found = volumes.find(|(_, volume)| {
            let volume = volume.as_ref().filter(|volume| volume.away);
            volume.is_some_and(|volume| self.record_of(volume.id).name == name)
        });
        found.map(|(slot, _)| VolumeSlot(slot))
    }

    /// A command begins with a volume.
    fn hold(&mut self, slot: VolumeSlot) -> Result<u32, Refusal> {
        let volume = self.staying(slot)?;
        volume.holds += 1;
        Ok(volume.id)
    }

    /// A command begins that changes a volume's mode.
    fn hold_with_mode(&mut self, slot: VolumeSlot) -> Result<u32, Refusal> {
        if std::mem::replace(&mut self.staying(slot)?.mode_changes, true) {
            return Err(Refusal::ModeIsChanging);
        }
        self.hold(slot)
    }

    /// It has ended.
    fn let_go(&mut self, slot: VolumeSlot) {
        self.volume(slot).holds -= 1;
    }

    /// A command is about to call a volume so.
    fn reserve_name(&mut self, name: &str) -> Result<(), Refusal> {
        let served = self.volumes.iter().flatten();
        let is_called = |volume: &Served| self.record_of(volume.id).name == name;
        if served.into_iter().any(is_called) || self.names.iter().any(|taken| taken == name) {
            return Err(Refusal::NameTaken);
        }
        self.names.push(name.to_owned());
        Ok(())
    }

    fn record_of(&self, id: u32) -> &VolumeRecord {
        let mut records = self.superblock.volumes.iter();
        let record = records.find(|record| record.id == id);
        record.expect("a served volume is on record")
    }

    fn volume(&mut self, slot: VolumeSlot) -> &mut Served {
        let volume = self.volumes.get_mut(usize::from(slot.0));
        let volume = volume.and_then(Option::as_mut);
        volume.expect("a volume stays as long as a command holds it")
    }

    /// Returns the engines' settings of a volume.
    fn config_of(&self, id: u32) -> VolumeConfig {
        let record = self.record_of(id);
        VolumeConfig {
            base: record.base,
            reserved_blocks: record.reserved_blocks,
            size_bytes: record.size_bytes,
            mode: Mode::from_number(record.mode).unwrap_or(Mode::Writethrough),
        }
    }
}

/// Adds what all hosts have left; 0 for hosts that were not asked for that.
fn left(answers: &[Answer]) -> u64 {
    let counted = answers.iter().map(|answer| match answer {
        Answer::Left(left) => *left,
        _ => 0,
    });
    counted.sum()
}

/// Adds what all hosts have to write back; nothing if they were not asked for that.
fn backlog(answers: &[Answer]) -> Option<Backlog> {
    let mut all = Backlog::default();
    for answer in answers {
        let Answer::Backlog(backlog) = answer else {
            return None;
        };
        all.dirty_blocks += backlog.dirty_blocks;
        all.unflushed_blocks += backlog.unflushed_blocks;
        all.unreadable_blocks += backlog.unreadable_blocks;
    }
    Some(all)
}

/// Why a change was not made, once what was on record has been written anew, or could not be either.
fn not_recorded(error: &SuperblockError, again: &Happened) -> Refusal {
    match again {
        Happened::Recorded(Ok(())) => Refusal::NotRecorded(error.clone()),
        _ => Refusal::Uncertain(error.clone()),
    }
}

fn refusal(answers: &[Answer]) -> Option<Refusal> {
    let refused = |answer: &Answer| match answer {
        Answer::Refused(why) => Some(Refusal::Refused(why)),
        _ => None,
    };
    answers.iter().find_map(refused)
}
