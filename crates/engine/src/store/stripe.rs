//! The stripe of an origin that is a RAID with parity. A stripe that is written whole needs no
//! reads; of any other the array reads a part first, to find its parity.

/// The stripe of an origin, and where stripes begin on it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stripe {
    len_bytes: u64,
    first_bytes: u64,
}

impl Stripe {
    /// The longest stripe that is heeded, in bytes: a region, which no run is longer than.
    pub const LARGEST_BYTES: u64 = 8 << 20;

    /// Stripes of `len_bytes`, of which one begins at `begins_bytes` of the volume. `None` if the
    /// length is 0 or more than [`Stripe::LARGEST_BYTES`].
    #[must_use]
    pub fn new(len_bytes: u64, begins_bytes: u64) -> Option<Stripe> {
        (1..=Stripe::LARGEST_BYTES)
            .contains(&len_bytes)
            .then(|| Stripe {
                len_bytes,
                first_bytes: begins_bytes % len_bytes,
            })
    }

    /// Its length, in bytes.
    #[must_use]
    pub fn len_bytes(&self) -> u64 {
        self.len_bytes
    }

    /// The first place of a volume at which a stripe begins, in bytes.
    #[must_use]
    pub fn first_bytes(&self) -> u64 {
        self.first_bytes
    }

    /// Whether all its borders are borders of blocks.
    pub(crate) fn fits(&self, block_bytes: u64) -> bool {
        self.len_bytes.is_multiple_of(block_bytes) && self.first_bytes.is_multiple_of(block_bytes)
    }

    /// Where the stripe begins that holds this byte; 0 before the first.
    pub(crate) fn begin(&self, at_bytes: u64) -> u64 {
        match at_bytes.checked_sub(self.first_bytes) {
            Some(within) => at_bytes - within % self.len_bytes,
            None => 0,
        }
    }

    /// Where the stripe ends that holds this byte.
    pub(crate) fn end(&self, at_bytes: u64) -> u64 {
        match at_bytes.checked_sub(self.first_bytes) {
            Some(within) => at_bytes - within % self.len_bytes + self.len_bytes,
            None => self.first_bytes,
        }
    }

    /// Where a run from `start_bytes` on ends that shall have no more than `most_bytes`: at a border,
    /// beyond that if its stripe is longer.
    pub(crate) fn run_end(&self, start_bytes: u64, most_bytes: u64) -> u64 {
        let border = self.begin(start_bytes + most_bytes);
        if border > start_bytes {
            border
        } else {
            self.end(start_bytes)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const KIB: u64 = 1 << 10;

    #[test]
    fn lengths_that_cannot_be_are_none() {
        assert_eq!(Stripe::new(0, 0), None);
        assert_eq!(Stripe::new(Stripe::LARGEST_BYTES + 1, 0), None);
        assert_eq!(Stripe::new(u64::MAX, u64::MAX), None);
        assert!(Stripe::new(Stripe::LARGEST_BYTES, u64::MAX).is_some());
        assert!(Stripe::new(1536 * KIB, 0).is_some_and(|stripe| stripe.fits(4096)));
        assert!(!Stripe::new(1536 * KIB, 512).is_some_and(|stripe| stripe.fits(4096)));
        assert!(!Stripe::new(65_535 * 512 / 8, 0).is_some_and(|stripe| stripe.fits(4096)));
    }

    #[test]
    fn a_run_ends_on_a_border_or_with_its_stripe() {
        let stripe = Stripe::new(1536 * KIB, 512 * KIB).expect("a stripe");
        let end = |start: u64, most: u64| stripe.run_end(start * KIB, most * KIB) / KIB;
        assert_eq!(end(512, 1024), 2048, "its own stripe, whole");
        assert_eq!(end(512, 4096), 3584, "as many whole ones as fit");
        assert_eq!(end(1024, 1024), 2048, "the rest of a stripe");
        assert_eq!(end(1024, 2560), 3584);
        assert_eq!(end(1024, 64), 2048, "no border is that near");
        assert_eq!(end(0, 1024), 512, "what is before the first");
        assert_eq!(end(0, 2048), 2048);
    }

    #[test]
    fn a_byte_is_in_its_stripe() {
        for first in [0, 4096, 512 * KIB] {
            let stripe = Stripe::new(768 * KIB, first).expect("a stripe");
            for at in (0..4096 * KIB).step_by(4096) {
                let (begin, end) = (stripe.begin(at), stripe.end(at));
                assert!(begin <= at && at < end && end - begin <= 768 * KIB);
                assert!(end - begin == 768 * KIB || begin == 0);
            }
        }
    }
}
