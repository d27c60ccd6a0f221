//! Recovery over segments that somebody forged: headers, summaries and entries with checksums that
//! are right, pages in another's place, pages that are gone. The scan ends, with or without damage.
//!
//! An input is the number of an image and pages to put into it: places of four bytes, each with its
//! page.

#[path = "../../engine/tests/common/mod.rs"]
mod common;
#[path = "../../engine/tests/forged/served.rs"]
#[allow(
    dead_code,
    unreachable_pub,
    reason = "is also used by tests of the engine"
)]
mod served;
#[path = "../../engine/tests/forged/structure.rs"]
mod structure;

use common::BOOT;
use forebay_engine::{AttachError, DeviceError, RecoveryError, Storage, Surviving, inspect};
use forebay_fuzz::mutate::{change_number, number, pick};
use forebay_fuzz::{Counting, Outcome, SplitMix64, Surface, run};
use structure::{Field, HEADER_ENTRIES, RECORD, SUMMARY_ENTRIES, sign};

#[global_allocator]
static COUNTING: Counting = Counting;

const PAGE: usize = 4096;
const PATCH: usize = 4 + PAGE;
/// Where the second copy of the superblock is, and where segments begin.
const SECOND_COPY: u64 = 256 << 10;
const DATA: usize = 1 << 20;

/// A structure in an image.
#[derive(Clone, Copy)]
struct Place {
    page: u32,
    is_header: bool,
}

struct Image {
    device: Vec<u8>,
    journals: Option<Vec<Vec<u8>>>,
    places: Vec<Place>,
}

/// A device with pages of an input over those of an image. The first copy of the superblock is
/// enough: the others cannot be read.
struct Patched<'a> {
    device: &'a [u8],
    patches: &'a [u8],
}

impl Storage for Patched<'_> {
    fn size_bytes(&self) -> u64 {
        self.device.len() as u64
    }

    fn read(&mut self, offset_bytes: u64, into: &mut [u8]) -> Result<(), DeviceError> {
        if (SECOND_COPY..DATA as u64).contains(&offset_bytes) {
            return Err(DeviceError::Io);
        }
        let start = offset_bytes as usize;
        let end = start + into.len();
        into.copy_from_slice(self.device.get(start..end).ok_or(DeviceError::Io)?);
        for patch in self.patches.chunks_exact(PATCH) {
            let (page, bytes) = patch.split_at(4);
            let at = page_of(page) as usize * PAGE;
            let (from, to) = (at.max(start), (at + PAGE).min(end));
            if from < to {
                into[from - start..to - start].copy_from_slice(&bytes[from - at..to - at]);
            }
        }
        Ok(())
    }

    fn write(&mut self, _offset_bytes: u64, _from: &[u8]) -> Result<(), DeviceError> {
        panic!("an inspection writes nothing")
    }

    fn flush(&mut self) -> Result<(), DeviceError> {
        Ok(())
    }
}

fn page_of(bytes: &[u8]) -> u32 {
    u32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]])
}

/// Segments of a shard: the fewest that a cache may have, for every input is a scan of all.
const SEGMENTS: u32 = 12;
/// The image of several shards; those before it are of one.
const LARGE: usize = 2;

fn images() -> Vec<Image> {
    let ways = [(1, false), (1, true), (3, false)];
    let image = |(shards, stopped)| {
        let image = served::image(shards, SEGMENTS, 1, stopped);
        let device = image.devices.into_iter().next().expect("a device");
        let pages = device[DATA..].chunks_exact(PAGE).zip(DATA / PAGE..);
        let places = pages.filter_map(|(bytes, page)| {
            let is_header = match &bytes[..4] {
                b"FBRH" => true,
                b"FBSM" => false,
                _ => return None,
            };
            let page = page as u32;
            Some(Place { page, is_header })
        });
        Image {
            places: places.collect(),
            journals: image.journals,
            device,
        }
    };
    ways.into_iter().map(image).collect()
}

struct Segments {
    images: Vec<Image>,
    header_fields: Vec<Field>,
    summary_fields: Vec<Field>,
    cached_blocks: u64,
    dirty_blocks: u64,
    damage: u64,
}

/// Changes a field or an entry of a structure, or puts it in another's place and has it say so.
fn forge(page: &mut [u8], place: Place, image: &Image, fields: &[Field], random: &mut SplitMix64) {
    let from = match place.is_header {
        true => HEADER_ENTRIES,
        false => SUMMARY_ENTRIES,
    };
    match random.below(10) {
        0..4 => {
            let field = pick(random, fields);
            change_number(page, field.at, field.width, random);
        }
        4..6 => change_number(page, from + 4 * random.below(24) as usize, 8, random),
        6 => {
            // A head of an entry, of a kind that there is.
            let head = (number(random, 0) & !7) | random.below(6);
            let at = from + 4 * random.below(24) as usize;
            page[at..at + 8].copy_from_slice(&head.to_le_bytes());
        }
        7 => {
            // Another of its kind, under this one's shard, segment and slot.
            let alike = image
                .places
                .iter()
                .filter(|other| other.is_header == place.is_header);
            let alike: Vec<&Place> = alike.collect();
            let at = pick(random, &alike).page as usize * PAGE;
            let own = [
                page[28], page[29], page[30], page[31], page[32], page[33], page[34], page[35],
            ];
            page.copy_from_slice(&image.device[at..at + PAGE]);
            let kept = if place.is_header { 8 } else { 7 };
            page[28..28 + kept].copy_from_slice(&own[..kept]);
        }
        8 => page.fill(0),
        _ => {
            let at = random.below(PAGE as u64) as usize;
            page[at] ^= 1 << random.below(8);
        }
    }
}

impl Surface for Segments {
    fn name(&self) -> &'static str {
        "segments"
    }

    fn most_bytes(&self) -> usize {
        8 << 20
    }

    fn forge(&mut self, random: &mut SplitMix64, input: &mut Vec<u8>) {
        // A cache of several shards takes the time of several: one input in sixteen.
        let which = match random.below(16) {
            0 => LARGE,
            _ => random.below(LARGE as u64) as usize,
        };
        let image = &self.images[which];
        // Without its crash journals now and then.
        let journals = if random.below(4) == 0 { 0x80 } else { 0 };
        input.push(which as u8 | journals);
        for _ in 0..1 + random.below(4) / 3 * random.below(6) {
            let place = pick(random, &image.places);
            let start = input.len();
            input.extend_from_slice(&place.page.to_le_bytes());
            let at = place.page as usize * PAGE;
            input.extend_from_slice(&image.device[at..at + PAGE]);
            let fields = match place.is_header {
                true => &self.header_fields,
                false => &self.summary_fields,
            };
            let page = &mut input[start + 4..];
            for _ in 0..1 + random.below(2) {
                forge(page, place, image, fields, random);
            }
            // Summaries of these images take a page.
            if random.below(16) > 0 && page.starts_with(b"FB") {
                sign(page, RECORD);
            }
        }
    }

    fn feed(&mut self, input: &[u8]) -> Outcome {
        let Some((&which, patches)) = input.split_first() else {
            return Outcome::Rejected("nothing");
        };
        let image = &self.images[usize::from(which & 0x7f)];
        let journals = image.journals.as_deref().filter(|_| which & 0x80 == 0);
        let surviving: Vec<Surviving<'_>> = journals
            .unwrap_or(&[])
            .iter()
            .map(|journal| Surviving {
                journal: Some(journal),
                buffer: None,
            })
            .collect();
        let device = &image.device;
        match inspect(&mut Patched { device, patches }, &surviving, BOOT) {
            Ok(attached) => {
                self.cached_blocks += attached.report.cached_blocks();
                self.dirty_blocks += attached.report.dirty_blocks();
                let damage = attached.report.damage().len() as u64;
                self.damage += damage;
                match damage {
                    0 => Outcome::Accepted("recovered without damage"),
                    _ => Outcome::Accepted("recovered, with damage that is named"),
                }
            }
            Err(AttachError::Shard { source, .. }) => Outcome::Rejected(match source {
                RecoveryError::Damaged(_) => "damaged",
                _ => "a shard cannot be recovered",
            }),
            Err(_) => Outcome::Rejected("refused"),
        }
    }

    fn reached(&self) -> Vec<(&'static str, u64)> {
        vec![
            ("cached blocks", self.cached_blocks),
            ("dirty blocks", self.dirty_blocks),
            ("damages named", self.damage),
        ]
    }
}

#[test]
fn whatever_segments_say_is_recovered_or_damage() {
    let mut segments = Segments {
        images: images(),
        header_fields: structure::fields_of_header(),
        summary_fields: structure::fields_of_summary(),
        cached_blocks: 0,
        dirty_blocks: 0,
        damage: 0,
    };
    run(&mut segments, 2_000);
}
