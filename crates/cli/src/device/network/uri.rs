//! Names of exports: `nbd://HOST[:PORT]/EXPORT`, `nbd+unix:///EXPORT?socket=PATH`, and both with
//! TLS as `nbds`.

use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::Result;

use crate::failure::{Usage, wrong_usage};

/// The time that requests wait for a server that is away, unless the name says another.
const TIMEOUT: Duration = Duration::from_secs(30);
const TIMEOUTS_S: RangeInclusive<u64> = 1..=24 * 3600;
/// Connections to a server that offers several, unless the name says another number.
const CONNECTIONS: usize = 4;
const MOST_CONNECTIONS: usize = 16;

/// The socket of a server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Socket {
    /// A unix socket, by its path.
    Unix(String),
    /// A TCP port: `HOST:PORT`.
    Tcp(String),
}

/// The name of an export, read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ExportUri {
    pub(crate) socket: Socket,
    pub(crate) export: String,
    pub(crate) tls: Option<TlsNames>,
    /// The longest time that requests wait for a server that is away or silent.
    pub(crate) timeout: Duration,
    /// Whether a server without flushes is believed that its writes are durable.
    pub(crate) believes_writes: bool,
    /// The connections to a server that offers several, from 1 to 16.
    pub(crate) connections: usize,
}

/// Names for TLS.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct TlsNames {
    /// The directory with ca-cert.pem and, for clients with a certificate, client-cert.pem and
    /// client-key.pem: as libnbd and qemu have it.
    pub(crate) certificates: Option<PathBuf>,
    /// The name in the server's certificate.
    pub(crate) host: String,
}

const SCHEMES: [&str; 4] = ["nbd", "nbds", "nbd+unix", "nbds+unix"];

/// The text of a path that is the name of an export.
pub(crate) fn as_uri(path: &Path) -> Option<&str> {
    let text = path.to_str()?;
    let (scheme, _) = text.split_once("://")?;
    SCHEMES.contains(&scheme).then_some(text)
}

/// The origin that a path names, told from others of this kind: its socket and export alone.
pub(crate) fn place(path: &Path) -> Option<String> {
    let uri = ExportUri::parse(as_uri(path)?).ok()?;
    let (Socket::Unix(socket) | Socket::Tcp(socket)) = uri.socket;
    Some(format!("{socket} {}", uri.export))
}

/// The name of a volume on an export: that of the export, or else of its server.
pub(crate) fn volume_name(path: &Path) -> Option<String> {
    let uri = ExportUri::parse(as_uri(path)?).ok()?;
    let last = |text: &str| {
        let name = Path::new(text).file_stem()?.to_str()?.to_owned();
        (!name.is_empty()).then_some(name)
    };
    last(&uri.export).or_else(|| match &uri.socket {
        Socket::Unix(path) => last(path),
        Socket::Tcp(address) => address.split(':').next().map(str::to_owned),
    })
}

impl ExportUri {
    /// Reads a name.
    ///
    /// # Errors
    /// Wrong usage if it is none.
    pub(crate) fn parse(uri: &str) -> Result<ExportUri> {
        let wrong = || {
            Usage(format!(
                "`{uri}` is no export such as nbd://HOST:PORT/EXPORT or nbd+unix:///EXPORT?socket=PATH"
            ))
        };
        let (scheme, rest) = uri.split_once("://").ok_or_else(wrong)?;
        let (path, query) = rest.split_once('?').unwrap_or((rest, ""));
        let (host, export) = path.split_once('/').unwrap_or((path, ""));
        let mut options = Options::parse(uri, query)?;
        let socket = match scheme {
            "nbd+unix" | "nbds+unix" if host.is_empty() => {
                Socket::Unix(options.socket.take().ok_or_else(wrong)?)
            }
            "nbd" | "nbds" if !host.is_empty() => {
                let has_port = host.rsplit_once(':').is_some_and(|(_, port)| {
                    !port.is_empty() && port.bytes().all(|byte| byte.is_ascii_digit())
                });
                let default = if has_port { "" } else { ":10809" };
                Socket::Tcp(format!("{host}{default}"))
            }
            _ => return Err(wrong().into()),
        };
        if options.socket.is_some() {
            wrong_usage!("`{uri}` names a socket, which is for nbd+unix:// and nbds+unix://");
        }
        let tls = scheme.starts_with("nbds").then(|| TlsNames {
            certificates: options.certificates.take(),
            host: options
                .tls_host
                .take()
                .unwrap_or_else(|| host_of(&socket).to_owned()),
        });
        if options.certificates.is_some() || options.tls_host.is_some() {
            wrong_usage!("`{uri}` has an option for TLS, which is for nbds:// and nbds+unix://");
        }
        Ok(ExportUri {
            socket,
            export: decoded(export).ok_or_else(wrong)?,
            tls,
            timeout: options.timeout,
            believes_writes: options.believes_writes,
            connections: options.connections,
        })
    }
}

fn host_of(socket: &Socket) -> &str {
    match socket {
        Socket::Unix(_) => "localhost",
        Socket::Tcp(address) => {
            let host = address
                .rsplit_once(':')
                .map_or(&**address, |(host, _)| host);
            host.trim_start_matches('[').trim_end_matches(']')
        }
    }
}

/// The part of a name after its `?`.
struct Options {
    socket: Option<String>,
    certificates: Option<PathBuf>,
    tls_host: Option<String>,
    timeout: Duration,
    believes_writes: bool,
    connections: usize,
}

impl Options {
    fn parse(uri: &str, query: &str) -> Result<Options> {
        let mut options = Options {
            socket: None,
            certificates: None,
            tls_host: None,
            timeout: TIMEOUT,
            believes_writes: false,
            connections: CONNECTIONS,
        };
        for option in query.split('&').filter(|option| !option.is_empty()) {
            let (name, value) = option.split_once('=').unwrap_or((option, ""));
            let Some(value) = decoded(value) else {
                wrong_usage!("`{value}` in `{uri}` is not written with % and two digits");
            };
            match name {
                "socket" if !value.is_empty() => options.socket = Some(value),
                "tls-certificates" => options.certificates = Some(value.into()),
                "tls-hostname" => options.tls_host = Some(value),
                "origin-timeout" => {
                    options.timeout = timeout(&value)
                        .map_err(|why| Usage(format!("origin-timeout in `{uri}`: {why}")))?;
                }
                "flush" if value == "none" => options.believes_writes = true,
                "connections" => {
                    let count = value.parse().ok();
                    let Some(count) = count.filter(|count| (1..=MOST_CONNECTIONS).contains(count))
                    else {
                        wrong_usage!(
                            "connections in `{uri}`: `{value}` is not a number from 1 to {MOST_CONNECTIONS}"
                        );
                    };
                    options.connections = count;
                }
                _ => wrong_usage!(
                    "`{option}` in `{uri}` is none of socket=PATH, tls-certificates=DIRECTORY, tls-hostname=NAME, \
                     origin-timeout=SECONDS, connections=NUMBER, flush=none"
                ),
            }
        }
        Ok(options)
    }
}

/// Reads an `origin-timeout`.
///
/// # Errors
/// Says what it may be.
pub(crate) fn timeout(text: &str) -> Result<Duration, String> {
    let number = text.strip_suffix('s').unwrap_or(text).trim_end();
    let seconds = number.parse().ok();
    let seconds = seconds.filter(|seconds| TIMEOUTS_S.contains(seconds));
    seconds.map(Duration::from_secs).ok_or_else(|| {
        let (least, most) = TIMEOUTS_S.into_inner();
        format!("`{text}` is not a number of seconds from {least} to {most}")
    })
}

/// Text with `%41` for `A`.
fn decoded(text: &str) -> Option<String> {
    let mut bytes = Vec::new();
    let mut rest = text.as_bytes();
    while let Some((&first, behind)) = rest.split_first() {
        rest = behind;
        if first != b'%' {
            bytes.push(first);
            continue;
        }
        let digits = rest.get(..2).filter(|two| two.is_ascii())?;
        let digits = std::str::from_utf8(digits).ok()?;
        bytes.push(u8::from_str_radix(digits, 16).ok()?);
        rest = &rest[2..];
    }
    String::from_utf8(bytes).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_understood_or_refused() {
        let place = |uri: &str| {
            let uri = ExportUri::parse(uri).ok()?;
            Some((uri.socket, uri.export, uri.tls.map(|tls| tls.host)))
        };
        let unix = |path: &str| Socket::Unix(path.to_owned());
        let tcp = |address: &str| Socket::Tcp(address.to_owned());
        for (uri, expected) in [
            (
                "nbd+unix:///sdb?socket=/run/a%20b.sock",
                Some((unix("/run/a b.sock"), "sdb", None)),
            ),
            ("nbd://host/x%2fy", Some((tcp("host:10809"), "x/y", None))),
            ("nbd://[::1]:7/", Some((tcp("[::1]:7"), "", None))),
            ("nbd://[::1]", Some((tcp("[::1]:10809"), "", None))),
            ("nbds://h/x", Some((tcp("h:10809"), "x", Some("h")))),
            (
                "nbds+unix:///?socket=/s&tls-hostname=n",
                Some((unix("/s"), "", Some("n"))),
            ),
            ("nbd:///x", None),
            ("nbd+unix:///x", None),
            ("nbd+unix://h/x?socket=/s", None),
            ("nbd://h/%4", None),
            ("nbd://h/x?socket=/s", None),
            ("nbd://h/x?tls-hostname=n", None),
            ("nbd://h/x?origin-timeout=0", None),
            ("nbd://h/x?flush=maybe", None),
            (
                "nbd://h/x?connections=16",
                Some((tcp("h:10809"), "x", None)),
            ),
            ("nbd://h/x?connections=0", None),
            ("nbd://h/x?connections=17", None),
            ("http://host/x", None),
        ] {
            let expected = expected
                .map(|(socket, export, host)| (socket, export.to_owned(), host.map(str::to_owned)));
            assert_eq!(place(uri), expected, "{uri}");
        }
    }

    #[test]
    fn volumes_are_called_after_the_export_or_its_server() {
        for (uri, name) in [
            ("nbd://host/pool/disk", Some("disk")),
            ("nbd://host:7/", Some("host")),
            ("nbd+unix:///?socket=/run/rbd.sock", Some("rbd")),
            ("/dev/sdb", None),
        ] {
            assert_eq!(volume_name(Path::new(uri)).as_deref(), name, "{uri}");
        }
    }
}
