//! Summaries: all entries of a segment at a known place, in one of two slots.

use super::cache_id::CacheId;
use super::codec::{Reader, Writer, checksum, segment_in};
use super::header::{State, page_checksum};
use super::{EntryList, FORMAT_VERSION, PAGE_BYTES, SegmentId, Sequence, Stream};
use crate::planted::{self, Bug};

const MAGIC: u32 = u32::from_le_bytes(*b"FBSM");

/// Bytes of a summary before its entries.
pub const FIXED_BYTES: usize =
    4 + 2 + 1 + 1 + 4 + 16 + 2 + 4 + 1 + 2 + 4 + Sequence::BYTES + 8 + 8 + State::BYTES;

/// The kind of a summary.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
pub enum SummaryKind {
    /// Written when the segment was full; lists the entries of its headers.
    Seal = 1,
    /// Written by recovery: exactly the entries it accepted (I12).
    Verdict = 2,
    /// A renewal: the blocks listed count as appended anew (I19).
    Renewal = 3,
}

/// A summary of a segment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Summary {
    /// Which shard and segment it was written for.
    pub shard: u16,
    /// See `shard`.
    pub segment: SegmentId,
    /// In which of the two slots.
    pub which: u8,
    /// Its kind.
    pub kind: SummaryKind,
    /// The segment's stream.
    pub stream: Stream,
    /// The segment's generation.
    pub generation: Sequence,
    /// The slot after the last used slot.
    pub end_slot: u16,
    /// The number of the last entry, so that recovery never gives it again.
    pub last_number: u64,
    /// The shard's state.
    pub state: State,
    /// The segment's entries.
    pub entries: EntryList,
}

impl Summary {
    /// The bytes that this summary takes on the device, a multiple of 4096.
    #[must_use]
    pub fn encoded_bytes(&self) -> usize {
        (FIXED_BYTES + self.entries.as_bytes().len()).next_multiple_of(PAGE_BYTES)
    }

    /// Writes the summary into `out`, which is [`Summary::encoded_bytes`] long.
    ///
    /// # Panics
    /// If the length differs.
    pub fn encode(&self, id: CacheId, into: &mut [u8]) {
        assert_eq!(into.len(), self.encoded_bytes());
        let entries = self.entries.as_bytes();
        let mut out = Writer::new(into);
        out.u32(MAGIC);
        out.u16(FORMAT_VERSION);
        out.u8(self.stream as u8);
        out.u8(self.kind as u8);
        out.u32(0); // checksum, below
        out.bytes(&id.0);
        out.u16(self.shard);
        out.u32(self.segment.0);
        out.u8(self.which);
        out.u16(self.end_slot);
        out.u32(entries.len() as u32);
        self.generation.encode(&mut out);
        out.u64(self.entries.first_number());
        out.u64(self.last_number);
        self.state.encode(&mut out);
        assert_eq!(out.position(), FIXED_BYTES);
        out.bytes(entries);
        out.zero_rest();
        let sum = checksum(id, into);
        into[8..12].copy_from_slice(&sum.to_le_bytes());
    }

    /// The segment that a summary says it is of, if these bytes can be one.
    pub(crate) fn segment_in(bytes: &[u8]) -> Option<SegmentId> {
        segment_in(MAGIC, bytes)
    }

    /// Reads a summary that was written for this place; `bytes` is the whole summary slot. `None`
    /// if it holds anything else.
    #[must_use]
    pub fn decode(
        id: CacheId,
        shard: u16,
        segment: SegmentId,
        which: u8,
        bytes: &[u8],
    ) -> Option<Summary> {
        let mut input = Reader::new(bytes);
        if input.u32() != MAGIC || input.u16() != FORMAT_VERSION {
            return None;
        }
        let stream = Stream::from_number(input.u8())?;
        let kind = match input.u8() {
            1 => SummaryKind::Seal,
            2 => SummaryKind::Verdict,
            3 => SummaryKind::Renewal,
            _ => return None,
        };
        let sum = input.u32();
        if input.fixed::<16>() != id.0 {
            return None;
        }
        if input.u16() != shard || input.u32() != segment.0 || input.u8() != which {
            return None;
        }
        let end_slot = input.u16();
        let entry_bytes = input.u32() as usize;
        let generation = Sequence::decode(&mut input);
        let first_number = input.u64();
        let last_number = input.u64();
        let state = State::decode(&mut input);
        let used = FIXED_BYTES
            .checked_add(entry_bytes)?
            .checked_next_multiple_of(PAGE_BYTES)?;
        let whole = bytes.get(..used)?;
        if input.overran() || sum != page_checksum(id, whole, 8) {
            return None;
        }
        let entries =
            EntryList::from_bytes(&whole[FIXED_BYTES..FIXED_BYTES + entry_bytes], first_number);
        Some(Summary {
            shard,
            segment,
            which,
            kind,
            stream,
            generation,
            end_slot,
            last_number,
            state,
            entries,
        })
    }

    /// Whether this summary counts and not `other`, both of one segment: the higher generation,
    /// within one a verdict before a seal, of two verdicts the one of the later recovery (I19),
    /// and of two of one recovery the one that carries its moved tails.
    #[must_use]
    pub fn outranks(&self, other: &Summary) -> bool {
        let rank = |summary: &Summary| {
            let written_in = summary.state.known_durable.epoch;
            let tails = summary.state.tails;
            (summary.generation, summary.kind, written_in, tails)
        };
        (rank(self) > rank(other)) != planted::is(Bug::OlderSummaryCounts)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_two_verdicts_of_one_recovery_the_moved_tails_count() {
        let verdict = |which: u8, tail: u64| Summary {
            shard: 0,
            segment: SegmentId(3),
            which,
            kind: SummaryKind::Verdict,
            stream: Stream::Write,
            generation: Sequence::new(4, 10),
            end_slot: 9,
            last_number: 12,
            state: State {
                known_durable: Sequence::new(5, 0),
                tails: [Sequence::new(4, 1), Sequence::new(4, tail), Sequence::ZERO],
                ..State::default()
            },
            entries: EntryList::default(),
        };
        for (old, new) in [(0, 1), (1, 0)] {
            assert!(verdict(new, 7).outranks(&verdict(old, 5)));
            assert!(!verdict(old, 5).outranks(&verdict(new, 7)));
        }
    }
}
