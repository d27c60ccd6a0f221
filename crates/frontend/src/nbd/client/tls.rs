//! TLS from the client's side, over a stream that the caller opened.

use std::io::{self, Read, Write};
use std::sync::Arc;

use rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned};
use rustls_pki_types::pem::PemObject;
use rustls_pki_types::{PrivateKeyDer, ServerName};

use super::super::tls::{TlsError, parse_certificates};

/// The authorities that a client trusts, and its own certificate.
#[derive(Clone)]
pub struct TlsClient(Arc<ClientConfig>);

impl std::fmt::Debug for TlsClient {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str("TlsClient")
    }
}

impl TlsClient {
    /// Takes the certificates of the authority that signs servers', and the client's own
    /// certificate chain and key, if it has them, as PEM text.
    ///
    /// # Errors
    /// If a text is not PEM or its contents cannot be used together.
    pub fn from_pem(authority: &[u8], own: Option<(&[u8], &[u8])>) -> Result<Self, TlsError> {
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let mut roots = RootCertStore::empty();
        for certificate in parse_certificates(authority, "server authority")? {
            roots.add(certificate)?;
        }
        let builder = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()?
            .with_root_certificates(roots);
        let config = match own {
            None => builder.with_no_client_auth(),
            Some((certificates, key)) => {
                let chain = parse_certificates(certificates, "client certificate")?;
                let key = PrivateKeyDer::from_pem_slice(key).map_err(|source| TlsError::Pem {
                    what: "client key",
                    source,
                })?;
                builder.with_client_auth_cert(chain, key)?
            }
        };
        Ok(TlsClient(Arc::new(config)))
    }

    /// Changes a stream to TLS. The handshake runs with the first transfers.
    ///
    /// # Errors
    /// If `name` can be no server's name.
    pub fn over<S: Read + Write>(&self, stream: S, name: &str) -> io::Result<TlsStream<S>> {
        let name = ServerName::try_from(name.to_owned()).map_err(io::Error::other)?;
        let connection =
            ClientConnection::new(Arc::clone(&self.0), name).map_err(io::Error::other)?;
        Ok(TlsStream(StreamOwned::new(connection, stream)))
    }
}

/// A stream under TLS; it may be one that does not block.
#[derive(Debug)]
pub struct TlsStream<S: Read + Write>(StreamOwned<ClientConnection, S>);

impl<S: Read + Write> TlsStream<S> {
    /// The stream below.
    #[must_use]
    pub fn below(&self) -> &S {
        self.0.get_ref()
    }

    /// Whether encrypted bytes wait to be sent.
    #[must_use]
    pub fn wants_write(&self) -> bool {
        self.0.conn.wants_write()
    }
}

impl<S: Read + Write> Read for TlsStream<S> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        self.0.read(into)
    }
}

impl<S: Read + Write> Write for TlsStream<S> {
    fn write(&mut self, from: &[u8]) -> io::Result<usize> {
        self.0.write(from)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.0.flush()
    }
}
