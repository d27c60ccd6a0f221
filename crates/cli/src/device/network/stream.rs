//! Sockets to servers, with and without TLS.

use std::io::{self, Read, Write};
use std::net::{TcpStream, ToSocketAddrs};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use forebay_frontend::nbd::client::{TlsClient, TlsStream};
use rustix::net::sockopt::{self, Timeout};
use rustix::net::{self, AddressFamily, SocketAddrUnix, SocketFlags, SocketType};

use super::uri::{Socket, TlsNames};

/// Nobody listens where the name of an export says, at the moment.
#[derive(Debug, thiserror::Error)]
#[error("cannot reach {0}")]
pub(crate) struct Unreachable(String);

/// A socket without TLS.
#[derive(Debug)]
pub(crate) enum Plain {
    Unix(UnixStream),
    Tcp(TcpStream),
}

/// A socket, with TLS or without.
#[derive(Debug)]
pub(crate) enum Stream {
    Plain(Plain),
    Tls(Box<TlsStream<Plain>>),
}

impl Plain {
    /// Connects, for at most `limit`.
    pub(crate) fn connect(socket: &Socket, limit: Duration) -> Result<Plain> {
        let plain = match socket {
            Socket::Unix(path) => Plain::Unix(connect_unix(path, limit)?),
            Socket::Tcp(address) => {
                let mut addresses = address
                    .to_socket_addrs()
                    .with_context(|| Unreachable(address.clone()))?;
                let address_now = addresses.next();
                let Some(found) = address_now else {
                    bail!("{address} has no address");
                };
                let stream = TcpStream::connect_timeout(&found, limit)
                    .with_context(|| Unreachable(address.clone()))?;
                stream.set_nodelay(true)?;
                Plain::Tcp(stream)
            }
        };
        plain.set_limit(Some(limit))?;
        Ok(plain)
    }

    /// Limits the time of each transfer.
    fn set_limit(&self, limit: Option<Duration>) -> io::Result<()> {
        match self {
            Plain::Unix(stream) => stream
                .set_read_timeout(limit)
                .and_then(|()| stream.set_write_timeout(limit)),
            Plain::Tcp(stream) => stream
                .set_read_timeout(limit)
                .and_then(|()| stream.set_write_timeout(limit)),
        }
    }

    fn set_nonblocking(&self) -> io::Result<()> {
        match self {
            Plain::Unix(stream) => stream.set_nonblocking(true),
            Plain::Tcp(stream) => stream.set_nonblocking(true),
        }
    }
}

fn connect_unix(path: &str, limit: Duration) -> Result<UnixStream> {
    let unreachable = || Unreachable(path.to_owned());
    let family = AddressFamily::UNIX;
    let socket = net::socket_with(family, SocketType::STREAM, SocketFlags::CLOEXEC, None)?;
    // A server that takes nobody in at the moment would have the caller wait without an end.
    sockopt::set_socket_timeout(&socket, Timeout::Send, Some(limit))?;
    let address = SocketAddrUnix::new(path).with_context(unreachable)?;
    rustix::io::retry_on_intr(|| net::connect(&socket, &address)).with_context(unreachable)?;
    let stream = UnixStream::from(socket);
    let peer = sockopt::socket_peercred(&stream).with_context(unreachable)?;
    if peer.pid == rustix::process::getpid() {
        bail!("{path} is a socket of this daemon: a volume cannot be its own origin");
    }
    Ok(stream)
}

/// A transfer with a limit of time ends early when the process was stopped and goes on, or at a
/// signal.
fn uninterrupted(mut transfer: impl FnMut() -> io::Result<usize>) -> io::Result<usize> {
    loop {
        match transfer() {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            result => return result,
        }
    }
}

impl Read for Plain {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        match self {
            Plain::Unix(stream) => uninterrupted(|| stream.read(into)),
            Plain::Tcp(stream) => uninterrupted(|| stream.read(into)),
        }
    }
}

impl Write for Plain {
    fn write(&mut self, from: &[u8]) -> io::Result<usize> {
        match self {
            Plain::Unix(stream) => uninterrupted(|| stream.write(from)),
            Plain::Tcp(stream) => uninterrupted(|| stream.write(from)),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Stream {
    /// Changes to TLS.
    pub(crate) fn secure(plain: Plain, names: &TlsNames) -> Result<Stream> {
        let Some(directory) = &names.certificates else {
            bail!("nbds needs ?tls-certificates=DIRECTORY with ca-cert.pem in it");
        };
        let file = |name: &str| {
            let path = directory.join(name);
            std::fs::read(&path).with_context(|| format!("cannot read {}", path.display()))
        };
        let authority = file("ca-cert.pem")?;
        let own = if directory.join("client-cert.pem").exists() {
            Some((file("client-cert.pem")?, file("client-key.pem")?))
        } else {
            None
        };
        let own = own.as_ref().map(|(chain, key)| (&chain[..], &key[..]));
        let client = TlsClient::from_pem(&authority, own)?;
        Ok(Stream::Tls(Box::new(client.over(plain, &names.host)?)))
    }

    fn plain(&self) -> &Plain {
        match self {
            Stream::Plain(plain) => plain,
            Stream::Tls(stream) => stream.below(),
        }
    }

    /// Whether the same server is at the other end: the process that listens, or the address.
    pub(crate) fn has_peer_of(&self, other: &Stream) -> bool {
        match (self.plain(), other.plain()) {
            (Plain::Unix(own), Plain::Unix(other)) => {
                let listener =
                    |stream: &UnixStream| Some(sockopt::socket_peercred(stream).ok()?.pid);
                listener(own).is_some() && listener(own) == listener(other)
            }
            (Plain::Tcp(own), Plain::Tcp(other)) => {
                let address = |stream: &TcpStream| stream.peer_addr().ok();
                address(own).is_some() && address(own) == address(other)
            }
            _ => false,
        }
    }

    /// Lets transfers return at once from now on.
    pub(crate) fn set_nonblocking(&self) -> io::Result<()> {
        self.plain().set_nonblocking()
    }

    /// Limits the time of each transfer.
    pub(crate) fn set_limit(&self, limit: Option<Duration>) -> io::Result<()> {
        self.plain().set_limit(limit)
    }

    /// Whether encrypted bytes wait to be sent.
    pub(crate) fn wants_write(&self) -> bool {
        match self {
            Stream::Plain(_) => false,
            Stream::Tls(stream) => stream.wants_write(),
        }
    }
}

impl AsFd for Stream {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match self.plain() {
            Plain::Unix(stream) => stream.as_fd(),
            Plain::Tcp(stream) => stream.as_fd(),
        }
    }
}

impl Read for Stream {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        match self {
            Stream::Plain(stream) => stream.read(into),
            Stream::Tls(stream) => stream.read(into),
        }
    }
}

impl Write for Stream {
    fn write(&mut self, from: &[u8]) -> io::Result<usize> {
        match self {
            Stream::Plain(stream) => stream.write(from),
            Stream::Tls(stream) => stream.write(from),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        match self {
            Stream::Plain(stream) => stream.flush(),
            Stream::Tls(stream) => stream.flush(),
        }
    }
}
