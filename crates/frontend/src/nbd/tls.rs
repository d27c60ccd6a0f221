//! TLS between the socket and the protocol: ciphertext in and out, no I/O (§ TLS support).

use std::io::{ErrorKind, IoSlice, Read, Write};
use std::sync::Arc;

use forebay_engine::Memory;
use rustls::server::WebPkiClientVerifier;
use rustls::{RootCertStore, ServerConfig, ServerConnection};
use rustls_pki_types::pem::PemObject;
use rustls_pki_types::{CertificateDer, PrivateKeyDer};
use smallvec::SmallVec;

use super::connection::{OutputPart, Reason};
use super::outbox::Outbox;

/// While this much ciphertext waits to be sent nothing more is encrypted, in bytes.
const MAX_CIPHERTEXT_BYTES: usize = 512 << 10;
/// Ciphertext of the peer's own making (handshakes) beyond which it is no longer read, in bytes.
const MAX_UNREAD_BYTES: usize = MAX_CIPHERTEXT_BYTES + (64 << 10);
/// A TLS record holds at most this much, in bytes.
const RECORD_BYTES: usize = 16 << 10;
/// OutputParts that are encrypted in one go.
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
    /// A TCP port without TLS lets everybody in who reaches it, each local user among them.
    #[error(
        "NBD over TCP without TLS gives the volumes to every user of this machine, and to whoever reaches the port; \
         export at unix:PATH, configure a certificate and key, or allow it with --nbd-insecure \
         ([nbd] insecure = true in a file)"
    )]
    Required,
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

pub(super) fn parse_certificates(
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
    /// A TCP port, which any user of any host may reach. The loopback's are no exception: each
    /// local user connects from there, and so does whatever a proxy lets in.
    Tcp,
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
    /// The policy for a client at `peer`. TLS is required on TCP wherever there is a certificate,
    /// and offered on a unix socket. `insecure` allows TCP where there is none, and loosens nothing
    /// else.
    ///
    /// # Errors
    /// If TLS is required and not configured. Also ask before a listener is bound, so that this
    /// comes out when the daemon starts.
    pub fn choose(
        peer: Peer,
        server: Option<&TlsServer>,
        insecure: bool,
    ) -> Result<Self, TlsError> {
        match (server, peer) {
            (Some(server), Peer::Tcp) => Ok(TlsPolicy::Required(server.clone())),
            (Some(server), Peer::Unix) => Ok(TlsPolicy::Offered(server.clone())),
            (None, Peer::Tcp) if !insecure => Err(TlsError::Required),
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
        pieces: impl Iterator<Item = OutputPart<'a>>,
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

    fn server() -> TlsServer {
        let made = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
        let (certificate, key) = (made.cert.pem(), made.signing_key.serialize_pem());
        TlsServer::from_pem(certificate.as_bytes(), key.as_bytes(), None).unwrap()
    }

    #[test]
    fn tcp_needs_tls_and_a_unix_socket_may_have_it() {
        let server = server();
        let choose = TlsPolicy::choose;
        assert!(choose(Peer::Tcp, None, false).is_err());
        assert!(matches!(choose(Peer::Tcp, None, true), Ok(TlsPolicy::Off)));
        for insecure in [false, true] {
            assert!(matches!(
                choose(Peer::Tcp, Some(&server), insecure),
                Ok(TlsPolicy::Required(_))
            ));
            assert!(matches!(
                choose(Peer::Unix, None, insecure),
                Ok(TlsPolicy::Off)
            ));
            assert!(matches!(
                choose(Peer::Unix, Some(&server), insecure),
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
