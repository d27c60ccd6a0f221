//! Places of random loads. A seed gives its places again.

use forebay_random::{SplitMix64, mix};

/// Every number below a bound once, in no order: fio's random jobs hit no place twice.
#[derive(Clone, Debug)]
pub(crate) struct Shuffle {
    bound: u64,
    half_bits: u32,
    seed: u64,
    at: u64,
}

impl Shuffle {
    pub(crate) fn new(bound: u64, seed: u64) -> Shuffle {
        let bits = u64::BITS - bound.max(2).leading_zeros();
        Shuffle {
            bound: bound.max(1),
            half_bits: bits.div_ceil(2),
            seed,
            at: 0,
        }
    }

    /// The next number; from the beginning again after the last.
    pub(crate) fn next(&mut self) -> u64 {
        let mut word = self.at;
        self.at = (self.at + 1) % self.bound;
        // A Feistel network permutes a power of four; words that fall outside are permuted on.
        loop {
            word = self.permute(word);
            if word < self.bound {
                return word;
            }
        }
    }

    fn permute(&self, word: u64) -> u64 {
        let mask = (1 << self.half_bits) - 1;
        let (mut left, mut right) = (word >> self.half_bits, word & mask);
        for round in 0..4u64 {
            let scrambled = mix(right ^ self.seed.wrapping_add(round << 56)) & mask;
            (left, right) = (right, left ^ scrambled);
        }
        left << self.half_bits | right
    }
}

/// Numbers below a bound by Zipf's law, scattered over it, as fio draws them (Gray et al.,
/// SIGMOD 1994).
#[derive(Clone, Debug)]
pub(crate) struct Zipf {
    bound: f64,
    theta: f64,
    zeta: f64,
    eta: f64,
}

impl Zipf {
    pub(crate) fn new(bound: u64, theta: f64) -> Zipf {
        let zeta: f64 = (1..=bound).map(|rank| (rank as f64).powf(-theta)).sum();
        let zeta_of_two = 1.0 + 0.5f64.powf(theta);
        let eta = (1.0 - (2.0 / bound as f64).powf(1.0 - theta)) / (1.0 - zeta_of_two / zeta);
        Zipf {
            bound: bound as f64,
            theta,
            zeta,
            eta,
        }
    }

    pub(crate) fn draw(&self, random: &mut SplitMix64) -> u64 {
        let unit = random.unit();
        let scaled = unit * self.zeta;
        let rank = if scaled < 1.0 {
            0
        } else if scaled < 1.0 + 0.5f64.powf(self.theta) {
            1
        } else {
            let alpha = 1.0 / (1.0 - self.theta);
            (self.bound * (self.eta * unit - self.eta + 1.0).powf(alpha)) as u64
        };
        mix(rank.wrapping_add(1)) % self.bound as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_shuffle_hits_every_number_once() {
        for bound in [1, 2, 100, 4096, 5001] {
            let mut shuffle = Shuffle::new(bound, 7);
            let mut seen: Vec<u64> = (0..bound).map(|_| shuffle.next()).collect();
            seen.sort_unstable();
            assert!(seen.into_iter().eq(0..bound), "{bound}");
        }
    }

    #[test]
    fn zipf_favours_few() {
        let zipf = Zipf::new(100_000, 1.2);
        let mut random = SplitMix64::new(1);
        let mut counts = std::collections::HashMap::new();
        for _ in 0..20_000 {
            *counts.entry(zipf.draw(&mut random)).or_insert(0) += 1;
        }
        let most = counts.values().max().expect("some were drawn");
        assert!(
            (3_000..5_000).contains(most),
            "the first is a fifth: {most}"
        );
        assert!(
            counts.len() > 1_000,
            "and the tail is long: {}",
            counts.len()
        );
    }
}
