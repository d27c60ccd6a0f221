//! Messages on their way to a client of the control socket.

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;

use serde_json::Value;

/// Sends a message; says whether the client is still there.
pub(in crate::daemon) fn send(mut stream: &UnixStream, message: &Value) -> bool {
    let mut bytes = message.to_string().into_bytes();
    bytes.push(0);
    stream.write_all(&bytes).is_ok()
}

/// Whether the client has closed its end: what it asked for is then interrupted.
pub(in crate::daemon) fn gone(stream: &UnixStream) -> bool {
    if stream.set_nonblocking(true).is_err() {
        return true;
    }
    let ended = matches!((&mut &*stream).read(&mut [0; 1]), Ok(0));
    stream.set_nonblocking(false).is_err() || ended
}
