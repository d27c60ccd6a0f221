//! Weights over cache sizes, in bounded memory.

/// Buckets for each power of two: sizes are told apart to 1/128 of themselves.
const STEPS: u64 = 128;
const BUCKETS: usize = (64 - 7 + 1) * STEPS as usize;

/// Weights by the size of the cache that they need.
#[derive(Clone, Debug)]
pub(crate) struct Histogram {
    weights: Box<[f64]>,
}

impl Default for Histogram {
    fn default() -> Histogram {
        Histogram {
            weights: vec![0.0; BUCKETS].into(),
        }
    }
}

fn bucket(size: u64) -> usize {
    if size < STEPS {
        return size as usize;
    }
    let shift = u64::from(size.ilog2()) - 7;
    ((shift + 1) * STEPS + ((size >> shift) - STEPS)) as usize
}

/// The first size behind a bucket.
fn end(bucket: usize) -> f64 {
    let (power, step) = (bucket as u64 / STEPS, bucket as u64 % STEPS);
    match power {
        0 => (step + 1) as f64,
        _ => (STEPS + step + 1) as f64 * ((power - 1) as f64).exp2(),
    }
}

impl Histogram {
    pub(crate) fn add(&mut self, size: u64, weight: f64) {
        self.weights[bucket(size)] += weight;
    }

    pub(crate) fn total(&self) -> f64 {
        self.weights.iter().sum()
    }

    /// The weight that is content with `size`; within a bucket, in proportion.
    pub(crate) fn within(&self, size: u64) -> f64 {
        let at = bucket(size);
        let before: f64 = self.weights[..at].iter().sum();
        let begin = if at == 0 { 0.0 } else { end(at - 1) };
        let part = (size as f64 + 1.0 - begin) / (end(at) - begin);
        before + self.weights[at] * part.clamp(0.0, 1.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buckets_follow_each_other_up_to_the_largest_size() {
        let mut last = 0;
        for power in 0..64 {
            for size in [
                1u64 << power,
                (1 << power) + (1 << power) / 3,
                (1u64 << power) + ((1 << power) - 1),
            ] {
                let at = bucket(size);
                assert!(at >= last && at < BUCKETS, "{size}");
                assert!(
                    size as f64 <= end(at),
                    "{size} in {at}, which ends at {}",
                    end(at)
                );
                last = at;
            }
        }
        assert!((0..STEPS * 2).all(|size| bucket(size) == size as usize));
    }

    #[test]
    fn weights_are_found_within_their_size() {
        let mut histogram = Histogram::default();
        histogram.add(1, 2.0);
        histogram.add(200, 3.0);
        histogram.add(u64::MAX, 4.0);
        let found = [0, 1, 199, 200, 1 << 40].map(|size| histogram.within(size));
        assert_eq!(found, [0.0, 2.0, 2.0, 5.0, 5.0]);
        assert_eq!(histogram.total(), 9.0);
    }
}
