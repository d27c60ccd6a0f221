//! Random numbers that are the same on every machine: everything a run does follows from them.

pub use forebay_random::mix;
use forebay_random::{GOLDEN, SplitMix64};

/// A sequence and the draws that a run makes from it.
#[derive(Clone, Debug)]
pub struct Rng(SplitMix64);

impl Rng {
    /// The sequence of this seed.
    #[must_use]
    pub fn new(seed: u64) -> Rng {
        Rng(SplitMix64::new(mix(seed ^ 0x5f0e_bea5_0000_0001)))
    }

    /// The sequence for one purpose of a seed. A change in how much one purpose draws leaves the
    /// others as they were.
    #[must_use]
    pub fn of(seed: u64, purpose: u64) -> Rng {
        Rng(SplitMix64::new(mix(
            mix(seed) ^ purpose.wrapping_mul(GOLDEN)
        )))
    }

    /// 64 random bits.
    #[inline]
    pub fn bits(&mut self) -> u64 {
        self.0.bits()
    }

    /// A number below `end`, which is not 0.
    #[inline]
    pub fn below(&mut self, end: u64) -> u64 {
        self.0.below(end)
    }

    /// A number from `low` to `high`, both included.
    #[inline]
    pub fn between(&mut self, low: u64, high: u64) -> u64 {
        low + self.below(high - low + 1)
    }

    /// True `percent` times in a hundred.
    #[inline]
    pub fn percent(&mut self, percent: u64) -> bool {
        self.below(100) < percent
    }

    /// True `count` times in ten thousand.
    #[inline]
    pub fn in_10_000(&mut self, count: u32) -> bool {
        count > 0 && self.below(10_000) < u64::from(count)
    }

    /// A random element of several.
    pub fn pick<T: Copy>(&mut self, from: &[T]) -> T {
        from[self.below(from.len() as u64) as usize]
    }
}
