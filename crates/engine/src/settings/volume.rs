//! Settings that a volume can have in place of its cache's.

use crate::interface::Nanos;
use crate::settings::Admission;

/// The most that all volumes together may have kept for them, in percent of the cache: reclaim must
/// find blocks that may go.
pub const MOST_KEPT_PERCENT: u8 = 50;

/// Settings of one volume; what is `None` is as the cache has it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct VolumeSettings {
    /// Sequential streams longer than this bypass the cache; `Some(None)`: none does.
    pub sequential_cutoff_bytes: Option<Option<u64>>,
    /// Which missed blocks are promoted.
    pub read_admission: Option<Admission>,
    /// Which written blocks are let in.
    pub write_admission: Option<Admission>,
    /// The longest time its data stays dirty.
    pub age_limit: Option<Nanos>,
    /// Clean blocks stay while it has no more than this share of the cache, in percent. All volumes
    /// together: at most [`MOST_KEPT_PERCENT`].
    pub least_share_percent: Option<u8>,
    /// Blocks that are not cached are not let in while it has this share of the cache, in percent.
    pub most_share_percent: Option<u8>,
}
