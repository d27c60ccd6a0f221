//! Cache devices that somebody changed on purpose, with checksums that are right: whatever they
//! say, they are refused or served, and nothing panics or hangs. Devices that rotted: what is read
//! is right, or an error, or the damage was reported.
//!
//! `FORGED=FROM..TO` runs other seeds, `cargo test --release` for many.

mod common;
#[path = "../../fuzz/src/expected_panics.rs"]
#[allow(unreachable_pub, reason = "is of the fuzzing crate")]
mod expected_panics;
#[path = "forged/mutate.rs"]
#[allow(unreachable_pub, reason = "is also used by the tests of the binary")]
mod mutate;
#[path = "forged/served.rs"]
#[allow(unreachable_pub, reason = "a module of the test")]
mod served;

use std::collections::BTreeMap;

use expected_panics::{caught, keep_quiet};
use forebay_engine::{AttachError, RecoveryError};
use mutate::Random;
use served::{BLOCKS, Image, Refusal, Seen, Served, contents, image};

const SEGMENTS: u32 = 24;

fn images() -> Vec<Image> {
    let mut images = Vec::new();
    for shards in [1, 3] {
        for devices in [1, 2] {
            for stopped in [false, true] {
                images.push(image(shards, SEGMENTS, devices, stopped));
            }
        }
    }
    images
}

/// Everything a daemon may do with a cache.
fn use_it(mut served: Served, random: &mut Random) {
    for block in 0..BLOCKS {
        served.read(block);
    }
    for step in 0..24 {
        let block = random.below(BLOCKS as usize) as u64;
        let _ = served.write(block, 100_000 + step);
    }
    served.flush();
    served.drain();
    // Enough that every segment has its turn.
    for step in 0..300 {
        let block = random.below(BLOCKS as usize) as u64;
        match step % 3 {
            0 => drop(served.read(block)),
            _ => drop(served.write(block, 200_000 + step)),
        }
    }
    served.stop();
}

/// Whether a superblock asks for more memory than a test should use: as much as a large cache
/// takes, which is what a large cache takes.
fn is_huge(devices: &[Vec<u8>]) -> bool {
    mutate::places(devices).iter().any(|place| {
        let bytes = &devices[place.device][place.at..];
        let word = |at: usize| u32::from_le_bytes(bytes[at..at + 4].try_into().unwrap());
        place.kind == mutate::Kind::Superblock && word(80) > 1 << 14
    })
}

/// The fate of an image.
fn run(image: &Image, seed: u64) -> (String, Result<&'static str, (String, String)>) {
    let mut random = Random(seed);
    let mut devices = image.devices.clone();
    let what = mutate::forge(&mut devices, &mut random);
    if is_huge(&devices) {
        return (what, Ok("huge"));
    }
    let journals = image.journals.as_deref().filter(|_| seed.is_multiple_of(2));
    let accept_damage = random.below(2) == 0;
    let origin = image.origin.clone();
    let result = caught(
        || match Served::attach(devices, origin, journals, accept_damage) {
            Ok(served) => {
                use_it(served, &mut random);
                "served"
            }
            Err(Refusal::Attach(AttachError::Shard {
                source: RecoveryError::Damaged(_),
                ..
            })) => "damaged",
            Err(Refusal::NoVolume) => "no volume",
            Err(Refusal::Attach(_) | Refusal::Identify(_)) => "refused",
        },
    );
    (what, result)
}

fn seeds(usual: std::ops::Range<u64>) -> std::ops::Range<u64> {
    let Ok(wanted) = std::env::var("FORGED") else {
        return usual;
    };
    let (from, to) = wanted.split_once("..").expect("FORGED=FROM..TO");
    from.parse().expect("a seed")..to.parse().expect("a seed")
}

#[test]
fn what_is_forged_never_panics() {
    let images = images();
    let mut became: BTreeMap<&str, u64> = BTreeMap::new();
    let mut failures: BTreeMap<String, (u64, String)> = BTreeMap::new();
    let mut failed = 0;
    keep_quiet();
    for seed in seeds(0..400) {
        let image = &images[seed as usize % images.len()];
        let (what, result) = run(image, seed);
        match result {
            Ok(end) => *became.entry(end).or_default() += 1,
            Err((at, text)) => {
                failed += 1;
                failures
                    .entry(at)
                    .or_insert((seed, format!("{}: {what}: {text}", image.name)));
            }
        }
    }
    println!("{became:?}");
    assert!(
        failures.is_empty(),
        "{failed} panics, the first of each place: {failures:#?}"
    );
}

/// The blocks read from a cache that rotted in this many places.
fn judge(image: &Image, block: u64, seen: &Seen) -> &'static str {
    let Seen::Data(data) = seen else {
        return "an error";
    };
    if *data == contents(block, image.versions[block as usize]) {
        return "right";
    }
    let word = |at: usize| u64::from_le_bytes(data[at..at + 8].try_into().unwrap());
    let is_a_version = word(0) == block && *data == contents(block, word(8) as u32);
    if is_a_version || *data == contents(block, 0) {
        return "older";
    }
    "wrong"
}

/// The fate of an image that rotted: the worst of its blocks.
fn rotted(image: &Image, places: usize, seed: u64) -> (String, &'static str) {
    let mut random = Random(seed ^ 0xbad);
    let mut devices = image.devices.clone();
    let said: Vec<String> = (0..places)
        .map(|_| mutate::rot(&mut devices, &mut random))
        .collect();
    let journals = image.journals.as_deref().filter(|_| seed.is_multiple_of(2));
    let worst = match Served::attach(devices, image.origin.clone(), journals, false) {
        Err(_) => "refused",
        Ok(mut served) => {
            let ends = (0..BLOCKS).map(|block| judge(image, block, &served.read(block)));
            let ranks = ["right", "an error", "older", "wrong"];
            let rank = |end: &&str| ranks.iter().position(|known| known == end);
            ends.max_by_key(rank).unwrap_or("right")
        }
    };
    (said.join(", "), worst)
}

/// In one place at a time, and in several. A block is never another's or torn. It is older than
/// what was flushed only where the last header rotted that says how far everything is durable,
/// together with what it vouches for.
#[test]
fn what_rotted_is_right_or_an_error_or_damage() {
    let images = images();
    let mut became: BTreeMap<(usize, &str), u64> = BTreeMap::new();
    for seed in seeds(0..400) {
        let image = &images[seed as usize % images.len()];
        let places = 1 + (seed as usize / images.len()) % 4 / 3 * 3;
        let (what, end) = rotted(image, places, seed);
        assert!(
            end != "wrong" && (end != "older" || places > 1),
            "{}: seed {seed}: {what}: something is {end}",
            image.name
        );
        *became.entry((places, end)).or_default() += 1;
    }
    println!("{became:?}");
}
