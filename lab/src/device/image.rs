//! Contents of a virtual device, and the part that a power cut takes from it.

use std::collections::{BTreeMap, VecDeque};
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt as _;
use std::path::Path;

use forebay_random::SplitMix64;
use rustix::fs::{FallocateFlags, fallocate};

/// The unit that is either old or new after a power cut, in bytes.
const UNIT_BYTES: u64 = 4096;

/// A sparse file, and for what was written since the last flush also what was there before.
#[derive(Debug)]
pub struct Image {
    file: File,
    size_bytes: u64,
    volatile: Option<Volatile>,
}

/// The former contents of units, by how many flushes had been asked for when they were replaced.
#[derive(Debug)]
struct Volatile {
    former: BTreeMap<(u64, u64), Box<[u8]>>,
    order: VecDeque<(u64, u64)>,
    generation: u64,
    capacity_units: usize,
}

impl Volatile {
    /// Contents of every unit before the oldest write that is not durable, and those that may have
    /// come after.
    fn versions(&self) -> BTreeMap<u64, Vec<&[u8]>> {
        let mut versions: BTreeMap<u64, Vec<&[u8]>> = BTreeMap::new();
        for ((unit, _), bytes) in &self.former {
            versions.entry(*unit).or_default().push(bytes);
        }
        versions
    }
}

impl Image {
    /// Opens the image at `path`, or makes one of zeroes.
    ///
    /// With `cache_bytes` the device has a volatile write cache of that size: a power cut may undo
    /// writes that no flush followed, the oldest excepted once more than that was written.
    ///
    /// # Errors
    /// If the file cannot be opened or made.
    pub fn open(path: &Path, size_bytes: u64, cache_bytes: Option<u64>) -> io::Result<Image> {
        let file = File::options()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .open(path)?;
        file.set_len(size_bytes)?;
        let volatile = cache_bytes.map(|bytes| Volatile {
            former: BTreeMap::new(),
            order: VecDeque::new(),
            generation: 0,
            capacity_units: (bytes / UNIT_BYTES) as usize,
        });
        Ok(Image {
            file,
            size_bytes,
            volatile,
        })
    }

    /// Its size, in bytes.
    #[must_use]
    pub fn size_bytes(&self) -> u64 {
        self.size_bytes
    }

    /// Reads from it.
    ///
    /// # Errors
    /// If the file cannot be read.
    pub fn read(&self, bytes: &mut [u8], offset_bytes: u64) -> io::Result<()> {
        self.file.read_exact_at(bytes, offset_bytes)
    }

    /// Writes to it; durable after a flush.
    ///
    /// # Errors
    /// If the file cannot be written.
    pub fn write(&mut self, bytes: &[u8], offset_bytes: u64) -> io::Result<()> {
        self.remember(offset_bytes, bytes.len() as u64)?;
        self.file.write_all_at(bytes, offset_bytes)
    }

    /// Makes a range read as zeroes.
    ///
    /// # Errors
    /// If the file system cannot make holes.
    pub fn zero(&mut self, offset_bytes: u64, len_bytes: u64) -> io::Result<()> {
        self.remember(offset_bytes, len_bytes)?;
        let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        Ok(fallocate(&self.file, flags, offset_bytes, len_bytes)?)
    }

    fn remember(&mut self, offset_bytes: u64, len_bytes: u64) -> io::Result<()> {
        let Some(volatile) = &mut self.volatile else {
            return Ok(());
        };
        let units = offset_bytes / UNIT_BYTES..(offset_bytes + len_bytes).div_ceil(UNIT_BYTES);
        for unit in units {
            let key = (unit, volatile.generation);
            if volatile.former.contains_key(&key) {
                continue;
            }
            let start = unit * UNIT_BYTES;
            let mut bytes = vec![0; UNIT_BYTES.min(self.size_bytes - start) as usize];
            self.file.read_exact_at(&mut bytes, start)?;
            volatile.former.insert(key, bytes.into_boxed_slice());
            volatile.order.push_back(key);
        }
        // A real drive has written the oldest to its medium by then.
        while volatile.former.len() > volatile.capacity_units {
            match volatile.order.pop_front() {
                Some(key) => drop(volatile.former.remove(&key)),
                None => break,
            }
        }
        Ok(())
    }

    /// A flush begins; the answer names the writes it covers, for [`Image::flushed`].
    pub fn begin_flush(&mut self) -> u64 {
        self.volatile.as_mut().map_or(0, |volatile| {
            volatile.generation += 1;
            volatile.generation - 1
        })
    }

    /// A flush has completed: the writes it covers are durable.
    pub fn flushed(&mut self, covered: u64) {
        if let Some(volatile) = &mut self.volatile {
            volatile
                .former
                .retain(|(_, generation), _| *generation > covered);
            volatile
                .order
                .retain(|(_, generation)| *generation > covered);
        }
    }

    /// The power fails: each unit keeps at random its durable contents or any that were written
    /// since. Returns how many units went back.
    ///
    /// # Errors
    /// If the file cannot be written.
    pub fn cut_power(&mut self, seed: u64) -> io::Result<u64> {
        let Some(volatile) = self.volatile.take() else {
            return Ok(0);
        };
        let mut random = SplitMix64::new(seed);
        let mut undone = 0;
        for (unit, versions) in volatile.versions() {
            // Choices: each version, and the file's contents now.
            let choice = random.below(versions.len() as u64 + 1) as usize;
            if let Some(bytes) = versions.get(choice) {
                self.file.write_all_at(bytes, unit * UNIT_BYTES)?;
                undone += 1;
            }
        }
        self.volatile = Some(Volatile {
            former: BTreeMap::new(),
            order: VecDeque::new(),
            ..volatile
        });
        Ok(undone)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scratch::Scratch;

    fn unit(value: u8) -> Vec<u8> {
        vec![value; UNIT_BYTES as usize]
    }

    fn at(image: &Image, index: u64) -> u8 {
        let mut bytes = unit(0);
        image.read(&mut bytes, index * UNIT_BYTES).unwrap();
        assert!(bytes.iter().all(|byte| *byte == bytes[0]), "no torn unit");
        bytes[0]
    }

    #[test]
    fn a_power_cut_spares_what_was_flushed_and_not_all_else() {
        let scratch = Scratch::new("image-cut");
        let path = scratch.path().join("image");
        let mut image = Image::open(&path, 64 * UNIT_BYTES, Some(1 << 20)).unwrap();
        for index in 0..64 {
            image.write(&unit(1), index * UNIT_BYTES).unwrap();
        }
        let covered = image.begin_flush();
        for index in 0..32 {
            image.write(&unit(2), index * UNIT_BYTES).unwrap();
        }
        image.flushed(covered);
        let undone = image.cut_power(3).unwrap();
        assert!(undone > 5 && undone < 27, "{undone} of 32");
        for index in 0..64 {
            let value = at(&image, index);
            assert!(value == 1 || (index < 32 && value == 2));
        }
        assert_eq!(
            image.cut_power(5).unwrap(),
            0,
            "the next life starts durable"
        );
    }

    #[test]
    fn what_no_longer_fits_the_write_cache_is_durable() {
        let scratch = Scratch::new("image-full");
        let path = scratch.path().join("image");
        let mut image = Image::open(&path, 64 * UNIT_BYTES, Some(8 * UNIT_BYTES)).unwrap();
        for index in 0..64 {
            image.write(&unit(1), index * UNIT_BYTES).unwrap();
        }
        for seed in 1..20 {
            image.cut_power(seed).unwrap();
        }
        assert!((0..56).all(|index| at(&image, index) == 1));
    }

    #[test]
    fn zeroes_can_be_undone_too() {
        let scratch = Scratch::new("image-zero");
        let path = scratch.path().join("image");
        let mut image = Image::open(&path, 8 * UNIT_BYTES, Some(1 << 20)).unwrap();
        image.write(&unit(9), 0).unwrap();
        let covered = image.begin_flush();
        image.flushed(covered);
        let mut seen = [false; 2];
        for seed in 1..40 {
            image.zero(0, UNIT_BYTES).unwrap();
            image.cut_power(seed * 77).unwrap();
            seen[usize::from(at(&image, 0) == 9)] = true;
            image.write(&unit(9), 0).unwrap();
            let covered = image.begin_flush();
            image.flushed(covered);
        }
        assert_eq!(seen, [true, true]);
    }
}
