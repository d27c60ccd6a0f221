//! A volume, as the world knows it.

use forebay_engine::{BlockKey, Mode};

use super::on_origin::OnOrigin;

#[derive(Debug)]
pub(super) struct VolumeState {
    pub(super) record_id: u32,
    pub(super) base: BlockKey,
    pub(super) name: String,
    pub(super) life: Life,
    pub(super) mode: Mode,
    pub(super) sectors: u64,
    /// Sectors at the end that are not served yet.
    pub(super) hidden: u64,
    /// The origin has them now.
    pub(super) grown: bool,
    /// Nothing was dirty at some time since when the mode always wrote through.
    pub(super) through: bool,
    /// Nothing was dirty when last looked.
    pub(super) was_clean: bool,
    /// Failures of the origin's flushes up to this fault have been told.
    pub(super) heard: usize,
    pub(super) on_origin: OnOrigin,
    /// Requests that were not sent since its origin is not there.
    pub(super) missed: u32,
    /// A command forgets it, with its dirty data.
    pub(super) forgotten: bool,
}

impl VolumeState {
    /// A volume before the first attach, by the name it was created with.
    pub(super) fn new(at: usize, sectors: u64) -> VolumeState {
        VolumeState {
            record_id: 0,
            base: BlockKey(0),
            name: super::attach::name(at),
            life: Life::Served,
            mode: Mode::Writeback,
            sectors,
            hidden: 0,
            grown: false,
            through: false,
            was_clean: false,
            heard: 0,
            on_origin: OnOrigin::default(),
            missed: 0,
            forgotten: false,
        }
    }
}

/// Whether clients may ask for anything of a volume.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Life {
    Served,
    /// Whether it is detached is not known: it takes no requests until it is, or the next start.
    Refusing,
    /// Its origin is whole by itself, and used by itself.
    Detached,
    /// Its origin is not there.
    Away,
}
