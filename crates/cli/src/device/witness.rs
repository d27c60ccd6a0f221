//! The witness: a small file in the state directory that says which devices a cache goes on without
//! (I28). It tells a device that is merely missing from one that the cache left behind.
//!
//! An example. A cache has the devices 0 and 1, and dirty data is on both.
//!
//! 1. Device 1 fails. Device 0 and the witness say that it is out. Writes go to device 0 alone.
//! 2. The machine starts again. Device 1 is there, as it was before, and device 0 is not.
//! 3. Device 1 knows nothing of 1, and would serve old data. The witness knows, and the start is
//!    refused.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use forebay_engine::{CacheId, Superblock};
use serde::{Deserialize, Serialize};

use super::state_dir::StateDir;

/// See the module.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Witness {
    /// The cache.
    pub(crate) cache: String,
    /// As in the superblock: counts the changes of which devices are in use.
    pub(crate) membership: u32,
    pub(crate) devices: Vec<WitnessDevice>,
}

/// A device of the cache.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct WitnessDevice {
    pub(crate) number: u8,
    /// Never given twice in a cache.
    pub(crate) serial: u32,
    /// The cache goes on without it.
    pub(crate) out: bool,
    /// Where it was last, for people.
    #[serde(default)]
    pub(crate) path: Option<PathBuf>,
}

/// Testimony of a witness on a superblock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Testimony {
    /// It is the newest: devices that it names and that are missing hold nothing newer.
    Vouches,
    /// It knows of nothing newer, and of less than the superblock.
    Silent,
    /// The cache went on without these devices.
    Contradicts,
}

impl Witness {
    /// The witness for a superblock that is on record.
    pub(crate) fn of(superblock: &Superblock, path_of: impl Fn(u8) -> Option<PathBuf>) -> Witness {
        let devices = superblock.devices.iter().map(|on| WitnessDevice {
            number: on.number,
            serial: on.serial,
            out: on.out,
            path: path_of(on.number),
        });
        Witness {
            cache: superblock.id.to_string(),
            membership: superblock.membership,
            devices: devices.collect(),
        }
    }

    /// Whether a device of this serial is out.
    pub(crate) fn is_out(&self, serial: u32) -> bool {
        let mut out = self.devices.iter().filter(|on| on.out);
        out.any(|on| on.serial == serial)
    }

    /// Where a device was last.
    pub(crate) fn path_of(&self, serial: u32) -> Option<&Path> {
        let mut devices = self.devices.iter();
        let found = devices.find(|on| on.serial == serial)?;
        found.path.as_deref()
    }

    /// Compares it with the newest superblock of the devices that are there.
    pub(crate) fn on(&self, superblock: &Superblock) -> Testimony {
        use std::cmp::Ordering;
        let mut out = superblock.devices_out();
        match self.membership.cmp(&superblock.membership) {
            Ordering::Greater => Testimony::Contradicts,
            Ordering::Less => Testimony::Silent,
            // Each of two devices may have been used without the other.
            Ordering::Equal if out.any(|on| !self.is_out(on.serial)) => Testimony::Contradicts,
            Ordering::Equal => Testimony::Vouches,
        }
    }
}

impl StateDir {
    /// The witness of a cache, if there is one.
    pub(crate) fn witness(&self, cache: CacheId) -> Result<Option<Witness>> {
        let Some((path, text)) = self.record(&file_name(cache))? else {
            return Ok(None);
        };
        let found = serde_json::from_slice(&text).with_context(|| {
            format!(
                "{} says which devices the cache goes on without, and cannot be understood; if all of its devices are there \
                 and sound, remove that file",
                path.display()
            )
        })?;
        Ok(Some(found))
    }

    /// The witness, if the next boot finds the same.
    pub(crate) fn durable_witness(&self, cache: CacheId) -> Result<Option<Witness>> {
        match self.is_unsure(&file_name(cache)) {
            true => Ok(None),
            false => self.witness(cache),
        }
    }

    /// Whether this witness is where the next boot looks.
    pub(crate) fn keeps(&self, cache: CacheId, witness: &Witness) -> bool {
        let kept = self.kept(&file_name(cache));
        let found = kept.and_then(|text| serde_json::from_slice::<Witness>(&text).ok());
        found.as_ref() == Some(witness)
    }

    /// Writes the witness durably. Only then may anything rely on what it says.
    pub(crate) fn write_witness(&self, cache: CacheId, witness: &Witness) -> Result<()> {
        self.keep(&file_name(cache), &serde_json::to_vec(witness)?)
    }

    /// Whether the witness can be written at a start: not by a daemon in the initramfs, where the
    /// directory may not be mounted.
    pub(crate) fn keeps_witness_at_start(&self) -> bool {
        !self.is_of_root_storage()
    }
}

pub(super) fn file_name(cache: CacheId) -> String {
    format!("{cache}.devices")
}

#[cfg(test)]
mod tests {
    use super::*;
    use forebay_engine::Geometry;

    fn superblock() -> Superblock {
        let geometry = Geometry::for_device(64 << 20, 4096, Some(1), 1).unwrap();
        let mut superblock = Superblock::new(CacheId([7; 16]), geometry, 64 << 20);
        superblock.add_device(64 << 20).unwrap();
        superblock.set_copies(2);
        superblock
    }

    #[test]
    fn a_witness_vouches_for_its_own_membership_alone() {
        let before = superblock();
        let witness = Witness::of(&before, |_| None);
        assert_eq!(witness.on(&before), Testimony::Vouches);
        let mut without = before.clone();
        without.lose_device(1, &[]);
        assert_eq!(witness.on(&without), Testimony::Silent);
        let newer = Witness::of(&without, |_| None);
        assert_eq!(newer.on(&before), Testimony::Contradicts);
        assert_eq!(newer.on(&without), Testimony::Vouches);
        // Both went on without the other.
        let mut other = before.clone();
        other.lose_device(0, &[]);
        assert_eq!(newer.on(&other), Testimony::Contradicts);
    }

    #[test]
    fn a_witness_is_kept_until_the_cache_is_made_anew() {
        let path = std::env::temp_dir().join(format!("forebay-witness-{}", std::process::id()));
        let state = StateDir::open(Some(&path)).unwrap();
        let superblock = superblock();
        assert_eq!(state.witness(superblock.id).unwrap(), None);
        let witness = Witness::of(&superblock, |number| Some(format!("/dev/{number}").into()));
        state.write_witness(superblock.id, &witness).unwrap();
        let found = state.witness(superblock.id).unwrap().unwrap();
        assert_eq!(found, witness);
        assert_eq!(
            found.path_of(superblock.devices[1].serial),
            Some(Path::new("/dev/1"))
        );
        std::fs::write(path.join(file_name(superblock.id)), "{").unwrap();
        let said = state.witness(superblock.id).unwrap_err().to_string();
        assert!(said.contains("cannot be understood"), "{said}");
        state.forget(superblock.id).unwrap();
        assert_eq!(state.witness(superblock.id).unwrap(), None);
        std::fs::remove_dir_all(path).unwrap();
    }

    /// A daemon that takes another one's place must not take for durable what that could not write.
    #[test]
    fn what_could_not_be_written_is_not_taken_for_durable() {
        let scratch = Path::new("/dev/shm").join(format!("forebay-witness-{}", std::process::id()));
        let (durable, memory) = (scratch.join("boot"), scratch.join("run"));
        std::fs::create_dir_all(&memory).unwrap();
        std::fs::create_dir_all(&durable).unwrap();
        let state = StateDir::of_root_storage(durable.clone(), memory);
        let superblock = superblock();
        let (cache, first) = (superblock.id, Witness::of(&superblock, |_| None));
        assert_eq!(state.durable_witness(cache).unwrap(), None);
        state.write_witness(cache, &first).unwrap();
        assert_eq!(state.durable_witness(cache).unwrap(), Some(first.clone()));
        let newer = Witness {
            membership: first.membership + 1,
            ..first
        };
        // A directory is in the way of the file that is renamed.
        let in_the_way = durable.join(format!("{cache}.new"));
        std::fs::create_dir(&in_the_way).unwrap();
        assert!(state.write_witness(cache, &newer).is_err());
        let kept = state.durable_witness(cache).unwrap();
        assert_ne!(kept.as_ref(), Some(&newer));
        // The older one is there still, and so it is what a daemon in this one's place goes by.
        assert!(state.keeps(cache, &kept.unwrap()));
        std::fs::remove_dir(&in_the_way).unwrap();
        state.write_witness(cache, &newer).unwrap();
        assert!(state.keeps(cache, &newer));
        assert_eq!(state.durable_witness(cache).unwrap(), Some(newer.clone()));
        // The record is lost: memory alone does not count.
        std::fs::remove_file(durable.join(file_name(cache))).unwrap();
        assert!(!state.keeps(cache, &newer));
        std::fs::remove_dir_all(&scratch).unwrap();
    }
}
