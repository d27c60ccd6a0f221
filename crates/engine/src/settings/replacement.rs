//! Which replacement policies there are.

/// Which blocks stay when room is made.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Replacement {
    /// S3-FIFO, in another variant where that misses clearly less on a sample of the blocks (see
    /// `trials`).
    Adaptive,
    /// S3-FIFO (Yang et al., SOSP 2023) in segments: new blocks are on probation. Blocks hit often
    /// enough there, or back soon after they left, belong to main, where a hit keeps a block for
    /// another round.
    S3Fifo,
    /// Blocks leave in the order in which they came, hit or not.
    Fifo,
    /// CLOCK (Corbató 1968): blocks hit since they were last looked at stay for another round. The
    /// nearest there is to LRU.
    Clock,
    /// 2Q (Johnson, Shasha, VLDB 1994) with CLOCK for its second queue: a quarter is for new
    /// blocks, and only blocks that come back after they left belong to main.
    TwoQ,
}

names! { Replacement, 5 of "replacement policy":
    Adaptive = "adaptive",
    S3Fifo = "s3-fifo",
    Fifo = "fifo",
    Clock = "clock",
    TwoQ = "2q",
}

impl Replacement {
    /// Whether anything clean stays.
    pub(crate) fn retains(self) -> bool {
        self != Replacement::Fifo
    }

    /// True if it remembers blocks that left.
    pub(crate) fn has_ghost(self) -> bool {
        self.is_s3_fifo() || self == Replacement::TwoQ
    }

    pub(crate) fn is_s3_fifo(self) -> bool {
        matches!(self, Replacement::Adaptive | Replacement::S3Fifo)
    }
}
