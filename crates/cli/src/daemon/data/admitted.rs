//! A client on its way from the entrance to its worker.

use forebay_engine::VolumeSlot;
use forebay_frontend::nbd::Connection;

use super::listener::Socket;
use super::seats::Seat;

/// A client that has opened an export. The answer to that is still to be sent.
pub(in crate::daemon) struct Admitted {
    pub(super) socket: Socket,
    pub(super) nbd: Connection,
    /// Received and not consumed.
    pub(super) unread: Vec<u8>,
    pub(super) volume: VolumeSlot,
    pub(super) seat: Seat,
}
