//! TLS between the socket and the protocol: ciphertext in and out, no I/O (§ TLS support).

use std::io::{ErrorKind, IoSlice, Read, Write};
use std::net::IpAddr;
use std::sync::Arc;

use forebay_engine::Memory;
use rustls::server::WebPkiClientVerifier;
use rustls::{RootCertStore, ServerConfig, ServerConnection};
use rustls_pki_types::pem::PemObject;
use rustls_pki_types::{CertificateDer, PrivateKeyDer};
use smallvec::SmallVec;

use super::connection::{Piece, Reason};
use super::outbox::Outbox;

/// While this much ciphertext waits to be sent nothing more is encrypted, in bytes.
const MAX_CIPHERTEXT_BYTES: usize = 512 << 10;
/// Ciphertext of the peer's own making (handshakes) beyond which it is no longer read, in bytes.
const MAX_UNREAD_BYTES: usize = MAX_CIPHERTEXT_BYTES + (64 << 10);
/// A TLS record holds at most this much, in bytes.
const RECORD_BYTES: usize = 16 << 10;
/// Pieces that are encrypted in one go.
const GATHER: usize = 64;

/// A server's certificate, key and rules for clients.
#[derive(Clone)]
pub struct TlsServer(Arc<ServerConfig>);

impl std::fmt::Debug for TlsServer {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str("TlsServer")
    }
}

/// Why TLS cannot be set up.
#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    /// A PEM file is not one, or lacks what it is for.
    #[error("the TLS {what} cannot be read as PEM: {source}; check the file")]
    Pem {
        /// The file.
        what: &'static str,
        /// The error.
        source: rustls_pki_types::pem::Error,
    },
    /// A PEM file without certificates.
    #[error("the TLS {what} holds no certificate; check the file")]
    NoCertificate {
        /// The file.
        what: &'static str,
    },
    /// Certificate and key do not fit, or are of a kind that is not supported.
    #[error("the TLS certificate and key cannot be used: {0}; check that they belong together")]
    Unusable(#[from] rustls::Error),
    /// The authority for clients' certificates cannot be used.
    #[error("the TLS certificate authority for clients cannot be used: {0}; check the file")]
    Authority(String),
    /// A port open to the network needs TLS.
    #[error(
        "NBD for {0} would be unencrypted and open to the network; configure a certificate and key, or allow it with --insecure"
    )]
    Required(IpAddr),
}

impl TlsServer {
    /// Takes a certificate chain and key as PEM text, and if only certain clients may connect,
    /// the certificates of the authority that signs theirs.
    ///
    /// # Errors
    /// If a text is not PEM or its contents cannot be used together.
    pub fn from_pem(
        certificates: &[u8],
        key: &[u8],
        client_authority: Option<&[u8]>,
    ) -> Result<Self, TlsError> {
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let chain = parse_certificates(certificates, "certificate")?;
        let key = PrivateKeyDer::from_pem_slice(key).map_err(|source| TlsError::Pem {
            what: "key",
            source,
        })?;
        let builder = ServerConfig::builder_with_provider(provider.clone())
            .with_safe_default_protocol_versions()?;
        let builder = match client_authority {
            None => builder.with_no_client_auth(),
            Some(pem) => {
                let mut roots = RootCertStore::empty();
                for certificate in parse_certificates(pem, "client authority")? {
                    roots.add(certificate)?;
                }
                let verifier =
                    WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider)
                        .build()
                        .map_err(|error| TlsError::Authority(error.to_string()))?;
                builder.with_client_cert_verifier(verifier)
            }
        };
        Ok(TlsServer(Arc::new(builder.with_single_cert(chain, key)?)))
    }
}

fn parse_certificates(
    pem: &[u8],
    what: &'static str,
) -> Result<Vec<CertificateDer<'static>>, TlsError> {
    let certificates = CertificateDer::pem_slice_iter(pem)
        .collect::<Result<Vec<_>, _>>()
        .map_err(|source| TlsError::Pem { what, source })?;
    if certificates.is_empty() {
        return Err(TlsError::NoCertificate { what });
    }
    Ok(certificates)
}

/// Where a client connects from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Peer {
    /// A unix socket, protected by its file's permissions.
    Unix,
    /// A TCP address.
    Tcp(IpAddr),
}

/// Whether a connection may, must or cannot use TLS (§ Server-side requirements).
#[derive(Clone, Debug, Default)]
pub enum TlsPolicy {
    /// NOTLS.
    #[default]
    Off,
    /// SELECTIVETLS, with no export that needs it.
    Offered(TlsServer),
    /// FORCEDTLS.
    Required(TlsServer),
}

impl TlsPolicy {
    /// The policy for a client at `peer`: TLS is required from the network, unless the
    /// administrator said `insecure`, and offered to this machine itself.
    ///
    /// # Errors
    /// If it is required and not configured. Also ask with the address a listener is bound to, so
    /// that this comes out when the daemon starts.
    pub fn choose(
        peer: Peer,
        server: Option<&TlsServer>,
        insecure: bool,
    ) -> Result<Self, TlsError> {
        let remote = match peer {
            Peer::Tcp(address) if !address.to_canonical().is_loopback() => Some(address),
            Peer::Tcp(_) | Peer::Unix => None,
        };
        match (server, remote) {
            (Some(server), Some(_)) if !insecure => Ok(TlsPolicy::Required(server.clone())),
            (None, Some(address)) if !insecure => Err(TlsError::Required(address)),
            (Some(server), _) => Ok(TlsPolicy::Offered(server.clone())),
            (None, _) => Ok(TlsPolicy::Off),
        }
    }

    pub(crate) fn server(&self) -> Option<&TlsServer> {
        match self {
            TlsPolicy::Off => None,
            TlsPolicy::Offered(server) | TlsPolicy::Required(server) => Some(server),
        }
    }

    pub(crate) fn is_required(&self) -> bool {
        matches!(self, TlsPolicy::Required(_))
    }
}

/// The next part of the peer's stream.
#[derive(Debug)]
pub(crate) enum Incoming {
    /// Plaintext is there to be read.
    Plain,
    /// More ciphertext is needed.
    Starved,
    /// The peer closed its side.
    Closed,
}

/// TLS of one connection.
#[derive(Debug)]
pub(crate) struct TlsStream {
    session: ServerConnection,
    outbox: Outbox,
    plain: Box<[u8]>,
    plain_at: usize,
    plain_end: usize,
    closing: bool,
}

impl TlsStream {
    /// Begins TLS; `outbox` holds what still goes out in the clear, before it.
    pub(crate) fn start(server: &TlsServer, outbox: Outbox) -> Result<Self, Reason> {
        let session = ServerConnection::new(server.0.clone()).map_err(|error| Reason::Tls {
            message: error.to_string(),
        })?;
        Ok(TlsStream {
            session,
            outbox,
            plain: vec![0; RECORD_BYTES].into_boxed_slice(),
            plain_at: 0,
            plain_end: 0,
            closing: false,
        })
    }

    /// Plaintext not consumed so far.
    pub(crate) fn plain(&self) -> &[u8] {
        &self.plain[self.plain_at..self.plain_end]
    }

    pub(crate) fn consume_plain(&mut self, bytes: usize) {
        self.plain_at += bytes;
    }

    /// Decrypts from the front of `input` until there is plaintext; returns how much it took.
    pub(crate) fn decrypt(&mut self, input: &[u8]) -> Result<(usize, Incoming), Reason> {
        let mut used_bytes = 0;
        loop {
            match self.session.reader().read(&mut self.plain) {
                Ok(0) => return Ok((used_bytes, Incoming::Closed)),
                Ok(bytes) => {
                    (self.plain_at, self.plain_end) = (0, bytes);
                    return Ok((used_bytes, Incoming::Plain));
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                Err(error) => return Err(tls_failed(&error)),
            }
            let mut rest = &input[used_bytes..];
            if rest.is_empty() {
                return Ok((used_bytes, Incoming::Starved));
            }
            let taken_bytes = self
                .session
                .read_tls(&mut rest)
                .map_err(|error| tls_failed(&error))?;
            used_bytes += taken_bytes;
            let processed = self.session.process_new_packets();
            // Handshake messages, or the alert that says what was wrong.
            self.collect()?;
            processed.map_err(|error| tls_failed(&error))?;
            if taken_bytes == 0 {
                return Ok((used_bytes, Incoming::Starved));
            }
        }
    }

    fn collect(&mut self) -> Result<(), Reason> {
        while self.session.wants_write() {
            self.session
                .write_tls(self.outbox.pending_mut())
                .map_err(|error| tls_failed(&error))?;
        }
        Ok(())
    }

    /// Encrypts from the front of `pieces` what there is room for; returns how much that was, in
    /// bytes.
    pub(crate) fn encrypt<'a, M: Memory + ?Sized>(
        &mut self,
        memory: &M,
        pieces: impl Iterator<Item = Piece<'a>>,
    ) -> Result<usize, Reason> {
        if self.outbox.len_bytes() >= MAX_CIPHERTEXT_BYTES || self.closing {
            return Ok(0);
        }
        let slices: SmallVec<[IoSlice<'_>; GATHER]> = pieces
            .take(GATHER)
            .map(|piece| IoSlice::new(piece.bytes(memory)))
            .collect();
        if slices.is_empty() {
            return Ok(0);
        }
        // All together: one by one, each header would be a record of its own.
        let bytes = self
            .session
            .writer()
            .write_vectored(&slices)
            .map_err(|error| tls_failed(&error))?;
        self.collect()?;
        Ok(bytes)
    }

    /// Says goodbye, once.
    pub(crate) fn close(&mut self) {
        if !std::mem::replace(&mut self.closing, true) {
            self.session.send_close_notify();
            // Nothing is lost if the goodbye cannot be said.
            let _ = self.collect();
        }
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.closing && self.outbox.len_bytes() == 0
    }

    pub(crate) fn wants_input(&self) -> bool {
        self.outbox.len_bytes() < MAX_UNREAD_BYTES
    }

    pub(crate) fn outbox_mut(&mut self) -> &mut Outbox {
        &mut self.outbox
    }
}

fn tls_failed(error: &dyn std::error::Error) -> Reason {
    Reason::Tls {
        message: error.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::{Ipv4Addr, Ipv6Addr};

    fn server() -> TlsServer {
        let made = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
        let (certificate, key) = (made.cert.pem(), made.signing_key.serialize_pem());
        TlsServer::from_pem(certificate.as_bytes(), key.as_bytes(), None).unwrap()
    }

    #[test]
    fn the_network_needs_tls_and_this_machine_may_have_it() {
        let server = server();
        let remote = Peer::Tcp(Ipv4Addr::new(192, 0, 2, 1).into());
        let mapped = Peer::Tcp(Ipv4Addr::LOCALHOST.to_ipv6_mapped().into());
        let choose =
            |peer, server: Option<&TlsServer>, insecure| TlsPolicy::choose(peer, server, insecure);
        assert!(choose(remote, None, false).is_err());
        assert!(matches!(choose(remote, None, true), Ok(TlsPolicy::Off)));
        assert!(matches!(
            choose(remote, Some(&server), false),
            Ok(TlsPolicy::Required(_))
        ));
        assert!(matches!(
            choose(remote, Some(&server), true),
            Ok(TlsPolicy::Offered(_))
        ));
        for local in [Peer::Unix, Peer::Tcp(Ipv6Addr::LOCALHOST.into()), mapped] {
            assert!(matches!(choose(local, None, false), Ok(TlsPolicy::Off)));
            assert!(matches!(
                choose(local, Some(&server), false),
                Ok(TlsPolicy::Offered(_))
            ));
        }
    }

    #[test]
    fn unusable_files_are_errors() {
        let made = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
        let other = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
        let (certificate, key) = (made.cert.pem(), made.signing_key.serialize_pem());
        let from = TlsServer::from_pem;
        assert!(from(b"", key.as_bytes(), None).is_err());
        assert!(from(certificate.as_bytes(), b"", None).is_err());
        assert!(from(certificate.as_bytes(), key.as_bytes(), Some(b"")).is_err());
        let wrong_key = other.signing_key.serialize_pem();
        assert!(from(certificate.as_bytes(), wrong_key.as_bytes(), None).is_err());
    }
}
