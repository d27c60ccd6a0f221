//! Overwrites of any kind over spans around the size of the cache: where copying what is still
//! wanted can cost most.

use forebay_random::SplitMix64;

use super::trace::Trace;
use crate::random::Zipf;

/// A synthetic load.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Overwrites {
    /// Exponent of Zipf's law; `None` for all blocks alike.
    pub theta: Option<f64>,
    /// Writes among a hundred accesses.
    pub write_percent: u64,
    /// The span for each block of the cache, in percent.
    pub span_percent: u64,
}

/// Length of a load, in accesses for each block of its cache.
const ROUNDS: u64 = 12;
/// Spans smaller than the cache are gone through often anyway.
const MOST_SPAN_ROUNDS: u64 = 6;

impl Overwrites {
    /// All that are measured.
    #[must_use]
    pub fn all() -> Vec<Overwrites> {
        let mut all = Vec::new();
        for theta in [None, Some(1.2)] {
            for write_percent in [10, 30, 50, 70, 90] {
                for span_percent in [50, 90, 100, 120, 200, 500] {
                    all.push(Overwrites {
                        theta,
                        write_percent,
                        span_percent,
                    });
                }
            }
        }
        all
    }

    /// The name of the load.
    #[must_use]
    pub fn name(&self) -> String {
        let order = match self.theta {
            None => "uniform".to_owned(),
            Some(theta) => format!("zipf {theta}"),
        };
        format!(
            "{order}, {} % writes, span {}",
            self.write_percent,
            self.span_percent as f64 / 100.0
        )
    }

    /// Its accesses, for a cache of this many blocks: equal each time.
    ///
    /// # Errors
    /// If they are more than a trace can have.
    pub fn trace(&self, cache_blocks: u64) -> Result<Trace, String> {
        let span = (cache_blocks * self.span_percent / 100).max(1);
        let zipf = self.theta.map(|theta| Zipf::new(span, theta));
        let mut random = SplitMix64::new(0x5eed);
        let mut trace = Trace::default();
        let accesses = (cache_blocks * ROUNDS).max(span * MOST_SPAN_ROUNDS);
        for _ in 0..accesses {
            let block = match &zipf {
                Some(zipf) => zipf.draw(&mut random),
                None => random.below(span),
            };
            trace.push(block, random.below(100) < self.write_percent)?;
        }
        Ok(trace)
    }
}
