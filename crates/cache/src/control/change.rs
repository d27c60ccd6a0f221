//! Changes of the superblock by commands. A change is made to the superblock on record at that
//! moment, so that of two commands neither takes back the other's.

use std::ops::Range;

use forebay_engine::format::{Sequence, VolumeState};
use forebay_engine::{Mode, Superblock, SuperblockError, VolumeRecord};

/// A volume that is to be served from now on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewVolume {
    /// The user's name for it.
    pub name: String,
    /// The origin's size, in bytes.
    pub size_bytes: u64,
    /// The mode asked for, if one was.
    pub mode: Option<Mode>,
    /// The mode of a volume that the cache does not know.
    pub first_mode: Mode,
    /// Identity of the origin device. Its contents are unknown while it is served.
    pub identity: [u8; 32],
}

impl NewVolume {
    /// Enters the volume, or finds it there, as it is from now on: in use, so that its contents
    /// have no fingerprint. Returns its id.
    ///
    /// # Errors
    /// If the cache has no room for another volume.
    pub fn enter(&self, superblock: &mut Superblock) -> Result<u32, SuperblockError> {
        let known = superblock
            .volumes
            .iter()
            .position(|volume| volume.state == VolumeState::Attached && volume.name == self.name);
        let record = match known {
            Some(at) => &mut superblock.volumes[at],
            None => superblock.add_volume(&self.name, self.size_bytes, self.first_mode as u8)?,
        };
        if let Some(mode) = self.mode {
            record.mode = mode as u8;
        }
        record.size_bytes = self.size_bytes;
        record.fingerprint = self.identity;
        record.fingerprint_at = 0;
        Ok(record.id)
    }
}

/// Fingerprint of an origin, taken when the cache lets it go.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fingerprint {
    /// The volume's id.
    pub volume: u32,
    /// Hash of the contents sampled.
    pub contents: [u8; 32],
    /// When that was, seconds since 1970.
    pub at: u64,
}

/// A change of the superblock.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Change {
    /// None: the state on record is written anew, so that a failed change's remains no longer
    /// count.
    Again,
    /// A volume's mode at its next attach.
    Mode(u32, Mode),
    /// A volume's name.
    Name(u32, String),
    /// A volume's larger size, in bytes.
    VolumeSize(u32, u64),
    /// A volume that is to be served.
    Enter(NewVolume),
    /// Nothing of this volume counts any more (I15).
    Detach(u32),
    /// Fingerprints of the origins at the end.
    Fingerprints(Vec<Fingerprint>),
    /// More space on a device, up to this offset (bytes).
    Grow(u8, u64),
    /// Another device of this size (bytes), all of it.
    AddDevice(u64),
    /// Segments that every shard has emptied leave.
    Shrink(Vec<Range<u32>>),
    /// The cache goes on without a device; by shard, what clean data below counts no more (I28).
    LoseDevice(u8, Vec<(u16, Sequence)>),
    /// Dirty data is on so many devices, 1 or 2.
    Copies(u8),
    /// From now on dirty data may be on any one of these devices alone (I28).
    Alone(Vec<u8>),
    /// All dirty data is on two devices, if no device was lost or added since these were (I28).
    AllOnTwo {
        /// The membership then.
        membership: u32,
        /// The serial that the next device or extent would have got.
        next_serial: u32,
    },
}

impl Change {
    /// The superblock with this change.
    ///
    /// # Errors
    /// If it cannot be: the volume is gone, or there is no room. Nothing was written then.
    pub fn of(&self, superblock: &Superblock) -> Result<Superblock, SuperblockError> {
        let mut changed = superblock.clone();
        match self {
            Change::Again => {}
            Change::Mode(volume, mode) => record_of(&mut changed, *volume)?.mode = *mode as u8,
            Change::Name(volume, name) => record_of(&mut changed, *volume)?.name.clone_from(name),
            Change::VolumeSize(volume, size_bytes) => {
                record_of(&mut changed, *volume)?.size_bytes = *size_bytes;
            }
            Change::Enter(volume) => drop(volume.enter(&mut changed)?),
            Change::Detach(volume) => {
                let next_epoch = changed.epoch.saturating_add(1);
                let record = record_of(&mut changed, *volume)?;
                // The fingerprint is not needed again: should the origin come back, it comes as a
                // new volume.
                record.state = VolumeState::Detached;
                record.valid_from_epoch = next_epoch;
            }
            Change::Fingerprints(taken) => {
                for print in taken {
                    let record = record_of(&mut changed, print.volume)?;
                    record.fingerprint = print.contents;
                    record.fingerprint_at = print.at;
                }
            }
            Change::Grow(device, end_bytes) => drop(changed.grow(*device, *end_bytes)?),
            Change::AddDevice(size_bytes) => {
                let number = changed.add_device(*size_bytes)?;
                changed.grow(number, *size_bytes)?;
            }
            Change::Shrink(gone) => {
                changed.shrink(gone);
                check_some_device_is_left(&changed)?;
            }
            Change::LoseDevice(number, clean_from) => {
                changed.lose_device(*number, clean_from);
                check_some_device_is_left(&changed)?;
            }
            Change::Copies(copies) => changed.set_copies(*copies),
            Change::Alone(stay) => changed.leave_two(|on| stay.contains(&on.number)),
            Change::AllOnTwo {
                membership,
                next_serial,
            } => {
                // A device that was added meanwhile was not looked at.
                if (changed.membership, changed.next_serial) != (*membership, *next_serial) {
                    return Err(SuperblockError::Full(
                        "the devices of the cache have changed meanwhile",
                    ));
                }
                changed.be_on_two();
            }
        }
        Ok(changed)
    }
}

/// A device can be lost while another is being emptied.
fn check_some_device_is_left(changed: &Superblock) -> Result<(), SuperblockError> {
    match changed.devices_in_use().next() {
        Some(_) => Ok(()),
        None => Err(SuperblockError::Full(
            "no device would be left in the cache: another was lost meanwhile",
        )),
    }
}

fn record_of(superblock: &mut Superblock, id: u32) -> Result<&mut VolumeRecord, SuperblockError> {
    let mut records = superblock.volumes.iter_mut();
    records
        .find(|record| record.id == id && record.state == VolumeState::Attached)
        .ok_or(SuperblockError::Full(
            "the cache has no record of the volume",
        ))
}
