//! A service manager's ear.

use std::os::unix::net::UnixDatagram;
use std::path::Path;

use super::LIMIT;

/// A service manager: the socket to which its services report.
pub(crate) struct Manager(UnixDatagram);

impl Manager {
    pub(crate) fn new(path: &Path) -> Manager {
        let socket = UnixDatagram::bind(path).unwrap();
        socket.set_read_timeout(Some(LIMIT)).unwrap();
        Manager(socket)
    }

    /// The next message that says this; earlier messages must be of `passed`.
    pub(crate) fn wait_for(&self, wanted: &str, passed: &str) -> String {
        let mut buffer = [0; 4096];
        loop {
            let len = match self.0.recv(&mut buffer) {
                // The kernel does not go on by itself with a wait that has a limit.
                Err(error) if error.kind() == std::io::ErrorKind::Interrupted => continue,
                received => received.unwrap_or_else(|error| panic!("no {wanted}: {error}")),
            };
            let message = String::from_utf8_lossy(&buffer[..len]).into_owned();
            if message.lines().any(|line| line.starts_with(wanted)) {
                return message;
            }
            assert!(message.contains(passed), "{message} before {wanted}");
        }
    }

    /// Asserts that no message received says this.
    pub(crate) fn says_nothing_of(&self, unwanted: &str) {
        self.0.set_nonblocking(true).unwrap();
        let mut buffer = [0; 4096];
        while let Ok(len) = self.0.recv(&mut buffer) {
            let message = String::from_utf8_lossy(&buffer[..len]);
            assert!(!message.contains(unwanted), "{message}");
        }
    }
}
