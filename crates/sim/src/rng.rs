//! Random numbers that are the same on every machine: everything a run does follows from them.

/// SplitMix64 (Steele, Lea and Flood 2014): one addition and a mix, and any two seeds give
/// unrelated sequences.
#[derive(Clone, Debug)]
pub struct Rng(u64);

impl Rng {
    /// The sequence of this seed.
    #[must_use]
    pub fn new(seed: u64) -> Rng {
        Rng(mix(seed ^ 0x5f0e_bea5_0000_0001))
    }

    /// The sequence for one purpose of a seed. A change in how much one purpose draws leaves the
    /// others as they were.
    #[must_use]
    pub fn of(seed: u64, purpose: u64) -> Rng {
        Rng(mix(mix(seed) ^ purpose.wrapping_mul(0x9e37_79b9_7f4a_7c15)))
    }

    /// 64 random bits.
    #[inline]
    pub fn bits(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        mix(self.0)
    }

    /// A number below `end`, which is not 0.
    #[inline]
    pub fn below(&mut self, end: u64) -> u64 {
        ((u128::from(self.bits()) * u128::from(end)) >> 64) as u64
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

    /// One of several.
    pub fn pick<T: Copy>(&mut self, from: &[T]) -> T {
        from[self.below(from.len() as u64) as usize]
    }
}

/// The mixing step of SplitMix64.
#[inline]
#[must_use]
pub fn mix(mut x: u64) -> u64 {
    x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ (x >> 31)
}
