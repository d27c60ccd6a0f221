//! Sockets of clients and where they are listened for.

use std::io;
use std::net::{IpAddr, Shutdown, SocketAddr, TcpListener, TcpStream, ToSocketAddrs};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::FileTypeExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result};
use forebay_frontend::nbd::{Peer, TlsPolicy};
use forebay_io::{DAEMON_END_TIMEOUT, retry_for};
use rustix::net::sockopt;

use crate::failure::{Refused, refuse};
use crate::network::access::SocketAccess;
use crate::network::nbd::{Address, Tls};
use crate::quoting::in_uri;

/// A client that sent nothing for so long is asked by the kernel whether it is there.
const PROBE_AFTER: Duration = Duration::from_secs(60);
/// And again, as often as [`PROBES`] says.
const PROBE_EVERY: Duration = Duration::from_secs(10);
const PROBES: u32 = 6;

/// A client's socket.
#[derive(Debug)]
pub(in crate::daemon) enum Socket {
    Unix(UnixStream),
    Tcp(TcpStream),
}

impl Socket {
    pub(super) fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            Socket::Unix(stream) => stream.as_fd(),
            Socket::Tcp(stream) => stream.as_fd(),
        }
    }

    /// Ends transfers that are under way on the ring, too.
    pub(super) fn shut_down(&self) {
        // A socket that the client has closed needs no more.
        let _ = match self {
            Socket::Unix(stream) => stream.shutdown(Shutdown::Both),
            Socket::Tcp(stream) => stream.shutdown(Shutdown::Both),
        };
    }
}

/// Where a connection comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum From {
    User(u32),
    Address(IpAddr),
    Unknown,
}

/// A socket that clients connect to.
#[derive(Debug)]
pub(in crate::daemon) enum Listener {
    Unix {
        listener: UnixListener,
        path: PathBuf,
    },
    Tcp {
        listener: TcpListener,
        bound: SocketAddr,
    },
}

impl Listener {
    /// Binds an address. Whether TLS is possible there comes out now and not with the first
    /// client.
    pub(in crate::daemon) fn bind(
        address: &Address,
        tls: &Tls,
        access: &SocketAccess,
    ) -> Result<Listener> {
        match address {
            Address::Unix(path) => {
                let listener = bind_unix(path, access)?;
                listener
                    .set_nonblocking(true)
                    .with_context(|| format!("cannot prepare the socket {}", path.display()))?;
                Ok(Listener::Unix {
                    listener,
                    path: path.clone(),
                })
            }
            Address::Tcp(host) => {
                TlsPolicy::choose(Peer::Tcp, tls.server.as_ref(), tls.insecure)
                    .map_err(|error| Refused(format!("tcp:{host}: {error}")))?;
                let resolved: Vec<SocketAddr> = host
                    .trim_start_matches("tcp:")
                    .to_socket_addrs()
                    .with_context(|| format!("cannot find the address {host}; is the name right?"))?
                    .collect();
                let listener = TcpListener::bind(resolved.as_slice()).with_context(|| {
                    format!("cannot listen on tcp:{host}; is the port taken (ss -ltn)?")
                })?;
                let bound = listener
                    .local_addr()
                    .with_context(|| format!("cannot examine the socket for tcp:{host}"))?;
                listener
                    .set_nonblocking(true)
                    .with_context(|| format!("cannot prepare the socket for tcp:{host}"))?;
                Ok(Listener::Tcp { listener, bound })
            }
        }
    }

    pub(super) fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            Listener::Unix { listener, .. } => listener.as_fd(),
            Listener::Tcp { listener, .. } => listener.as_fd(),
        }
    }

    /// The next connection that waits, if one does, and where it comes from.
    pub(super) fn accept(&self, tls: &Tls) -> io::Result<(Socket, TlsPolicy, From)> {
        let refused =
            |error: forebay_frontend::nbd::tls::TlsError| io::Error::other(error.to_string());
        match self {
            Listener::Unix { listener, .. } => {
                let (stream, _) = listener.accept()?;
                let policy = TlsPolicy::choose(Peer::Unix, tls.server.as_ref(), tls.insecure)
                    .map_err(refused)?;
                let user = rustix::net::sockopt::socket_peercred(&stream);
                let from = user.map_or(From::Unknown, |user| From::User(user.uid.as_raw()));
                Ok((Socket::Unix(stream), policy, from))
            }
            Listener::Tcp { listener, .. } => {
                let (stream, peer) = listener.accept()?;
                // Replies are gathered before they are sent; to wait for more would only delay.
                stream.set_nodelay(true)?;
                end_if_silent(&stream)?;
                let policy = TlsPolicy::choose(Peer::Tcp, tls.server.as_ref(), tls.insecure)
                    .map_err(refused)?;
                Ok((Socket::Tcp(stream), policy, From::Address(peer.ip())))
            }
        }
    }

    /// Where it listens.
    pub(in crate::daemon) fn listening(&self, tls: &Tls) -> Listening {
        match self {
            Listener::Unix { path, .. } => Listening::Unix(path.clone()),
            Listener::Tcp { bound, .. } => Listening::Tcp {
                bound: *bound,
                tls: tls.server.is_some(),
            },
        }
    }
}

/// Has the kernel end the connection of a client that is gone without a word, as after a power cut: it
/// would keep its seat for ever.
fn end_if_silent(stream: &TcpStream) -> io::Result<()> {
    sockopt::set_socket_keepalive(stream, true)?;
    sockopt::set_tcp_keepidle(stream, PROBE_AFTER)?;
    sockopt::set_tcp_keepintvl(stream, PROBE_EVERY)?;
    sockopt::set_tcp_keepcnt(stream, PROBES)?;
    Ok(())
}

/// Where clients find the daemon.
#[derive(Clone, Debug)]
pub(in crate::daemon) enum Listening {
    Unix(PathBuf),
    Tcp { bound: SocketAddr, tls: bool },
}

impl Listening {
    /// The URI by which a client names an export here.
    pub(in crate::daemon) fn uri(&self, export: &str) -> String {
        let export = in_uri(export);
        match self {
            Listening::Unix(path) => {
                let socket = in_uri(&path.to_string_lossy());
                format!("nbd+unix:///{export}?socket={socket}")
            }
            Listening::Tcp { bound, tls: true } => format!("nbds://{bound}/{export}"),
            Listening::Tcp { bound, tls: false } => format!("nbd://{bound}/{export}"),
        }
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        if let Listener::Unix { path, .. } = self {
            // A socket that is gone already is as well.
            let _ = std::fs::remove_file(path);
        }
    }
}

/// Whether a socket is gone, or refuses clients as that of a dead process does. A live process may
/// be slow to accept, or keep this user out.
pub(in crate::daemon) fn nobody_listens(path: &Path) -> bool {
    let nobody = [io::ErrorKind::ConnectionRefused, io::ErrorKind::NotFound];
    UnixStream::connect(path).is_err_and(|error| nobody.contains(&error.kind()))
}

/// Binds a unix socket, in the place of one that a dead process left.
pub(in crate::daemon) fn bind_unix(path: &Path, access: &SocketAccess) -> Result<UnixListener> {
    let there = std::fs::symlink_metadata(path).ok();
    if there
        .as_ref()
        .is_some_and(|found| !found.file_type().is_socket())
    {
        refuse!(
            "{} is there already and is no socket; choose another path",
            path.display()
        );
    }
    if there.is_some() {
        let answered = retry_for(
            DAEMON_END_TIMEOUT,
            || {
                if nobody_listens(path) {
                    Ok(())
                } else {
                    Err(())
                }
            },
            |()| true,
        );
        if answered.is_err() {
            refuse!(
                "{} is the socket of another process that runs; choose another path",
                path.display()
            );
        }
        std::fs::remove_file(path).with_context(|| {
            format!(
                "cannot remove the old socket {}; remove it yourself, or choose another path",
                path.display()
            )
        })?;
    }
    access.given_to(path, || UnixListener::bind(path))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_silent_client_is_asked_whether_it_is_there() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (accepted, _) = listener.accept().unwrap();
        end_if_silent(&accepted).unwrap();
        assert!(sockopt::socket_keepalive(&accepted).unwrap());
        assert_eq!(sockopt::tcp_keepidle(&accepted).unwrap(), PROBE_AFTER);
        drop(client);
    }
}
