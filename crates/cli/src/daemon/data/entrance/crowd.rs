//! Limits on connections that have opened no export. Anybody who reaches a listener can make
//! these, without a certificate, so they have limits of their own, for each listener.
//!
//! A listener has at most [`MOST`] of them. If it has that many, one makes room for the next: the
//! oldest of whoever has most of them. An honest client is done after a few round trips and a
//! flood's connections are not, so it is the flood's that go; and a flood from one address, or of
//! one user, never reaches those of another.
//!
//! None makes room before it had [`room::COURTESY`]. So a listener begins at most [`MOST`] in that
//! time, which also bounds the TLS handshakes that a flood can have computed.

use std::time::{Duration, Instant};

use crate::daemon::data::listener::From;
use crate::daemon::room::{self, Room};

/// The most connections of a listener that have opened no export.
pub(super) const MOST: usize = 64;
/// The longest time a connection may take to open an export.
pub(super) const DEADLINE: Duration = Duration::from_secs(10);

/// Finds room among the connections of a listener, which are in the order of their arrival.
pub(super) fn room(there: &[(usize, From, Instant)], now: Instant) -> Room {
    let crowd = |from: From| there.iter().filter(|(_, other, _)| *other == from).count();
    // The first of several that have equally many is the oldest.
    let most = there.iter().map(|(_, from, _)| crowd(*from)).max();
    let oldest = there.iter().find(|(_, from, _)| Some(crowd(*from)) == most);
    let oldest = oldest.map(|(at, _, since)| (*at, *since));
    room::room(there.len(), MOST, oldest, now)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::daemon::room::COURTESY;

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
