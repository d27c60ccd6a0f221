//! Whether whoever is at the other end of a socket is still there.

use std::os::fd::AsFd;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;

/// Whether the other end is closed, or the connection has failed. Nothing is read: there may be
/// something left to take, as the next call of a command.
pub(crate) fn has_hung_up(socket: impl AsFd) -> bool {
    let mut polled = [PollFd::new(&socket, PollFlags::RDHUP)];
    let at_once = Timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    match poll(&mut polled, Some(&at_once)) {
        Ok(_) => !polled[0].revents().is_empty(),
        Err(error) => error != Errno::INTR,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Read, Write};
    use std::os::unix::net::UnixStream;

    #[test]
    fn a_client_that_sent_its_next_call_is_not_gone_and_loses_no_byte() {
        let (mut near, mut far) = UnixStream::pair().unwrap();
        assert!(!has_hung_up(&near));
        far.write_all(b"next").unwrap();
        assert!(!has_hung_up(&near));
        drop(far);
        assert!(has_hung_up(&near), "although something is there to be read");
        let mut next = String::new();
        near.read_to_string(&mut next).unwrap();
        assert_eq!(next, "next");
    }
}
