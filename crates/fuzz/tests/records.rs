//! Headers, summaries and entries that somebody forged, each with a checksum that is right more
//! often than not: decoded as recovery does.

#[path = "../../engine/tests/forged/structure.rs"]
mod structure;

use forebay_engine::format::header::{ENTRY_BYTES, State};
use forebay_engine::format::{DurablePosition, Header, Link, Stream, Summary, SummaryKind};
use forebay_engine::format::{Entry, EntryList, SegmentId, Sequence};
use forebay_engine::{BlockKey, CacheId};
use forebay_fuzz::mutate::{change_number, number, pick};
use forebay_fuzz::{Counting, Outcome, SplitMix64, Surface, run};
use structure::{Field, HEADER_ENTRIES, RECORD, SUMMARY_ENTRIES, sign};

#[global_allocator]
static COUNTING: Counting = Counting;

const ID: CacheId = CacheId([7; 16]);
const SHARD: u16 = 1;
const SEGMENT: SegmentId = SegmentId(5);
const SLOT: u16 = 3;
const WHICH: u8 = 1;

#[derive(Default)]
struct Records {
    /// A few valid headers and summaries.
    valid: Vec<(bool, Vec<u8>)>,
    header_fields: Vec<Field>,
    summary_fields: Vec<Field>,
    entries: u64,
    malformed: u64,
    blocks: u64,
}

fn state() -> State {
    let at = |number| Sequence::new(3, number);
    State {
        known_durable: at(900),
        tails: [at(10), at(11), at(12)],
        durable: [at(700), at(800), at(810)].map(|generation| DurablePosition {
            generation,
            end_slot: 9,
        }),
        previous: Some(Link {
            segment: SegmentId(4),
            generation: at(500),
            end_slot: 16,
        }),
    }
}

/// A list with each kind of entry, `rounds` times.
fn entries(rounds: u64) -> EntryList {
    let mut list = EntryList::with_capacity(ENTRY_BYTES);
    let mut number = 901;
    for round in 0..rounds {
        let key = BlockKey(round * 1000);
        let slot = (round % 12) as u16 + 1;
        let kinds = [
            (
                Entry::Data {
                    key,
                    slot,
                    count: 3,
                    dirty: true,
                },
                3,
            ),
            (
                Entry::Zero {
                    key: key.plus(9),
                    slot: slot + 1,
                    count: 2,
                    dirty: false,
                },
                0,
            ),
            (
                Entry::Clean {
                    segment: SegmentId(2),
                    slot,
                    count: 4,
                },
                0,
            ),
            (
                Entry::Drop {
                    key: key.plus(40),
                    count: 1,
                },
                0,
            ),
        ];
        for (entry, sums) in kinds {
            list.push(number, entry, &[1, 2, 3][..sums]);
            // A gap, which takes an entry that skips numbers.
            number += u64::from(entry.count()) + round % 2 * 5;
        }
    }
    list
}

fn header(rounds: u64) -> Vec<u8> {
    let mut page = vec![0; 4096];
    let header = Header {
        shard: SHARD,
        segment: SEGMENT,
        slot: SLOT,
        stream: Stream::ALL[0],
        generation: Sequence::new(3, 600),
        blocks: 9,
        combined: false,
        state: state(),
        entries: entries(rounds),
    };
    header.encode(ID, &mut page);
    page
}

fn summary(rounds: u64, kind: SummaryKind) -> Vec<u8> {
    let summary = Summary {
        shard: SHARD,
        segment: SEGMENT,
        which: WHICH,
        kind,
        stream: Stream::ALL[1],
        generation: Sequence::new(3, 600),
        end_slot: 16,
        last_number: 5000,
        state: state(),
        entries: entries(rounds),
    };
    let mut bytes = vec![0; summary.encoded_bytes()];
    summary.encode(ID, &mut bytes);
    bytes
}

impl Records {
    fn new() -> Records {
        let mut valid = vec![
            (true, header(0)),
            (true, header(3)),
            (true, header(20)),
            (false, summary(0, SummaryKind::Verdict)),
            (false, summary(4, SummaryKind::Renewal)),
            (false, summary(70, SummaryKind::Seal)),
        ];
        for (_, bytes) in &mut valid {
            bytes.resize(bytes.len().next_multiple_of(4096), 0);
        }
        Records {
            valid,
            header_fields: structure::fields_of_header(),
            summary_fields: structure::fields_of_summary(),
            ..Records::default()
        }
    }

    fn iterate(&mut self, list: &EntryList) -> bool {
        let mut sound = true;
        let mut last = 0;
        for entry in list {
            match entry {
                Ok(entry) => {
                    assert!(entry.number >= last, "numbers rise");
                    last = entry.number;
                    self.entries += 1;
                    self.blocks += u64::from(entry.entry.count());
                    std::hint::black_box(entry.checksums());
                }
                Err(_) => {
                    self.malformed += 1;
                    sound = false;
                }
            }
        }
        sound
    }
}

impl Surface for Records {
    fn name(&self) -> &'static str {
        "records"
    }

    fn most_bytes(&self) -> usize {
        64 << 10
    }

    fn forge(&mut self, random: &mut SplitMix64, input: &mut Vec<u8>) {
        // The last is a long one.
        let which = match random.below(16) {
            0 => self.valid.len() - 1,
            _ => random.below(self.valid.len() as u64 - 1) as usize,
        };
        let (is_header, valid) = &self.valid[which];
        input.extend_from_slice(valid);
        let (fields, from) = match is_header {
            true => (&self.header_fields, HEADER_ENTRIES),
            false => (&self.summary_fields, SUMMARY_ENTRIES),
        };
        for _ in 0..1 + random.below(4) {
            match random.below(8) {
                0 => {
                    let at = random.below(input.len() as u64) as usize;
                    input[at] ^= 1 << random.below(8);
                }
                1..4 => {
                    let field = pick(random, fields);
                    change_number(input, field.at, field.width, random);
                }
                4 | 5 => change_number(input, from + 4 * random.below(24) as usize, 8, random),
                6 => {
                    // A head with a kind that there is.
                    let head = (number(random, 0) & !7) | random.below(6);
                    let at = from + 4 * random.below(24) as usize;
                    input[at..at + 8].copy_from_slice(&head.to_le_bytes());
                }
                _ => {
                    let (a, b) = (random.below(200) as usize, random.below(200) as usize);
                    input.copy_within(from + a..from + a + 24, from + b);
                }
            }
        }
        if random.below(16) == 0 {
            return;
        }
        // A summary is signed as far as it says that it is used.
        let used = match is_header {
            true => input.len(),
            false => {
                let entries = u32::from_le_bytes([input[37], input[38], input[39], input[40]]);
                (SUMMARY_ENTRIES + entries as usize).next_multiple_of(4096)
            }
        };
        let used = used.min(input.len());
        sign(&mut input[..used], RECORD);
    }

    fn feed(&mut self, input: &[u8]) -> Outcome {
        if input.starts_with(b"FBRH") {
            let Some(header) = Header::decode(ID, SHARD, SEGMENT, SLOT, input) else {
                return Outcome::Rejected("no header of this place");
            };
            return match self.iterate(&header.entries) {
                true => Outcome::Accepted("a header"),
                false => Outcome::Rejected("a header, with bytes that are no entry"),
            };
        }
        let Some(summary) = Summary::decode(ID, SHARD, SEGMENT, WHICH, input) else {
            return Outcome::Rejected("no summary of this place");
        };
        std::hint::black_box(summary.outranks(&summary));
        match self.iterate(&summary.entries) {
            true => Outcome::Accepted("a summary"),
            false => Outcome::Rejected("a summary, with bytes that are no entry"),
        }
    }

    fn reached(&self) -> Vec<(&'static str, u64)> {
        vec![
            ("entries", self.entries),
            ("blocks of those", self.blocks),
            ("lists that end in no entry", self.malformed),
        ]
    }
}

#[test]
fn whatever_a_record_says_is_decoded_or_refused() {
    run(&mut Records::new(), 100_000);
}
