//! A request of a client, as the world knows it.

use forebay_engine::Buf;

use crate::model::{Effect, Event, Range};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Read { prefetch: bool },
    Write { effect: Effect, fua: bool },
    Flush,
}

/// A client's request in progress.
#[derive(Debug)]
pub(super) struct Pending {
    pub(super) kind: Kind,
    pub(super) range: Range,
    /// The thread that has it.
    pub(super) host: usize,
    /// A buffer for each piece that carries data.
    pub(super) bufs: Vec<(Range, Buf)>,
    pub(super) submitted: Event,
    /// The command that asks.
    pub(super) command: Option<u32>,
    /// Its volume was being detached while it was in progress.
    pub(super) leaving: bool,
    /// A flush of the origin had failed that not all shards had heard of.
    pub(super) untold: bool,
    /// The number of faults before it.
    pub(super) since: usize,
    /// Up to which of them failures of the origin's flushes had been told.
    pub(super) heard: usize,
    /// Changes of its volume on the origin that had been answered before it.
    pub(super) on_origin: u64,
    /// Of a flush: clients' changes on the origin are among what it is to make durable.
    pub(super) is_owed: bool,
    /// It came upon dirty data in a cache that failed.
    pub(super) met_dirty: bool,
    /// Where two devices were lost at a time: it may have come upon dirty data, which may have become
    /// clean since.
    pub(super) found_dirty: bool,
}
