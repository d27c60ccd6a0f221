//! Arbitrary bytes against a whole connection, for cargo-fuzz and for the tests.
//!
//! A fuzz target is one line: `fuzz_target!(|input: &[u8]|
//! forebay_frontend::nbd::fuzz::fuzz(input));`

mod driver;

use std::collections::BTreeMap;

use forebay_engine::{Buf, Memory};

use super::connection::{Reason, Settings};
use super::exports::{Export, ExportId, ExportName, ExportTable};
use super::limits::Limits;
use super::request::{Command, Request};
use super::tls::TlsPolicy;
use super::wire::{self, option};

pub use driver::{Driver, Lender, Witness};

/// Memory whose every buffer is an allocation of its own, so that a leak or a use after free is
/// found.
#[derive(Debug, Default)]
pub struct HeapMemory {
    buffers: BTreeMap<u32, Vec<u8>>,
    next_sector: u32,
}

impl HeapMemory {
    /// The number of buffers allocated.
    #[must_use]
    pub fn allocated(&self) -> usize {
        self.buffers.len()
    }
}

impl Lender for HeapMemory {
    fn lent(&self) -> usize {
        self.allocated()
    }

    fn lent_bytes(&self) -> u64 {
        self.buffers
            .values()
            .map(|buffer| buffer.len() as u64)
            .sum()
    }

    fn fill(&mut self, buf: Buf, value: u8) {
        self.bytes_mut(buf).fill(value);
    }
}

impl Memory for HeapMemory {
    fn alloc(&mut self, len_bytes: usize) -> Option<Buf> {
        let buf = Buf {
            start_sector: self.next_sector,
            len_bytes: u32::try_from(len_bytes).ok()?,
        };
        self.next_sector = self.next_sector.checked_add(1)?;
        self.buffers.insert(buf.start_sector, vec![0; len_bytes]);
        Some(buf)
    }

    fn free(&mut self, buf: Buf) {
        assert!(
            self.buffers.remove(&buf.start_sector).is_some(),
            "a buffer is freed once"
        );
    }

    fn bytes(&self, buf: Buf) -> &[u8] {
        &self.buffers[&buf.start_sector]
    }

    fn bytes_mut(&mut self, buf: Buf) -> &mut [u8] {
        self.buffers
            .get_mut(&buf.start_sector)
            .expect("the buffer is allocated")
    }

    fn journal_mut(&mut self, _shard: u16) -> &mut [u8] {
        &mut []
    }
}

/// Transcript of a conversation.
#[derive(Debug, PartialEq, Eq)]
pub struct Transcript {
    /// All bytes the server sent.
    pub output: Vec<u8>,
    /// The requests it handed out, in order, each with the payload's sum.
    pub requests: Vec<(Command, u64, u32, u64)>,
    /// Why it ended.
    pub reason: Option<Reason>,
}

/// Small limits, so that short inputs reach them.
#[must_use]
pub fn small_limits() -> Limits {
    Limits {
        max_request_bytes: 65_536,
        max_requests: 8,
        max_bytes_in_flight: 131_072,
        max_options: 64,
        max_option_bytes: 8192,
        max_extents: 16,
    }
}

/// Two exports: `disk` of 1 MiB, and `still`, which is read-only.
#[must_use]
pub fn exports() -> ExportTable {
    let name = |text: &str| ExportName::new(text).expect("a short name without NUL");
    let mut table = ExportTable::default();
    for (id, text, read_only) in [(1, "disk", false), (2, "still", true)] {
        let export = Export {
            id: ExportId(id),
            name: name(text),
            description: name("fuzzed"),
            size_bytes: 1 << 20,
            min_block_bytes: 512,
            read_only,
            rotational: read_only,
            fast_zero: !read_only,
        };
        table.add(export).expect("the export is well-formed");
    }
    table
}

/// The bytes of a client that opens `export`: with `structured` replies and all contexts, or
/// with neither.
#[must_use]
pub fn opening(export: &str, structured: bool) -> Vec<u8> {
    let flags = wire::CLIENT_FIXED_NEWSTYLE | wire::CLIENT_NO_ZEROES;
    let mut bytes = flags.to_be_bytes().to_vec();
    let mut push = |option: u32, data: &[u8]| {
        bytes.extend(wire::OPTION_MAGIC.to_be_bytes());
        bytes.extend(option.to_be_bytes());
        bytes.extend((data.len() as u32).to_be_bytes());
        bytes.extend_from_slice(data);
    };
    let string = |text: &str| {
        let mut data = (text.len() as u32).to_be_bytes().to_vec();
        data.extend_from_slice(text.as_bytes());
        data
    };
    if structured {
        push(option::STRUCTURED_REPLY, &[]);
        let queries = [string("base:allocation"), string("forebay:state")].concat();
        let data = [string(export), 2_u32.to_be_bytes().to_vec(), queries].concat();
        push(option::SET_META_CONTEXT, &data);
    }
    push(option::GO, &[string(export), vec![0, 0]].concat());
    bytes
}

impl Witness for Transcript {
    const KEEPS_OUTPUT: bool = true;

    fn asked<'a>(&mut self, request: &Request, data: impl Iterator<Item = &'a [u8]>) {
        let sum = data.flatten().fold(0_u64, |sum, &byte| {
            sum.wrapping_mul(31).wrapping_add(u64::from(byte))
        });
        let Request {
            command,
            offset_bytes,
            len_bytes,
            ..
        } = *request;
        self.requests.push((command, offset_bytes, len_bytes, sum));
    }

    fn carried_out(&mut self, _: Command) {}

    fn sent(&mut self, _: usize) {}

    fn keep(&mut self, piece: &[u8]) {
        self.output.extend_from_slice(piece);
    }
}

/// Numbers below the argument, from this seed (xorshift64, Marsaglia 2003).
fn dice(seed: u64) -> impl FnMut(usize) -> usize {
    let mut random = seed | 1;
    move |sides| {
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        (random % sides as u64) as usize
    }
}

/// Holds a conversation that `talk` leads; it says at last whether the client went away abruptly.
fn hold<R: FnMut(usize) -> usize>(
    lazy: bool,
    roll: R,
    talk: impl FnOnce(&mut Driver<'_, HeapMemory, Transcript, R>) -> bool,
) -> Transcript {
    let settings = Settings {
        limits: small_limits(),
        tls: TlsPolicy::Off,
    };
    let (mut memory, exports) = (HeapMemory::default(), exports());
    let transcript = Transcript {
        output: Vec::new(),
        requests: Vec::new(),
        reason: None,
    };
    let mut driver = Driver::new(settings, &mut memory, &exports, lazy, roll, transcript);
    let abrupt = talk(&mut driver);
    let (reason, transcript) = driver.finish(abrupt);
    Transcript {
        reason,
        ..transcript
    }
}

/// Holds a conversation in which the server answers at once; the client's bytes arrive cut as
/// `split` says (given what is left, it returns how much comes next, from 1). The outcome must
/// not depend on it.
pub fn converse(input: &[u8], mut split: impl FnMut(usize) -> usize) -> Transcript {
    hold(false, dice(1), |driver| {
        let mut rest = input;
        while !rest.is_empty() {
            let (now, later) = rest.split_at(split(rest.len()).clamp(1, rest.len()));
            driver.feed(now);
            rest = later;
        }
        false
    })
}

/// Feeds arbitrary bytes to a connection. The first byte chooses how the client begins, the
/// second how bytes are cut and how slowly they are answered; the rest is what it says.
///
/// # Panics
/// If the connection breaks one of its promises.
pub fn fuzz(input: &[u8]) {
    let [how, seed, said @ ..] = input else {
        return;
    };
    let mut bytes = match how % 5 {
        0 => Vec::new(),
        1 => opening("disk", true),
        2 => opening("disk", false),
        3 => opening("still", true),
        _ => opening("", true),
    };
    bytes.extend_from_slice(said);

    let whole = converse(&bytes, |left_bytes| left_bytes);
    let step_bytes = usize::from(*seed % 37) + 1;
    let cut = converse(&bytes, |_| step_bytes);
    assert_eq!(whole, cut, "how bytes are cut does not change the outcome");

    hold(true, dice(u64::from(*seed) * 7919), |driver| {
        let mut rest = bytes.as_slice();
        while !rest.is_empty() {
            let now_bytes = 1 + driver.roll(rest.len());
            let (now, later) = rest.split_at(now_bytes);
            driver.feed(now);
            rest = later;
        }
        driver.roll(2) == 0
    });
}
