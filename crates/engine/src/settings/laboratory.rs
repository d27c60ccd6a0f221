//! Settings that the laboratory varies to see the gain of each part of replacement; no option
//! reaches them.

/// Parts of replacement, there or not, and when `adaptive` changes its variant
/// (docs/decisions/0025-replacement-is-chosen-on-traces-left-out.md).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Laboratory {
    /// Evicted blocks are read where they were (docs/decisions/0016).
    pub victim_reads: bool,
    /// Renewals go below the open segment (docs/decisions/0015).
    pub renewals_below: bool,
    /// `adaptive` may be steady.
    pub steady: bool,
    /// `adaptive` may be eager.
    pub eager: bool,
    /// Origins that may answer hits answer each of several clean blocks, sooner or not.
    pub each_hit_from_origin: bool,
    /// The scrub goes on although hits are compared with their checksums.
    pub scrub: bool,
    /// The number of misses that another variant has to save before `adaptive` takes it.
    pub margin_misses: u32,
}

impl Default for Laboratory {
    fn default() -> Laboratory {
        Laboratory {
            victim_reads: true,
            renewals_below: true,
            steady: true,
            eager: true,
            each_hit_from_origin: false,
            scrub: false,
            margin_misses: 16,
        }
    }
}
