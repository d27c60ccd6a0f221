//! A browser's end of HTTP, as little as the tests need.

use std::io::{Read, Write};
use std::net::TcpStream;

use serde_json::Value;

use super::{Daemon, LIMIT, Scratch};

/// The daemon's address, as its status says it.
pub(crate) fn address(daemon: &Daemon, scratch: &Scratch) -> String {
    let status = daemon.status(scratch);
    let url = status["dashboard"].as_str().expect("a dashboard");
    let bare = url.trim_start_matches("http://");
    bare.split('/').next().unwrap().to_owned()
}

/// Sends bytes and returns all that comes back.
pub(crate) fn exchange(address: &str, request: &[u8]) -> String {
    let mut stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(LIMIT)).unwrap();
    stream.write_all(request).unwrap();
    let mut answer = Vec::new();
    // A server that closes with something unread resets: bytes before that count.
    let _ = stream.read_to_end(&mut answer);
    String::from_utf8_lossy(&answer).into_owned()
}

/// Status line and headers, and the body.
pub(crate) fn get(address: &str, path: &str, host: &str) -> (String, String) {
    let request = format!("GET {path} HTTP/1.1\r\nHost: {host}\r\n\r\n");
    let answer = exchange(address, request.as_bytes());
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    (head.to_owned(), body.to_owned())
}

/// The JSON at a path.
pub(crate) fn json(address: &str, path: &str) -> Value {
    let (head, body) = get(address, path, address);
    assert!(
        head.starts_with("HTTP/1.1 200 OK"),
        "{path}: {head}\n{body}"
    );
    serde_json::from_str(&body).unwrap()
}
