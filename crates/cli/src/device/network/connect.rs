//! From the name of an export to a connection on which it is open.

use std::io::{Read, Write};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use forebay_frontend::nbd::client::{Negotiation, OpenExport, Progress};

use super::stream::{Plain, Stream};
use super::uri::ExportUri;

/// Opens an export. Each transfer of the negotiation takes at most `limit`.
pub(crate) fn connect(uri: &ExportUri, limit: Duration) -> Result<(Stream, OpenExport)> {
    let plain = Plain::connect(&uri.socket, limit)?;
    let mut negotiation = Negotiation::new(&uri.export, uri.tls.is_some())?;
    let mut stream = Stream::Plain(plain);
    loop {
        match advance(&mut stream, &mut negotiation).context("the server does not agree")? {
            Progress::Open(export) => {
                stream.set_limit(None)?;
                return Ok((stream, export));
            }
            Progress::StartTls | Progress::More => {}
        }
        if let (Stream::Plain(plain), Some(names)) = (stream, &uri.tls) {
            stream = Stream::secure(plain, names)?;
            let asked = negotiation.take_output();
            stream.write_all(&asked).context("no TLS with the server")?;
            stream.flush().context("no TLS with the server")?;
        } else {
            bail!("the server begins TLS twice");
        }
    }
}

/// Reads until the negotiation ends, or changes to TLS.
fn advance(stream: &mut Stream, negotiation: &mut Negotiation) -> Result<Progress> {
    let mut bytes = Vec::new();
    let mut piece = [0; 4096];
    loop {
        let count = match stream.read(&mut piece) {
            Ok(0) => bail!("it closes the connection"),
            Ok(count) => count,
            Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => {
                bail!(
                    "it does not answer; a server that takes one client at a time may have another"
                )
            }
            Err(error) => return Err(error.into()),
        };
        bytes.extend_from_slice(piece.get(..count).unwrap_or_default());
        let (taken, progress) = negotiation.receive(&bytes)?;
        bytes.drain(..taken);
        if progress != Progress::More {
            if !bytes.is_empty() {
                bail!("it sends what nobody asked for");
            }
            return Ok(progress);
        }
        let output = negotiation.take_output();
        stream.write_all(&output)?;
        stream.flush()?;
    }
}
