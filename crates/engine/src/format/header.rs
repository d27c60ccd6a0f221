//! Record headers: a page that lists the entries of a record and the state of its shard.

use super::cache_id::CacheId;
use super::codec::{Reader, Writer, checksum, segment_in};
use super::{EntryList, PAGE_BYTES, SegmentId, Sequence, Stream};
use crate::checksum::crc32c_append;
use crate::planted::{self, Bug};
use crate::storage::SECTOR_BYTES;

const MAGIC: u32 = u32::from_le_bytes(*b"FBRH");
/// Sectors of a header of version 2 are stamped.
const VERSION: u16 = 2;
/// Without stamps; read, and not written any more.
const UNSTAMPED_VERSION: u16 = 1;

/// Bytes of a header before its entries.
pub const FIXED_BYTES: usize =
    4 + 2 + 1 + 1 + 4 + 16 + 2 + 4 + 2 + 2 + 2 + Sequence::BYTES + 8 + State::BYTES;
/// Bytes of entries a header can hold.
pub const ENTRY_BYTES: usize = PAGE_BYTES - FIXED_BYTES;

/// Where the segment before this one in its stream is, and where it ended: the chain by which
/// recovery notices that a segment is missing (I14).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Link {
    /// Which segment.
    pub segment: SegmentId,
    /// The generation it had.
    pub generation: Sequence,
    /// The slot after its last used slot.
    pub end_slot: u16,
}

/// Up to where a stream is known durable (I14).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct DurablePosition {
    /// The generation of the segment.
    pub generation: Sequence,
    /// The slot after the last durable slot in it.
    pub end_slot: u16,
}

/// The state of the whole shard, in every header and summary, at its time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct State {
    /// Every entry up to this one is durable. Speaks for its own epoch only (I12).
    pub known_durable: Sequence,
    /// Each stream's tail: segments of a lower generation count no more (I2).
    pub tails: [Sequence; Stream::COUNT],
    /// Each stream's durable position (I14).
    pub durable: [DurablePosition; Stream::COUNT],
    /// The segment before this one in its stream, if that was alive when this one was opened.
    pub previous: Option<Link>,
}

impl State {
    /// Bytes on the device.
    pub const BYTES: usize =
        Sequence::BYTES * 4 + (Sequence::BYTES + 2) * 3 + 1 + 4 + Sequence::BYTES + 2;

    pub(crate) fn encode(&self, out: &mut Writer<'_>) {
        self.known_durable.encode(out);
        for tail in self.tails {
            tail.encode(out);
        }
        for position in self.durable {
            position.generation.encode(out);
            out.u16(position.end_slot);
        }
        let none = Link {
            segment: SegmentId(0),
            generation: Sequence::ZERO,
            end_slot: 0,
        };
        let link = self.previous.unwrap_or(none);
        out.u8(u8::from(self.previous.is_some()));
        out.u32(link.segment.0);
        link.generation.encode(out);
        out.u16(link.end_slot);
    }

    pub(crate) fn decode(input: &mut Reader<'_>) -> State {
        let known_durable = Sequence::decode(input);
        let tails = std::array::from_fn(|_| Sequence::decode(input));
        let durable = std::array::from_fn(|_| DurablePosition {
            generation: Sequence::decode(input),
            end_slot: input.u16(),
        });
        let has_previous = input.u8() != 0;
        let link = Link {
            segment: SegmentId(input.u32()),
            generation: Sequence::decode(input),
            end_slot: input.u16(),
        };
        State {
            known_durable,
            tails,
            durable,
            previous: has_previous.then_some(link),
        }
    }
}

/// The header of a record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Header {
    /// Which shard, segment and slot it was written for.
    pub shard: u16,
    /// See `shard`.
    pub segment: SegmentId,
    /// See `shard`.
    pub slot: u16,
    /// Its stream.
    pub stream: Stream,
    /// The sequence number the segment was opened with.
    pub generation: Sequence,
    /// The number of slots after the header that belong to the record.
    pub blocks: u16,
    /// Header and blocks were one transfer: the header does not prove that the blocks arrived.
    pub combined: bool,
    /// The shard's state.
    pub state: State,
    /// The record's entries. The numbers are of the generation's epoch.
    pub entries: EntryList,
}

impl Header {
    /// Writes the header into `page`.
    ///
    /// # Panics
    /// If the page is not 4 KiB or the entries are more than [`ENTRY_BYTES`].
    pub fn encode(&self, id: CacheId, page: &mut [u8]) {
        assert_eq!(page.len(), PAGE_BYTES);
        let entries = self.entries.as_bytes();
        assert!(entries.len() <= ENTRY_BYTES, "entries fit the header");
        let mut out = Writer::new(page);
        out.u32(MAGIC);
        out.u16(VERSION);
        out.u8(self.stream as u8);
        out.u8(u8::from(self.combined));
        out.u32(0); // checksum, below
        out.bytes(&id.0);
        out.u16(self.shard);
        out.u32(self.segment.0);
        out.u16(self.slot);
        out.u16(self.blocks);
        out.u16(entries.len() as u16);
        self.generation.encode(&mut out);
        out.u64(self.entries.first_number());
        self.state.encode(&mut out);
        assert_eq!(out.position(), FIXED_BYTES);
        out.bytes(entries);
        out.zero_rest();
        stamp(page, self.generation.epoch, self.entries.first_number());
        let sum = checksum(id, page);
        page[8..12].copy_from_slice(&sum.to_le_bytes());
    }

    /// The segment that a header says it is of, if these bytes can be one.
    pub(crate) fn segment_in(bytes: &[u8]) -> Option<SegmentId> {
        segment_in(MAGIC, bytes)
    }

    /// Reads a header that was written for this place, or `None` if the page holds anything
    /// else: something older, another cache's, another place's, or a torn one.
    #[must_use]
    pub fn decode(
        id: CacheId,
        shard: u16,
        segment: SegmentId,
        slot: u16,
        page: &[u8],
    ) -> Option<Header> {
        if page.len() != PAGE_BYTES {
            return None;
        }
        let mut input = Reader::new(page);
        if input.u32() != MAGIC {
            return None;
        }
        let is_stamped = match input.u16() {
            VERSION => true,
            UNSTAMPED_VERSION => false,
            _ => return None,
        };
        let stream = Stream::from_number(input.u8())?;
        let combined = input.u8() != 0;
        let sum = input.u32();
        if input.fixed::<16>() != id.0 || sum != page_checksum(id, page, 8) {
            return None;
        }
        if input.u16() != shard || input.u32() != segment.0 || input.u16() != slot {
            return None;
        }
        let blocks = input.u16();
        let entry_bytes = usize::from(input.u16());
        let generation = Sequence::decode(&mut input);
        let first_number = input.u64();
        let state = State::decode(&mut input);
        let mut page: [u8; PAGE_BYTES] = page.try_into().ok()?;
        if is_stamped {
            stamp(&mut page, generation.epoch, first_number);
        }
        let entries = EntryList::from_bytes(
            page.get(FIXED_BYTES..FIXED_BYTES + entry_bytes)?,
            first_number,
        );
        Some(Header {
            shard,
            segment,
            slot,
            stream,
            generation,
            blocks,
            combined,
            state,
            entries,
        })
    }
}

/// Adds the header's own number to the end of each sector behind the first, or takes it off again.
///
/// A power cut may leave some sectors of a write and not the others. Without stamps a sector of a
/// new header can be like that of an older one in its place, which was torn or had rotted: the
/// older header would be whole again, and entries that recovery rejected would count (I12).
fn stamp(page: &mut [u8], epoch: u32, first_number: u64) {
    const GOLDEN_RATIO: u64 = 0x9e37_79b9_7f4a_7c15;
    if planted::is(Bug::HeadersUnstamped) {
        return;
    }
    let number = (u64::from(epoch) << 48) ^ first_number;
    let stamp = number.wrapping_mul(GOLDEN_RATIO).to_le_bytes();
    for sector in page[SECTOR_BYTES..].chunks_exact_mut(SECTOR_BYTES) {
        let end = &mut sector[SECTOR_BYTES - stamp.len()..];
        end.iter_mut().zip(stamp).for_each(|(byte, of)| *byte ^= of);
    }
}

/// The checksum of a page whose four checksum bytes are at `at` and count as zero.
pub(crate) fn page_checksum(id: CacheId, page: &[u8], at: usize) -> u32 {
    let sum = checksum(id, &page[..at]);
    let sum = crc32c_append(sum, &[0; 4]);
    crc32c_append(sum, &page[at + 4..])
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::format::{BlockKey, Entry};

    const ID: CacheId = CacheId([7; 16]);

    /// With drops in its first three sectors.
    fn long_header(epoch: u32, first_number: u64) -> Header {
        let mut entries = EntryList::default();
        for at in 0..100 {
            let key = BlockKey(at * 300);
            let drop = Entry::Drop { key, count: 1 };
            entries.push(first_number + at, drop, &[]);
        }
        Header {
            shard: 2,
            segment: SegmentId(9),
            slot: 17,
            stream: Stream::Main,
            generation: Sequence::new(epoch, 1),
            blocks: 0,
            combined: false,
            state: State::default(),
            entries,
        }
    }

    fn page_of(header: &Header) -> Vec<u8> {
        let mut page = vec![0; PAGE_BYTES];
        header.encode(ID, &mut page);
        page
    }

    fn read(page: &[u8]) -> Option<Header> {
        Header::decode(ID, 2, SegmentId(9), 17, page)
    }

    #[test]
    fn a_torn_write_does_not_make_an_older_header_whole_again() {
        let (old, new) = (long_header(1, 2), long_header(2, 2));
        assert_eq!(old.entries.as_bytes(), new.entries.as_bytes());
        let (old, new) = (page_of(&old), page_of(&new));
        assert!(read(&old).is_some());
        for sector in 0..PAGE_BYTES / SECTOR_BYTES {
            let place = sector * SECTOR_BYTES..(sector + 1) * SECTOR_BYTES;
            let mut torn = old.clone();
            torn[place.clone()].copy_from_slice(&new[place]);
            assert_eq!(read(&torn), None, "sector {sector}");
        }
    }

    #[test]
    fn a_header_without_stamps_is_read() {
        let header = long_header(3, 40);
        let mut page = page_of(&header);
        stamp(&mut page, 3, 40);
        page[4..6].copy_from_slice(&UNSTAMPED_VERSION.to_le_bytes());
        let sum = page_checksum(ID, &page, 8);
        page[8..12].copy_from_slice(&sum.to_le_bytes());
        let read = read(&page).expect("a header of version 1");
        assert_eq!(read.entries.as_bytes(), header.entries.as_bytes());
        assert_eq!(read.generation, header.generation);
    }

    #[test]
    fn a_header_is_read_only_where_and_as_it_was_written() {
        let mut entries = EntryList::default();
        entries.push(
            41,
            Entry::Drop {
                key: BlockKey(5),
                count: 3,
            },
            &[],
        );
        let header = Header {
            shard: 2,
            segment: SegmentId(9),
            slot: 17,
            stream: Stream::Main,
            generation: Sequence::new(3, 40),
            blocks: 0,
            combined: false,
            state: State {
                known_durable: Sequence::new(3, 39),
                previous: Some(Link {
                    segment: SegmentId(1),
                    generation: Sequence::new(2, 2),
                    end_slot: 8,
                }),
                ..State::default()
            },
            entries,
        };
        let mut page = vec![0; PAGE_BYTES];
        header.encode(ID, &mut page);
        let mut read = Header::decode(ID, 2, SegmentId(9), 17, &page).unwrap();
        assert_eq!(read.entries.as_bytes(), header.entries.as_bytes());
        read.entries = header.entries.clone();
        assert_eq!(read, header);
        assert_eq!(Header::decode(ID, 2, SegmentId(9), 18, &page), None);
        assert_eq!(
            Header::decode(CacheId([8; 16]), 2, SegmentId(9), 17, &page),
            None
        );
        for bit in [0, 100, 900, PAGE_BYTES * 8 - 1] {
            let mut torn = page.clone();
            torn[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(Header::decode(ID, 2, SegmentId(9), 17, &torn), None);
        }
    }
}
