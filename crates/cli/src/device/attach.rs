//! Opening a cache and its origins, with every check that comes before anything is written.
//!
//! In order: open all devices exclusively (two daemons, mounted devices), flush the origins
//! (I12), read the superblock, honour an abandonment (I15), compare each origin with what the
//! cache knows of it, recover, make the shared memory, enter new volumes.

use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context, Result};
use forebay_cache::control::NewVolume;
use forebay_engine::format::{NAME_BYTES, VolumeState};
use forebay_engine::{
    AttachOptions, Attached, BlockKey, CacheId, Geometry, Joined, Mode, Recovered, RecoveryReport,
    Settings, Storage, Superblock, SuperblockError, VolumeConfig, VolumeRecord,
};
use forebay_io::{
    BlockingStorage, DAEMON_END_TIMEOUT, DeviceKind, DirectIo, OpenError, OpenHow, RealDevice,
    Recording, retry_for,
};

use crate::config::VolumePlan;
use crate::device::cache_storage::{self, CacheStorage};
use crate::device::fingerprint::{self, Marks};
use crate::device::holder;
use crate::device::image_format::{OriginFormat, check_not_growing};
use crate::device::network;
use crate::device::present::{self, Decision, Given, Present};
use crate::device::shared_memory::{self, Left, ShardMemory};
use crate::device::signature::{self, Contents};
use crate::device::state_dir::{Abandonment, DurableShard, StateDir, UnsavedRange};
use crate::failure::{Refused, Usage, refuse, wrong_usage};
use crate::quoting::{in_shell, in_toml};
use crate::units;
use crate::wall_clock::since_1970;

/// A device and the means to read and write it here and now.
pub(crate) struct Opened {
    pub(crate) device: Arc<RealDevice>,
    pub(crate) storage: BlockingStorage,
}

impl Opened {
    pub(crate) fn new(path: &Path, direct: DirectIo, read_only: bool) -> Result<Opened> {
        let how = OpenHow { direct, read_only };
        let device = match network::uri::as_uri(path) {
            Some(name) => network::open(path, name, read_only)?,
            None => retry_for(
                DAEMON_END_TIMEOUT,
                || RealDevice::open(path, how),
                |error| matches!(error, OpenError::Busy { .. }),
            )
            .map_err(holder::name_holder)?,
        };
        let storage = device
            .storage()
            .with_context(|| format!("no memory to read {}; free some", path.display()))?;
        Ok(Opened { device, storage })
    }
}

/// Refuses what cannot be a volume's name; `remedy` says where another is given.
pub(crate) fn check_name(name: &str, remedy: &str) -> Result<()> {
    if name.is_empty() || name.len() > NAME_BYTES || name.chars().any(char::is_control) {
        wrong_usage!(
            "`{}` cannot be the name of a volume, which has 1 to {NAME_BYTES} bytes and no control characters; \
             {remedy}",
            name.escape_debug()
        );
    }
    Ok(())
}

/// The place of a volume's name.
const NAME_WHERE: &str = "choose one with --name (in a configuration file: name = \"NAME\")";

/// Refuses what cannot be the name of a new volume. A volume that has such a name from earlier
/// programs keeps it.
pub(crate) fn check_new_name(name: &str, remedy: &str) -> Result<()> {
    check_name(name, remedy)?;
    let wrong = if name.contains('/') {
        "has a slash"
    } else if name.starts_with('.') {
        "begins with a dot"
    } else if name.contains(char::is_whitespace) {
        "has a blank"
    } else {
        return Ok(());
    };
    wrong_usage!(
        "`{name}` cannot be the name of a volume: it {wrong}, and is a name in /dev/forebay, in URIs and in /etc/fstab; \
         {remedy}"
    );
}

/// Refuses origins that are new to this cache and cannot be its volumes, before anything is
/// written.
pub(crate) fn check_new_origins<'a>(
    superblock: Option<&Superblock>,
    origins: impl Iterator<Item = &'a mut Origin>,
) -> Result<()> {
    let is_known = |name: &str| {
        let mut known = superblock.into_iter().flat_map(attached_volumes);
        known.any(|volume| volume.name == name)
    };
    let mut new = origins.filter(|origin| !is_known(&origin.name));
    new.try_for_each(|origin| {
        check_new_name(&origin.name, NAME_WHERE)?;
        check_not_growing(&mut origin.opened.storage, origin.format)
    })
}

/// An origin device and what is asked of it.
pub(crate) struct Origin {
    pub(crate) opened: Opened,
    pub(crate) name: String,
    /// The mode asked for, if one was.
    pub(crate) mode: Option<Mode>,
    /// The format that it is said to have.
    pub(crate) format: Option<OriginFormat>,
    /// The size of its volume, if that stays as it is although the origin grew.
    pub(crate) kept_bytes: Option<u64>,
}

impl Origin {
    /// Opens and flushes an origin (I12).
    pub(crate) fn open(planned: &VolumePlan, surroundings: &Surroundings) -> Result<Origin> {
        let mut opened = surroundings.open(&planned.origin)?;
        flush_origin(&mut opened.storage, &planned.origin)?;
        let name = planned.called();
        check_name(&name, NAME_WHERE)?;
        Ok(Origin {
            opened,
            name,
            mode: planned.mode,
            format: planned.format,
            kept_bytes: None,
        })
    }

    /// Size for clients: whole sectors of the origin.
    pub(crate) fn size_bytes(&self) -> u64 {
        let device = &self.opened.device;
        self.kept_bytes
            .unwrap_or_else(|| whole_sectors_bytes(device, device.size_bytes()))
    }
}

/// The size of a volume on a device of this size.
pub(crate) fn whole_sectors_bytes(device: &RealDevice, size_bytes: u64) -> u64 {
    let unit = u64::from(device.logical_block_bytes().clamp(512, 4096));
    size_bytes / unit * unit
}

/// Refuses a larger size of a volume beyond what is set aside for it.
pub(crate) fn check_room(
    superblock: &Superblock,
    volume: &VolumeRecord,
    origin: &Path,
    size_bytes: u64,
) -> Result<()> {
    let room_bytes = superblock.room_bytes(volume);
    if size_bytes > room_bytes {
        refuse!(
            "the origin device {} grew to {}, beyond the {} set aside for volume `{}`; detach it and attach it anew",
            origin.display(),
            units::size(size_bytes),
            units::size(room_bytes),
            volume.name,
        );
    }
    Ok(())
}

/// Refuses a larger size of a volume that ends within a block: the cache may hold that block with
/// zeroes in the part that is new, where the origin has something else.
pub(crate) fn check_ends_with_block(
    superblock: &Superblock,
    volume: &VolumeRecord,
    origin: &Path,
    size_bytes: u64,
) -> Result<()> {
    let block_bytes = u64::from(superblock.geometry.block_bytes);
    if size_bytes > volume.size_bytes && !volume.size_bytes.is_multiple_of(block_bytes) {
        refuse!(
            "the origin device {} grew to {}, and volume `{}` keeps its {} bytes, which end within a block of {}; \
             detach it and attach it anew",
            origin.display(),
            units::size(size_bytes),
            volume.name,
            volume.size_bytes,
            units::size(block_bytes),
        );
    }
    Ok(())
}

/// Makes what was written to an origin durable there.
pub(crate) fn flush_origin(storage: &mut BlockingStorage, path: &Path) -> Result<()> {
    storage
        .flush()
        .with_context(|| format!("cannot flush the origin device {}", path.display()))
}

/// Settings for opening devices, and places of records.
#[derive(Clone, Debug)]
pub(crate) struct Surroundings {
    pub(crate) direct: DirectIo,
    pub(crate) state: StateDir,
    /// Where all that changes the devices is recorded.
    pub(crate) recording: Option<Arc<Recording>>,
}

impl Surroundings {
    /// Opens a device to be served.
    pub(crate) fn open(&self, path: &Path) -> Result<Opened> {
        let opened = Opened::new(path, self.direct, false)?;
        if let Some(recording) = &self.recording {
            opened
                .device
                .record(recording)
                .with_context(|| format!("cannot record what is written to {}", path.display()))?;
        }
        Ok(opened)
    }
}

/// A cache that is attached, not yet served.
pub(crate) struct AttachedCache {
    pub(crate) storage: CacheStorage,
    pub(crate) superblock: Superblock,
    pub(crate) shards: Vec<Recovered>,
    pub(crate) report: RecoveryReport,
    pub(crate) memory: Vec<ShardMemory>,
}

/// Opens the devices of a cache and reads its superblock. All that are in use must be there.
pub(crate) fn open_cache(
    paths: &[PathBuf],
    surroundings: &Surroundings,
) -> Result<(CacheStorage, Superblock)> {
    let mut storage = open_present(paths, None, surroundings, Decision::None)?.storage;
    let names = cache_storage::names(&storage);
    let superblock = Superblock::read(&mut storage).with_context(|| {
        format!(
            "cannot use the cache device {names}; a cache that goes on without a device must be served once before"
        )
    })?;
    Ok((storage, superblock))
}

/// Opens the devices of a cache, as far as they must be there, and reads its superblock. With
/// `may_create` a cache is made first if all are blank and nothing speaks against its volumes.
pub(crate) fn open_present(
    paths: &[PathBuf],
    may_create: Option<&mut dyn FnMut() -> Result<()>>,
    surroundings: &Surroundings,
    decision: Decision,
) -> Result<Present> {
    let mut given = Given::open(paths, surroundings)?;
    if let Some(check) = may_create
        && given.opened.len() == paths.len()
        && given.opened.iter_mut().all(holds_no_cache)
    {
        check()?;
        create_on_all(&mut given.opened)?;
    }
    let present = present::find(given, &surroundings.state, decision)?;
    let names = cache_storage::names(&present.storage);
    check_abandonment(&present.superblock, surroundings, &names)?;
    Ok(present)
}

fn holds_no_cache(opened: &mut Opened) -> bool {
    let found = Superblock::of_device(&mut opened.storage, 0);
    matches!(found, Err(SuperblockError::Blank))
}

/// Makes a cache on blank devices.
fn create_on_all(opened: &mut [Opened]) -> Result<()> {
    for each in opened.iter_mut() {
        check_blank(each).with_context(|| cannot_make_on(each))?;
    }
    make_cache(opened, &NewCache::default(), 1).map(drop)
}

/// The words for a cache that cannot be made on a device.
pub(crate) fn cannot_make_on(opened: &Opened) -> String {
    format!("cannot make a cache on {}", opened.device.path().display())
}

/// Makes a cache of this shape on all of these devices, one at least, whatever they hold.
///
/// # Errors
/// If a device is too small or fails. What the devices held is lost then as well.
pub(crate) fn make_cache(
    opened: &mut [Opened],
    shape: &NewCache,
    copies: u8,
) -> Result<Superblock> {
    let (first, others) = opened.split_first_mut().expect("a device is given");
    let geometry = shape
        .on(first.device.size_bytes())
        .with_context(|| cannot_make_on(first))?;
    let mut changed = Superblock::new(new_id()?, geometry, first.device.size_bytes());
    for other in others.iter() {
        let size_bytes = other.device.size_bytes();
        let number = changed.add_device(size_bytes)?;
        changed
            .grow(number, size_bytes)
            .with_context(|| cannot_make_on(other))?;
    }
    changed.set_copies(copies);
    for other in others.iter_mut() {
        // One that is not part of this cache yet must not look like a part of another.
        Superblock::wipe(&mut other.storage).with_context(|| cannot_make_on(other))?;
    }
    let made = forebay_engine::create(&mut first.storage, changed.id, geometry);
    let mut superblock = made.with_context(|| cannot_make_on(first))?;
    if others.is_empty() {
        return Ok(superblock);
    }
    let mut joined = Joined::new(vec![(0, &mut first.storage)]);
    for (number, other) in (1..).zip(others) {
        joined.add(number, &mut other.storage);
    }
    superblock
        .replace(changed, &mut joined)
        .context("cannot make a cache on several devices")?;
    Ok(superblock)
}

/// Refuses a cache that failed, whoever remembers it.
fn check_abandonment(
    superblock: &Superblock,
    surroundings: &Surroundings,
    names: &str,
) -> Result<()> {
    let Some(note) = surroundings.state.abandonment(superblock.id)? else {
        if superblock.abandoned {
            refuse!(
                "the cache on {names} was abandoned by a daemon with another state directory: its volumes went on without \
                 it, so what it holds is old. Where that directory is, `forebay drain --offline` writes out what may be \
                 newer in the cache; name it with --state-dir. Without it, make the cache anew with \
                 `forebay create --force`"
            );
        }
        return Ok(());
    };
    let ago = since_1970().as_secs().saturating_sub(note.time) as f64;
    let then = match note.unsaved_bytes() {
        0 => "nothing is lost: all that was written is on the origins. Make the cache anew with \
              `forebay create --force`"
            .to_owned(),
        bytes => format!(
            "but {} of {} are newer in it than on their origins: write them out with `forebay drain --offline`, then \
             make it anew with `forebay create --force`",
            units::size(bytes),
            volumes_of(superblock, &note)
        ),
    };
    refuse!(
        "the cache on {names} was abandoned {} ago ({}): its volumes went on without it, so what it holds is old; {then}",
        units::duration(ago),
        note.reason,
    )
}

fn volumes_of(superblock: &Superblock, note: &Abandonment) -> String {
    let ranges = note.unsaved.iter();
    let mut names: Vec<&str> = ranges
        .map(|range| volume_of(superblock, range).map_or(&range.volume, |volume| &volume.name))
        .map(String::as_str)
        .collect();
    names.sort_unstable();
    names.dedup();
    format!("volume {}", names.join(", "))
}

/// The volume of a range, if it is attached.
fn volume_of<'a>(superblock: &'a Superblock, range: &UnsavedRange) -> Option<&'a VolumeRecord> {
    attached_volumes(superblock).find(|known| range.is_of(known))
}

/// Opens a cache to write out what is dirty in it. Of one that was abandoned, only what the note in
/// the state directory names counts.
pub(crate) fn open_to_save(
    paths: &[PathBuf],
    surroundings: &Surroundings,
) -> Result<(Present, Option<Abandonment>)> {
    let given = Given::open(paths, surroundings)?;
    let present = present::find(given, &surroundings.state, Decision::None)?;
    let names = cache_storage::names(&present.storage);
    let note = surroundings.state.abandonment(present.superblock.id)?;
    let has_unsaved = note.as_ref().is_some_and(|note| note.unsaved_bytes() > 0);
    if !has_unsaved {
        check_abandonment(&present.superblock, surroundings, &names)?;
    }
    Ok((present, note))
}

/// The blocks that a note says are newer in the log of the cache than on their origins.
///
/// # Errors
/// If it names a volume that the cache does not have: without its blocks all of them would be taken for
/// saved.
pub(crate) fn unsaved_blocks(
    superblock: &Superblock,
    note: &Abandonment,
) -> Result<Vec<Range<BlockKey>>> {
    let block_bytes = u64::from(superblock.geometry.block_bytes);
    let in_log = note.unsaved.iter().filter(|range| !range.in_memory);
    let mut blocks = Vec::new();
    for range in in_log {
        let Some(volume) = volume_of(superblock, range) else {
            let was_here = |id| id < superblock.next_volume_id;
            if range.volume_id.is_some_and(was_here) {
                // Its user gave the volume up, with its dirty data: an id is never given twice (I16).
                continue;
            }
            refuse!(
                "the note in the state directory names dirty data of volume {}, which this cache does not have; nothing \
                 was changed. Give the state directory that is this cache's, with --state-dir",
                range.volume
            );
        };
        let first = volume.base.plus(range.offset_bytes / block_bytes);
        let end = (range.offset_bytes + range.len_bytes).div_ceil(block_bytes);
        blocks.push(first..volume.base.plus(end));
    }
    Ok(blocks)
}

/// The shape of a new cache.
#[derive(Clone, Copy, Debug)]
pub(crate) struct NewCache {
    pub(crate) block_bytes: u32,
    pub(crate) shards: Option<u16>,
}

impl NewCache {
    /// The geometry on a device of this size; wrong usage if there is none.
    pub(crate) fn on(&self, device_bytes: u64) -> Result<Geometry> {
        let cores =
            std::thread::available_parallelism().map_or(1, |cores| cores.get().min(256) as u16);
        Geometry::for_device(device_bytes, self.block_bytes, self.shards, cores)
            .map_err(|error| Usage(error.to_string()).into())
    }
}

impl Default for NewCache {
    fn default() -> NewCache {
        NewCache {
            block_bytes: 4096,
            shards: None,
        }
    }
}

fn check_blank(opened: &mut Opened) -> Result<()> {
    match signature::examine(&mut opened.storage)? {
        Contents::Blank => Ok(()),
        Contents::Known(what) => {
            refuse!("the device holds {what}; to overwrite it, use `forebay create --force`")
        }
        Contents::Unknown => refuse!(
            "the device holds data of an unknown kind; to overwrite it, use `forebay create --force`"
        ),
    }
}

fn new_id() -> Result<CacheId> {
    use std::io::Read;
    let mut id = [0; 16];
    std::fs::File::open("/dev/urandom")
        .and_then(|mut random| random.read_exact(&mut id))
        .context("cannot read /dev/urandom")?;
    Ok(CacheId(id))
}

/// The volumes that the cache may hold data of.
pub(crate) fn attached_volumes(superblock: &Superblock) -> impl Iterator<Item = &VolumeRecord> {
    superblock
        .volumes
        .iter()
        .filter(|volume| volume.state == VolumeState::Attached)
}

/// Says that the origin of a volume was given by another name. `file` is the configuration file
/// that names origins, if there is one.
pub(crate) fn named_otherwise(
    volume: &VolumeRecord,
    origin: &Origin,
    file: Option<&Path>,
) -> anyhow::Error {
    Refused(format!(
        "the cache knows {} as volume `{}`, not as `{}`: {} (`forebay rename` changes it while it is served)",
        origin.opened.device.path().display(),
        volume.name,
        origin.name,
        match file {
            Some(file) => how_to_name(&volume.name, &origin.opened.device, file),
            None => format!("give it with --name {}", in_shell(&volume.name)),
        }
    ))
    .into()
}

/// Says that the origin of a volume is not given. `file` is as in [`named_otherwise`].
pub(crate) fn not_given(
    volume: &VolumeRecord,
    origins: &[&Origin],
    file: Option<&Path>,
) -> anyhow::Error {
    let given: Vec<&str> = origins.iter().map(|origin| origin.name.as_str()).collect();
    Refused(format!(
        "the cache belongs to volume `{}` ({}), whose origin device is not given (given: {}); {}",
        volume.name,
        units::size(volume.size_bytes),
        given.join(", "),
        how_to_give(&volume.name, file),
    ))
    .into()
}

/// The origin of a volume that was given by a name which no volume has.
pub(crate) fn called_otherwise<'a>(
    superblock: &Superblock,
    volume: &VolumeRecord,
    origins: &[&'a Origin],
) -> Option<&'a Origin> {
    let found = origins.iter().find(|origin| {
        let marks = Marks::of(&origin.opened.device);
        attached_volumes(superblock).all(|known| known.name != origin.name)
            && origin.size_bytes() == volume.size_bytes
            && marks.surely_fit(&volume.fingerprint)
    });
    found.copied()
}

/// Advice for the configuration file on an origin, so that its volume is called this.
pub(crate) fn how_to_name(name: &str, origin: &RealDevice, file: &Path) -> String {
    format!(
        "write name = {} under the [[volume]] with the origin {} in {}",
        in_toml(name),
        origin.path().display(),
        file.display()
    )
}

/// A volume may have come by `forebay attach`, which no file and no command line knows.
pub(crate) fn how_to_give(name: &str, file: Option<&Path>) -> String {
    match file {
        Some(file) => format!(
            "add a [[volume]] with its origin and name = {} to {}",
            in_toml(name),
            file.display()
        ),
        None => format!(
            "name its origin too (--name {} if that is what it is called now), with a configuration file \
             if there are several volumes (while it is served `forebay config` prints one)",
            in_shell(name)
        ),
    }
}

/// Compares an origin with what the cache knows of the volume of that name.
pub(crate) fn check_origin(
    superblock: &Superblock,
    volume: &VolumeRecord,
    origin: &mut Origin,
) -> Result<()> {
    let path = origin.opened.device.path().to_owned();
    let size_bytes = origin.size_bytes();
    if size_bytes < volume.size_bytes {
        refuse!(
            "the origin device {} has {}, but volume `{}` had {}: it is not the same device, or it shrank; \
             give the right one, or make the cache anew with `forebay create --force`: dirty data in it is then lost",
            path.display(),
            units::size(size_bytes),
            volume.name,
            units::size(volume.size_bytes),
        );
    }
    check_room(superblock, volume, &path, size_bytes)?;
    if let Err(why) = check_ends_with_block(superblock, volume, &path, size_bytes) {
        tracing::warn!("{why}");
        origin.kept_bytes = Some(volume.size_bytes);
    }
    let identity = origin.opened.device.identity().to_owned();
    let marks = Marks::of(&origin.opened.device);
    if !marks.fit(&volume.fingerprint) {
        let copied = match origin.opened.device.kind() {
            DeviceKind::Block | DeviceKind::Remote => String::new(),
            DeviceKind::File => format!(
                ". A copy, or a file that was restored, is not: it lacks what only the cache holds. To go on with it, \
                 save that with `forebay rescue {0} --cache CACHE --to FILE`, and make the cache anew with \
                 `forebay create --force`",
                in_shell(&volume.name)
            ),
        };
        refuse!(
            "the cache belongs to another origin: {} ({identity}) is not the device that volume `{}` was on; \
             give that one{copied}",
            path.display(),
            volume.name,
        );
    }
    if volume.fingerprint_at == 0 {
        if origin.opened.device.kind() == DeviceKind::Remote {
            tracing::warn!(
                "volume {} was not let go in order, so nothing tells whether another host wrote to {} meanwhile; if one \
                 did, stop this daemon, and give up what the cache holds of it with `forebay detach {} --offline \
                 --cache DEVICE --force`: other volumes keep theirs",
                volume.name,
                path.display(),
                in_shell(&volume.name)
            );
        }
        return Ok(());
    }
    let now = fingerprint::take(&mut origin.opened.storage, marks, volume.size_bytes)
        .with_context(|| format!("cannot read the origin device {}", path.display()))?;
    if !fingerprint::same_contents(&volume.fingerprint, &now) {
        refuse!(
            "the origin device {} changed since it was last served ({} ago): what the cache holds of volume `{}` \
             no longer fits it. If the change was wanted, make the cache anew with `forebay create --force`; \
             dirty data in it is then lost",
            path.display(),
            units::duration(since_1970().as_secs().saturating_sub(volume.fingerprint_at) as f64),
            volume.name,
        );
    }
    Ok(())
}

/// Faults that an attach may go on with.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Accepted {
    /// Something durable is missing.
    pub(crate) damage: bool,
    /// A device is missing or fails, and dirty data is on two (I28).
    pub(crate) lack: bool,
}

/// Recovers the cache, in a new epoch. Of one that was abandoned the note says how far it was
/// durable.
pub(crate) fn attach(
    mut storage: CacheStorage,
    superblock: &Superblock,
    accepted: Accepted,
    settings: &Settings,
    note: Option<&Abandonment>,
) -> Result<AttachedCache> {
    let options = AttachOptions {
        boot_id: boot_id()?,
        accept_damage: accepted.damage,
        without_missing: accepted.lack,
        from_checkpoint: true,
    };
    let mut left = shared_memory::open(superblock)?;
    let mut surviving: Vec<_> = left.iter_mut().map(Left::surviving).collect();
    let durable = note.iter().flat_map(|note| &note.durable);
    let promises: Vec<_> = durable.map(DurableShard::promise).collect();
    let attached =
        forebay_engine::attach_promised(&mut storage, &mut surviving, &options, &promises)
            .map_err(|error| explain(error, &storage))?;
    drop(surviving);
    let Attached {
        superblock,
        shards,
        report,
    } = attached;
    for lost in superblock.devices_out() {
        // The attach went on without one that was given, because it failed.
        storage.remove(lost.number);
    }
    let held = report.shards.iter().map(|shard| shard.buffered_blocks);
    let left = left.into_iter().zip(held).collect();
    let memory = shared_memory::complete(superblock.id, left, settings)?;
    Ok(AttachedCache {
        storage,
        superblock,
        shards,
        report,
        memory,
    })
}

/// Tells damage from other failures.
fn explain(error: forebay_engine::AttachError, storage: &CacheStorage) -> anyhow::Error {
    use forebay_engine::{AttachError, RecoveryError};
    let names = cache_storage::names(storage);
    match error {
        AttachError::Superblock(error) => {
            anyhow::Error::from(error).context(format!("cannot use the cache device {names}"))
        }
        AttachError::Shard {
            source: RecoveryError::Damaged(_),
            ..
        } => {
            let advice = format!(
                "{error}. What the missing records superseded must not come back unnoticed: look with \
                 `forebay check {0}`, then accept it with `forebay repair {0} --accept-damage`",
                cache_storage::arguments(storage)
            );
            crate::failure::DamageFound(advice).into()
        }
        other => anyhow::Error::from(other).context(format!("cannot attach the cache on {names}")),
    }
}

/// The machine's boot: shared memory of an earlier one is gone.
pub(crate) fn boot_id() -> Result<[u8; 16]> {
    let path = "/proc/sys/kernel/random/boot_id";
    let text = std::fs::read_to_string(path).with_context(|| format!("cannot read {path}"))?;
    let digits: String = text.chars().filter(char::is_ascii_hexdigit).collect();
    u128::from_str_radix(&digits, 16)
        .map(u128::to_be_bytes)
        .with_context(|| format!("{path} is not as expected"))
}

/// A volume on this origin, in `first_mode` if the cache does not know it and nobody asked for
/// another.
pub(crate) fn new_volume(origin: &Origin, first_mode: Mode) -> NewVolume {
    NewVolume {
        name: origin.name.clone(),
        size_bytes: origin.size_bytes(),
        mode: origin.mode,
        first_mode,
        identity: Marks::of(&origin.opened.device).fingerprint(),
    }
}

/// Enters a volume at the start; its id, and how it is served. The caller writes the superblock.
pub(crate) fn enter_volume(
    superblock: &mut Superblock,
    origin: &Origin,
    first_mode: Mode,
) -> Result<(u32, VolumeConfig)> {
    let id = new_volume(origin, first_mode).enter(superblock)?;
    let mut records = superblock.volumes.iter();
    let record = records
        .find(|record| record.id == id)
        .context("the volume is not on record")?;
    Ok((id, config_of(record)))
}

/// Returns the engines' settings of a volume on record.
pub(crate) fn config_of(record: &VolumeRecord) -> VolumeConfig {
    VolumeConfig {
        base: record.base,
        reserved_blocks: record.reserved_blocks,
        size_bytes: record.size_bytes,
        mode: Mode::from_number(record.mode).unwrap_or(Mode::Writethrough),
    }
}
