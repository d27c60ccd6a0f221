//! Where volumes are exported over NBD, and with which certificates.

use std::fmt;
use std::path::PathBuf;

use forebay_frontend::nbd::TlsServer;

use crate::failure::Usage;

/// Where to export.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Address {
    /// A unix socket.
    Unix(PathBuf),
    /// A host and port.
    Tcp(String),
}

impl std::str::FromStr for Address {
    type Err = Usage;

    fn from_str(text: &str) -> Result<Address, Usage> {
        let wrong = || {
            Usage(format!(
                "`{text}` is no address for NBD: write unix:PATH or tcp:HOST:PORT"
            ))
        };
        match text.split_once(':') {
            Some(("unix", path)) if !path.is_empty() => Ok(Address::Unix(path.into())),
            Some(("tcp", rest)) => match rest.rsplit_once(':') {
                Some((_, port)) if port.parse::<u16>().is_ok() => Ok(Address::Tcp(rest.to_owned())),
                Some((_, port)) if port.parse::<u128>().is_ok() => Err(Usage(format!(
                    "`{text}`: a port is from 0 to 65535, and {port} is not"
                ))),
                _ => Err(wrong()),
            },
            _ => Err(wrong()),
        }
    }
}

impl fmt::Display for Address {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Address::Unix(path) => write!(out, "unix:{}", path.display()),
            Address::Tcp(host) => write!(out, "tcp:{host}"),
        }
    }
}

/// TLS as configured for the daemon.
#[derive(Clone, Debug, Default)]
pub(crate) struct Tls {
    pub(crate) server: Option<TlsServer>,
    pub(crate) insecure: bool,
    /// The files that it was made of.
    pub(crate) files: TlsFiles,
}

/// Files of certificates and keys.
#[derive(Clone, Debug, Default)]
pub(crate) struct TlsFiles {
    pub(crate) cert: Option<PathBuf>,
    pub(crate) key: Option<PathBuf>,
    pub(crate) authority: Option<PathBuf>,
}
