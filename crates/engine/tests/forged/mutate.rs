//! Changes the structures on cache devices as somebody would who knows the format: a field, an
//! entry, a page in another's place, and then the checksum, so that the change is believed. Or
//! without the checksum, as rot does.
//!
//! It knows docs/FORMAT.md and nothing of the engine, and is also used by the tests of the binary.

#[path = "structure.rs"]
mod structure;

use structure::{HEADER_ENTRIES, SUMMARY_ENTRIES};

/// Bytes of a page.
const PAGE: usize = 4096;
/// Bytes of a copy of the superblock, and how far apart the four are.
const COPY: usize = 64 << 10;
const STRIDE: usize = 256 << 10;
/// Where segments begin.
const DATA: usize = 1 << 20;
/// The kinds of structure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A copy of the superblock.
    Superblock,
    /// The header of a record.
    Header,
    /// A summary of a segment.
    Summary,
}

/// Where a structure is.
#[derive(Clone, Copy, Debug)]
pub struct Place {
    /// On which device.
    pub device: usize,
    /// At which byte of it.
    pub at: usize,
    /// The structures of an image.
    pub kind: Kind,
}

/// A small generator of repeatable numbers (SplitMix64; Steele, Lea, Flood 2014).
pub struct Random(pub u64);

impl Random {
    /// The next number.
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A number below `end`.
    pub fn below(&mut self, end: usize) -> usize {
        (self.next() % end.max(1) as u64) as usize
    }
}

/// Every structure on the devices.
pub fn places(devices: &[Vec<u8>]) -> Vec<Place> {
    let mut places = Vec::new();
    for (device, bytes) in devices.iter().enumerate() {
        for at in (0..DATA).step_by(STRIDE) {
            let copy = bytes.get(at..at + COPY);
            if copy.is_some_and(|copy| copy.starts_with(b"FOREBAY1")) {
                let kind = Kind::Superblock;
                places.push(Place { device, at, kind });
            }
        }
        for at in (DATA..bytes.len().saturating_sub(PAGE - 1)).step_by(PAGE) {
            let kind = match &bytes[at..at + 4] {
                b"FBRH" => Kind::Header,
                b"FBSM" => Kind::Summary,
                _ => continue,
            };
            places.push(Place { device, at, kind });
        }
    }
    places
}

/// Changes something, several times now and then, and has it believed. Says what.
pub fn forge(devices: &mut [Vec<u8>], random: &mut Random) -> String {
    let times = 1 + random.below(4) / 3 * random.below(6);
    let changes: Vec<String> = (0..times).map(|_| forge_one(devices, random)).collect();
    changes.join(", ")
}

fn forge_one(devices: &mut [Vec<u8>], random: &mut Random) -> String {
    let places = places(devices);
    let wanted = match random.below(8) {
        0..3 => Kind::Superblock,
        3..6 => Kind::Summary,
        _ => Kind::Header,
    };
    let of_kind: Vec<Place> = places
        .iter()
        .copied()
        .filter(|place| place.kind == wanted)
        .collect();
    let Some(place) = of_kind.get(random.below(of_kind.len())).copied() else {
        return "nothing".to_owned();
    };
    match (wanted, random.below(10)) {
        (Kind::Superblock, 0) => lose_copies(devices, place, random),
        (Kind::Superblock, 1) => truncate(devices, place, random),
        (Kind::Superblock, at) => forge_superblock(devices, place, at < 7, random),
        (_, 0..5) => forge_entry(devices, place, random),
        (_, 5..8) => {
            let (at, width) = field_of(&devices[place.device][place.at..], place.kind, random);
            let bytes = &mut devices[place.device];
            let said = change(bytes, place.at + at, width, random);
            sign(bytes, place);
            format!(
                "{:?} {}:{:#x}+{at} {said}",
                place.kind, place.device, place.at
            )
        }
        (_, 8) => {
            let from = places[random.below(places.len())];
            move_to(devices, from, place)
        }
        _ => {
            let end = (place.at + PAGE * (1 + random.below(16))).min(devices[place.device].len());
            devices[place.device][place.at..end].fill(0);
            format!("zeroes at {}:{:#x}", place.device, place.at)
        }
    }
}

/// Flips a bit or clears sectors, in one page, and leaves checksums as they are. Says where.
pub fn rot(devices: &mut [Vec<u8>], random: &mut Random) -> String {
    let places = places(devices);
    let place = places[random.below(places.len())];
    let bytes = &mut devices[place.device];
    // In the structure, or in what follows it: its entries, its blocks.
    let page = random.below(3) / 2 * random.below(4);
    let within = match random.below(3) {
        0 => random.below(PAGE),
        _ => random.below(HEADER_ENTRIES + 64),
    };
    let start = (place.at + page * PAGE).min(bytes.len() - PAGE);
    let at = start + within;
    if random.below(3) == 0 {
        let from = at / 512 * 512;
        bytes[from..(from + 512 * (1 + random.below(8))).min(start + PAGE)].fill(0);
        format!("{}:{from:#x} cleared", place.device)
    } else {
        bytes[at] ^= 1 << random.below(8);
        format!("{}:{at:#x} flipped", place.device)
    }
}

/// A field of the superblock, in all copies on all devices or in one.
fn forge_superblock(
    devices: &mut [Vec<u8>],
    place: Place,
    everywhere: bool,
    random: &mut Random,
) -> String {
    let (at, width) = field_of(&devices[place.device][place.at..], Kind::Superblock, random);
    let said = change(&mut devices[place.device], place.at + at, width, random);
    sign(&mut devices[place.device], place);
    let new = devices[place.device][place.at + at..place.at + at + width].to_vec();
    if everywhere {
        for other in places(devices) {
            if other.kind == Kind::Superblock {
                let bytes = &mut devices[other.device];
                bytes[other.at + at..other.at + at + width].copy_from_slice(&new);
                sign(bytes, other);
            }
        }
    }
    let where_ = if everywhere { "all copies" } else { "one copy" };
    format!("Superblock+{at} of {where_} {said}")
}

fn lose_copies(devices: &mut [Vec<u8>], place: Place, random: &mut Random) -> String {
    for copy in 0..4 {
        if random.below(2) == 0 {
            let at = copy * STRIDE;
            if let Some(bytes) = devices[place.device].get_mut(at..at + COPY) {
                bytes.fill(0);
            }
        }
    }
    format!("copies of device {} lost", place.device)
}

fn truncate(devices: &mut [Vec<u8>], place: Place, random: &mut Random) -> String {
    let device = &mut devices[place.device];
    let len = match random.below(4) {
        0 => random.below(device.len()),
        _ => device.len().saturating_sub(random.below(16) * PAGE),
    } / PAGE
        * PAGE;
    device.truncate(len);
    format!("device {} cut to {len} bytes", place.device)
}

/// Puts a page where another is and has it say so.
fn move_to(devices: &mut [Vec<u8>], from: Place, to: Place) -> String {
    let room = devices[to.device].len() - to.at;
    let source = &devices[from.device][from.at..];
    let len = used(source, from.kind).min(source.len()).min(room);
    let moved = source[..len].to_vec();
    let address: Vec<u8> = devices[to.device][to.at + 12..to.at + 36].to_vec();
    let bytes = &mut devices[to.device];
    bytes[to.at..to.at + len].copy_from_slice(&moved);
    if from.kind != Kind::Superblock && from.kind == to.kind {
        bytes[to.at + 12..to.at + 36].copy_from_slice(&address);
    }
    let place = Place {
        kind: from.kind,
        ..to
    };
    sign(bytes, place);
    format!("{from:?} put over {to:?}")
}

/// An entry of a header or summary.
fn forge_entry(devices: &mut [Vec<u8>], place: Place, random: &mut Random) -> String {
    let bytes = &mut devices[place.device];
    let entries = entries(&bytes[place.at..], place.kind);
    let Some(at) = entries.get(random.below(entries.len())).copied() else {
        return "an entry of none".to_owned();
    };
    let at = place.at + at;
    let old = u64::from_le_bytes(bytes[at..at + 8].try_into().expect("eight bytes"));
    let new = match random.below(8) {
        0 => old & !7 | random.next() & 7,
        1 => old ^ 8,
        2 => old & !(0xff << 4) | (random.next() & 0xff) << 4,
        3 => old & !(0xfff << 12) | value(old >> 12, 12, random) << 12,
        4 | 5 => old & 0xff_ffff | value(old >> 24, 40, random) << 24,
        // As another entry of the same list has it.
        6 => {
            let other = place.at + entries[random.below(entries.len())];
            u64::from_le_bytes(bytes[other..other + 8].try_into().expect("eight bytes"))
        }
        _ => random.next(),
    };
    bytes[at..at + 8].copy_from_slice(&new.to_le_bytes());
    sign(bytes, place);
    format!(
        "{:?} {}:{at:#x} entry {old:#x} to {new:#x}",
        place.kind, place.device
    )
}

/// Where the entries of a header or summary are in it.
fn entries(bytes: &[u8], kind: Kind) -> Vec<usize> {
    let (mut at, len) = match kind {
        Kind::Header => (HEADER_ENTRIES, usize::from(word(bytes, 38) as u16)),
        Kind::Summary => (SUMMARY_ENTRIES, word(bytes, 37) as usize),
        Kind::Superblock => return Vec::new(),
    };
    let end = (at + len).min(used(bytes, kind)).min(bytes.len());
    let mut entries = Vec::new();
    while at + 8 <= end {
        entries.push(at);
        let head = word(bytes, at);
        let sums = if head & 7 == 1 {
            (head >> 4 & 0xff) as usize + 1
        } else {
            0
        };
        at += 8 + 4 * sums;
    }
    entries
}

/// The 32 bits at a place.
fn word(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(bytes[at..at + 4].try_into().expect("four bytes"))
}

/// A field of a structure: where, and how many bytes.
fn field_of(bytes: &[u8], kind: Kind, random: &mut Random) -> (usize, usize) {
    let fields = match kind {
        Kind::Header => structure::fields_of_header(),
        Kind::Summary => structure::fields_of_summary(),
        Kind::Superblock => structure::fields_of_superblock(bytes),
    };
    let field = fields[random.below(fields.len())];
    (field.at, field.width)
}

/// Gives a field another value.
fn change(bytes: &mut [u8], at: usize, width: usize, random: &mut Random) -> String {
    let mut old = [0; 8];
    old[..width].copy_from_slice(&bytes[at..at + width]);
    let old = u64::from_le_bytes(old);
    let new = value(old, 8 * width as u32, random);
    bytes[at..at + width].copy_from_slice(&new.to_le_bytes()[..width]);
    format!("{old:#x} to {new:#x}")
}

/// A value of so many bits that breaks things sooner than most.
fn value(old: u64, bits: u32, random: &mut Random) -> u64 {
    let mask = u64::MAX >> (64 - bits);
    mask & match random.below(10) {
        0 => 0,
        1 => u64::MAX,
        2 => u64::MAX - random.below(4) as u64,
        3 => (1u64 << random.below(bits as usize)).wrapping_sub(random.below(2) as u64),
        4..7 => old.wrapping_add(1 + random.below(4) as u64),
        7..9 => old.wrapping_sub(1 + random.below(4) as u64),
        _ => random.next(),
    }
}

/// Bytes that a structure's checksum covers.
fn used(bytes: &[u8], kind: Kind) -> usize {
    match kind {
        Kind::Superblock => COPY,
        Kind::Header => PAGE,
        Kind::Summary => {
            let entries = word(bytes, 37) as usize;
            (SUMMARY_ENTRIES + entries).next_multiple_of(PAGE)
        }
    }
}

/// Makes the checksum of a structure right.
pub fn sign(bytes: &mut [u8], place: Place) {
    let Some(bytes) = bytes.get_mut(place.at..) else {
        return;
    };
    let len = used(bytes, place.kind);
    let Some(whole) = bytes.get_mut(..len) else {
        return;
    };
    let signed = match place.kind {
        Kind::Superblock => structure::SUPERBLOCK,
        Kind::Header | Kind::Summary => structure::RECORD,
    };
    structure::sign(whole, signed);
}
