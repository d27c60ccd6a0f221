//! Instructions of commands to hosts, and the hosts' answers. The driver delivers both, as it
//! delivers messages between hosts.

use std::ops::Range;
use std::sync::Arc;

use forebay_engine::{Engine, Mode, Superblock, VolumeConfig, VolumeSlot};

use crate::host::Host;

/// An instruction that every host carries out between two of its turns.
#[derive(Clone, Debug)]
pub enum Instruction {
    /// Serve a volume from now on, under this number.
    AddVolume(VolumeSlot, VolumeConfig),
    /// Keep a volume that was just added, and serve it not: its origin is not there.
    SetAway(VolumeSlot),
    /// Serve a volume again whose origin was away, as it is now.
    BringBack(VolumeSlot, VolumeConfig),
    /// Serve the volume in this larger size from now on, in bytes.
    GrowVolume(VolumeSlot, u64),
    /// Requests of the volume from now on are in this mode.
    SetMode(VolumeSlot, Mode),
    /// Begin or cease to write everything of the volume back.
    SetDraining(VolumeSlot, bool),
    /// Refuse requests of the volume from now on, or take them again. Flushes are never refused.
    SetDetaching(VolumeSlot, bool),
    /// Have changes of the volume wait from now on, or let them go on.
    SetFrozen(VolumeSlot, bool),
    /// Say how many changes of the volume are on their way, those that wait aside: [`Answer::Left`].
    CountChanges(VolumeSlot),
    /// Forget a volume that takes no requests, with the dirty blocks of one that is away;
    /// [`Answer::Left`] as long as something is in the way.
    RemoveVolume(VolumeSlot),
    /// Say what of the volume is to be written back: [`Answer::Backlog`].
    CountDirty(VolumeSlot),
    /// Say how many requests of the volume are on their way: [`Answer::Left`].
    CountRequests(VolumeSlot),
    /// Flush this cache device with the others from now on.
    AddDevice(u8),
    /// Let a cache device go that holds nothing; [`Answer::Left`] as long as it is flushed.
    RemoveDevice(u8),
    /// Use the space that this superblock names, and keep as many copies of dirty data as it says: it
    /// is on record.
    UseExtents(Arc<Superblock>),
    /// Say how many shards have dirty data on one device alone: [`Answer::Left`], or
    /// [`Answer::Refused`] if a shard failed.
    CountAlone,
    /// Begin to empty these segments of every shard; [`Answer::Refused`] if too little would stay.
    Empty(Vec<Range<u32>>),
    /// Use what was to be emptied as before.
    KeepEmptied,
    /// Say how far the emptying is: [`Answer::Emptying`], or [`Answer::Refused`] if it ended.
    CountEmptying,
    /// Begin only write-back that somebody waits for.
    LimitWriteback,
    /// Write down how far everything is durable, as the last thing of an orderly stop.
    Settle,
    /// Leave the origins as they are from now on, and begin nothing once all is done.
    Hold,
    /// Say whether anything is on its way: [`Answer::Left`].
    CountUnsettled,
}

/// A host's answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer {
    /// It is done.
    Done,
    /// So much is still in the way, or on its way; ask again.
    Left(u64),
    /// Blocks of a volume that are to be written back.
    Backlog(Backlog),
    /// Segments that are to leave.
    Emptying {
        /// Not empty yet.
        left: u64,
        /// All.
        all: u64,
    },
    /// It cannot be done.
    Refused(&'static str),
}

/// Blocks of a volume that are to be written back.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Backlog {
    /// Newer in the cache than durably on the origin, in blocks.
    pub dirty_blocks: u64,
    /// Of these, what is on the origin and clean with its next flush.
    pub unflushed_blocks: u64,
    /// Of these, what cannot be read, and is not tried again.
    pub unreadable_blocks: u64,
}

impl<T> Host<T> {
    /// Does what a command wants of this host.
    ///
    /// # Panics
    /// If it names a volume that is not served.
    pub fn instruct(&mut self, instruction: &Instruction) -> Answer {
        match instruction {
            Instruction::AddVolume(slot, config) => self.add_volume(*slot, *config),
            Instruction::SetAway(slot) => {
                self.engines().for_each(|engine| engine.set_away(*slot));
            }
            Instruction::BringBack(slot, config) => {
                self.engines()
                    .for_each(|engine| engine.bring_back(*slot, *config));
            }
            Instruction::GrowVolume(slot, size_bytes) => {
                self.engines()
                    .for_each(|engine| engine.grow_volume(*slot, *size_bytes));
            }
            Instruction::SetMode(slot, mode) => {
                self.engines()
                    .for_each(|engine| engine.set_mode(*slot, *mode));
            }
            Instruction::SetDraining(slot, on) => {
                self.engines()
                    .for_each(|engine| engine.set_draining(*slot, *on));
            }
            Instruction::SetDetaching(slot, on) => {
                self.engines()
                    .for_each(|engine| engine.set_detaching(*slot, *on));
                if *on {
                    // Changes that wait are refused.
                    self.frozen.set(*slot, false);
                }
            }
            Instruction::SetFrozen(slot, on) => self.frozen.set(*slot, *on),
            Instruction::CountChanges(slot) => return Answer::Left(self.changes_of(*slot)),
            Instruction::RemoveVolume(slot) => match self.remove_volume(*slot) {
                Ok(()) => {}
                Err(left) => return Answer::Left(left),
            },
            Instruction::CountDirty(slot) => return Answer::Backlog(self.backlog(*slot)),
            Instruction::CountRequests(slot) => return Answer::Left(self.requests_of(*slot)),
            Instruction::AddDevice(number) => self.add_cache_device(*number),
            Instruction::RemoveDevice(number) => {
                return Answer::Left(u64::from(!self.remove_cache_device(*number)));
            }
            Instruction::UseExtents(superblock) => {
                if superblock.membership > 0 {
                    self.keep_two(0);
                }
                self.engines()
                    .for_each(|engine| engine.set_extents(superblock));
            }
            Instruction::CountAlone => return self.alone(),
            Instruction::Empty(ids) => {
                if self
                    .engines()
                    .any(|engine| engine.begin_shrink(ids.clone()).is_err())
                {
                    return Answer::Refused("too little of the cache would remain");
                }
            }
            Instruction::KeepEmptied => self.engines().for_each(Engine::cancel_shrink),
            Instruction::CountEmptying => return self.emptying(),
            Instruction::LimitWriteback => self.engines().for_each(Engine::limit_writeback),
            Instruction::Settle => self.engines().for_each(Engine::settle),
            Instruction::Hold => self.engines().for_each(Engine::hold),
            Instruction::CountUnsettled => return Answer::Left(u64::from(!self.is_settled())),
        }
        Answer::Done
    }

    /// Returns what the shards here have to write back of a volume.
    pub fn backlog(&mut self, slot: VolumeSlot) -> Backlog {
        let mut backlog = Backlog::default();
        for engine in self.engines() {
            let dirty = engine.volume_blocks(slot).map_or(0, |(dirty, _)| dirty);
            backlog.dirty_blocks += dirty;
            backlog.unflushed_blocks += engine.unflushed_blocks(slot).min(dirty);
            backlog.unreadable_blocks += engine.unreadable_blocks(slot);
        }
        backlog
    }

    fn alone(&mut self) -> Answer {
        if self.is_losing() {
            return Answer::Refused("the cache is losing a device");
        }
        let mut alone = 0;
        for engine in self.engines() {
            if let Some(reason) = engine.failure() {
                return Answer::Refused(reason);
            }
            alone += u64::from(engine.is_alone_somewhere());
        }
        Answer::Left(alone)
    }

    fn emptying(&mut self) -> Answer {
        let (mut left, mut all) = (0, 0);
        for engine in self.engines() {
            if let Some(reason) = engine.failure() {
                return Answer::Refused(reason);
            }
            let Some((of_it, of_all)) = engine.shrinking() else {
                return Answer::Refused("what was to leave stays");
            };
            left += u64::from(of_it);
            all += u64::from(of_all);
        }
        Answer::Emptying { left, all }
    }

    fn requests_of(&mut self, slot: VolumeSlot) -> u64 {
        self.joins
            .iter_mut()
            .filter(|join| join.volume == slot)
            .count() as u64
    }
}
