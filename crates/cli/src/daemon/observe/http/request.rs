//! Reading a request: its head, bounded in size and time. A body is not wanted and not read.

use std::io::Read;
use std::net::{IpAddr, SocketAddr, TcpStream};
use std::time::{Duration, Instant};

/// The longest head.
const MOST_BYTES: usize = 8 << 10;
const MOST_HEADERS: usize = 64;
/// The longest time the head may take.
const TIMEOUT: Duration = Duration::from_secs(5);

/// A request for a page.
#[derive(Debug, PartialEq)]
pub(super) struct Request {
    /// False for HEAD.
    pub(super) with_body: bool,
    pub(super) path: String,
    query: String,
    host: String,
    /// The value of the header `Authorization`; nothing if there is none, or several.
    pub(super) authorization: String,
}

/// Why there is no request.
#[derive(Debug, PartialEq)]
pub(super) enum Fault {
    /// The client went away, or took too long.
    Gone,
    /// With this status.
    Wrong(&'static str),
}

/// Reads the head of a request.
pub(super) fn read(mut stream: &TcpStream) -> Result<Request, Fault> {
    let began = Instant::now();
    let mut head = Vec::new();
    let mut part = [0; 2048];
    loop {
        let left = TIMEOUT.saturating_sub(began.elapsed());
        // No time at all would mean any.
        let waited = stream.set_read_timeout(Some(left.max(Duration::from_millis(1))));
        let count = waited
            .and_then(|()| stream.read(&mut part))
            .map_err(|_| Fault::Gone)?;
        if count == 0 || left.is_zero() {
            return Err(Fault::Gone);
        }
        head.extend_from_slice(&part[..count]);
        if let Some(request) = parse(&head)? {
            return Ok(request);
        }
        if head.len() > MOST_BYTES {
            return Err(Fault::Wrong("431 Request Header Fields Too Large"));
        }
    }
}

/// The request, if its head is whole.
fn parse(head: &[u8]) -> Result<Option<Request>, Fault> {
    let mut headers = [httparse::EMPTY_HEADER; MOST_HEADERS];
    let mut parsed = httparse::Request::new(&mut headers);
    match parsed.parse(head) {
        Err(httparse::Error::TooManyHeaders) => {
            return Err(Fault::Wrong("431 Request Header Fields Too Large"));
        }
        Err(_) => return Err(Fault::Wrong("400 Bad Request")),
        Ok(httparse::Status::Partial) => return Ok(None),
        Ok(httparse::Status::Complete(_)) => {}
    }
    let with_body = match parsed.method {
        Some("GET") => true,
        Some("HEAD") => false,
        _ => return Err(Fault::Wrong("405 Method Not Allowed")),
    };
    let only = |name: &str| {
        let mut named = parsed
            .headers
            .iter()
            .filter(|header| header.name.eq_ignore_ascii_case(name));
        match (named.next(), named.next()) {
            (Some(header), None) => Some(String::from_utf8_lossy(header.value).into_owned()),
            _ => None,
        }
    };
    let Some(host) = only("host") else {
        return Err(Fault::Wrong("400 Bad Request"));
    };
    let target = parsed.path.unwrap_or("/");
    let (path, query) = target.split_once('?').unwrap_or((target, ""));
    Ok(Some(Request {
        with_body,
        path: path.to_owned(),
        query: query.to_owned(),
        host,
        authorization: only("authorization").unwrap_or_default(),
    }))
}

impl Request {
    /// A number from the query, 0 if it is not there.
    ///
    /// # Errors
    /// If there is something else in its place.
    pub(super) fn number(&self, name: &str) -> Result<f64, String> {
        let mut pairs = self
            .query
            .split('&')
            .map(|pair| pair.split_once('=').unwrap_or((pair, "")));
        let Some((_, value)) = pairs.find(|(key, _)| *key == name) else {
            return Ok(0.0);
        };
        let number = value.parse().ok().filter(|number: &f64| number.is_finite());
        number.ok_or_else(|| format!("`{name}={value}`: {name} is a number"))
    }

    /// Whether the client means us and not a name that somebody made to point here: an address,
    /// or `localhost` where only this machine can be meant.
    pub(super) fn host_is_ours(&self, bound: SocketAddr) -> bool {
        let host = match self.host.rsplit_once(':') {
            Some((host, port)) if port.bytes().all(|digit| digit.is_ascii_digit()) => host,
            _ => &self.host,
        };
        let bare = host
            .strip_prefix('[')
            .and_then(|rest| rest.strip_suffix(']'))
            .unwrap_or(host);
        bare.parse::<IpAddr>().is_ok()
            || (bare.eq_ignore_ascii_case("localhost") && bound.ip().is_loopback())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(text: &str) -> Result<Option<Request>, Fault> {
        parse(text.as_bytes())
    }

    #[test]
    fn a_head_is_understood_when_it_is_whole() {
        let whole = "GET /api/history?since=12.5&x HTTP/1.1\r\nhOst: 127.0.0.1:9837\r\n\r\n";
        for end in 0..whole.len() {
            assert_eq!(request(&whole[..end]), Ok(None), "{end}");
        }
        let request = request(whole).unwrap().unwrap();
        assert_eq!(request.path, "/api/history");
        assert_eq!(request.number("since"), Ok(12.5));
        assert_eq!(request.number("y"), Ok(0.0));
        assert!(request.number("x").is_err());
        assert!(request.with_body);
    }

    #[test]
    fn what_is_wrong_has_its_status() {
        for (text, status) in [
            (
                "POST / HTTP/1.1\r\nHost: x\r\n\r\n",
                "405 Method Not Allowed",
            ),
            ("GET / HTTP/1.1\r\n\r\n", "400 Bad Request"),
            (
                "GET / HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n",
                "400 Bad Request",
            ),
            ("\0\r\n\r\n", "400 Bad Request"),
            ("GET  HTTP/9\r\n\r\n", "400 Bad Request"),
        ] {
            assert_eq!(request(text), Err(Fault::Wrong(status)), "{text:?}");
        }
        let many = format!("GET / HTTP/1.1\r\n{}\r\n", "A: b\r\n".repeat(100));
        assert_eq!(
            request(&many),
            Err(Fault::Wrong("431 Request Header Fields Too Large"))
        );
    }

    #[test]
    fn no_name_but_localhost_is_ours() {
        let loopback: SocketAddr = "127.0.0.1:9837".parse().unwrap();
        let open: SocketAddr = "0.0.0.0:9837".parse().unwrap();
        let ours = |host: &str, bound| {
            let text = format!("GET / HTTP/1.1\r\nHost: {host}\r\n\r\n");
            request(&text).unwrap().unwrap().host_is_ours(bound)
        };
        for host in [
            "127.0.0.1:9837",
            "127.0.0.1",
            "[::1]:9837",
            "localhost:9837",
        ] {
            assert!(ours(host, loopback), "{host}");
        }
        for host in [
            "evil.example",
            "evil.example:9837",
            "localhost.evil.example",
            "",
            ":9837",
        ] {
            assert!(!ours(host, loopback), "{host}");
        }
        assert!(ours("192.0.2.7:9837", open));
        assert!(!ours("localhost", open));
    }
}
