//! The phases of the day and what clients do in each.

use forebay_random::mix;

const MIB: u64 = 1 << 20;
const GIB: u64 = 1 << 30;

/// The size of the origin, in bytes, at every scale: reading it takes no memory.
pub(super) const ORIGIN_BYTES: u64 = 1 << 40;
/// The size of the cache at full size, in bytes.
pub(super) const CACHE_BYTES: u64 = 8 * GIB;

/// The length of a file, in bytes: more than any device here moves in a minute.
const FILE_BYTES: u64 = 40 * GIB;

/// A span of the origin at full size: where it starts and its length, in bytes.
pub(super) type Span = (u64, u64);

/// Files of the office: twice the cache, of which most requests want a quarter.
const OFFICE: Span = (0, 16 * GIB);
/// Tables of the database: half the cache.
const TABLES: Span = (64 * GIB, 4 * GIB);
/// The database's log.
const LOG: Span = (96 * GIB, GIB);
/// A span of 16 caches: hardly a block of it is wanted twice.
const WIDE: Span = (128 * GIB, 128 * GIB);
/// Files that are copied: four, on tracks nearly as fast as each other. What was taken in ahead of
/// the disk in one minute is then no harder to write back in the next.
const SOURCES: Span = (256 * GIB, 4 * FILE_BYTES);
/// The place where copies, dumps and recordings go, likewise.
const COPIES: Span = (512 * GIB, 4 * FILE_BYTES);
/// The whole disk.
const EVERYTHING: Span = (0, ORIGIN_BYTES);

/// The order in which a stream goes through its span.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Order {
    /// By Zipf's law over pieces of 64 KiB, any place within a piece.
    Zipf,
    /// Any place, all alike.
    Uniform,
    /// In ascending order, round and round.
    Ring,
    /// In ascending order. Each minute goes on at a place of its own, so that a system that was
    /// faster before has no slower part of the disk under its head now.
    Files,
}

/// The time between an answer and the next request.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Timing {
    /// None.
    Closed,
    /// Anything up to twice this mean, in microseconds.
    Think(u64),
    /// Requests come so many times a second whether answers come or not. Those that find all
    /// workers waiting do not come, so that a slow system has nothing to make up for later.
    Paced(u64),
}

/// Minutes in which a stream is busier than in others.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Rhythm {
    /// None.
    Steady,
    /// A minute in this many, drawn, with a quarter of the time to think.
    Bursts(u64),
    /// A minute in this many, drawn, and nothing in others.
    Only(u64),
}

/// A kind of client.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Stream {
    pub(super) name: &'static str,
    pub(super) writes: bool,
    /// The shortest and the longest request, in KiB.
    pub(super) request_kib: (u32, u32),
    pub(super) span: Span,
    pub(super) order: Order,
    /// Requests in flight at most.
    pub(super) workers: u32,
    pub(super) timing: Timing,
    pub(super) rhythm: Rhythm,
    /// Writes of a worker between two flushes; 0 for no flush.
    pub(super) flush_after: u32,
}

impl Stream {
    /// The stream over a span that many times smaller. Files keep their length: it must not be
    /// written twice within a minute.
    pub(super) fn scaled(self, scale: u64) -> Stream {
        let (offset_bytes, span_bytes) = self.span;
        let span_bytes = match self.order {
            Order::Files => span_bytes,
            _ => span_bytes / scale,
        };
        Stream {
            span: (offset_bytes, span_bytes),
            ..self
        }
    }

    /// Whether it is busier in this minute of the day.
    pub(super) fn is_busy_in(&self, seed: u64, minute: u64) -> bool {
        match self.rhythm {
            Rhythm::Steady => false,
            Rhythm::Bursts(minutes) | Rhythm::Only(minutes) => {
                mix(seed ^ minute.wrapping_mul(0x9e37)).is_multiple_of(minutes)
            }
        }
    }
}

/// A part of the day.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Phase {
    pub(super) name: &'static str,
    /// Its length at full size.
    pub(super) minutes: u64,
    pub(super) streams: Vec<Stream>,
}

/// A client with no rhythm and no flushes.
const PLAIN: Stream = Stream {
    name: "",
    writes: false,
    request_kib: (4, 4),
    span: OFFICE,
    order: Order::Zipf,
    workers: 1,
    timing: Timing::Closed,
    rhythm: Rhythm::Steady,
    flush_after: 0,
};

/// Services that never sleep.
fn trickle() -> Vec<Stream> {
    let read = Stream {
        name: "few reads",
        request_kib: (4, 16),
        workers: 8,
        timing: Timing::Paced(15),
        ..PLAIN
    };
    let write = Stream {
        name: "few writes",
        writes: true,
        timing: Timing::Paced(5),
        flush_after: 16,
        ..read
    };
    vec![read, write]
}

/// People at work, each with a time to think.
fn office(readers: u32) -> Vec<Stream> {
    let read = Stream {
        name: "office reads",
        request_kib: (4, 16),
        workers: readers,
        timing: Timing::Think(60_000),
        rhythm: Rhythm::Bursts(10),
        ..PLAIN
    };
    let write = Stream {
        name: "office writes",
        writes: true,
        workers: readers / 2,
        flush_after: 16,
        ..read
    };
    vec![read, write]
}

/// A client that reads or writes file after file.
fn files(name: &'static str, writes: bool, kib: u32, span: Span, workers: u32) -> Stream {
    Stream {
        name,
        writes,
        request_kib: (kib, kib),
        span,
        order: Order::Files,
        workers,
        ..PLAIN
    }
}

/// A client that asks for any place.
fn scattered(name: &'static str, writes: bool, kib: (u32, u32), workers: u32) -> Stream {
    Stream {
        name,
        writes,
        request_kib: kib,
        span: WIDE,
        order: Order::Uniform,
        workers,
        ..PLAIN
    }
}

fn database() -> Vec<Stream> {
    vec![
        Stream {
            name: "table reads",
            request_kib: (8, 8),
            span: TABLES,
            workers: 8,
            timing: Timing::Think(10_000),
            ..PLAIN
        },
        Stream {
            name: "log writes, each flushed",
            writes: true,
            request_kib: (16, 16),
            span: LOG,
            order: Order::Ring,
            workers: 2,
            timing: Timing::Think(10_000),
            flush_after: 1,
            ..PLAIN
        },
        Stream {
            name: "checkpoints",
            writes: true,
            request_kib: (8, 8),
            span: TABLES,
            order: Order::Uniform,
            workers: 16,
            timing: Timing::Think(10_000),
            rhythm: Rhythm::Only(5),
            flush_after: 256,
        },
    ]
}

/// The day, from midnight to midnight.
pub(super) fn day() -> Vec<Phase> {
    let with = |mut streams: Vec<Stream>, more: Vec<Stream>| {
        streams.extend(more);
        streams
    };
    let backup = |workers| vec![files("backup reads", false, 1024, EVERYTHING, workers)];
    let dump = Stream {
        flush_after: 128,
        ..files("dump writes", true, 1024, COPIES, 2)
    };
    let copy = vec![
        files("copy reads", false, 512, SOURCES, 2),
        files("copy writes", true, 512, COPIES, 2),
    ];
    let playing = Stream {
        timing: Timing::Paced(10),
        ..files("playing", false, 256, SOURCES, 8)
    };
    let recording = Stream {
        timing: Timing::Paced(10),
        ..files("recording", true, 256, COPIES, 8)
    };
    let patches = Stream {
        timing: Timing::Paced(30),
        ..scattered("scattered writes", true, (4, 4), 8)
    };
    let scan = Stream {
        span: EVERYTHING,
        ..scattered("scan reads", false, (64, 64), 4)
    };
    let reports = vec![
        scattered("report reads", false, (32, 32), 4),
        Stream {
            span: TABLES,
            timing: Timing::Think(20_000),
            ..scattered("table writes", true, (16, 16), 2)
        },
    ];
    let updates = scattered("update writes", true, (4, 32), 8);
    let mix = vec![
        scattered("mixed reads", false, (16, 16), 11),
        scattered("mixed writes", true, (16, 16), 5),
    ];
    let phases = [
        ("night", 90, trickle()),
        ("backup", 10, with(backup(2), trickle())),
        ("dump", 10, with(vec![dump], trickle())),
        ("after the dump", 40, trickle()),
        ("reports", 75, reports),
        ("idle", 45, Vec::new()),
        ("updates", 30, vec![updates]),
        ("scan", 90, vec![scan]),
        ("first hour", 60, office(8)),
        ("office", 210, office(8)),
        ("copies", 10, with(copy, office(8))),
        ("lunch", 50, office(4)),
        ("database", 60, database()),
        ("office again", 240, office(8)),
        ("media", 120, with(vec![playing, recording], trickle())),
        (
            "long copy",
            10,
            vec![files("long writes", true, 1024, COPIES, 4)],
        ),
        ("evening", 110, office(6)),
        ("backup, patches", 10, with(backup(1), vec![patches])),
        ("random mix", 45, mix),
        ("late night", 125, trickle()),
    ];
    phases
        .into_iter()
        .map(|(name, minutes, streams)| Phase {
            name,
            minutes,
            streams,
        })
        .collect()
}

/// The place at which a stream of files goes on in a minute of the day, in bytes from the start of
/// its span.
pub(super) fn file_of(minute: u64, span_bytes: u64) -> u64 {
    (minute * FILE_BYTES) % span_bytes
}

/// A piece of a span whose places are wanted equally often.
pub(super) const PIECE_BYTES: u64 = MIB / 16;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_day_has_24_hours_and_stays_on_the_disk() {
        let phases = day();
        let minutes: u64 = phases.iter().map(|phase| phase.minutes).sum();
        assert_eq!(minutes, 24 * 60);
        for stream in phases.iter().flat_map(|phase| &phase.streams) {
            let (offset_bytes, span_bytes) = stream.span;
            assert!(offset_bytes + span_bytes <= ORIGIN_BYTES, "{}", stream.name);
        }
    }

    #[test]
    fn bursts_are_drawn_and_come_as_often_as_they_should() {
        let stream = office(2)[0];
        let busy = (0..1440).filter(|minute| stream.is_busy_in(7, *minute));
        let count = busy.count();
        assert!((90..200).contains(&count), "{count}");
    }
}
