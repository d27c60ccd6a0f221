//! Records outside the cache device: that a cache was abandoned (I15), and which of its devices it
//! goes on without ([`super::witness`], I28).

use std::fs::{self, File};
use std::io::Write;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use forebay_engine::format::{DurablePosition, Sequence};
use forebay_engine::{CacheId, Promise, VolumeRecord};
use serde::{Deserialize, Serialize};

use crate::failure::refuse;

/// Bytes that must fit when a daemon starts.
const TRIED_BYTES: usize = 64 << 10;

/// The directory of such files.
#[derive(Clone, Debug)]
pub(crate) struct StateDir {
    path: PathBuf,
    /// Where copies are that can be read at any time, if the directory may be on a volume of the
    /// daemon that reads it.
    in_memory: Option<PathBuf>,
}

/// A cache was abandoned: its volumes went on without it, so what it holds is old.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Abandonment {
    /// The epoch at which it happened.
    pub(crate) epoch: u32,
    /// The reason.
    pub(crate) reason: String,
    /// When, in seconds since 1970.
    pub(crate) time: u64,
    /// Dirty ranges: newer in the cache than on its origins.
    #[serde(default)]
    pub(crate) unsaved: Vec<UnsavedRange>,
    /// Durable state of its shards, which tells an older image apart.
    #[serde(default)]
    pub(crate) durable: Vec<DurableShard>,
}

impl Abandonment {
    /// The amount of dirty data, in bytes.
    pub(crate) fn unsaved_bytes(&self) -> u64 {
        self.unsaved.iter().map(|range| range.len_bytes).sum()
    }

    /// Takes what is on record of a volume off: its origin has it.
    pub(crate) fn saved(&mut self, volume: &VolumeRecord) {
        self.unsaved.retain(|range| !range.is_of(volume));
    }
}

/// Durable state of a shard: of each stream, the epoch and number of a segment's generation and one
/// past its last durable slot.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct DurableShard {
    pub(crate) shard: u16,
    pub(crate) streams: Vec<(u32, u64, u16)>,
}

impl DurableShard {
    pub(crate) fn of(promise: &Promise) -> DurableShard {
        let streams = promise.durable.iter().map(|position| {
            let generation = position.generation;
            (generation.epoch, generation.number, position.end_slot)
        });
        DurableShard {
            shard: promise.shard,
            streams: streams.collect(),
        }
    }

    pub(crate) fn promise(&self) -> Promise {
        let durable = std::array::from_fn(|stream| {
            let (epoch, number, end_slot) = self.streams.get(stream).copied().unwrap_or_default();
            DurablePosition {
                generation: Sequence::new(epoch, number),
                end_slot,
            }
        });
        Promise {
            shard: self.shard,
            durable,
        }
    }
}

/// A range of a volume.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct UnsavedRange {
    /// The volume's name then: it may have another by now.
    pub(crate) volume: String,
    /// Its id, which it keeps. Notes of earlier versions have none.
    #[serde(default)]
    pub(crate) volume_id: Option<u32>,
    pub(crate) offset_bytes: u64,
    pub(crate) len_bytes: u64,
    /// It is in the memory buffer, which a start of this machine replays by itself.
    #[serde(default)]
    pub(crate) in_memory: bool,
}

impl UnsavedRange {
    /// Whether it is a range of this volume.
    pub(crate) fn is_of(&self, volume: &VolumeRecord) -> bool {
        match self.volume_id {
            Some(id) => id == volume.id,
            None => self.volume == volume.name,
        }
    }
}

impl StateDir {
    /// The directory given, or the usual one of this user.
    pub(crate) fn open(given: Option<&Path>) -> Result<StateDir> {
        let path = match given {
            Some(path) => path.to_owned(),
            None => default_path()?,
        };
        fs::create_dir_all(&path).with_context(|| {
            format!(
                "cannot make the state directory {}; choose one with --state-dir",
                path.display()
            )
        })?;
        Ok(StateDir {
            path,
            in_memory: None,
        })
    }

    /// Opens the directory for a daemon, and tries to write to it. A daemon that could not record
    /// that its cache failed would have its volumes wait then (I15), so it does not start.
    pub(crate) fn open_for_notes(given: Option<&Path>) -> Result<StateDir> {
        let state = StateDir::open(given)?;
        state.try_to_write().with_context(|| {
            format!(
                "cannot write in the state directory {}, where it would be put on record that a cache failed; make room or mount it writable, or choose one with --state-dir",
                state.path.display()
            )
        })?;
        Ok(state)
    }

    /// Writes what a record of a few hundred ranges takes, and removes it again.
    fn try_to_write(&self) -> std::io::Result<()> {
        let path = self.path.join(format!(".try-{}", std::process::id()));
        let write = |path: &Path| {
            let mut file = create_for_owner(path)?;
            file.write_all(&[b' '; TRIED_BYTES])?;
            file.sync_all()
        };
        let written = write(&path);
        match fs::remove_file(&path) {
            Err(error) if written.is_ok() => Err(error),
            _ => written,
        }
    }

    /// That of a daemon which the root file system is on. The directory is not made: as long as it
    /// is not there nothing could be kept in it.
    pub(crate) fn of_root_storage(path: PathBuf, in_memory: PathBuf) -> StateDir {
        StateDir {
            path,
            in_memory: Some(in_memory),
        }
    }

    /// Whether the cache was abandoned.
    pub(crate) fn abandonment(&self, cache: CacheId) -> Result<Option<Abandonment>> {
        let Some((path, text)) = self.record(&note_name(cache))? else {
            return Ok(None);
        };
        // A file that cannot be understood still says that something happened.
        let found = serde_json::from_slice(&text).with_context(|| {
            format!(
                "{} says that the cache was abandoned, and cannot be understood beyond that; make the cache anew with `forebay create --force`",
                path.display()
            )
        })?;
        Ok(Some(found))
    }

    /// Remembers durably that a cache failed; only then may its volumes go on without it.
    pub(crate) fn abandon(&self, cache: CacheId, abandonment: &Abandonment) -> Result<()> {
        self.keep(&note_name(cache), &serde_json::to_vec(abandonment)?)
    }

    /// A record as it is now, and its path.
    pub(super) fn record(&self, name: &str) -> Result<Option<(PathBuf, Vec<u8>)>> {
        let directory = self.in_memory.as_ref().unwrap_or(&self.path);
        let path = directory.join(name);
        match fs::read(&path) {
            Ok(text) => Ok(Some((path, text))),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error).with_context(|| format!("cannot read {}", path.display())),
        }
    }

    /// Writes a record durably.
    pub(super) fn keep(&self, name: &str, text: &[u8]) -> Result<()> {
        let path = self.path.join(name);
        let failed = || format!("cannot write {}", path.display());
        let Some(in_memory) = &self.in_memory else {
            return write_durably(&path, text).with_context(failed);
        };
        if is_on_root(&self.path)? {
            refuse!(
                "{} is on the root file system, where the next boot does not look: mount what it should be on",
                self.path.display()
            );
        }
        // First, and for good as soon as the other may be there: a daemon that takes this one's
        // place must not know less than the next boot.
        let copy = in_memory.join(name);
        let unsure = unsure_name(&copy);
        let before = fs::read(&copy).ok();
        let copied = create_for_owner(&unsure).and_then(|_| write_durably(&copy, text));
        // What memory cannot take must not keep it from being durable.
        let written = write_durably(&path, text);
        let is_as_before = match &before {
            Some(before) => fs::read(&path).is_ok_and(|there| there == *before),
            None => fs::symlink_metadata(&path).is_err(),
        };
        if written.is_err() && is_as_before {
            match before {
                Some(before) => write_durably(&copy, &before),
                None => remove_if_there(&copy),
            }
            .with_context(|| format!("cannot write {}", copy.display()))?;
        }
        copied.with_context(|| format!("cannot write {}", copy.display()))?;
        if written.is_ok() || is_as_before {
            remove_if_there(&unsure)
                .with_context(|| format!("cannot remove {}", unsure.display()))?;
        }
        written.with_context(failed)
    }

    /// A record as the next boot finds it, where that can be read.
    pub(super) fn kept(&self, name: &str) -> Option<Vec<u8>> {
        let is_hidden = self.in_memory.is_some() && !is_on_root(&self.path).is_ok_and(|on| !on);
        if is_hidden {
            return None;
        }
        fs::read(self.path.join(name)).ok()
    }

    /// Whether a record was to be written last, and perhaps was not, so that the next boot may find
    /// an older one.
    pub(super) fn is_unsure(&self, name: &str) -> bool {
        let mut directories = self.in_memory.iter();
        directories.any(|directory| unsure_name(&directory.join(name)).exists())
    }

    /// Whether records are read from memory, as a daemon does that the root file system is on.
    pub(super) fn is_of_root_storage(&self) -> bool {
        self.in_memory.is_some()
    }

    /// Where it is remembered that a cache was abandoned.
    pub(crate) fn note_path(&self, cache: CacheId) -> PathBuf {
        self.path.join(note_name(cache))
    }

    /// The cache was made anew: nothing old is left of it.
    pub(crate) fn forget(&self, cache: CacheId) -> Result<()> {
        let names = [note_name(cache), super::witness::file_name(cache)];
        for directory in self.in_memory.iter().chain([&self.path]) {
            for path in names.iter().map(|name| directory.join(name)) {
                remove_if_there(&path)
                    .with_context(|| format!("cannot remove {}", path.display()))?;
            }
        }
        Ok(())
    }
}

/// Writes a file beside another one and puts it in its place, so that one of them is whole.
fn write_durably(path: &Path, bytes: &[u8]) -> std::io::Result<()> {
    let new = path.with_extension("new");
    let mut file = create_for_owner(&new)?;
    file.write_all(bytes)?;
    file.sync_all()?;
    fs::rename(&new, path)?;
    let directory = path.parent().ok_or(std::io::ErrorKind::InvalidInput)?;
    File::open(directory)?.sync_all()
}

fn remove_if_there(path: &Path) -> std::io::Result<()> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

/// The file that is there while it is not sure that a record is durable.
fn unsure_name(copy: &Path) -> PathBuf {
    let mut name = copy.as_os_str().to_owned();
    name.push(".unsure");
    name.into()
}

/// Makes a file that only its owner reads: the names of volumes and devices are nobody else's
/// business. A file of an earlier version becomes one, too.
fn create_for_owner(path: &Path) -> std::io::Result<File> {
    use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
    let mut how = File::options();
    let file = how.write(true).create(true).truncate(true);
    let file = file.mode(0o600).open(path)?;
    file.set_permissions(fs::Permissions::from_mode(0o600))?;
    Ok(file)
}

fn is_on_root(path: &Path) -> Result<bool> {
    use std::os::unix::fs::MetadataExt;
    let device = |path: &Path| {
        let found =
            fs::metadata(path).with_context(|| format!("cannot find {}", path.display()))?;
        anyhow::Ok(found.dev())
    };
    Ok(device(path)? == device(Path::new("/"))?)
}

fn note_name(cache: CacheId) -> String {
    format!("{cache}.abandoned")
}

fn is_root() -> bool {
    use std::os::unix::fs::MetadataExt;
    // The process's own directory in /proc belongs to its effective user.
    fs::metadata("/proc/self").is_ok_and(|own| own.uid() == 0)
}

fn default_path() -> Result<PathBuf> {
    if is_root() {
        // On the root file system, as LVM's: caches are served before /var is mounted, and a note
        // that a cache was abandoned must be found then.
        return Ok("/etc/forebay/state".into());
    }
    let named = std::env::var_os("XDG_STATE_HOME")
        .filter(|path| !path.is_empty())
        .map(PathBuf::from);
    let home = || std::env::var_os("HOME").map(|home| PathBuf::from(home).join(".local/state"));
    let base = named
        .or_else(home)
        .context("there is no home directory; choose a directory with --state-dir")?;
    Ok(base.join("forebay"))
}

#[cfg(test)]
mod tests {
    use forebay_engine::{Geometry, Superblock};

    use super::*;

    fn note() -> Abandonment {
        Abandonment {
            epoch: 3,
            reason: "the cache device failed".to_owned(),
            time: 0,
            unsaved: vec![UnsavedRange {
                volume: "v".to_owned(),
                volume_id: Some(1),
                offset_bytes: 4096,
                len_bytes: 8192,
                in_memory: false,
            }],
            durable: vec![DurableShard {
                shard: 1,
                streams: vec![(3, 40, 8), (2, 7, 16), (0, 0, 0)],
            }],
        }
    }

    #[test]
    fn a_volume_that_is_saved_leaves_the_others_on_record() {
        let geometry = Geometry::for_device(64 << 20, 4096, Some(1), 1).unwrap();
        let mut superblock = Superblock::new(CacheId([7; 16]), geometry, 64 << 20);
        // It had another name when its ranges were noted.
        let volume = superblock.add_volume("renamed", 1 << 20, 0).unwrap();
        assert_eq!(volume.id, 1);
        let mut note = note();
        for (name, volume_id) in [("w", Some(2)), ("renamed", None)] {
            note.unsaved.push(UnsavedRange {
                volume: name.to_owned(),
                volume_id,
                ..note.unsaved[0].clone()
            });
        }
        note.saved(volume);
        let left: Vec<&str> = note
            .unsaved
            .iter()
            .map(|range| range.volume.as_str())
            .collect();
        assert_eq!(left, ["w"]);
    }

    #[test]
    fn abandonment_is_remembered_until_forgotten() {
        let path = std::env::temp_dir().join(format!("forebay-state-{}", std::process::id()));
        let state = StateDir::open(Some(&path)).unwrap();
        let cache = CacheId([7; 16]);
        assert_eq!(state.abandonment(cache).unwrap(), None);
        state.abandon(cache, &note()).unwrap();
        let made = fs::metadata(state.note_path(cache)).unwrap();
        let mode = std::os::unix::fs::PermissionsExt::mode(&made.permissions());
        assert_eq!(mode & 0o777, 0o600, "names are nobody else's business");
        let found = state.abandonment(cache).unwrap().unwrap();
        assert_eq!((&found, found.unsaved_bytes()), (&note(), 8192));
        assert_eq!(state.abandonment(CacheId([8; 16])).unwrap(), None);
        state.forget(cache).unwrap();
        state.forget(cache).unwrap();
        assert_eq!(state.abandonment(cache).unwrap(), None);
        fs::remove_dir_all(path).unwrap();
    }

    #[test]
    fn beneath_the_root_file_system_memory_is_read_and_both_are_written() {
        // Another file system than the root's.
        let scratch = Path::new("/dev/shm").join(format!("forebay-root-{}", std::process::id()));
        let (durable, memory) = (scratch.join("boot"), scratch.join("run"));
        fs::create_dir_all(&memory).unwrap();
        let state = StateDir::of_root_storage(durable.clone(), memory);
        let cache = CacheId([7; 16]);
        // A record that cannot be kept is not remembered in memory alone.
        assert!(state.abandon(cache, &note()).is_err());
        assert_eq!(state.abandonment(cache).unwrap(), None);
        fs::create_dir_all(&durable).unwrap();
        state.abandon(cache, &note()).unwrap();
        let kept = StateDir::open(Some(&durable)).unwrap();
        assert_eq!(
            kept.abandonment(cache).unwrap(),
            state.abandonment(cache).unwrap()
        );
        assert_eq!(state.abandonment(cache).unwrap().unwrap().epoch, 3);
        // A daemon that starts again may not look there.
        fs::remove_dir_all(&durable).unwrap();
        assert_eq!(state.abandonment(cache).unwrap().unwrap().epoch, 3);
        state.forget(cache).unwrap();
        assert_eq!(state.abandonment(cache).unwrap(), None);
        fs::remove_dir_all(&scratch).unwrap();

        let hidden = StateDir::of_root_storage("/etc".into(), scratch);
        let said = hidden.abandon(cache, &note()).unwrap_err().to_string();
        assert!(said.contains("/etc is on the root file system"), "{said}");
    }
}
