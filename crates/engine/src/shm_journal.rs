//! The crash journal (I16): entries whose header is not on the cache device yet, kept where
//! a crash of the daemon does not reach them.
//!
//! Each open record has a page. A page names its record. Each entry behind that carries a checksum
//! seeded with the page's head, so that entries of an earlier use of the page are never taken for
//! ours, and a half-written entry ends the list. An entry is complete before its request is
//! acknowledged.

use crate::checksum::{crc32c, crc32c_append};
use crate::format::codec::{Reader, Writer, checksum};
use crate::format::{CacheId, Entry, EntryList, SegmentId, Sequence, Stream};
use crate::planted::{self, Bug};

/// Bytes of the crash journal of one shard.
pub const JOURNAL_BYTES: usize = HEAD_BYTES + PAGES * PAGE_BYTES;
/// The number of records that can be open, or closed without their header written, at a time.
pub const PAGES: usize = 32;

const HEAD_BYTES: usize = 4096;
const PAGE_BYTES: usize = 20 << 10;
const MAGIC: u32 = u32::from_le_bytes(*b"FBR3");
const PAGE_MAGIC: u32 = u32::from_le_bytes(*b"FBRP");
const PAGE_HEAD_BYTES: usize = 64;
const PAGE_SEEDED_BYTES: usize = 44;
const CLOSED_AT: usize = 52;
const ENTRY_BYTES: usize = 24;
/// Bytes of an entry of one block.
const BLOCK_BYTES: usize = ENTRY_BYTES + 4;

/// Whose shared memory it is. That of another cache, epoch or boot is ignored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ShmIdentity {
    /// The cache.
    pub cache: CacheId,
    /// The shard.
    pub shard: u16,
    /// The epoch it was filled in.
    pub epoch: u32,
    /// The machine's boot: memory of an earlier one is gone, a file that says otherwise lies.
    pub boot_id: [u8; 16],
}

/// Empties the crash journal and makes it this identity's.
pub fn initialise(journal: &mut [u8], identity: ShmIdentity) {
    // The old identity goes first: a crash in between leaves a journal that counts for nothing.
    journal[..HEAD_BYTES].fill(0);
    for page in 0..PAGES {
        let at = HEAD_BYTES + page * PAGE_BYTES;
        journal[at..at + PAGE_HEAD_BYTES].fill(0);
    }
    let head = encode_identity(identity);
    journal[..head.len()].copy_from_slice(&head);
}

fn encode_identity(identity: ShmIdentity) -> [u8; 48] {
    let mut head = [0; 48];
    let mut out = Writer::new(&mut head);
    out.u32(MAGIC);
    out.u16(identity.shard);
    out.u16(PAGES as u16);
    out.u32(identity.epoch);
    out.bytes(&identity.cache.0);
    out.bytes(&identity.boot_id);
    let sum = checksum(identity.cache, &head[..44]);
    head[44..].copy_from_slice(&sum.to_le_bytes());
    head
}

/// The writer's side of one page.
#[derive(Debug)]
pub struct JournalPage {
    page: usize,
    used: usize,
    /// Bytes set aside for entries to come.
    reserved: usize,
    seed: u32,
}

impl JournalPage {
    /// Begins page `page` for the record at this place.
    pub fn begin(
        journal: &mut [u8],
        page: usize,
        use_count: u64,
        record: JournalRecord,
    ) -> JournalPage {
        let identity = identity_sum(journal);
        let at = HEAD_BYTES + page * PAGE_BYTES;
        let bytes = &mut journal[at..at + PAGE_HEAD_BYTES];
        bytes.fill(0);
        let mut out = Writer::new(bytes);
        out.u32(0); // the magic comes last
        out.u32(record.segment.0);
        out.u16(record.slot);
        out.u8(record.stream as u8);
        out.u8(0);
        record.generation.encode(&mut out);
        out.u64(use_count);
        out.u32(record.second.map_or(0, |second| second.0 + 1));
        let seed = crc32c_append(identity, &bytes[4..PAGE_SEEDED_BYTES]);
        bytes[PAGE_SEEDED_BYTES..PAGE_SEEDED_BYTES + 4].copy_from_slice(&seed.to_le_bytes());
        bytes[..4].copy_from_slice(&PAGE_MAGIC.to_le_bytes());
        JournalPage {
            page,
            used: PAGE_HEAD_BYTES,
            reserved: 0,
            seed,
        }
    }

    /// True if so many more entries with so many checksums in all fit beside the bytes set aside.
    #[must_use]
    pub fn has_room(&self, entries: usize, checksums: usize) -> bool {
        let wanted = entries * ENTRY_BYTES + checksums * 4;
        self.used + self.reserved + wanted <= PAGE_BYTES
    }

    /// The number of further blocks that can be set aside, each with an entry of its own at worst.
    #[must_use]
    pub fn blocks_that_fit(&self) -> usize {
        PAGE_BYTES.saturating_sub(self.used + self.reserved) / BLOCK_BYTES
    }

    /// Sets room aside for blocks that are being written and get their entries later.
    pub fn reserve(&mut self, blocks: usize) {
        self.reserved += blocks * BLOCK_BYTES;
    }

    /// Gives back the room set aside for them.
    pub fn release(&mut self, blocks: usize) {
        self.reserved -= blocks * BLOCK_BYTES;
    }

    /// Adds an entry.
    ///
    /// # Panics
    /// If it does not fit; see [`JournalPage::has_room`].
    pub fn push(&mut self, journal: &mut [u8], number: u64, entry: Entry, checksums: &[u32]) {
        self.push_head(journal, number, entry.head(), checksums);
    }

    /// Adds an entry whose head is encoded already.
    ///
    /// # Panics
    /// If it does not fit; see [`JournalPage::has_room`].
    #[inline(always)]
    pub fn push_head(&mut self, journal: &mut [u8], number: u64, head: u64, checksums: &[u32]) {
        let at = HEAD_BYTES + self.page * PAGE_BYTES + self.used;
        let total = ENTRY_BYTES + checksums.len() * 4;
        assert!(
            self.used + total <= PAGE_BYTES,
            "an entry stays on its page"
        );
        let bytes = &mut journal[at..at + total];
        bytes[8..16].copy_from_slice(&number.to_le_bytes());
        bytes[16..24].copy_from_slice(&head.to_le_bytes());
        for (place, value) in bytes[ENTRY_BYTES..].chunks_exact_mut(4).zip(checksums) {
            place.copy_from_slice(&value.to_le_bytes());
        }
        bytes[4..8].copy_from_slice(&(total as u32).to_le_bytes());
        let sum = entry_sum(self.seed, &bytes[4..]);
        bytes[..4].copy_from_slice(&sum.to_le_bytes());
        self.used += total;
    }

    /// Notes how many blocks the record has, once no more are added.
    pub fn close(&self, journal: &mut [u8], blocks: u16) {
        let at = HEAD_BYTES + self.page * PAGE_BYTES + CLOSED_AT;
        journal[at..at + 4].copy_from_slice(&(u32::from(blocks) + 1).to_le_bytes());
    }

    /// Gives the page back: the record's header is on the device.
    #[must_use]
    pub fn end(self, journal: &mut [u8]) -> usize {
        let at = HEAD_BYTES + self.page * PAGE_BYTES;
        journal[at..at + 4].fill(0);
        self.page
    }
}

/// Which record a page is of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct JournalRecord {
    /// The segment.
    pub segment: SegmentId,
    /// The slot of the header.
    pub slot: u16,
    /// The stream.
    pub stream: Stream,
    /// The segment's generation.
    pub generation: Sequence,
    /// The segment whose place holds its second copy (I28). Earlier versions left the field zero.
    pub second: Option<SegmentId>,
}

/// A record as the crash journal tells it.
#[derive(Clone, Debug)]
pub struct ReplayedRecord {
    /// Which record.
    pub record: JournalRecord,
    /// The number of its blocks, if it was closed.
    pub blocks: Option<u16>,
    /// Its entries, by number.
    pub entries: EntryList,
    /// The number of the last one.
    pub last_number: u64,
}

/// Whether the crash journal is of this identity.
#[must_use]
pub fn is_of(journal: &[u8], identity: ShmIdentity) -> bool {
    journal.len() >= JOURNAL_BYTES
        && (journal[..48] == encode_identity(identity) || planted::is(Bug::AnyRing))
}

/// Reads back the records that a daemon that died left, if the crash journal is of this identity.
#[must_use]
pub fn replay(journal: &[u8], identity: ShmIdentity) -> Vec<ReplayedRecord> {
    if !is_of(journal, identity) {
        return Vec::new();
    }
    (0..PAGES)
        .filter_map(|page| {
            let bytes = &journal[HEAD_BYTES + page * PAGE_BYTES..][..PAGE_BYTES];
            replay_page(bytes, identity_sum(journal))
        })
        .collect()
}

/// The seed of the checksums of pages: two caches, or two epochs, can use a page for a record of
/// the same place, generation and count.
fn identity_sum(journal: &[u8]) -> u32 {
    // Without the head's own checksum, which would make the sum of any head of a cache the same.
    crc32c(&journal[..44])
}

fn replay_page(page: &[u8], identity: u32) -> Option<ReplayedRecord> {
    let mut input = Reader::new(page);
    if input.u32() != PAGE_MAGIC {
        return None;
    }
    let segment = SegmentId(input.u32());
    let slot = input.u16();
    let stream = Stream::from_number(input.u8())?;
    input.u8();
    let generation = Sequence::decode(&mut input);
    input.fixed::<8>();
    let second = input.u32().checked_sub(1).map(SegmentId);
    let seed = crc32c_append(identity, &page[4..PAGE_SEEDED_BYTES]);
    if page[PAGE_SEEDED_BYTES..PAGE_SEEDED_BYTES + 4] != seed.to_le_bytes() {
        return None;
    }
    let closed: [u8; 4] = page[CLOSED_AT..CLOSED_AT + 4].try_into().ok()?;
    let blocks = u32::from_le_bytes(closed)
        .checked_sub(1)
        .map(|blocks| blocks as u16);
    let mut entries = EntryList::default();
    let mut last_number = 0;
    let mut rest = &page[PAGE_HEAD_BYTES..];
    while let Some((number, entry, checksums, after)) = replay_entry(rest, seed) {
        if number <= last_number {
            break;
        }
        entries.push(number, entry, &checksums);
        last_number = number + u64::from(entry.count()) - 1;
        rest = after;
    }
    let record = JournalRecord {
        segment,
        slot,
        stream,
        generation,
        second,
    };
    Some(ReplayedRecord {
        record,
        blocks,
        entries,
        last_number,
    })
}

/// The sum of an entry: every word is mixed in with a multiplication and a shift, as the steps of
/// SplitMix64 are (Steele, Lea and Flood 2014). It guards against half-written entries and entries
/// of an earlier use, both in memory; for a few words it is cheaper than a CRC's set-up.
#[inline]
fn entry_sum(seed: u32, words: &[u8]) -> u32 {
    let mut state = u64::from(seed);
    for word in words.chunks_exact(4) {
        let word = u32::from_le_bytes(word.try_into().expect("four bytes"));
        state = (state ^ u64::from(word)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        state ^= state >> 31;
    }
    (state ^ state >> 32) as u32
}

fn replay_entry(bytes: &[u8], seed: u32) -> Option<(u64, Entry, Vec<u32>, &[u8])> {
    let total = u32::from_le_bytes(bytes.get(4..8)?.try_into().ok()?) as usize;
    if total < ENTRY_BYTES {
        return None;
    }
    let whole = bytes.get(..total)?;
    let sum = entry_sum(seed, &whole[4..]);
    if whole[..4] != sum.to_le_bytes() {
        return None;
    }
    let number = u64::from_le_bytes(whole[8..16].try_into().ok()?);
    let list = EntryList::from_bytes(&whole[16..], number);
    let entry = list.iter().next()?.ok()?.entry;
    let checksums = whole[ENTRY_BYTES..]
        .chunks_exact(4)
        .map(|word| u32::from_le_bytes(word.try_into().expect("four bytes")))
        .collect();
    Some((number, entry, checksums, &bytes[total..]))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::format::BlockKey;

    #[test]
    fn a_crash_at_any_byte_keeps_a_prefix() {
        let identity = ShmIdentity {
            cache: CacheId([3; 16]),
            shard: 1,
            epoch: 4,
            boot_id: [9; 16],
        };
        let mut journal = vec![0; JOURNAL_BYTES];
        initialise(&mut journal, identity);
        let record = JournalRecord {
            segment: SegmentId(5),
            slot: 8,
            stream: Stream::Write,
            generation: Sequence::new(4, 100),
            second: Some(SegmentId(8)),
        };
        let mut page = JournalPage::begin(&mut journal, 2, 1, record);
        for i in 0..10u64 {
            let entry = Entry::Data {
                key: BlockKey(i * 9),
                slot: 9 + i as u16,
                count: 1,
                dirty: true,
            };
            page.push(&mut journal, 100 + i * 2, entry, &[i as u32 | 1 << 31]);
        }
        let whole = replay(&journal, identity);
        assert_eq!(whole.len(), 1);
        assert_eq!((whole[0].record, whole[0].last_number), (record, 118));
        assert_eq!(whole[0].entries.iter().count(), 10);
        page.close(&mut journal, 10);
        assert_eq!(replay(&journal, identity)[0].blocks, Some(10));
        let used = page.used;
        for cut in PAGE_HEAD_BYTES..used {
            let mut torn = journal.clone();
            let at = HEAD_BYTES + 2 * PAGE_BYTES;
            torn[at + cut..at + used].fill(0);
            let kept = replay(&torn, identity)[0].entries.iter().count();
            assert!(
                kept <= (cut - PAGE_HEAD_BYTES) / (ENTRY_BYTES + 4),
                "{cut} {kept}"
            );
        }
        assert!(
            replay(
                &journal,
                ShmIdentity {
                    epoch: 5,
                    ..identity
                }
            )
            .is_empty()
        );
        assert_eq!(page.end(&mut journal), 2);
        assert!(replay(&journal, identity).is_empty());
        // The next use of the page does not see what the first one left behind it.
        let page = JournalPage::begin(&mut journal, 2, 2, record);
        assert!(replay(&journal, identity)[0].entries.is_empty());
        assert!(page.has_room(1, 256));
        assert_eq!(
            page.blocks_that_fit(),
            (PAGE_BYTES - PAGE_HEAD_BYTES) / BLOCK_BYTES
        );
    }
}
