//! Weights over cache sizes, in bounded memory.

/// Buckets for each power of two: sizes are told apart to 1/128 of themselves.
const STEPS: u64 = 128;
const BUCKETS: usize = (64 - 7 + 1) * STEPS as usize;

/// How much weight needs a cache of which size.
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
