//! A client that mostly says what the protocol allows, and then is damaged.

use forebay_frontend::nbd::fuzz::opening;
use forebay_frontend::nbd::wire::{self, RequestHeader, option};
use forebay_fuzz::SplitMix64;
use forebay_fuzz::mutate::{mutate, number, pick};

use super::hello;

/// Words that are put anywhere: magic numbers, names, contexts.
const WORDS: [&[u8]; 8] = [
    b"IHAVEOPT",
    &wire::REQUEST_MAGIC.to_be_bytes(),
    b"\0\0\0\x04disk",
    b"\0\0\0\x05still",
    b"base:allocation",
    b"forebay:",
    &[0xff; 8],
    &[0; 28],
];
const OPTIONS: [u32; 12] = [
    option::EXPORT_NAME,
    option::ABORT,
    option::LIST,
    4,
    option::STARTTLS,
    option::INFO,
    option::GO,
    option::STRUCTURED_REPLY,
    option::LIST_META_CONTEXT,
    option::SET_META_CONTEXT,
    option::EXTENDED_HEADERS,
    0x7fff_ffff,
];
const NAMES: [&str; 5] = ["disk", "still", "", "none", "di\0sk"];
const QUERIES: [&str; 6] = [
    "base:allocation",
    "base:",
    "forebay:state",
    "forebay:",
    "other:x",
    "",
];

pub(crate) struct Client {
    /// Valid beginnings, of all bytes up to the first request.
    openings: Vec<Vec<u8>>,
    hello: Vec<u8>,
}

impl Client {
    pub(crate) fn new() -> Client {
        let openings = [
            ("disk", true),
            ("disk", true),
            ("disk", false),
            ("still", true),
        ];
        Client {
            openings: openings
                .map(|(name, structured)| opening(name, structured))
                .to_vec(),
            hello: hello::client_hello(),
        }
    }

    /// Options or an opening, requests, and damage to a half of the conversations.
    pub(crate) fn converse(&self, random: &mut SplitMix64, into: &mut Vec<u8>) {
        match random.below(8) {
            0 => options(random, into, 6),
            1 => {
                options(random, into, 2);
                into.extend_from_slice(&self.opening(random)[4..]);
            }
            _ => into.extend_from_slice(self.opening(random)),
        }
        let opened_bytes = into.len();
        for _ in 0..random.below(16) {
            request(random, into);
        }
        if random.below(2) == 0 {
            return;
        }
        // Behind the opening more often than in it, so that what follows is reached.
        let spare_bytes = if random.below(4) == 0 {
            1
        } else {
            opened_bytes
        };
        let mut rest = into.split_off(spare_bytes.min(into.len()));
        for _ in 0..1 + random.below(3) {
            mutate(&mut rest, &WORDS, random);
        }
        into.append(&mut rest);
    }

    fn opening(&self, random: &mut SplitMix64) -> &[u8] {
        &self.openings[random.below(self.openings.len() as u64) as usize]
    }

    /// STARTTLS, a client hello that is damaged more often than not, and bytes behind it.
    pub(crate) fn begin_tls(&self, random: &mut SplitMix64, into: &mut Vec<u8>) {
        into.extend(3_u32.to_be_bytes());
        push(option::STARTTLS, &[], into);
        let at = into.len();
        into.extend_from_slice(&self.hello);
        let mut rest = into.split_off(at);
        for _ in 0..random.below(4) {
            mutate(&mut rest, &[], random);
        }
        if random.below(2) == 0 {
            hello::fix_lengths(&mut rest);
        }
        into.append(&mut rest);
        if random.below(2) == 0 {
            into.extend([22, 3, 3, 0, 4, 1, 2, 3, 4]);
        }
    }
}

fn push(option: u32, data: &[u8], into: &mut Vec<u8>) {
    into.extend(wire::OPTION_MAGIC.to_be_bytes());
    into.extend(option.to_be_bytes());
    into.extend((data.len() as u32).to_be_bytes());
    into.extend_from_slice(data);
}

fn string(text: &str, into: &mut Vec<u8>) {
    into.extend((text.len() as u32).to_be_bytes());
    into.extend_from_slice(text.as_bytes());
}

/// The client's flags and some options with data that mostly is theirs.
fn options(random: &mut SplitMix64, into: &mut Vec<u8>, most: u64) {
    into.extend([3_u32, 3, 3, 1, 0, 2][random.below(6) as usize].to_be_bytes());
    let mut data = Vec::new();
    for _ in 0..random.below(most + 1) {
        data.clear();
        let option = pick(random, &OPTIONS);
        let name = pick(random, &NAMES);
        match option {
            option::EXPORT_NAME => data.extend_from_slice(name.as_bytes()),
            option::INFO | option::GO => {
                string(name, &mut data);
                let infos = random.below(4) as u16;
                data.extend(infos.to_be_bytes());
                (0..infos).for_each(|info| data.extend(info.to_be_bytes()));
            }
            option::LIST_META_CONTEXT | option::SET_META_CONTEXT => {
                string(name, &mut data);
                let queries = random.below(4) as u32;
                data.extend(queries.to_be_bytes());
                (0..queries).for_each(|_| string(pick(random, &QUERIES), &mut data));
            }
            _ => {}
        }
        push(option, &data, into);
    }
}

/// A request that is mostly sensible, with its payload.
fn request(random: &mut SplitMix64, into: &mut Vec<u8>) {
    let command = pick(random, &[0, 0, 0, 1, 1, 1, 3, 4, 5, 6, 7, 7, 8, 99]);
    let command = match random.below(64) {
        0 => wire::command::DISC,
        _ => command,
    };
    let offset_bytes = match random.below(16) {
        _ if command == wire::command::FLUSH && random.below(8) > 0 => 0,
        0 => number(random, 1 << 20),
        1 => (1 << 20) - 512,
        2 => 1 << 20,
        _ => random.below(1 << 11) * 512,
    };
    let len_bytes = match random.below(64) {
        _ if command == wire::command::FLUSH && offset_bytes == 0 => 0,
        0 => number(random, 65_536) as u32,
        1 => 65_536,
        2 => 66_048,
        3 => 8192,
        4 => 1 << 20,
        5 => 0,
        _ => 512 * (1 + random.below(8) as u32),
    };
    let header = RequestHeader {
        flags: match random.below(4) {
            0 => pick(random, &[1, 2, 4, 8, 16, 0x8000]),
            _ => 0,
        },
        command,
        cookie: random.bits(),
        offset_bytes,
        len_bytes,
    };
    into.extend_from_slice(&header.encode());
    if command == wire::command::WRITE && len_bytes <= 1 << 17 {
        into.resize(into.len() + len_bytes as usize, offset_bytes as u8);
    }
}
