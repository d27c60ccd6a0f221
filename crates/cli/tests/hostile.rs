//! Cache devices that somebody forged: no command breaks down over them, each says what is wrong
//! and ends with a code that is documented, and nothing they say reaches a terminal raw.
//!
//! `HOSTILE=FROM..TO` runs other seeds.

mod support;

#[path = "../../engine/tests/forged/mutate.rs"]
#[allow(dead_code, unreachable_pub, reason = "also of the engine's tests")]
mod mutate;

use std::process::Output;
use std::time::{Duration, Instant};

use mutate::{Kind, Place, Random};
use support::model::contents;
use support::nbd::Client;
use support::{Daemon, LIMIT, MIB, Scratch, forebay, send_signal, start, text};

const BLOCK: u64 = 4096;
const BLOCKS: u64 = 512;
const DAMAGE: i32 = 5;
/// Time of waiting before a drain is told to end.
const TIMEOUT: Duration = Duration::from_secs(2);

/// A cache with dirty and clean blocks, as a stop in order or a kill left it.
fn image(scratch: &Scratch, stopped: bool) -> Vec<u8> {
    scratch.file("origin", 8 * MIB);
    scratch.file("cache", 12 * MIB);
    let daemon = Daemon::cached(
        scratch,
        "writeback",
        &["--age", "3600", "--dirty-low", "50"],
    );
    let mut client = Client::connect(&scratch.path("nbd")).unwrap();
    for block in 0..BLOCKS {
        client.write(block * BLOCK, &contents(block + 1));
        if block % 50 == 0 {
            client.flush();
        }
        client.read((block + BLOCKS) * BLOCK, BLOCK as u32);
    }
    client.flush();
    drop(client);
    if stopped {
        daemon.stop();
    } else {
        daemon.kill();
    }
    std::fs::read(scratch.path("cache")).unwrap()
}

/// It ended by itself, with a code that is documented and a word about it, and without a control
/// character.
fn ends_well(what: &str, output: &Output) -> i32 {
    let said = text(output);
    let code = output.status.code();
    assert!(matches!(code, Some(0..=5)), "{what}: {code:?}: {said}");
    assert!(!said.contains("panicked"), "{what}: {said}");
    let raw = |c: char| c.is_control() && c != '\n' && c != '\t';
    assert!(!said.contains(raw), "{what}: {said:?}");
    let code = code.unwrap_or_default();
    let told = String::from_utf8_lossy(&output.stderr).contains("forebay: ");
    assert!(code == 0 || told, "{what}: nothing is said for {code}");
    code
}

/// Runs a command. A drain waits for dirty blocks that cannot be read, as it waits for an origin
/// that fails: it ends when it is told to.
fn run_one(scratch: &Scratch, command: &[&str]) -> Output {
    let mut child = start(scratch, command);
    let began = Instant::now();
    let mut told = false;
    while child.try_wait().unwrap().is_none() {
        let after = began.elapsed();
        if command[0] == "drain" && !told && after > TIMEOUT {
            send_signal(child.id(), "-INT");
            told = true;
        }
        if after > LIMIT {
            child.kill().unwrap();
            panic!("{command:?} hangs");
        }
        std::thread::sleep(Duration::from_millis(2));
    }
    child.wait_with_output().unwrap()
}

/// Runs every command that takes a cache over this one, each over its own copy. Returns the codes.
fn run_all(scratch: &Scratch, cache: &[u8], what: &str) -> Vec<i32> {
    let put = || {
        std::fs::write(scratch.path("cache"), cache).unwrap();
        std::fs::copy(scratch.path("saved"), scratch.path("origin")).unwrap();
    };
    put();
    let mut codes = Vec::new();
    for command in [
        &["check", "cache"][..],
        &["check", "cache", "--json"],
        &["dump", "cache"],
        &[
            "drain",
            "--offline",
            "--origin",
            "origin",
            "--cache",
            "cache",
        ],
        &["repair", "cache", "--accept-damage"],
    ] {
        if matches!(command[0], "drain" | "repair") {
            put();
        }
        let output = run_one(scratch, command);
        codes.push(ends_well(&format!("{what}: {command:?}"), &output));
    }
    put();
    match Daemon::try_start(scratch, &["--origin", "origin", "--cache", "cache"]) {
        Err(said) => {
            let known = (1..=5).any(|code| said.starts_with(&format!("exit code Some({code})")));
            assert!(known && !said.contains("panicked"), "{what}: {said}");
        }
        Ok(mut daemon) => {
            let mut client = Client::connect(&scratch.path("nbd")).unwrap();
            for block in (0..BLOCKS).step_by(7) {
                client.begin_read(block * BLOCK, BLOCK as u32).unwrap();
                client.reply().unwrap();
                client.begin_write(block * BLOCK, &contents(7)).unwrap();
                client.reply().unwrap();
            }
            client.begin_flush().unwrap();
            client.reply().unwrap();
            drop(client);
            daemon.signal("-TERM");
            // Blocks that cannot be read keep it from stopping in order.
            assert!(
                matches!(daemon.wait(), Some(0..=5)),
                "{what}: {}",
                daemon.log()
            );
        }
    }
    codes
}

fn seeds() -> std::ops::Range<u64> {
    let Ok(wanted) = std::env::var("HOSTILE") else {
        return 0..24;
    };
    let (from, to) = wanted.split_once("..").expect("HOSTILE=FROM..TO");
    from.parse().expect("a seed")..to.parse().expect("a seed")
}

/// As many segments as no test should find memory for.
fn is_huge(cache: &[u8]) -> bool {
    (0..4).any(|copy| {
        let segments = cache.get(copy * (256 << 10) + 80..);
        let segments = segments.and_then(|from| from.first_chunk());
        segments.is_some_and(|segments| u32::from_le_bytes(*segments) > 1 << 16)
    })
}

#[test]
fn no_command_breaks_down_over_a_forged_cache() {
    let scratch = Scratch::new();
    let images = [true, false].map(|stopped| {
        let image = image(&scratch, stopped);
        scratch.remove_shared_memory();
        image
    });
    std::fs::copy(scratch.path("origin"), scratch.path("saved")).unwrap();
    for seed in seeds() {
        let mut devices = [images[seed as usize % 2].clone()];
        let said = mutate::forge(&mut devices, &mut Random(seed));
        if !is_huge(&devices[0]) {
            run_all(&scratch, &devices[0], &format!("seed {seed}: {said}"));
        }
        scratch.remove_shared_memory();
    }
}

/// Overwrites bytes of every copy of the superblock.
fn forge_superblock(cache: &mut [u8], at: usize, bytes: &[u8]) {
    for copy in 0..4 {
        let start = copy * (256 << 10);
        cache[start + at..start + at + bytes.len()].copy_from_slice(bytes);
        let place = Place {
            device: 0,
            at: start,
            kind: Kind::Superblock,
        };
        mutate::sign(cache, place);
    }
}

#[test]
fn a_superblock_that_none_can_have_is_malformed() {
    let scratch = Scratch::new();
    let image = image(&scratch, true);
    std::fs::copy(scratch.path("origin"), scratch.path("saved")).unwrap();
    for (what, at, bytes) in [
        // Of docs/FORMAT.md: behind the fixed fields and a volume's id and length.
        ("a name that clears the screen", 94, &b"\x1b[2J\x1b"[..]),
        ("a name with a line of its own", 94, b"a\nforeb"),
        ("a sequence", 32, &[0xff; 8]),
        ("an epoch", 40, &[0xff; 4]),
        ("a volume's last block", 166, &[0xff; 8]),
        ("a size", 174, &[0xff; 8]),
        ("a block size of 3", 70, &[3, 0, 0, 0]),
    ] {
        let mut cache = image.clone();
        forge_superblock(&mut cache, at, bytes);
        std::fs::write(scratch.path("cache"), &cache).unwrap();
        let output = forebay(&scratch, &["check", "cache"]);
        assert_eq!(ends_well(what, &output), DAMAGE, "{what}");
        let said = text(&output);
        assert!(
            said.contains("malformed") || said.contains("impossible"),
            "{what}: {said}"
        );
        assert!(
            run_all(&scratch, &cache, what)
                .iter()
                .all(|code| *code == DAMAGE),
            "{what}"
        );
        assert!(
            std::fs::read(scratch.path("cache")).unwrap() == cache,
            "{what}: nothing is written"
        );
    }
}
