//! Superblocks that somebody forged, with checksums that are right more often than not: read as an
//! attach reads them, and written back if they are taken.

#[path = "../../engine/tests/forged/structure.rs"]
mod structure;

use forebay_engine::format::Sequence;
use forebay_engine::{CacheId, DeviceError, Geometry, Storage, Superblock, SuperblockError};
use forebay_fuzz::mutate::{change_number, pick};
use forebay_fuzz::{Counting, Outcome, SplitMix64, Surface, run};
use structure::{Field, SUPERBLOCK, sign};

#[global_allocator]
static COUNTING: Counting = Counting;

/// Bytes of a copy.
const COPY: usize = 64 << 10;
/// The size of the device that a copy is on.
const DEVICE_BYTES: u64 = 1 << 40;
/// A copy that is taken is written back and read again once in so many inputs.
const WRITTEN_BACK: u64 = 32;

/// A device with one copy of a superblock; the others cannot be read.
struct OneCopy<'a>(&'a [u8]);

impl Storage for OneCopy<'_> {
    fn size_bytes(&self) -> u64 {
        DEVICE_BYTES
    }

    fn read(&mut self, offset_bytes: u64, into: &mut [u8]) -> Result<(), DeviceError> {
        if offset_bytes != 0 || into.len() != self.0.len() {
            return Err(DeviceError::Io);
        }
        into.copy_from_slice(self.0);
        Ok(())
    }

    fn write(&mut self, _offset_bytes: u64, _from: &[u8]) -> Result<(), DeviceError> {
        Ok(())
    }

    fn flush(&mut self) -> Result<(), DeviceError> {
        Ok(())
    }
}

/// A device that keeps the first copy that is written to it.
struct Kept(Vec<u8>);

impl Storage for Kept {
    fn size_bytes(&self) -> u64 {
        DEVICE_BYTES
    }

    fn read(&mut self, offset_bytes: u64, into: &mut [u8]) -> Result<(), DeviceError> {
        OneCopy(&self.0).read(offset_bytes, into)
    }

    fn write(&mut self, offset_bytes: u64, from: &[u8]) -> Result<(), DeviceError> {
        if offset_bytes == 0 {
            self.0.clear();
            self.0.extend_from_slice(from);
        }
        Ok(())
    }

    fn flush(&mut self) -> Result<(), DeviceError> {
        Ok(())
    }
}

struct Forged {
    /// Valid copies: of a new cache, of one with volumes, of one that grew, of one abandoned, of one that
    /// keeps dirty data on two devices and goes on without one, of one with 256 volumes.
    valid: Vec<Vec<u8>>,
    fields: Vec<Vec<Field>>,
    kept: Kept,
    fed: u64,
    volumes: u64,
    written_back: u64,
}

/// A geometry whose extents can grow and shrink.
fn geometry(shards: u16) -> Geometry {
    Geometry::for_device(1 << 30, 4096, Some(shards), 1).expect("a geometry")
}

fn encoded(superblock: &mut Superblock) -> Vec<u8> {
    let mut kept = Kept(Vec::new());
    superblock.write(&mut kept).expect("nothing fails");
    kept.0
}

impl Forged {
    fn new() -> Forged {
        let blank = Superblock::new(CacheId([7; 16]), geometry(1), 1 << 30);
        let mut some = Superblock::new(CacheId([8; 16]), geometry(3), 1 << 30);
        for number in 0..5 {
            let added = some.add_volume(&format!("volume {number}"), 1 << 34, 1);
            added.expect("there is room");
        }
        let mut grown = some.clone();
        grown.grow(0, 3 << 30).expect("there is room");
        grown.epoch = 9;
        grown.decided_epoch = 8;
        let mut abandoned = grown.clone();
        abandoned.abandoned = true;
        let mut lone = some.clone();
        let second = lone.add_device(2 << 30).expect("there is room");
        lone.grow(second, 2 << 30).expect("there is room");
        lone.set_copies(2);
        let clean_from = [0, 1, 2].map(|shard| (shard, Sequence::new(9, 1000)));
        lone.lose_device(second, &clean_from);
        let mut full = blank.clone();
        for number in 0..256 {
            let added = full.add_volume(&number.to_string(), 1 << 20, 2);
            added.expect("there is room");
        }
        let valid: Vec<Vec<u8>> = [blank, some, grown, abandoned, lone, full]
            .iter_mut()
            .map(encoded)
            .collect();
        Forged {
            fields: valid
                .iter()
                .map(|copy| structure::fields_of_superblock(copy))
                .collect(),
            valid,
            kept: Kept(Vec::new()),
            fed: 0,
            volumes: 0,
            written_back: 0,
        }
    }

    /// Writes a superblock that was taken, and reads it again: it is the same.
    fn write_back(&mut self, taken: &Superblock) {
        let mut again = taken.clone();
        again.write(&mut self.kept).expect("nothing fails");
        let read = Superblock::read(&mut self.kept).expect("what was written can be read");
        assert_eq!(read.volumes, taken.volumes, "volumes are kept");
        assert_eq!(read.extents, taken.extents, "extents are kept");
        assert_eq!(read.geometry, taken.geometry, "the geometry is kept");
        assert_eq!(read.copies, taken.copies, "the copies are kept");
        assert_eq!(read.membership, taken.membership, "the membership is kept");
        assert_eq!(read.clean_from, taken.clean_from, "what counts is kept");
        self.written_back += 1;
    }
}

impl Surface for Forged {
    fn name(&self) -> &'static str {
        "superblock"
    }

    fn most_bytes(&self) -> usize {
        1 << 20
    }

    fn forge(&mut self, random: &mut SplitMix64, input: &mut Vec<u8>) {
        // The last has 256 volumes, which takes longer.
        let last = self.valid.len() - 1;
        let which = match random.below(32) {
            0 => last,
            _ => random.below(last as u64) as usize,
        };
        input.extend_from_slice(&self.valid[which]);
        for _ in 0..1 + random.below(4) / 3 * random.below(6) {
            match random.below(16) {
                0 => {
                    let at = random.below(2 << 10) as usize;
                    input[at] ^= 1 << random.below(8);
                }
                1 => {
                    let other = &self.valid[random.below(self.valid.len() as u64) as usize];
                    let (at, len) = (8 * random.below(96) as usize, 8 * random.below(64) as usize);
                    input[at..at + len].copy_from_slice(&other[at..at + len]);
                }
                2 => {
                    let at = random.below(50 << 10) as usize;
                    change_number(input, at, 1 << random.below(4), random);
                }
                _ => {
                    let field = pick(random, &self.fields[which]);
                    change_number(input, field.at, field.width, random);
                }
            }
        }
        if random.below(16) > 0 {
            sign(input, SUPERBLOCK);
        }
    }

    fn feed(&mut self, input: &[u8]) -> Outcome {
        self.fed += 1;
        match Superblock::read(&mut OneCopy(&input[..COPY])) {
            Ok(taken) => {
                self.volumes += taken.volumes.len() as u64;
                for volume in &taken.volumes {
                    let room = taken.room_bytes(volume);
                    assert!(room <= DEVICE_BYTES << 16, "a room of {room}");
                    std::hint::black_box(taken.accepts(volume.base, taken.epoch));
                }
                if self.fed.is_multiple_of(WRITTEN_BACK) {
                    self.write_back(&taken);
                }
                if taken.devices.iter().any(|on| on.out) {
                    Outcome::Accepted("a cache that goes on without a device")
                } else if taken.abandoned {
                    Outcome::Accepted("a cache that failed")
                } else if taken.volumes.is_empty() {
                    Outcome::Accepted("a cache without volumes")
                } else {
                    Outcome::Accepted("a cache with volumes")
                }
            }
            Err(error) => Outcome::Rejected(match error {
                SuperblockError::NotACache { .. } => "no cache (magic, checksum, or too short)",
                SuperblockError::Device(_) => "none of the copies can be read",
                SuperblockError::Blank => "blank",
                SuperblockError::Newer { .. } => "a newer version",
                SuperblockError::Incomplete { .. } => "a device is missing",
                SuperblockError::Stale { .. } => "an old copy",
                SuperblockError::Out { .. } => "of a device that the cache goes on without",
                SuperblockError::Split { .. } => "two devices that went on alone",
                SuperblockError::Truncated { .. } => "larger than the device",
                SuperblockError::Malformed(what) => what,
                SuperblockError::Geometry(_) => "an impossible geometry",
                SuperblockError::Full(_) => "full",
            }),
        }
    }

    fn reached(&self) -> Vec<(&'static str, u64)> {
        vec![
            ("volumes of caches that were taken", self.volumes),
            ("written back and read again", self.written_back),
        ]
    }
}

#[test]
fn whatever_a_superblock_says_is_taken_or_refused() {
    run(&mut Forged::new(), 20_000);
}
