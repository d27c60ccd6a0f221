//! The engine of Forebay: every decision of the cache, and no I/O.
//!
//! [`Engine`] is one shard as a state machine: requests go in with [`Engine::submit`], the ends of
//! device operations with [`Engine::complete`]; answers and device operations come out. Time,
//! memory and I/O are arguments, so that the daemon and the simulator drive the same code.
//! [`create`], [`attach`] and [`inspect`] are the control plane.
//!
//! The invariants I1 to I29 are in docs/INVARIANTS.md, and cited where they are enforced.
#![forbid(unsafe_code)]

mod ahead;
mod buffer;
mod bypass;
pub mod checksum;
mod engine;
pub mod format;
mod ids;
mod interface;
mod jobs;
mod map;
mod origin;
mod parts;
mod paths;
pub mod planted;
mod policy;
mod recovery;
mod requests;
#[cfg(test)]
mod rig;
mod scrub;
mod settings;
pub mod shm_journal;
mod slab;
mod space;
mod spare;
mod stats;
mod storage;
mod store;
mod unsaved;

pub use bypass::{BypassReason, Bypassed, Bypasses};
pub use engine::MAX_RANGE_BYTES;
pub use engine::control::DirtyBlock;
pub use format::checkpoint::CheckpointHead;
pub use format::{
    BlockKey, CacheDevice, CacheId, DATA_OFFSET_BYTES, Extent, Extents, Geometry, GeometryError,
    MIN_SEGMENTS, Stream, Superblock, SuperblockError, Uncuttable, VolumeRecord, VolumeState,
};
pub use interface::*;
pub use parts::Engine;
pub use paths::write::sums_later::CHECKSUMMED_LATER_BYTES;
pub use recovery::attach::{
    AttachError, AttachOptions, Attached, RecoveryReport, Surviving, attach, attach_promised,
    create, inspect,
};
pub use recovery::joined::{Identified, IdentifyError, Joined, identify, identify_those_given};
pub use recovery::{Recovered, RecoveryError, ShardReport};
pub use settings::laboratory::Laboratory;
pub use settings::replacement::Replacement;
pub use settings::volume::{MOST_KEPT_PERCENT, VolumeSettings};
pub use settings::{Admission, Commit, FEWER_LONG_RUNS, Mode, Settings, Verify, WritebackPolicy};
pub use slab::Slots;
pub use stats::{Histogram, Stats};
pub use store::checkpoint::{CHECKPOINT_LEAST_SLOTS, Checkpoint};
pub use store::device_times::{DeviceTimes, Transfer, TransferTimes};
pub use store::failed::{Promise, Unsaved};
pub use store::stripe::Stripe;
pub use store::volumes::VolumeConfig;
