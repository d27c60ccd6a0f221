//! Freezing a volume: everything that was acknowledged is on its origin, and nothing new is before
//! it is thawed (I27).

use forebay_engine::planted::{self, Bug};
use forebay_engine::{Mode, VolumeSlot};

use super::drain::Watched;
use super::{Backlog, Books, Frozen, Happened, Progress, Refusal, Step, backlog, drain, left};
use crate::instruction::Instruction;

/// So many dirty blocks are left for the time in which clients wait. Writes in `writethrough` are
/// dirty until the origin has them, so that there are always some beside a client.
const LEFT_FOR_THE_PAUSE: u64 = 1024;
/// Looks of the pause in which nothing became less, before clients go on: an origin that hangs, or
/// blocks of a failed cache, would hold them up for ever.
const VAIN_LOOKS: u32 = 50;
/// So many dirty blocks are left for the time in which clients' writes wait for the origin.
const LEFT_FOR_THROUGH: u64 = 16 * LEFT_FOR_THE_PAUSE;
/// Looks without less to write back, after which clients write faster than the origin takes it.
const OUTRUN_LOOKS: u32 = 20;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum At {
    Begun,
    Draining,
    Asking,
    Through,
    DrainingThrough,
    Freezing,
    LastChanges,
    DrainingRest,
    Flushing,
    Thawing,
    Ceasing,
    ModeAgain,
}

/// In this order, each step only after the one before:
///
/// 1. The volume is written back while clients go on, which is most of it. 2. The origin is asked for
///    a read: if it does not answer, the command ends, and clients never waited for it.
///    New writes go to the origin as well then, in every shard, or a busy client's would never come to
///    an end. 3. Every host has changes wait. 4. Those on their way end: after that nothing becomes dirty.
/// 5. The rest is written back. 6. A flush as a client sends it: bypassed writes are durable too,
///    and a loss that nobody was told of ends the command.
/// 7. The mode is as before, for changes after the thaw.
///
/// Example of what the order is for: were 5 before 4, a write that is answered between the two would
/// be in the log alone, and a snapshot of the origin would lack it.
#[derive(Debug)]
pub(super) struct Freeze {
    volume: VolumeSlot,
    /// The mode to return to, if writes of it are not on the origin when they are answered.
    mode: Option<Mode>,
    /// That mode is not in force.
    is_through: bool,
    at: At,
    is_draining: bool,
    /// The fewest blocks or changes that were left at a look of this step.
    last_left: u64,
    /// Looks since then.
    vain_looks: u32,
    why: Option<Refusal>,
}

impl Freeze {
    pub(super) fn new(books: &mut Books, volume: VolumeSlot) -> Result<Freeze, Refusal> {
        if books.staying(volume)?.frozen != Frozen::No {
            return Err(Refusal::Frozen);
        }
        let id = books.hold_with_mode(volume)?;
        let served = books.volume(volume);
        served.frozen = Frozen::Begun;
        let passing_mode = served.passing_mode;
        let mode = passing_mode.unwrap_or_else(|| books.config_of(id).mode);
        Ok(Freeze {
            volume,
            mode: (mode == Mode::Writeback).then_some(mode),
            is_through: false,
            at: At::Begun,
            is_draining: false,
            last_left: u64::MAX,
            vain_looks: 0,
            why: None,
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
                self.is_draining = true;
                self.at = match self.mode {
                    Some(_) => At::Draining,
                    None => At::DrainingThrough,
                };
                drain::begin(books, volume)
            }
            (At::Asking, Happened::Asked(Ok(()))) => {
                self.is_through = true;
                self.to(
                    At::Through,
                    Step::Instruct(Instruction::SetMode(volume, Mode::Writethrough)),
                )
            }
            (At::Asking, Happened::Asked(Err(_))) if interrupted => {
                self.fails(books, Refusal::Interrupted)
            }
            (At::Asking, Happened::Asked(Err(error))) => self.fails(books, Refusal::Unseen(error)),
            (At::Through, _) => self.to(
                At::DrainingThrough,
                Step::Look(Instruction::CountDirty(volume)),
            ),
            (At::Draining | At::DrainingThrough, Happened::Instructed(answers)) => {
                match drain::watch(&answers, progress) {
                    Watched::Unreadable(blocks) => self.fails(books, Refusal::Unreadable(blocks)),
                    Watched::Dirty if interrupted => self.fails(books, Refusal::Interrupted),
                    Watched::Clean | Watched::Dirty => self.comes_nearer(backlog(&answers)),
                }
            }
            (At::Freezing, Happened::Instructed(_)) if planted::is(Bug::FrozenEarly) => self.to(
                At::DrainingRest,
                Step::Look(Instruction::CountDirty(volume)),
            ),
            (At::Freezing, Happened::Instructed(_)) => self.to(
                At::LastChanges,
                Step::Look(Instruction::CountChanges(volume)),
            ),
            (At::LastChanges, Happened::Instructed(answers)) => match left(&answers) {
                0 => {
                    (self.last_left, self.vain_looks) = (u64::MAX, 0);
                    self.to(
                        At::DrainingRest,
                        Step::Look(Instruction::CountDirty(volume)),
                    )
                }
                left => self.looks_again(left, interrupted, Instruction::CountChanges(volume)),
            },
            (At::DrainingRest, Happened::Instructed(answers)) => {
                match drain::watch(&answers, progress) {
                    Watched::Clean => self.to(At::Flushing, Step::Flush(volume)),
                    Watched::Unreadable(blocks) => self.thaws(Refusal::Unreadable(blocks)),
                    Watched::Dirty => {
                        let left = progress.backlog.dirty_blocks;
                        self.looks_again(left, interrupted, Instruction::CountDirty(volume))
                    }
                }
            }
            (At::Flushing, Happened::Flushed(true)) => self.ceases(books),
            (At::Flushing, _) => self.thaws(Refusal::Flush(volume)),
            (At::Thawing, _) => self.ceases(books),
            (At::Ceasing, _) => self.mode_again(books),
            (At::ModeAgain, _) => self.ended(books),
            (at, happened) => unreachable!("{happened:?} while {at:?}"),
        }
    }

    fn to(&mut self, at: At, step: Step) -> Step {
        self.at = at;
        step
    }

    /// Goes on to the next step if little is left for it, beside clients that go on.
    fn comes_nearer(&mut self, backlog: Option<Backlog>) -> Step {
        let left = backlog.map(|backlog| backlog.dirty_blocks - backlog.unflushed_blocks);
        let Some(left) = left else {
            return Step::Look(Instruction::CountDirty(self.volume));
        };
        let is_outrun = self.was_in_vain(left) > OUTRUN_LOOKS;
        match self.at {
            At::Draining if left <= LEFT_FOR_THROUGH || is_outrun => {
                self.to(At::Asking, Step::Ask(self.volume))
            }
            At::DrainingThrough if left <= LEFT_FOR_THE_PAUSE => {
                (self.last_left, self.vain_looks) = (u64::MAX, 0);
                self.to(
                    At::Freezing,
                    Step::Instruct(Instruction::SetFrozen(self.volume, true)),
                )
            }
            _ => Step::Look(Instruction::CountDirty(self.volume)),
        }
    }

    /// The number of looks since less was left than at any before.
    fn was_in_vain(&mut self, left: u64) -> u32 {
        self.vain_looks = match left < self.last_left {
            true => 0,
            false => self.vain_looks + 1,
        };
        self.last_left = self.last_left.min(left);
        self.vain_looks
    }

    /// Looks again in the pause, unless it is to end.
    fn looks_again(&mut self, left: u64, interrupted: bool, at: Instruction) -> Step {
        if interrupted {
            self.thaws(Refusal::Interrupted)
        } else if self.was_in_vain(left) > VAIN_LOOKS {
            self.thaws(Refusal::Stuck)
        } else {
            Step::Look(at)
        }
    }

    fn thaws(&mut self, why: Refusal) -> Step {
        self.why = Some(why);
        let step = Step::Instruct(Instruction::SetFrozen(self.volume, false));
        self.to(At::Thawing, step)
    }

    fn fails(&mut self, books: &mut Books, why: Refusal) -> Step {
        self.why = Some(why);
        self.ceases(books)
    }

    fn ceases(&mut self, books: &mut Books) -> Step {
        let drained = std::mem::take(&mut self.is_draining);
        match drained.then(|| drain::end(books, self.volume)).flatten() {
            Some(instruction) => self.to(At::Ceasing, Step::Instruct(instruction)),
            None => self.mode_again(books),
        }
    }

    fn mode_again(&mut self, books: &mut Books) -> Step {
        match self.mode.take().filter(|_| self.is_through) {
            Some(mode) => self.to(
                At::ModeAgain,
                Step::Instruct(Instruction::SetMode(self.volume, mode)),
            ),
            None => self.ended(books),
        }
    }

    fn ended(&mut self, books: &mut Books) -> Step {
        let result = self.why.take().map_or(Ok(()), Err);
        let served = books.volume(self.volume);
        served.mode_changes = false;
        served.frozen = match result {
            Ok(()) => Frozen::Yes,
            Err(_) => Frozen::No,
        };
        books.let_go(self.volume);
        Step::Ended(result)
    }
}

/// Has a frozen volume take changes again.
#[derive(Debug)]
pub(super) struct Thaw {
    volume: VolumeSlot,
    is_told: bool,
}

impl Thaw {
    pub(super) fn new(books: &mut Books, volume: VolumeSlot) -> Result<Thaw, Refusal> {
        let served = books.staying(volume)?;
        if served.frozen != Frozen::Yes {
            return Err(Refusal::NotFrozen);
        }
        served.holds += 1;
        Ok(Thaw {
            volume,
            is_told: false,
        })
    }

    pub(super) fn go_on(&mut self, books: &mut Books) -> Step {
        if !std::mem::replace(&mut self.is_told, true) {
            return Step::Instruct(Instruction::SetFrozen(self.volume, false));
        }
        books.volume(self.volume).frozen = Frozen::No;
        books.let_go(self.volume);
        Step::Ended(Ok(()))
    }
}
