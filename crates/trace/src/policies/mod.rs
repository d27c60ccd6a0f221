//! Replacement policies over compact block ids, one file each.
//!
//! Every policy obeys the same rules: a block has size 1, reads and writes count alike, and each
//! miss brings its block in (smq alone may decline).

mod arc;
mod clock;
mod fifo;
mod lfu;
mod lirs;
mod lru;
mod mq;
mod opt;
mod random;
mod s3_fifo;
mod sieve;
mod smq;
mod two_q;
mod w_tinylfu;

use std::fmt;
use std::str::FromStr;

pub(crate) use opt::{Opt, next_uses};

/// The state of a cache of a fixed number of blocks under one policy.
pub(crate) trait Policy {
    /// Uses a block; says whether it was cached.
    fn access(&mut self, block: u32) -> bool;
}

/// A replacement policy.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, serde::Serialize, serde::Deserialize,
)]
#[serde(rename_all = "kebab-case")]
pub enum PolicyKind {
    /// S3-FIFO (Yang et al. 2023).
    S3Fifo,
    /// Least recently used.
    Lru,
    /// First in, first out.
    Fifo,
    /// Random replacement.
    Random,
    /// Least frequently used.
    Lfu,
    /// CLOCK, one bit (Corbató 1968).
    Clock,
    /// Multi-queue (Zhou, Philbin, Li 2001).
    Mq,
    /// After dm-cache's stochastic multi-queue.
    Smq,
    /// 2Q (Johnson, Shasha 1994).
    #[serde(rename = "2q")]
    TwoQ,
    /// ARC (Megiddo, Modha 2003).
    Arc,
    /// LIRS (Jiang, Zhang 2002).
    Lirs,
    /// SIEVE (Zhang et al. 2024).
    Sieve,
    /// W-TinyLFU (Einziger, Friedman, Manes 2017).
    #[serde(rename = "w-tinylfu")]
    WTinyLfu,
    /// The unreachable optimum (Belady 1966).
    Opt,
}

impl PolicyKind {
    /// All of them, in the order in which reports list them.
    pub const ALL: [PolicyKind; 14] = [
        PolicyKind::S3Fifo,
        PolicyKind::Lru,
        PolicyKind::Fifo,
        PolicyKind::Random,
        PolicyKind::Lfu,
        PolicyKind::Clock,
        PolicyKind::Mq,
        PolicyKind::Smq,
        PolicyKind::TwoQ,
        PolicyKind::Arc,
        PolicyKind::Lirs,
        PolicyKind::Sieve,
        PolicyKind::WTinyLfu,
        PolicyKind::Opt,
    ];

    /// The name that [`PolicyKind::from_str`] reads.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            PolicyKind::S3Fifo => "s3-fifo",
            PolicyKind::Lru => "lru",
            PolicyKind::Fifo => "fifo",
            PolicyKind::Random => "random",
            PolicyKind::Lfu => "lfu",
            PolicyKind::Clock => "clock",
            PolicyKind::Mq => "mq",
            PolicyKind::Smq => "smq",
            PolicyKind::TwoQ => "2q",
            PolicyKind::Arc => "arc",
            PolicyKind::Lirs => "lirs",
            PolicyKind::Sieve => "sieve",
            PolicyKind::WTinyLfu => "w-tinylfu",
            PolicyKind::Opt => "opt",
        }
    }

    /// The names of all, for messages.
    #[must_use]
    pub fn names() -> String {
        PolicyKind::ALL.map(PolicyKind::name).join(", ")
    }
}

impl fmt::Display for PolicyKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for PolicyKind {
    type Err = String;

    fn from_str(text: &str) -> Result<PolicyKind, String> {
        PolicyKind::ALL
            .into_iter()
            .find(|policy| policy.name() == text)
            .ok_or_else(|| format!("`{text}` is no policy; known: {}", PolicyKind::names()))
    }
}

/// Work with the state of a policy, whichever it is: each gets its own compiled copy.
pub(crate) trait Visit {
    type Result;
    fn run<P: Policy>(self, policy: P) -> Self::Result;
}

/// Makes a cache of `capacity` blocks, at least 1, for ids below `footprint`, and runs the visitor
/// with it. `next` is [`next_uses`] of the accesses to come; only OPT looks at it.
pub(crate) fn with<V: Visit>(
    kind: PolicyKind,
    capacity: usize,
    footprint: usize,
    next: &[u32],
    seed: u64,
    visitor: V,
) -> V::Result {
    // A cache beyond the footprint never evicts: nothing may be sized by a number that a user
    // typed.
    let capacity = capacity.clamp(1, footprint.max(1));
    match kind {
        PolicyKind::S3Fifo => visitor.run(s3_fifo::S3Fifo::new(capacity, footprint)),
        PolicyKind::Lru => visitor.run(lru::Lru::new(capacity, footprint)),
        PolicyKind::Fifo => visitor.run(fifo::Fifo::new(capacity, footprint)),
        PolicyKind::Random => {
            visitor.run(random::RandomReplacement::new(capacity, footprint, seed))
        }
        PolicyKind::Lfu => visitor.run(lfu::Lfu::new(capacity, footprint)),
        PolicyKind::Clock => visitor.run(clock::Clock::new(capacity, footprint)),
        PolicyKind::Mq => visitor.run(mq::Mq::new(capacity, footprint)),
        PolicyKind::Smq => visitor.run(smq::Smq::new(capacity, footprint)),
        PolicyKind::TwoQ => visitor.run(two_q::TwoQ::new(capacity, footprint)),
        PolicyKind::Arc => visitor.run(arc::Arc::new(capacity, footprint)),
        PolicyKind::Lirs => visitor.run(lirs::Lirs::new(capacity, footprint)),
        PolicyKind::Sieve => visitor.run(sieve::Sieve::new(capacity, footprint)),
        PolicyKind::WTinyLfu => visitor.run(w_tinylfu::WTinyLfu::new(capacity, footprint)),
        PolicyKind::Opt => visitor.run(Opt::new(capacity, footprint, next)),
    }
}
