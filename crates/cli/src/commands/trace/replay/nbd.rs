//! A client of the NBD protocol, as far as a replay needs one (`doc/proto.md` of the NBD project):
//! fixed newstyle negotiation with `NBD_OPT_GO`, simple replies, one request at a time on each
//! connection.

use std::io::{self, ErrorKind, Read, Write};
use std::time::Duration;

use anyhow::{Context, Result};
use forebay_frontend::nbd::client::OpenExport;
use forebay_frontend::nbd::wire::{
    self, RequestHeader, SIMPLE_REPLY_BYTES, SIMPLE_REPLY_MAGIC, command, transmission_flag,
};
use forebay_trace::Kind;

use super::operations::Operation;
use super::target::{Data, Failed, Session, Target, pieces};
use crate::device::network::{self, stream::Stream, uri::ExportUri};
use crate::failure::wrong_usage;

/// The longest wait for a server while it is connected to.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(30);

/// A target for a URI.
pub(super) fn open(uri: &str, read_only: bool, depth: u16) -> Result<Target> {
    let place = ExportUri::parse(uri)?;
    if place.tls.is_some() {
        wrong_usage!("a replay does not speak TLS: use the volume's unix socket");
    }
    let uri = uri.to_owned();
    let connect = move || connect(&place).with_context(|| format!("cannot replay on {uri}"));
    let export = connect()?.1;
    if !read_only && export.can(transmission_flag::READ_ONLY) {
        wrong_usage!("the server offers this export to be read only; replay with --reads-only");
    }
    if !read_only && depth > 1 && !export.can(transmission_flag::CAN_MULTI_CONN) {
        wrong_usage!(
            "the server does not say that a flush on one connection is good for the writes of another: replay with --depth 1"
        );
    }
    Ok(Target {
        size_bytes: export.size_bytes,
        block_bytes: u64::from(export.block_bytes),
        discards: export.can(transmission_flag::SEND_TRIM),
        zeroes: export.can(transmission_flag::SEND_WRITE_ZEROES),
        open: Box::new(move || {
            let (stream, export) = connect()?;
            Ok(Box::new(Connection {
                stream,
                export,
                next: 0,
                read: Vec::new(),
                message: Vec::new(),
                data: Data::new(),
            }))
        }),
    })
}

fn connect(place: &ExportUri) -> Result<(Stream, OpenExport)> {
    network::connect(place, CONNECT_TIMEOUT)
}

struct Connection {
    stream: Stream,
    export: OpenExport,
    next: u64,
    read: Vec<u8>,
    message: Vec<u8>,
    data: Data,
}

impl Session for Connection {
    fn carry_out(&mut self, operation: &Operation) -> Result<(), Failed> {
        let longest = match operation.kind {
            Kind::Read | Kind::Write => self.export.longest_bytes,
            _ => u32::MAX,
        };
        // A flush that the server does not know is none that it needs.
        if operation.kind == Kind::Flush && !self.export.can(transmission_flag::SEND_FLUSH) {
            return Ok(());
        }
        for (offset_bytes, len_bytes) in pieces(operation, longest) {
            let error = self
                .piece(operation.kind, offset_bytes, len_bytes)
                .map_err(|error| Failed::Lost(error.to_string()))?;
            if error != 0 {
                let kind = operation.kind;
                return Err(Failed::Refused(format!(
                    "{} of {len_bytes} bytes at {offset_bytes}: the server answers with error {error}",
                    kind.name()
                )));
            }
        }
        Ok(())
    }
}

impl Connection {
    /// Sends a request and returns its answer: 0 or the server's number of the error.
    fn piece(&mut self, kind: Kind, offset_bytes: u64, len_bytes: u32) -> io::Result<u32> {
        self.next += 1;
        let header = RequestHeader {
            flags: 0,
            command: match kind {
                Kind::Read => command::READ,
                Kind::Write => command::WRITE,
                Kind::WriteZeroes => command::WRITE_ZEROES,
                Kind::Discard => command::TRIM,
                Kind::Flush => command::FLUSH,
            },
            cookie: self.next,
            offset_bytes,
            len_bytes,
        };
        self.message.clear();
        self.message.extend(header.encode());
        if kind == Kind::Write {
            let end = self.message.len() + len_bytes as usize;
            while self.message.len() < end {
                let piece = (end - self.message.len()).min(Data::PIECE_BYTES);
                self.message.extend(self.data.next(piece));
            }
        }
        self.stream.write_all(&self.message)?;
        let mut reply = [0; SIMPLE_REPLY_BYTES];
        self.stream.read_exact(&mut reply)?;
        let [m0, m1, m2, m3, e0, e1, e2, e3, cookie @ ..] = reply;
        let magic = u32::from_be_bytes([m0, m1, m2, m3]);
        if magic != SIMPLE_REPLY_MAGIC || u64::from_be_bytes(cookie) != self.next {
            let told = "the server's answer belongs to no request";
            return Err(io::Error::new(ErrorKind::InvalidData, told));
        }
        let error = u32::from_be_bytes([e0, e1, e2, e3]);
        if error == 0 && kind == Kind::Read {
            let len = len_bytes as usize;
            if self.read.len() < len {
                self.read.resize(len, 0);
            }
            self.stream.read_exact(&mut self.read[..len])?;
        }
        Ok(error)
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        let goodbye = RequestHeader {
            flags: 0,
            command: wire::command::DISC,
            cookie: 0,
            offset_bytes: 0,
            len_bytes: 0,
        };
        // A server that is gone needs none.
        let _ = self.stream.write_all(&goodbye.encode());
    }
}
