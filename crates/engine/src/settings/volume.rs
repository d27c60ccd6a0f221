//! Settings that a volume can have in place of its cache's.

use crate::settings::Admission;

/// Settings of one volume; what is `None` is as the cache has it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct VolumeSettings {
    /// Sequential streams longer than this bypass the cache; `Some(None)`: none does.
    pub sequential_cutoff_bytes: Option<Option<u64>>,
    /// Which missed blocks are promoted.
    pub read_admission: Option<Admission>,
    /// Which written blocks are let in.
    pub write_admission: Option<Admission>,
}
