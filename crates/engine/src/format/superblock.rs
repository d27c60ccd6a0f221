//! The superblock: the identity of the cache and its volumes, in several copies.

use super::FORMAT_VERSION;
use super::codec::{Reader, Writer, checksum};
use super::geometry::{BlockKey, Geometry, GeometryError};
use super::header::page_checksum;
use crate::interface::{DeviceError, Storage};

const MAGIC: u64 = u64::from_le_bytes(*b"FOREBAY1");
/// Bytes of one copy.
pub const COPY_BYTES: usize = 64 << 10;
/// How many copies there are; at most half of them are written between two flushes.
pub const COPIES: u64 = 4;
/// How far apart the copies start, in bytes.
pub const COPY_STRIDE_BYTES: u64 = 256 << 10;
/// The longest name of a volume, in bytes.
pub const NAME_BYTES: usize = 64;
/// The most volumes a cache can have.
pub const MAX_VOLUMES: usize = 256;
const FIXED_BYTES: usize = 8 + 2 + 2 + 4 + 16 + 8 + 4 + 4 + 8 + 4 + 8 + 2 + Geometry::BYTES;
const VOLUME_BYTES: usize = 4 + 2 + NAME_BYTES + 8 + 8 + 8 + 1 + 1 + 32 + 8 + 4;
const _: () = assert!(FIXED_BYTES + MAX_VOLUMES * VOLUME_BYTES <= COPY_BYTES);

/// The identity of a cache: random, given at creation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct CacheId(pub [u8; 16]);

impl CacheId {
    /// What this cache's checksums start from.
    #[must_use]
    pub fn seed(self) -> u32 {
        crc32c::crc32c(&self.0)
    }
}

impl std::fmt::Display for CacheId {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        for (i, byte) in self.0.iter().enumerate() {
            if [4, 6, 8, 10].contains(&i) {
                write!(out, "-")?;
            }
            write!(out, "{byte:02x}")?;
        }
        Ok(())
    }
}

/// Whether a volume's data may be in the cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum VolumeState {
    /// Served, or to be served again: the cache may hold dirty data of it.
    Attached = 1,
    /// Taken off in order: nothing below the recorded epoch counts any more (I15).
    Detached = 2,
}

/// A volume as the cache knows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VolumeRecord {
    /// Never given twice (I16).
    pub id: u32,
    /// The user's name for it, at most [`NAME_BYTES`] bytes.
    pub name: String,
    /// Its first block key; a multiple of the region.
    pub base: BlockKey,
    /// How many keys are set aside for it, so that the origin can grow.
    pub reserved_blocks: u64,
    /// The origin's size at the last attach, in bytes.
    pub size_bytes: u64,
    /// Whether it is attached.
    pub state: VolumeState,
    /// The mode last set, as its number.
    pub mode: u8,
    /// What the origin looked like when it was last let go.
    pub fingerprint: [u8; 32],
    /// When the fingerprint was taken, seconds since 1970, 0 for never: an attach that was not
    /// ended in order leaves none.
    pub fingerprint_at: u64,
    /// Nothing of this volume from epochs below this one counts (I15).
    pub valid_from_epoch: u32,
}

/// The superblock.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Superblock {
    /// Identity of the cache.
    pub id: CacheId,
    /// Counts the writes of the superblock; the highest counts.
    pub sequence: u64,
    /// The epoch of the last attach (I1).
    pub epoch: u32,
    /// Everything from epochs below this one was decided by a recovery whose verdict is durable
    /// (I12).
    pub decided_epoch: u32,
    /// The size of the cache device at creation, in bytes.
    pub device_bytes: u64,
    /// The id the next volume gets.
    pub next_volume_id: u32,
    /// The key the next volume starts at.
    pub next_base: BlockKey,
    /// The shape.
    pub geometry: Geometry,
    /// Attached and detached volumes; detached ones whose data may still be in the log stay.
    pub volumes: Vec<VolumeRecord>,
}

/// Why a device cannot be used as a cache.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SuperblockError {
    /// No copy can be read as ours and the place is not blank.
    #[error("no Forebay cache here: none of the {COPIES} superblock copies is valid{detail}")]
    NotACache {
        /// What was found.
        detail: &'static str,
    },
    /// All copies are zero.
    #[error("the device is blank: it holds no cache")]
    Blank,
    /// A newer program wrote it.
    #[error(
        "the cache has format version {found}, this program knows version {FORMAT_VERSION}: use a newer forebay"
    )]
    Newer {
        /// Its version.
        found: u16,
    },
    /// The device shrank.
    #[error(
        "the device has {found_bytes} bytes, the cache on it was made for {recorded_bytes}: it is truncated or not the same device"
    )]
    Truncated {
        /// What it has.
        found_bytes: u64,
        /// What it had.
        recorded_bytes: u64,
    },
    /// The shape in it cannot be.
    #[error("the superblock describes an impossible cache: {0}")]
    Geometry(#[from] GeometryError),
    /// The device failed.
    #[error("cannot read or write the superblock: {0}")]
    Device(#[from] DeviceError),
    /// No room for another volume.
    #[error("{0}")]
    Full(&'static str),
}

impl Superblock {
    /// The superblock of a new cache.
    #[must_use]
    pub fn new(id: CacheId, geometry: Geometry, device_bytes: u64) -> Superblock {
        Superblock {
            id,
            sequence: 0,
            epoch: 0,
            decided_epoch: 0,
            device_bytes,
            next_volume_id: 1,
            next_base: BlockKey(0),
            geometry,
            volumes: Vec::new(),
        }
    }

    /// Reads the newest valid copy and checks it against the device.
    ///
    /// # Errors
    /// Says what is there instead, or that the device fails or is too small.
    pub fn read(device: &mut dyn Storage) -> Result<Superblock, SuperblockError> {
        let mut best: Option<Superblock> = None;
        let mut newer = None;
        let mut blank = true;
        let mut failed = None;
        let mut truncated = false;
        let mut page = vec![0; COPY_BYTES];
        for copy in 0..COPIES {
            let offset_bytes = copy * COPY_STRIDE_BYTES;
            if offset_bytes + COPY_BYTES as u64 > device.size_bytes() {
                truncated = true;
                continue;
            }
            if let Err(error) = device.read(offset_bytes, &mut page) {
                failed = Some(error);
                continue;
            }
            blank &= page.iter().all(|byte| *byte == 0);
            match Superblock::decode(&page) {
                Ok(found)
                    if best
                        .as_ref()
                        .is_none_or(|best| found.sequence > best.sequence) =>
                {
                    best = Some(found)
                }
                Err(SuperblockError::Newer { found }) => newer = Some(found),
                _ => {}
            }
        }
        if let Some(found) = newer {
            return Err(SuperblockError::Newer { found });
        }
        let Some(found) = best else {
            return Err(match failed {
                Some(error) => error.into(),
                None if blank => SuperblockError::Blank,
                None if truncated => SuperblockError::NotACache {
                    detail: " (the device is smaller than the space for them)",
                },
                None => SuperblockError::NotACache {
                    detail: " (there is other data)",
                },
            });
        };
        found.geometry.validate()?;
        if device.size_bytes() < found.geometry.device_bytes() {
            return Err(SuperblockError::Truncated {
                found_bytes: device.size_bytes(),
                recorded_bytes: found.device_bytes,
            });
        }
        Ok(found)
    }

    /// Writes all copies, half of them before a flush and half between that and another, so that
    /// a crash at any moment leaves a whole one.
    ///
    /// # Errors
    /// If the device fails; the old or the new superblock then counts.
    pub fn write(&mut self, device: &mut dyn Storage) -> Result<(), SuperblockError> {
        self.sequence += 1;
        let page = self.encode();
        // Which half goes first alternates, so that a copy that is always torn cannot be the one
        // that is always relied on.
        for half in [self.sequence % 2, 1 - self.sequence % 2] {
            for copy in (0..COPIES).filter(|copy| copy % 2 == half) {
                device.write(copy * COPY_STRIDE_BYTES, &page)?;
            }
            device.flush()?;
        }
        Ok(())
    }

    /// Adds a volume with a range of keys of its own.
    ///
    /// # Errors
    /// If there are too many volumes or too few keys left.
    pub fn add_volume(
        &mut self,
        name: &str,
        size_bytes: u64,
        mode: u8,
    ) -> Result<&mut VolumeRecord, SuperblockError> {
        // A detached volume's record only guards keys that are never given again.
        if self.volumes.len() >= MAX_VOLUMES {
            match self
                .volumes
                .iter()
                .position(|volume| volume.state == VolumeState::Detached)
            {
                Some(oldest) => drop(self.volumes.remove(oldest)),
                None => {
                    return Err(SuperblockError::Full(
                        "the cache has 256 volumes already: detach one first",
                    ));
                }
            }
        }
        if name.is_empty() || name.len() > NAME_BYTES {
            return Err(SuperblockError::Full("a volume's name has 1 to 64 bytes"));
        }
        let region_blocks = u64::from(self.geometry.region_bytes / self.geometry.block_bytes);
        let blocks = size_bytes.div_ceil(u64::from(self.geometry.block_bytes));
        // Room to grow by a half, and at least a gigabyte.
        let reserved_blocks = (blocks
            + (blocks / 2).max((1 << 30) / u64::from(self.geometry.block_bytes)))
        .next_multiple_of(region_blocks);
        if self.next_base.0 + reserved_blocks > BlockKey::END {
            return Err(SuperblockError::Full(
                "the cache has used up its block numbers (4 PiB of origins at 4 KiB blocks): drain it and create it anew",
            ));
        }
        let id = self.next_volume_id;
        self.volumes.push(VolumeRecord {
            id,
            name: name.to_owned(),
            base: self.next_base,
            reserved_blocks,
            size_bytes,
            state: VolumeState::Attached,
            mode,
            fingerprint: [0; 32],
            fingerprint_at: 0,
            valid_from_epoch: 0,
        });
        self.next_volume_id += 1;
        self.next_base = self.next_base.plus(reserved_blocks);
        Ok(self.volumes.last_mut().expect("just pushed"))
    }

    /// Whether entries of this epoch for this block count: its volume is attached and the epoch
    /// is not one that was given up (I15, I16).
    #[must_use]
    pub fn accepts(&self, key: BlockKey, epoch: u32) -> bool {
        self.volumes.iter().any(|volume| {
            volume.state == VolumeState::Attached
                && (volume.base.0..volume.base.0 + volume.reserved_blocks).contains(&key.0)
                && epoch >= volume.valid_from_epoch
        })
    }

    fn encode(&self) -> Vec<u8> {
        let mut page = vec![0; COPY_BYTES];
        let mut out = Writer::new(&mut page);
        out.u64(MAGIC);
        out.u16(FORMAT_VERSION);
        out.u16(0);
        out.u32(0); // checksum, below
        out.bytes(&self.id.0);
        out.u64(self.sequence);
        out.u32(self.epoch);
        out.u32(self.decided_epoch);
        out.u64(self.device_bytes);
        out.u32(self.next_volume_id);
        out.u64(self.next_base.0);
        out.u16(self.volumes.len() as u16);
        self.geometry.encode(&mut out);
        assert_eq!(out.position(), FIXED_BYTES);
        for volume in &self.volumes {
            out.u32(volume.id);
            out.u16(volume.name.len() as u16);
            let mut name = [0; NAME_BYTES];
            name[..volume.name.len()].copy_from_slice(volume.name.as_bytes());
            out.bytes(&name);
            out.u64(volume.base.0);
            out.u64(volume.reserved_blocks);
            out.u64(volume.size_bytes);
            out.u8(volume.state as u8);
            out.u8(volume.mode);
            out.bytes(&volume.fingerprint);
            out.u64(volume.fingerprint_at);
            out.u32(volume.valid_from_epoch);
        }
        assert_eq!(
            out.position(),
            FIXED_BYTES + self.volumes.len() * VOLUME_BYTES
        );
        let sum = checksum(self.id, &page);
        page[12..16].copy_from_slice(&sum.to_le_bytes());
        page
    }

    fn decode(page: &[u8]) -> Result<Superblock, SuperblockError> {
        let not_ours = || SuperblockError::NotACache { detail: "" };
        let mut input = Reader::new(page);
        if input.u64() != MAGIC {
            return Err(not_ours());
        }
        let version = input.u16();
        input.u16();
        let sum = input.u32();
        let id = CacheId(input.fixed());
        if sum != page_checksum(id, page, 12) {
            return Err(not_ours());
        }
        if version > FORMAT_VERSION {
            return Err(SuperblockError::Newer { found: version });
        }
        let sequence = input.u64();
        let epoch = input.u32();
        let decided_epoch = input.u32();
        let device_bytes = input.u64();
        let next_volume_id = input.u32();
        let next_base = BlockKey(input.u64());
        let volume_count = input.u16();
        let geometry = Geometry::decode(&mut input);
        let mut volumes = Vec::new();
        for _ in 0..volume_count {
            volumes.push(decode_volume(&mut input).ok_or_else(not_ours)?);
        }
        if input.overran() {
            return Err(not_ours());
        }
        Ok(Superblock {
            id,
            sequence,
            epoch,
            decided_epoch,
            device_bytes,
            next_volume_id,
            next_base,
            geometry,
            volumes,
        })
    }
}

fn decode_volume(input: &mut Reader<'_>) -> Option<VolumeRecord> {
    let id = input.u32();
    let name_bytes = usize::from(input.u16());
    let name: [u8; NAME_BYTES] = input.fixed();
    Some(VolumeRecord {
        id,
        name: String::from_utf8(name.get(..name_bytes)?.to_vec()).ok()?,
        base: BlockKey(input.u64()),
        reserved_blocks: input.u64(),
        size_bytes: input.u64(),
        state: match input.u8() {
            1 => VolumeState::Attached,
            2 => VolumeState::Detached,
            _ => return None,
        },
        mode: input.u8(),
        fingerprint: input.fixed(),
        fingerprint_at: input.u64(),
        valid_from_epoch: input.u32(),
    })
}
