//! Changes to valid bytes that break things sooner than noise does.

use forebay_random::SplitMix64;

/// Numbers at the edges of types, in 64 bits.
const EXTREMES: [u64; 16] = [
    0,
    1,
    0x7f,
    0x80,
    0xff,
    0x1000,
    0x7fff,
    0xffff,
    0x1_0000,
    0x7fff_ffff,
    0x8000_0000,
    0xffff_ffff,
    0x1_0000_0000,
    0x7fff_ffff_ffff_ffff,
    0x8000_0000_0000_0000,
    u64::MAX,
];
/// The longest stretch that is moved or repeated.
const STRETCH: u64 = 64;

/// An element of a slice that is not empty.
pub fn pick<T: Copy>(random: &mut SplitMix64, values: &[T]) -> T {
    values[random.below(values.len() as u64) as usize]
}

/// A number that is extreme, or near `old`, or any.
pub fn number(random: &mut SplitMix64, old: u64) -> u64 {
    match random.below(8) {
        0..3 => pick(random, &EXTREMES),
        3 => (1u64 << random.below(64)).wrapping_sub(random.below(2)),
        4 | 5 => old.wrapping_add(1 + random.below(4)),
        6 => old.wrapping_sub(1 + random.below(4)),
        _ => random.bits(),
    }
}

/// Gives the little-endian number of `width` bytes at `at` another value.
pub fn change_number(bytes: &mut [u8], at: usize, width: usize, random: &mut SplitMix64) {
    let Some(field) = bytes.get_mut(at..at + width) else {
        return;
    };
    let mut old = [0; 8];
    old[..width].copy_from_slice(field);
    let new = number(random, u64::from_le_bytes(old));
    field.copy_from_slice(&new.to_le_bytes()[..width]);
}

/// Changes bytes once: a bit, a byte, a number in either order, a cut, a stretch that is repeated,
/// moved or taken out, or one of `words` put in.
pub fn mutate(bytes: &mut Vec<u8>, words: &[&[u8]], random: &mut SplitMix64) {
    if bytes.is_empty() {
        bytes.push(random.bits() as u8);
        return;
    }
    let at = random.below(bytes.len() as u64) as usize;
    let end = (at + 1 + random.below(STRETCH) as usize).min(bytes.len());
    match random.below(12) {
        0 | 1 => bytes[at] ^= 1 << random.below(8),
        2 => bytes[at] = random.bits() as u8,
        3 | 4 => {
            let width = 1 << random.below(4);
            let mut number = number(random, 0).to_le_bytes();
            if random.below(2) == 0 {
                number[..width].reverse();
            }
            let end = (at + width).min(bytes.len());
            bytes[at..end].copy_from_slice(&number[..end - at]);
        }
        5 => bytes.truncate(at),
        6 => {
            let stretch = bytes[at..end].to_vec();
            bytes.splice(at..at, stretch);
        }
        7 => {
            let to = random.below(bytes.len() as u64) as usize;
            let len = (end - at).min(bytes.len() - to);
            bytes.copy_within(at..at + len, to);
        }
        8 => drop(bytes.drain(at..end)),
        9 => bytes.insert(at, random.bits() as u8),
        _ if words.is_empty() => bytes[at] = !bytes[at],
        10 => {
            let word = pick(random, words);
            bytes.splice(at..at, word.iter().copied());
        }
        _ => {
            let word = pick(random, words);
            bytes.splice(at..end, word.iter().copied());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_gives_one_sequence_of_changes_whatever_the_bytes() {
        let changed = |seed: u64| {
            let mut random = SplitMix64::new(seed);
            let mut bytes = b"a little text".to_vec();
            for _ in 0..200 {
                mutate(&mut bytes, &[b"word"], &mut random);
                bytes.truncate(4096);
            }
            bytes
        };
        assert_eq!(changed(1), changed(1));
        assert_ne!(changed(1), changed(2));
    }
}
