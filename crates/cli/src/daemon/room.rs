//! Room for one more connection where there is a limit of them.
//!
//! A connection makes room for the next, but not before it had [`COURTESY`]. Otherwise a fast flood
//! would push an honest client out in the middle of its round trips. Until then the next ones wait
//! in the kernel's queue, in the order in which they came.

use std::time::{Duration, Instant};

/// The time that each connection has before it makes room.
pub(in crate::daemon) const COURTESY: Duration = Duration::from_millis(500);

/// Room for one more connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::daemon) enum Room {
    There,
    /// This one makes it.
    MadeBy(usize),
    /// There is none before then.
    At(Instant),
    /// There is none: no connection may be ended.
    None,
}

/// Finds room beside `present` connections of `most`. `first` would be the first to make it; with
/// the time since when it could.
pub(in crate::daemon) fn room(
    present: usize,
    most: usize,
    first: Option<(usize, Instant)>,
    now: Instant,
) -> Room {
    match first {
        _ if present < most => Room::There,
        Some((_, since)) if now < since + COURTESY => Room::At(since + COURTESY),
        Some((at, _)) => Room::MadeBy(at),
        None => Room::None,
    }
}
