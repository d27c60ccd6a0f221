//! The memory buffer as bytes (`commit = memory`): acknowledged writes that are not in the log
//! yet, in memory that a crash of the daemon does not reach. Like the crash journal (I16) it
//! carries whose it is; an entry counts only if its own checksum and that of its data are right.
//!
//! A head in two copies, a table of entries, an entry for each block of data, and the data. The
//! entry of a write is at the place of its first block, so that it needs no list of free places.

use std::ops::RangeInclusive;

use crate::checksum::{crc32c, crc32c_append};
use crate::format::codec::{Reader, Writer};
use crate::format::{BlockKey, CacheId};
use crate::shm_journal::ShmIdentity;

const MAGIC: u32 = u32::from_le_bytes(*b"FBMB");
const ENTRY_MAGIC: u32 = u32::from_le_bytes(*b"FBME");
const HEAD_AREA_BYTES: usize = 4096;
const HEAD_COPIES: [usize; 2] = [0, 512];
const HEAD_BYTES: usize = 60;
const ENTRY_BYTES: usize = 40;
const PAGE_BYTES: usize = 4096;
/// The fewest blocks of data a buffer has.
const FEWEST_BLOCKS: usize = 16;

/// The division of a shard's buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Layout {
    /// Blocks of data that fit.
    pub(crate) blocks: u32,
    block_bytes: usize,
    data_at: usize,
}

impl Layout {
    /// The layout of `len_bytes`, unless they are too few for a buffer worth the name.
    pub(crate) fn of(len_bytes: usize, block_bytes: usize) -> Option<Layout> {
        let rest = len_bytes.checked_sub(HEAD_AREA_BYTES + PAGE_BYTES)?;
        let blocks = (rest / (block_bytes + ENTRY_BYTES)).min(u32::MAX as usize);
        let data_at = (HEAD_AREA_BYTES + blocks * ENTRY_BYTES).next_multiple_of(PAGE_BYTES);
        (blocks >= FEWEST_BLOCKS).then_some(Layout {
            blocks: blocks as u32,
            block_bytes,
            data_at,
        })
    }

    /// Where the data of a block is, in bytes.
    pub(crate) fn data_offset(&self, at: u32) -> usize {
        self.data_at + at as usize * self.block_bytes
    }

    fn entry_offset(at: u32) -> usize {
        HEAD_AREA_BYTES + at as usize * ENTRY_BYTES
    }
}

/// A write as the buffer tells it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct StoredWrite {
    /// Later writes have higher ones.
    pub(crate) order: u64,
    pub(crate) key: BlockKey,
    pub(crate) count: u16,
    /// The place of its first block.
    pub(crate) at: u32,
}

/// The contents of a head.
#[derive(Clone, Copy, Debug)]
struct Head {
    identity: ShmIdentity,
    /// The epoch it was emptied in; checksums of entries begin with it, so that an entry of an
    /// earlier use is not taken for one of this.
    born: u32,
    layout: Layout,
}

impl Head {
    fn encode(&self) -> [u8; HEAD_BYTES] {
        let mut bytes = [0; HEAD_BYTES];
        let mut out = Writer::new(&mut bytes);
        out.u32(MAGIC);
        out.u16(self.identity.shard);
        out.u16(0);
        out.u32(self.identity.epoch);
        out.u32(self.born);
        out.u32(self.layout.blocks);
        out.u32(self.layout.block_bytes as u32);
        out.bytes(&self.identity.cache.0);
        out.bytes(&self.identity.boot_id);
        let sum = crc32c(&bytes[..HEAD_BYTES - 4]);
        bytes[HEAD_BYTES - 4..].copy_from_slice(&sum.to_le_bytes());
        bytes
    }

    fn decode(bytes: &[u8], len_bytes: usize) -> Option<Head> {
        let sum = crc32c(&bytes[..HEAD_BYTES - 4]);
        let mut input = Reader::new(bytes);
        if input.u32() != MAGIC || bytes[HEAD_BYTES - 4..HEAD_BYTES] != sum.to_le_bytes() {
            return None;
        }
        let shard = input.u16();
        input.u16();
        let epoch = input.u32();
        let born = input.u32();
        let blocks = input.u32();
        let block_bytes = input.u32() as usize;
        let mut cache = CacheId::default();
        cache.0.copy_from_slice(&bytes[24..40]);
        let mut boot_id = [0; 16];
        boot_id.copy_from_slice(&bytes[40..56]);
        let layout = Layout::of(len_bytes, block_bytes)?;
        let identity = ShmIdentity {
            cache,
            shard,
            epoch,
            boot_id,
        };
        (layout.blocks == blocks).then_some(Head {
            identity,
            born,
            layout,
        })
    }

    /// The seed of the checksums of entries.
    fn seed(&self) -> u32 {
        let mut unstamped = *self;
        unstamped.identity.epoch = 0;
        // Without its own checksum: with it, the sum of any head is the same.
        crc32c(&unstamped.encode()[..HEAD_BYTES - 4])
    }
}

fn heads(buffer: &[u8]) -> impl Iterator<Item = Head> {
    let copies = HEAD_COPIES
        .into_iter()
        .filter(|_| buffer.len() >= HEAD_AREA_BYTES);
    copies.filter_map(|at| Head::decode(&buffer[at..at + HEAD_BYTES], buffer.len()))
}

fn head_of(buffer: &[u8], identity: ShmIdentity) -> Option<Head> {
    heads(buffer).find(|head| head.identity == identity)
}

/// Writes the head into one copy and takes the other away, so that a crash in between leaves at
/// least one.
fn write_head(buffer: &mut [u8], head: &Head) {
    let current = Head::decode(&buffer[..HEAD_BYTES], buffer.len()).is_some();
    let (to, from) = if current {
        (HEAD_COPIES[1], HEAD_COPIES[0])
    } else {
        (HEAD_COPIES[0], HEAD_COPIES[1])
    };
    buffer[to..to + HEAD_BYTES].copy_from_slice(&head.encode());
    buffer[from..from + HEAD_BYTES].fill(0);
}

/// The writer's side of a shard's buffer.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SharedBuffer {
    pub(crate) layout: Layout,
    seed: u32,
}

impl SharedBuffer {
    /// Empties a buffer and makes it this identity's. `None` if it is too small to be one.
    pub(crate) fn initialise(
        buffer: &mut [u8],
        identity: ShmIdentity,
        block_bytes: usize,
    ) -> Option<SharedBuffer> {
        let layout = Layout::of(buffer.len(), block_bytes)?;
        let head = Head {
            identity,
            born: identity.epoch,
            layout,
        };
        for at in HEAD_COPIES {
            buffer[at..at + HEAD_BYTES].fill(0);
        }
        write_head(buffer, &head);
        Some(SharedBuffer {
            layout,
            seed: head.seed(),
        })
    }

    /// The buffer of this identity, if it is one.
    pub(crate) fn open(buffer: &[u8], identity: ShmIdentity) -> Option<SharedBuffer> {
        let head = head_of(buffer, identity)?;
        Some(SharedBuffer {
            layout: head.layout,
            seed: head.seed(),
        })
    }

    /// Notes a write whose data is in its place already. It counts from here on.
    pub(crate) fn enter(&self, buffer: &mut [u8], write: StoredWrite) {
        let data = self.data(buffer, write.at, write.count);
        let data_sum = crc32c(data);
        let at = Layout::entry_offset(write.at);
        let bytes = &mut buffer[at..at + ENTRY_BYTES];
        let mut out = Writer::new(bytes);
        out.u32(0); // the magic comes last
        out.u16(write.count);
        out.u16(0);
        out.u64(write.order);
        out.u64(write.key.0);
        out.u32(write.at);
        out.u32(data_sum);
        let sum = crc32c_append(self.seed, &bytes[4..32]);
        bytes[32..36].copy_from_slice(&sum.to_le_bytes());
        bytes[..4].copy_from_slice(&ENTRY_MAGIC.to_le_bytes());
    }

    /// Takes a write's entry away: it is in the log, or on the origin.
    pub(crate) fn clear(&self, buffer: &mut [u8], at: u32) {
        let at = Layout::entry_offset(at);
        buffer[at..at + 4].fill(0);
    }

    /// The data of a write.
    pub(crate) fn data<'a>(&self, buffer: &'a [u8], at: u32, count: u16) -> &'a [u8] {
        &buffer[self.layout.data_offset(at)..][..usize::from(count) * self.layout.block_bytes]
    }

    /// The writes it holds, in order.
    pub(crate) fn writes(&self, buffer: &[u8]) -> Vec<StoredWrite> {
        let mut writes: Vec<StoredWrite> = (0..self.layout.blocks)
            .filter_map(|at| self.write_at(buffer, at))
            .collect();
        writes.sort_unstable_by_key(|write| write.order);
        writes
    }

    fn write_at(&self, buffer: &[u8], at: u32) -> Option<StoredWrite> {
        let offset = Layout::entry_offset(at);
        let bytes = &buffer[offset..offset + ENTRY_BYTES];
        let mut input = Reader::new(bytes);
        if input.u32() != ENTRY_MAGIC {
            return None;
        }
        let count = input.u16();
        input.u16();
        let order = input.u64();
        let key = BlockKey(input.u64());
        let stored_at = input.u32();
        let data_sum = input.u32();
        let sum = crc32c_append(self.seed, &bytes[4..32]);
        let fits = u32::from(count) <= self.layout.blocks - at;
        let sound = bytes[32..36] == sum.to_le_bytes() && stored_at == at && count > 0 && fits;
        (sound && crc32c(self.data(buffer, at, count)) == data_sum).then_some(StoredWrite {
            order,
            key,
            count,
            at,
        })
    }
}

/// Hands a buffer of an undecided epoch over to the last of these epochs, that of this attach,
/// before that epoch is decided: after a crash in between it is still of an undecided epoch, and
/// the next attach finds it. A buffer of another cache, boot or time stays as it is.
pub(crate) fn hand_over(buffer: &mut [u8], owner: ShmIdentity, undecided: RangeInclusive<u32>) {
    let to = *undecided.end();
    let found = undecided.filter(|epoch| *epoch != to).find_map(|epoch| {
        let identity = ShmIdentity { epoch, ..owner };
        head_of(buffer, identity)
    });
    if let Some(mut head) = found {
        head.identity.epoch = to;
        write_head(buffer, &head);
    }
}

/// The number of blocks in acknowledged writes that are not in the log, in a buffer of this owner
/// and of an undecided epoch; 0 in any other.
pub(crate) fn blocks_held(
    buffer: &[u8],
    owner: ShmIdentity,
    mut undecided: RangeInclusive<u32>,
) -> u64 {
    let found =
        undecided.find_map(|epoch| SharedBuffer::open(buffer, ShmIdentity { epoch, ..owner }));
    found.map_or(0, |shared| {
        let writes = shared.writes(buffer);
        writes.iter().map(|write| u64::from(write.count)).sum()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const BLOCK: usize = 4096;

    fn identity(epoch: u32) -> ShmIdentity {
        ShmIdentity {
            cache: CacheId([3; 16]),
            shard: 1,
            epoch,
            boot_id: [9; 16],
        }
    }

    fn write(order: u64, at: u32, count: u16) -> StoredWrite {
        StoredWrite {
            order,
            key: BlockKey(order * 100),
            count,
            at,
        }
    }

    fn filled() -> (Vec<u8>, SharedBuffer) {
        let mut buffer = vec![0; 2 << 20];
        let shared = SharedBuffer::initialise(&mut buffer, identity(4), BLOCK).unwrap();
        for (order, at, count) in [(1, 0, 2), (2, 2, 1), (3, 7, 4)] {
            let offset = shared.layout.data_offset(at);
            buffer[offset..offset + usize::from(count) * BLOCK].fill(order as u8);
            shared.enter(&mut buffer, write(order, at, count));
        }
        (buffer, shared)
    }

    #[test]
    fn what_was_entered_is_found_in_order_until_it_is_cleared() {
        let (mut buffer, shared) = filled();
        let found = SharedBuffer::open(&buffer, identity(4)).unwrap();
        let all = [write(1, 0, 2), write(2, 2, 1), write(3, 7, 4)];
        assert_eq!(found.writes(&buffer), all);
        assert!(found.data(&buffer, 7, 4).iter().all(|byte| *byte == 3));
        shared.clear(&mut buffer, 2);
        assert_eq!(found.writes(&buffer), [all[0], all[2]]);
        assert!(SharedBuffer::open(&buffer, identity(5)).is_none());
        // A later use does not see what an earlier one left.
        let emptied = SharedBuffer::initialise(&mut buffer, identity(6), BLOCK).unwrap();
        assert!(emptied.writes(&buffer).is_empty());
    }

    #[test]
    fn a_torn_entry_or_torn_data_does_not_count() {
        let (buffer, shared) = filled();
        for offset in 0..36 {
            let mut torn = buffer.clone();
            torn[Layout::entry_offset(2) + offset] ^= 1;
            assert_eq!(shared.writes(&torn).len(), 2, "byte {offset}");
        }
        let mut torn = buffer.clone();
        torn[shared.layout.data_offset(7) + 5 * 512] ^= 1;
        assert_eq!(shared.writes(&torn), [write(1, 0, 2), write(2, 2, 1)]);
    }

    #[test]
    fn it_is_handed_over_by_undecided_epochs_alone() {
        let (mut buffer, _) = filled();
        let owner = identity(0);
        let boot_id = [8; 16];
        hand_over(&mut buffer, ShmIdentity { boot_id, ..owner }, 4..=5);
        hand_over(&mut buffer, ShmIdentity { shard: 2, ..owner }, 4..=5);
        hand_over(&mut buffer, owner, 5..=6);
        assert!(SharedBuffer::open(&buffer, identity(4)).is_some());
        assert_eq!(blocks_held(&buffer, owner, 3..=4), 7);
        assert_eq!(blocks_held(&buffer, owner, 5..=6), 0);
        for epoch in 5..9 {
            hand_over(&mut buffer, owner, epoch - 1..=epoch);
            let shared = SharedBuffer::open(&buffer, identity(epoch)).unwrap();
            assert_eq!(shared.writes(&buffer).len(), 3);
        }
    }
}
