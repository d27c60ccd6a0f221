//! Cache devices that somebody changed on purpose, with checksums that are right: whatever they
//! say, they are refused or served, and nothing panics or hangs. Devices that rotted: what is read
//! is right, or an error, or the damage was reported.
//!
//! `FORGED=FROM..TO` runs other seeds, `cargo test --release` for many.

mod common;
#[path = "forged/mutate.rs"]
#[allow(unreachable_pub, reason = "is also used by the tests of the binary")]
mod mutate;
#[path = "forged/served.rs"]
#[allow(unreachable_pub, reason = "a module of the test")]
mod served;

use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};

use forebay_engine::{AttachError, RecoveryError};
use mutate::Random;
use served::{BLOCKS, Image, Refusal, Seen, Served, contents, image};

fn images() -> Vec<Image> {
    let mut images = Vec::new();
    for shards in [1, 3] {
        for devices in [1, 2] {
            for stopped in [false, true] {
                images.push(image(shards, devices, stopped));
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

/// What became of an image.
fn run(image: &Image, seed: u64) -> (String, Result<&'static str, String>) {
    let mut random = Random(seed);
    let mut devices = image.devices.clone();
    let what = mutate::forge(&mut devices, &mut random);
    if is_huge(&devices) {
        return (what, Ok("huge"));
    }
    let rings = image.rings.as_deref().filter(|_| seed.is_multiple_of(2));
    let accept_damage = random.below(2) == 0;
    let origin = image.origin.clone();
    let result = catch_unwind(AssertUnwindSafe(|| {
        match Served::attach(devices, origin, rings, accept_damage) {
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
        }
    }));
    let result = result.map_err(|panic| {
        let text = panic.downcast_ref::<String>().cloned();
        let text = text.or_else(|| panic.downcast_ref::<&str>().map(|text| (*text).to_owned()));
        text.unwrap_or_default()
    });
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
#[ignore = "shows what the next commit mends"]
fn what_is_forged_never_panics() {
    let images = images();
    let mut became: BTreeMap<&str, u64> = BTreeMap::new();
    let mut failures: BTreeMap<String, (u64, String)> = BTreeMap::new();
    let mut failed = 0;
    let quiet = std::env::var("FORGED_LOUD").is_err();
    if quiet {
        // Where it was is in the report.
        std::panic::set_hook(Box::new(|info| {
            let at = info.location().map(ToString::to_string);
            LAST.with(|last| *last.borrow_mut() = at.unwrap_or_default());
        }));
    }
    for seed in seeds(0..400) {
        let image = &images[seed as usize % images.len()];
        let (what, result) = run(image, seed);
        match result {
            Ok(end) => *became.entry(end).or_default() += 1,
            Err(text) => {
                failed += 1;
                let at = LAST.with(|last| last.borrow().clone());
                failures
                    .entry(at)
                    .or_insert((seed, format!("{}: {what}: {text}", image.name)));
            }
        }
    }
    if quiet {
        let _ = std::panic::take_hook();
    }
    println!("{became:?}");
    assert!(
        failures.is_empty(),
        "{failed} panics, the first of each place: {failures:#?}"
    );
}

thread_local! {
    static LAST: std::cell::RefCell<String> = const { std::cell::RefCell::new(String::new()) };
}

/// Whether rot may be served as an older version: the last headers, which nothing vouches for, of
/// a cache that was not stopped in order.
fn older(image: &Image, block: u64, data: &[u8]) -> bool {
    let named = u64::from_le_bytes(data[..8].try_into().unwrap());
    let version = u64::from_le_bytes(data[8..16].try_into().unwrap()) as u32;
    let is_a_version =
        data == contents(block, 0) || (named == block && data == contents(block, version));
    !image.stopped && is_a_version
}

#[test]
fn what_rotted_is_right_or_an_error_or_damage() {
    let images = images();
    let mut became: BTreeMap<&str, u64> = BTreeMap::new();
    for seed in seeds(0..400) {
        let image = &images[seed as usize % images.len()];
        let mut random = Random(seed ^ 0xbad);
        let mut devices = image.devices.clone();
        let what = mutate::rot(&mut devices, &mut random);
        let rings = image.rings.as_deref().filter(|_| seed.is_multiple_of(2));
        let end = match Served::attach(devices, image.origin.clone(), rings, false) {
            Err(_) => "refused",
            Ok(mut served) => {
                let mut end = "right";
                for block in 0..BLOCKS {
                    match served.read(block) {
                        Seen::Failed if end == "right" => end = "an error",
                        Seen::Failed => {}
                        Seen::Data(data) => {
                            let right = data == contents(block, image.versions[block as usize]);
                            assert!(
                                right || older(image, block, &data),
                                "{}: seed {seed}: {what}: block {block} is wrong",
                                image.name
                            );
                            if !right {
                                end = "older";
                            }
                        }
                    }
                }
                end
            }
        };
        *became.entry(end).or_default() += 1;
    }
    println!("{became:?}");
}
