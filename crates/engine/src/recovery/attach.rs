//! Creating, attaching and inspecting a cache: the control plane, over a device that does a single
//! thing at a time.

use std::ops::RangeInclusive;

use crate::buffer;
use crate::format::plausible::EPOCH_END;
use crate::format::{CacheId, Geometry, Sequence, Superblock, SuperblockError};
use crate::interface::{DeviceError, Storage};
use crate::planted::{self, Bug};
use crate::recovery::checkpoint::{self, FirstPart};
use crate::recovery::side_by_side;
use crate::recovery::watched::Watched;
use crate::recovery::{self, RecoverOptions, Recovered, RecoveryError, ShardReport};
use crate::shm_journal::{self, ReplayedRecord, ShmIdentity};
use crate::store::failed::Promise;

/// Options of an attach.
#[derive(Clone, Copy, Debug)]
pub struct AttachOptions {
    /// The machine's boot, so that a crash journal of an earlier one is not believed.
    pub boot_id: [u8; 16],
    /// Go on although something durable is missing (I14): entries that it superseded may come back.
    pub accept_damage: bool,
    /// Go on without devices that are missing, or without the only one that fails, if dirty data is
    /// on two (I28): they are out of the cache from then on ([`Superblock::devices`] says which). The
    /// caller knows that the cache did not go on without those that are there.
    pub without_missing: bool,
    /// Start from the checkpoint of an orderly stop, if it counts, and read no summaries.
    pub from_checkpoint: bool,
}

/// Memory of a shard that outlived the daemon, as far as it is there.
#[derive(Debug, Default)]
pub struct Surviving<'a> {
    /// Its crash journal.
    pub journal: Option<&'a [u8]>,
    /// Its memory buffer ([`crate::Commit::Memory`]). Attaching hands it over to the new epoch; an
    /// engine whose [`crate::Memory::buffer_mut`] is this memory logs its writes.
    pub buffer: Option<&'a mut [u8]>,
}

/// An attached cache: a new epoch is durable, and so are the verdicts of recovery.
#[derive(Debug)]
pub struct Attached {
    /// As it is on the device now.
    pub superblock: Superblock,
    /// The shards, for [`crate::Engine::new`].
    pub shards: Vec<Recovered>,
    /// Findings of recovery, by shard.
    pub report: RecoveryReport,
}

/// Findings of recovery.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RecoveryReport {
    /// By shard.
    pub shards: Vec<ShardReport>,
    /// The damage for which all clean blocks were forgotten, in words, if there was any (I28).
    pub clean_left: Option<String>,
}

impl RecoveryReport {
    /// Bytes read from the cache device.
    #[must_use]
    pub fn bytes_read(&self) -> u64 {
        self.shards.iter().map(|shard| shard.bytes_read).sum()
    }

    /// Blocks that are cached.
    #[must_use]
    pub fn cached_blocks(&self) -> u64 {
        self.shards.iter().map(|shard| shard.cached_blocks).sum()
    }

    /// Dirty blocks among them.
    #[must_use]
    pub fn dirty_blocks(&self) -> u64 {
        self.shards.iter().map(|shard| shard.dirty_blocks).sum()
    }

    /// Blocks in memory buffers that are acknowledged and not in the log yet.
    #[must_use]
    pub fn buffered_blocks(&self) -> u64 {
        self.shards.iter().map(|shard| shard.buffered_blocks).sum()
    }

    /// Durable structures that are missing or make no sense, in words.
    #[must_use]
    pub fn damage(&self) -> Vec<&str> {
        self.shards
            .iter()
            .flat_map(|shard| &shard.damage)
            .map(String::as_str)
            .collect()
    }
}

/// Why a cache cannot be attached.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AttachError {
    /// The superblock.
    #[error(transparent)]
    Superblock(#[from] SuperblockError),
    /// A shard.
    #[error("shard {shard}: {source}")]
    Shard {
        /// Which.
        shard: u16,
        /// Why.
        source: RecoveryError,
    },
    /// The device failed.
    #[error("the cache device failed: {0}")]
    Device(#[from] DeviceError),
    /// Devices with these numbers are missing or fail, and dirty data may be on them alone (I28).
    #[error("cache devices are missing or fail that dirty data may be on alone: {}", in_words(.0))]
    Alone(Vec<u8>),
    /// Attached two billion times.
    #[error("the cache has used up its epochs: drain it and create it anew")]
    Epochs,
}

/// Numbers of devices, as a message lists them: `1, 2`.
fn in_words(numbers: &[u8]) -> String {
    let words: Vec<String> = numbers.iter().map(u8::to_string).collect();
    words.join(", ")
}

/// Makes a new cache on a device whose contents may be lost. Old segments are made unreadable
/// by the new identity, with which every checksum begins.
///
/// # Errors
/// If the geometry does not fit or the device fails.
pub fn create(
    device: &mut dyn Storage,
    id: CacheId,
    geometry: Geometry,
) -> Result<Superblock, SuperblockError> {
    geometry.validate()?;
    if device.size_bytes() < geometry.device_bytes() {
        return Err(SuperblockError::Truncated {
            found_bytes: device.size_bytes(),
            recorded_bytes: geometry.device_bytes(),
        });
    }
    let mut superblock = Superblock::new(id, geometry, device.size_bytes());
    superblock.write(device)?;
    Ok(superblock)
}

/// Attaches a cache: recovers every shard in a new epoch. The caller has opened the device
/// exclusively, and the origins too, and has flushed the origins (I12).
///
/// # Errors
/// If it is no cache, is damaged, or the device fails. Nothing was lost then; attaching again
/// starts from the same state.
pub fn attach(
    device: &mut dyn Storage,
    surviving: &mut [Surviving<'_>],
    options: &AttachOptions,
) -> Result<Attached, AttachError> {
    attach_promised(device, surviving, options, &[])
}

/// Attaches a cache whose durable positions are known from elsewhere: a cache that lacks some of
/// them is damaged (I14).
///
/// # Errors
/// As [`attach`].
pub fn attach_promised(
    device: &mut dyn Storage,
    surviving: &mut [Surviving<'_>],
    options: &AttachOptions,
    promises: &[Promise],
) -> Result<Attached, AttachError> {
    if !options.without_missing {
        return attach_to(device, surviving, options, promises, None);
    }
    let mut without = None;
    let mut left: Option<AttachError> = None;
    let mut first = None;
    loop {
        let mut watched = Watched::new(device, without);
        let options = AttachOptions {
            // What a device has that fails is given up by nobody who gave it.
            accept_damage: options.accept_damage && without.is_none(),
            ..*options
        };
        let error = match attach_to(&mut watched, surviving, &options, promises, left.as_ref()) {
            Ok(attached) => return Ok(attached),
            Err(error) => error,
        };
        let failing = watched.only_failed().filter(|_| is_of_device(&error));
        if without.is_none() && failing.is_some() {
            without = failing;
        } else if left.is_none() && is_damage(&error) {
            left = Some(error.clone());
        } else if without.is_some_and(|failing| needs_others(&error, failing)) {
            // Once they are there, the cache may go on without the one that fails.
            return Err(error);
        } else {
            // The first error tells more, where there is no second copy.
            return Err(first.unwrap_or(error));
        }
        first.get_or_insert(error);
    }
}

/// Whether devices are missing beside the one that fails.
fn needs_others(error: &AttachError, failing: u8) -> bool {
    matches!(error, AttachError::Alone(missing) if missing.iter().any(|number| *number != failing))
}

fn is_damage(error: &AttachError) -> bool {
    let AttachError::Shard { source, .. } = error else {
        return false;
    };
    matches!(source, RecoveryError::Damaged(_))
}

/// Whether what failed is worth another attempt without the device that failed it.
fn is_of_device(error: &AttachError) -> bool {
    match error {
        AttachError::Superblock(SuperblockError::Device(_)) | AttachError::Device(_) => true,
        AttachError::Shard {
            source: RecoveryError::Device(_),
            ..
        } => true,
        _ => is_damage(error),
    }
}

/// `clean_left` says what is damaged, where the clean streams are to count no more: with two copies
/// nothing that matters is there alone (I28).
fn attach_to(
    device: &mut dyn Storage,
    surviving: &mut [Surviving<'_>],
    options: &AttachOptions,
    promises: &[Promise],
    clean_left: Option<&AttachError>,
) -> Result<Attached, AttachError> {
    let mut superblock = Superblock::read_of_those_given(device)?;
    let given = device.device_numbers();
    if !options.without_missing || superblock.copies < 2 {
        superblock.check_complete(&given)?;
    }
    if let Some(error) = clean_left.filter(|_| superblock.copies < 2) {
        return Err(error.clone());
    }
    let missing: Vec<u8> = superblock.missing(&given).map(|on| on.number).collect();
    let is_dispensable = match *missing.as_slice() {
        [] => true,
        // Two can have both copies.
        [one] => (superblock.devices.iter()).any(|on| on.number == one && on.dispensable),
        _ => false,
    };
    if !is_dispensable && !options.accept_damage && !planted::is(Bug::AloneBelieved) {
        // What only the missing devices have of the log, no other device need know of.
        return Err(AttachError::Alone(missing));
    }
    // I12: writes of an earlier life are durable or gone before anything is decided.
    device.flush()?;
    superblock.epoch += 1;
    if superblock.epoch >= EPOCH_END {
        return Err(AttachError::Epochs);
    }
    let leave = |superblock: &mut Superblock| {
        let from = all_before(superblock, superblock.epoch);
        for number in &missing {
            superblock.lose_device(*number, &from);
        }
        if clean_left.is_some() {
            superblock.leave_clean_behind(&from);
        }
    };
    let recover_options = RecoverOptions {
        accept_damage: options.accept_damage,
        write: true,
        promise: None,
        first_part: None,
    };
    if !missing.is_empty() || clean_left.is_some() {
        // Once a device is out it is never believed again. Where dirty data is on it alone it has to
        // come back, and an attach that is refused for that must not have put it out (I28).
        let mut left = superblock.clone();
        leave(&mut left);
        each_shard(
            device,
            &left,
            surviving,
            options.boot_id,
            |device, shard, replayed, _| {
                let options = recover_options.of_shard(shard, promises);
                recovery::foresee(device, &left, shard, replayed, options)
            },
        )?;
    }
    if !missing.is_empty() {
        // Nor may one that is refused because a device that is given takes no writes.
        superblock.write_on_those_given(device)?;
    }
    leave(&mut superblock);
    superblock.write(device)?;
    let may_be_as_stopped = options.from_checkpoint && !options.accept_damage;
    let first_parts = match may_be_as_stopped && missing.is_empty() && clean_left.is_none() {
        true => checkpoint::first_parts(device, &superblock),
        false => Vec::new(),
    };
    let (mut shards, mut report) = recover_all(
        device,
        &superblock,
        surviving,
        options.boot_id,
        recover_options,
        &first_parts,
        promises,
    )?;
    report.clean_left = clean_left.map(AttachError::to_string);
    device.flush()?;
    for (shard, surviving) in surviving.iter_mut().enumerate() {
        if let Some(buffer) = &mut surviving.buffer {
            let owner = owner_of(&superblock, shard as u16, options.boot_id);
            buffer::shared::hand_over(buffer, owner, undecided(&superblock));
        }
    }
    superblock.decided_epoch = superblock.epoch;
    superblock.write(device)?;
    move_tails(device, &mut shards)?;
    Ok(Attached {
        superblock,
        shards,
        report,
    })
}

/// The number of each shard below which everything is from before an epoch.
fn all_before(superblock: &Superblock, epoch: u32) -> Vec<(u16, Sequence)> {
    if planted::is(Bug::LeftBehindBelieved) {
        return Vec::new();
    }
    let first = Sequence::new(epoch, 0);
    (0..superblock.geometry.shards)
        .map(|shard| (shard, first))
        .collect()
}

/// Moves tails where free segments are short, now that the verdicts are durable (I18).
fn move_tails(device: &mut dyn Storage, shards: &mut [Recovered]) -> Result<(), AttachError> {
    let mut some = false;
    for recovered in shards.iter() {
        if let Some(tail_move) = &recovered.tail_move {
            let shard = recovered.log.shard;
            tail_move
                .write(device, &recovered.log)
                .map_err(|source| AttachError::Shard { shard, source })?;
            some = true;
        }
    }
    if some {
        device.flush()?;
    }
    for recovered in shards {
        if let Some(tail_move) = recovered.tail_move.take() {
            tail_move.finish(&mut recovered.log);
        }
    }
    Ok(())
}

/// Looks at a cache without writing to it.
///
/// # Errors
/// As [`attach`], except that damage is reported and not refused.
///
/// Where an attach would forget the clean blocks (I28), so does this.
pub fn inspect(
    device: &mut dyn Storage,
    surviving: &[Surviving<'_>],
    boot_id: [u8; 16],
) -> Result<Attached, AttachError> {
    let superblock = Superblock::read(device)?;
    let found = inspect_as(device, superblock.clone(), surviving, boot_id)?;
    if found.report.damage().is_empty() || superblock.copies < 2 {
        return Ok(found);
    }
    let mut without_clean = superblock.clone();
    without_clean.leave_clean_behind(&all_before(&superblock, superblock.epoch + 1));
    let mut rest = inspect_as(device, without_clean, surviving, boot_id)?;
    if !rest.report.damage().is_empty() {
        return Ok(found);
    }
    rest.report.clean_left = Some(found.report.damage().join("; "));
    rest.superblock = superblock;
    Ok(rest)
}

/// Looks at a cache as this superblock says.
fn inspect_as(
    device: &mut dyn Storage,
    superblock: Superblock,
    surviving: &[Surviving<'_>],
    boot_id: [u8; 16],
) -> Result<Attached, AttachError> {
    let options = RecoverOptions {
        accept_damage: true,
        write: false,
        promise: None,
        first_part: None,
    };
    let (shards, report) = recover_all(device, &superblock, surviving, boot_id, options, &[], &[])?;
    Ok(Attached {
        superblock,
        shards,
        report,
    })
}

/// Does something for each shard, with the records that its crash journal holds, and whether there is
/// one, as [`replay`] says.
fn each_shard<T: Send>(
    device: &mut dyn Storage,
    superblock: &Superblock,
    surviving: &[Surviving<'_>],
    boot_id: [u8; 16],
    of: impl Fn(&mut dyn Storage, u16, Vec<ReplayedRecord>, bool) -> Result<T, RecoveryError> + Sync,
) -> Result<Vec<T>, AttachError> {
    // Copies that are made alike are flushed before a verdict relies on them (I21): by one shard at a
    // time, so that no flush that failed takes what another shard takes for durable.
    let may_share = superblock.membership == 0;
    let shards = superblock.geometry.shards;
    side_by_side::each_shard(device, shards, may_share, |device, shard| {
        let left = surviving.get(usize::from(shard));
        let journal = left.and_then(|left| left.journal);
        let (replayed, daemon_crash) = replay(superblock, shard, journal, boot_id);
        of(device, shard, replayed, daemon_crash)
            .map_err(|source| AttachError::Shard { shard, source })
    })
}

fn recover_all(
    device: &mut dyn Storage,
    superblock: &Superblock,
    surviving: &[Surviving<'_>],
    boot_id: [u8; 16],
    options: RecoverOptions,
    first_parts: &[Option<FirstPart>],
    promises: &[Promise],
) -> Result<(Vec<Recovered>, RecoveryReport), AttachError> {
    let mut shards = each_shard(
        device,
        superblock,
        surviving,
        boot_id,
        |device, shard, replayed, crashed| {
            let mut options = options.of_shard(shard, promises);
            options.first_part = first_parts.get(usize::from(shard)).copied().flatten();
            recovery::recover(device, superblock, shard, replayed, crashed, options)
        },
    )?;
    for (recovered, left) in shards.iter_mut().zip(surviving) {
        if let Some(buffer) = left.buffer.as_deref() {
            let owner = owner_of(superblock, recovered.log.shard, boot_id);
            recovered.report.buffered_blocks =
                buffer::shared::blocks_held(buffer, owner, undecided(superblock));
        }
    }
    let report = RecoveryReport {
        shards: shards.iter().map(|shard| shard.report.clone()).collect(),
        ..RecoveryReport::default()
    };
    Ok((shards, report))
}

/// Reads the records that the crash journal holds of an undecided epoch (I16). Returns also whether
/// there is such a crash journal: then only the daemon died, and the device still has all its
/// writes.
fn replay(
    superblock: &Superblock,
    shard: u16,
    journal: Option<&[u8]>,
    boot_id: [u8; 16],
) -> (Vec<ReplayedRecord>, bool) {
    let Some(journal) = journal else {
        return (Vec::new(), false);
    };
    let owner = owner_of(superblock, shard, boot_id);
    for epoch in undecided(superblock) {
        let identity = ShmIdentity { epoch, ..owner };
        if shm_journal::is_of(journal, identity) {
            return (shm_journal::replay(journal, identity), true);
        }
    }
    (Vec::new(), false)
}

/// Whose shared memory counts, in any of the epochs that are not decided.
fn owner_of(superblock: &Superblock, shard: u16, boot_id: [u8; 16]) -> ShmIdentity {
    ShmIdentity {
        cache: superblock.id,
        shard,
        epoch: superblock.epoch,
        boot_id,
    }
}

/// The epochs that no recovery has decided yet.
fn undecided(superblock: &Superblock) -> RangeInclusive<u32> {
    superblock.decided_epoch..=superblock.epoch
}
