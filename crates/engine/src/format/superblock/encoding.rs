//! Encoding: one copy of the superblock in bytes.

use super::tables::{COPIES_OFFSET, CopiesTable, TABLE_OFFSET, Table};
use super::{
    COPY_BYTES, CacheDevice, MAX_VOLUMES, NAME_BYTES, Superblock, SuperblockError, VolumeRecord,
    VolumeState,
};
use crate::format::cache_id::CacheId;
use crate::format::codec::{Reader, Writer, checksum};
use crate::format::extents::Extents;
use crate::format::geometry::{BlockKey, Geometry};
use crate::format::header::page_checksum;
use crate::format::{ABANDONED_VERSION, COPIES_VERSION, EXTENTS_VERSION, FORMAT_VERSION};

const MAGIC: u64 = u64::from_le_bytes(*b"FOREBAY1");
const FIXED_BYTES: usize = 8 + 2 + 2 + 4 + 16 + 8 + 4 + 4 + 8 + 4 + 8 + 2 + Geometry::BYTES;
const VOLUME_BYTES: usize = 4 + 2 + NAME_BYTES + 8 + 8 + 8 + 1 + 1 + 32 + 8 + 4;
/// The flag of a cache that failed, in a superblock of [`COPIES_VERSION`].
const ABANDONED_FLAG: u16 = 1;
const _: () = assert!(FIXED_BYTES + MAX_VOLUMES * VOLUME_BYTES <= TABLE_OFFSET);

impl Superblock {
    /// Whether a superblock of version 1 says all there is to say.
    fn is_as_created(&self) -> bool {
        let first = self.devices.first();
        self.extents == Extents::of_version_1(&self.geometry)
            && self.devices.len() == 1
            && first.is_some_and(|on| on.serial == 0 && on.number == 0)
            && self.next_serial == 1
    }

    pub(super) fn encode(&self, on: &CacheDevice) -> Vec<u8> {
        let mut page = vec![0; COPY_BYTES];
        let mut out = Writer::new(&mut page);
        out.u64(MAGIC);
        let has_copies = self.membership > 0;
        let has_table = self.abandoned || has_copies || !self.is_as_created();
        out.u16(match (has_copies, self.abandoned, has_table) {
            (true, ..) => COPIES_VERSION,
            (false, true, _) => ABANDONED_VERSION,
            (false, false, true) => EXTENTS_VERSION,
            (false, false, false) => FORMAT_VERSION,
        });
        let is_flagged = has_copies && self.abandoned;
        out.u16(if is_flagged { ABANDONED_FLAG } else { 0 });
        out.u32(0); // checksum, below
        out.bytes(&self.id.0);
        out.u64(self.sequence);
        out.u32(self.epoch);
        out.u32(self.decided_epoch);
        out.u64(on.size_bytes);
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
        if has_table {
            self.encode_table(on, &mut page[TABLE_OFFSET..]);
        }
        if has_copies {
            self.encode_copies(&mut page[COPIES_OFFSET..]);
        }
        let sum = checksum(self.id, &page);
        page[12..16].copy_from_slice(&sum.to_le_bytes());
        page
    }

    pub(super) fn decode(page: &[u8]) -> Result<(Superblock, CacheDevice), SuperblockError> {
        let not_ours = || SuperblockError::NotACache { detail: "" };
        let mut input = Reader::new(page);
        if input.u64() != MAGIC {
            return Err(not_ours());
        }
        let version = input.u16();
        let flags = input.u16();
        let sum = input.u32();
        let id = CacheId(input.fixed());
        if sum != page_checksum(id, page, 12) {
            return Err(not_ours());
        }
        if version > COPIES_VERSION {
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
        geometry.validate()?;
        if usize::from(volume_count) > MAX_VOLUMES {
            return Err(SuperblockError::Malformed("it has more than 256 volumes"));
        }
        let mut volumes = Vec::new();
        for _ in 0..volume_count {
            let malformed = SuperblockError::Malformed("a volume has no name or no state");
            volumes.push(decode_volume(&mut input).ok_or(malformed)?);
        }
        if input.overran() {
            return Err(not_ours());
        }
        let table = if version == FORMAT_VERSION {
            Table::of_version_1(&geometry, device_bytes)
        } else {
            let malformed = SuperblockError::Malformed("its table of devices and extents");
            Table::decode(&page[TABLE_OFFSET..]).ok_or(malformed)?
        };
        let copies = if version == COPIES_VERSION {
            let malformed = SuperblockError::Malformed("its table of copies");
            CopiesTable::decode(&page[COPIES_OFFSET..]).ok_or(malformed)?
        } else {
            CopiesTable::of_one_copy()
        };
        let is_flagged = version == COPIES_VERSION && flags & ABANDONED_FLAG != 0;
        let mut extents = Extents::listed(table.extents, &geometry)?;
        for (serial, epoch) in copies.since {
            extents.note_since(serial, epoch);
        }
        let superblock = Superblock {
            id,
            sequence,
            epoch,
            decided_epoch,
            abandoned: version == ABANDONED_VERSION || is_flagged,
            devices: table.devices,
            next_volume_id,
            next_base,
            geometry,
            extents,
            next_serial: table.next_serial,
            volumes,
            copies: copies.copies,
            membership: copies.membership,
            clean_from: copies.clean_from,
        };
        match superblock.fault() {
            Some(fault) => Err(SuperblockError::Malformed(fault)),
            None => Ok((superblock, table.on)),
        }
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
