//! Hostile and damaged conversations by the thousand. `FOREBAY_FUZZ_ROUNDS` sets how many.

use forebay_frontend::nbd::fuzz::{converse, fuzz, opening};
use forebay_frontend::nbd::wire::RequestHeader;
use proptest::prelude::*;

fn rounds(default: u32) -> u32 {
    std::env::var("FOREBAY_FUZZ_ROUNDS")
        .ok()
        .and_then(|text| text.parse().ok())
        .unwrap_or(default)
}

struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    fn below(&mut self, bound: u64) -> u64 {
        self.next() % bound
    }

    fn pick<T: Copy>(&mut self, values: &[T]) -> T {
        values[self.below(values.len() as u64) as usize]
    }
}

/// A request that is mostly sensible, with its payload.
fn request(random: &mut Random) -> Vec<u8> {
    let command = random.pick(&[0_u16, 0, 0, 1, 1, 1, 3, 4, 5, 6, 7, 7, 8, 99, 2]);
    let command = if command == 2 && random.below(10) > 0 {
        0
    } else {
        command
    };
    let header = RequestHeader {
        flags: random.pick(&[0, 0, 0, 1, 2, 4, 8, 16, 0x8000]),
        command,
        cookie: random.next(),
        offset_bytes: random.pick(&[0, 512, 4096, 1 << 19, (1 << 20) - 512, 1 << 20, u64::MAX, 7]),
        len_bytes: random.pick(&[0, 1, 512, 4096, 8192, 65_536, 66_048, 1 << 20]),
    };
    let mut bytes = header.encode().to_vec();
    if command == 1 {
        bytes.extend((0..header.len_bytes).map(|index| index as u8));
    }
    bytes
}

fn mutate(bytes: &mut Vec<u8>, random: &mut Random) {
    for _ in 0..random.below(4) {
        if bytes.is_empty() {
            return;
        }
        let at = random.below(bytes.len() as u64) as usize;
        match random.below(5) {
            0 => bytes[at] = random.next() as u8,
            1 => bytes[at] ^= 1 << random.below(8),
            2 => bytes.truncate(at),
            3 => bytes.insert(at, random.pick(&[0, 0xff, 0x7f, 1])),
            _ => {
                let end = (at + 8).min(bytes.len());
                bytes[at..end].fill(random.pick(&[0, 0xff]));
            }
        }
    }
}

#[test]
fn damaged_conversations_keep_every_promise() {
    for seed in 1..=u64::from(rounds(5_000)) {
        let mut random = Random(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1);
        let how = random.below(5) as u8;
        let mut said = Vec::new();
        if how == 0 {
            said = opening(
                random.pick(&["disk", "still", "", "none"]),
                random.below(2) == 0,
            );
        }
        for _ in 0..random.below(12) {
            said.extend(request(&mut random));
        }
        mutate(&mut said, &mut random);
        let mut input = vec![how, random.next() as u8];
        input.extend(said);
        let caught = std::panic::catch_unwind(|| fuzz(&input));
        assert!(caught.is_ok(), "seed {seed} breaks a promise");
    }
}

#[test]
fn noise_keeps_every_promise() {
    for seed in 1..=u64::from(rounds(5_000)) {
        let mut random = Random(seed.wrapping_mul(0x2545_f491_4f6c_dd1d) | 1);
        let len_bytes = random.below(200);
        let input: Vec<u8> = (0..len_bytes)
            .map(|_| {
                if random.below(2) == 0 {
                    0
                } else {
                    random.next() as u8
                }
            })
            .collect();
        fuzz(&input);
    }
}

proptest! {
    #[test]
    fn cuts_do_not_change_the_outcome(
        structured: bool,
        seed in 1..u64::MAX,
        cuts in prop::collection::vec(1_usize..200, 1..50),
    ) {
        let mut random = Random(seed);
        let mut bytes = opening("disk", structured);
        for _ in 0..random.below(20) {
            bytes.extend(request(&mut random));
        }
        let whole = converse(&bytes, |left_bytes| left_bytes);
        let mut cuts = cuts.iter().cycle();
        let cut = converse(&bytes, |_| *cuts.next().unwrap_or(&1));
        prop_assert_eq!(whole, cut);
    }
}
