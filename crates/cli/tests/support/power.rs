//! Power cuts: devices as a cut may leave them, rebuilt from a daemon's recording (`--record`,
//! its format is in `crates/io/src/recording.rs`).
//!
//! A flush promises that data completed before it was submitted is durable when it completes. Of
//! everything else each atomic unit may be there or not.

use forebay_random::SplitMix64;
use std::collections::HashMap;
use std::path::Path;

const MAGIC: &[u8; 8] = b"FBRECRD1";
const HEAD: usize = 32;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Device,
    Write,
    Zeroes,
    Flush,
    End,
}

#[derive(Debug)]
struct Event {
    kind: Kind,
    device: usize,
    succeeded: bool,
    operation: u64,
    offset: u64,
    len: u64,
    data: std::ops::Range<usize>,
    /// Where it ends in the log: it happened before the log was any longer.
    end: u64,
}

/// A recording of a daemon.
pub(crate) struct Recording {
    bytes: Vec<u8>,
    events: Vec<Event>,
    paths: Vec<String>,
}

/// A power cut.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Cut {
    /// The length of the log at that moment.
    pub(crate) position: u64,
    /// Unit that devices write atomically: 512 or 4096 bytes.
    pub(crate) unit: u64,
    /// Probability that something volatile survives, in percent.
    pub(crate) survives: u64,
    /// Whether what survives are whole writes and not units of them.
    pub(crate) whole: bool,
    /// A device that lies: its flushes that end after this moment did nothing.
    pub(crate) liar: Option<(usize, u64)>,
    /// The device on which what is complete is durable, if there is such a one.
    pub(crate) without_cache: Option<usize>,
    pub(crate) seed: u64,
}

/// A write that a cut may undo.
struct Volatile<'a> {
    operation: u64,
    complete: bool,
    offset: u64,
    /// Nothing means zeroes.
    data: Option<&'a [u8]>,
    len: u64,
}

#[derive(Default)]
struct Device<'a> {
    volatile: Vec<Volatile<'a>>,
    /// Writes that each flush in flight will have made durable.
    flushes: HashMap<u64, Vec<u64>>,
}

impl Recording {
    pub(crate) fn read(path: &Path) -> Recording {
        let bytes = std::fs::read(path).unwrap();
        assert_eq!(&bytes[..8], MAGIC);
        let (mut at, mut events, mut paths) = (8, Vec::new(), Vec::new());
        let number = |at: usize| u64::from_le_bytes(bytes[at..at + 8].try_into().unwrap());
        // The last record may be cut short by a kill.
        while at + HEAD <= bytes.len() {
            let (operation, offset, len) = (number(at + 8), number(at + 16), number(at + 24));
            let kind = match bytes[at] {
                1 => Kind::Device,
                2 => Kind::Write,
                3 | 4 => Kind::Zeroes,
                5 => Kind::Flush,
                6 => Kind::End,
                other => panic!("a record of kind {other}"),
            };
            let has_data = matches!(kind, Kind::Device | Kind::Write);
            let start = at + HEAD;
            let data = start..start + if has_data { len as usize } else { 0 };
            if data.end > bytes.len() {
                break;
            }
            if kind == Kind::Device {
                paths.push(String::from_utf8_lossy(&bytes[data.clone()]).into_owned());
            }
            let (device, succeeded) = (usize::from(bytes[at + 1]), bytes[at + 2] == 1);
            at = data.end;
            events.push(Event {
                kind,
                device,
                succeeded,
                operation,
                offset,
                len,
                data,
                end: at as u64,
            });
        }
        Recording {
            bytes,
            events,
            paths,
        }
    }

    /// The number of the device opened by this name.
    pub(crate) fn device(&self, name: &str) -> usize {
        let found = self.paths.iter().position(|path| path.ends_with(name));
        found.unwrap_or_else(|| panic!("{name} is not among {:?}", self.paths))
    }

    /// Where some record ends, not before `from`.
    pub(crate) fn some_position(&self, from: u64, random: &mut SplitMix64) -> u64 {
        let first = self.events.partition_point(|event| event.end < from);
        let count = self.events.len() - first;
        self.events[first + random.below(count as u64) as usize].end
    }

    pub(crate) fn end(&self) -> u64 {
        self.events.last().unwrap().end
    }

    /// Turns what the devices held when the recording began into what they hold after a cut.
    pub(crate) fn cut(&self, cut: Cut, images: &mut [Vec<u8>]) {
        let mut devices: Vec<Device<'_>> = images.iter().map(|_| Device::default()).collect();
        let before = self
            .events
            .iter()
            .take_while(|event| event.end <= cut.position);
        for event in before {
            self.replay(event, cut, &mut devices[event.device], images);
        }
        let mut random = SplitMix64::new(cut.seed);
        for (device, image) in devices.iter().zip(images) {
            for write in &device.volatile {
                let kept = random.below(100) < cut.survives;
                let (mut at, end) = (write.offset, write.offset + write.len);
                while at < end {
                    let next = (at / cut.unit + 1) * cut.unit;
                    let next = next.min(end);
                    let kept = if cut.whole {
                        kept
                    } else {
                        random.below(100) < cut.survives
                    };
                    if kept {
                        apply(write, at..next, image);
                    }
                    at = next;
                }
            }
        }
    }

    fn replay<'a>(
        &'a self,
        event: &Event,
        cut: Cut,
        device: &mut Device<'a>,
        images: &mut [Vec<u8>],
    ) {
        match event.kind {
            Kind::Device => {}
            Kind::Write | Kind::Zeroes => {
                let data = &self.bytes[event.data.clone()];
                device.volatile.push(Volatile {
                    operation: event.operation,
                    complete: false,
                    offset: event.offset,
                    data: (event.kind == Kind::Write).then_some(data),
                    len: event.len,
                });
            }
            Kind::Flush => {
                let complete = device.volatile.iter().filter(|write| write.complete);
                let covered = complete.map(|write| write.operation).collect();
                device.flushes.insert(event.operation, covered);
            }
            Kind::End if !event.succeeded => {}
            Kind::End => {
                let mut durable = device.flushes.remove(&event.operation).unwrap_or_default();
                let lies =
                    |(device, from): (usize, u64)| device == event.device && event.end > from;
                if cut.liar.is_some_and(lies) {
                    durable.clear();
                }
                let ended = device
                    .volatile
                    .iter_mut()
                    .find(|write| write.operation == event.operation);
                if let Some(write) = ended {
                    write.complete = true;
                    if cut.without_cache == Some(event.device) {
                        durable.push(write.operation);
                    }
                }
                let image = &mut images[event.device];
                device.volatile.retain(|write| {
                    let is_durable = durable.contains(&write.operation);
                    if is_durable {
                        apply(write, write.offset..write.offset + write.len, image);
                    }
                    !is_durable
                });
            }
        }
    }
}

fn apply(write: &Volatile<'_>, part: std::ops::Range<u64>, image: &mut [u8]) {
    let into = &mut image[part.start as usize..part.end as usize];
    match write.data {
        Some(data) => {
            let start = (part.start - write.offset) as usize;
            into.copy_from_slice(&data[start..start + into.len()]);
        }
        None => into.fill(0),
    }
}
