//! Limits on connections that have opened no export. Anybody who reaches a listener can make
//! these, without a certificate, so they have limits of their own, for each listener.
//!
//! A listener has at most [`MOST`] of them. If it has that many, one makes room for the next: the
//! oldest of whoever has most of them. An honest client is done after a few round trips and a
//! flood's connections are not, so it is the flood's that go; and a flood from one address, or of
//! one user, never reaches those of another.
//!
//! None makes room before it had [`COURTESY`]. Otherwise a fast flood would push an honest client
//! out in the middle of its round trips. Until then the next ones wait in the kernel's queue, in
//! the order in which they came. So a listener begins at most `MOST / COURTESY` conversations a
//! second, which also bounds the TLS handshakes that a flood can have computed.

use std::time::{Duration, Instant};

use crate::daemon::data::listener::From;

/// The most connections of a listener that have opened no export.
pub(super) const MOST: usize = 64;
/// The time that each has before it makes room.
pub(super) const COURTESY: Duration = Duration::from_millis(500);
/// The longest time a connection may take to open an export.
pub(super) const DEADLINE: Duration = Duration::from_secs(10);

/// Room for one more connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Room {
    There,
    /// This one makes it.
    MadeBy(usize),
    /// There is none before then.
    At(Instant),
}

/// Finds room among the connections of a listener, which are in the order of their arrival.
pub(super) fn room(there: &[(usize, From, Instant)], now: Instant) -> Room {
    if there.len() < MOST {
        return Room::There;
    }
    let crowd = |from: From| there.iter().filter(|(_, other, _)| *other == from).count();
    // The first of several that have equally many is the oldest.
    let most = there.iter().map(|(_, from, _)| crowd(*from)).max();
    let oldest = there.iter().find(|(_, from, _)| Some(crowd(*from)) == most);
    match oldest {
        Some((_, _, since)) if now < *since + COURTESY => Room::At(*since + COURTESY),
        Some((at, _, _)) => Room::MadeBy(*at),
        None => Room::There,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_oldest_of_the_largest_crowd_makes_room_after_a_while() {
        let start = Instant::now();
        let mut there: Vec<_> = (0..MOST - 1)
            .map(|at| (at, From::User(7), start + Duration::from_millis(at as u64)))
            .collect();
        assert_eq!(room(&there, start), Room::There);
        there.insert(0, (99, From::User(0), start));
        assert_eq!(room(&there, start), Room::At(start + COURTESY));
        // User 0 came first, and has but one.
        assert_eq!(room(&there, start + COURTESY), Room::MadeBy(0));
    }
}
