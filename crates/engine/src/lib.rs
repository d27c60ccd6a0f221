//! The engine of Forebay: every decision of the cache, and no I/O.
//!
//! [`Engine`] is one shard as a state machine: requests go in with [`Engine::submit`], the ends of
//! device operations with [`Engine::complete`]; answers and device operations come out. Time,
//! memory and I/O are arguments, so that the daemon and the simulator drive the same code.
//! [`create`], [`attach`] and [`inspect`] are the control plane.
//!
//! The invariants I1 to I24 are in docs/INVARIANTS.md, and cited where they are enforced.
#![forbid(unsafe_code)]

mod append;
mod append_one;
mod attach;
mod buffer;
mod bypass;
mod departed;
mod durability;
mod engine;
pub mod format;
mod gate;
mod ghost;
mod index;
mod interface;
mod jobs;
mod joined;
mod locks;
mod log;
mod main_hand;
mod op;
mod owners;
mod pace;
mod paths;
pub mod planted;
mod reclaim;
mod recovery;
mod renew;
mod renew_below;
mod replacement;
mod requests;
mod retire;
pub mod ring;
mod sequential;
mod settings;
mod slab;
mod spare;
mod stats;
mod store;
mod throttle;
mod touches;
mod trials;
mod unreadable;
mod unsaved;
mod volume;
mod writeback;
mod writeback_reads;

pub use attach::{
    AttachError, AttachOptions, Attached, RecoveryReport, Surviving, attach, attach_promised,
    create, inspect,
};
pub use bypass::{BypassReason, Bypassed, Bypasses};
pub use engine::{Engine, MAX_RANGE_BYTES};
pub use format::{
    BlockKey, CacheDevice, CacheId, DATA_OFFSET_BYTES, Extent, Extents, Geometry, GeometryError,
    MIN_SEGMENTS, Stream, Superblock, SuperblockError, Uncuttable, VolumeRecord, VolumeState,
};
pub use interface::*;
pub use joined::{IdentifyError, Joined, identify};
pub use recovery::{Recovered, RecoveryError, ShardReport};
pub use replacement::Replacement;
pub use settings::{Admission, Commit, Mode, Settings, WritebackPolicy};
pub use stats::{Histogram, Stats};
pub use unsaved::{Promise, Unsaved};
pub use volume::VolumeConfig;
