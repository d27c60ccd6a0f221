//! A connection on which an export is open, and the bytes that wait on both of its sides.

use std::io::{ErrorKind, Read, Write};
use std::time::{Duration, Instant};

use anyhow::{Result, bail};
use forebay_frontend::nbd::client::{Answers, OpenExport};
use forebay_frontend::nbd::wire::transmission_flag;

use super::connect::connect;
use super::stream::Stream;
use super::uri::ExportUri;

/// Bytes that are read before requests are made again.
const INPUT_BYTES: usize = 4 << 20;
/// The longest wait for a server that may take no further client, whatever it says.
const FURTHER_LIMIT: Duration = Duration::from_secs(1);

/// Opens further connections for reads, where the server lets several clients at its export see each
/// other's writes (`CAN_MULTI_CONN`). Fewer than the name says are no error.
pub(super) fn further(uri: &ExportUri, first: &Link) -> Vec<Link> {
    let export = &first.export;
    let wanted = if export.can(transmission_flag::CAN_MULTI_CONN) {
        uri.connections
    } else {
        1
    };
    let opened = (1..wanted).map_while(|_| {
        let (stream, other) = connect(uri, FURTHER_LIMIT).ok()?;
        stream.set_nonblocking().ok()?;
        let is_same = other == *export && stream.has_peer_of(&first.stream);
        is_same.then(|| Link::new(stream, Answers::default(), other))
    });
    opened.collect()
}

/// A connection with an open export.
pub(super) struct Link {
    pub(super) stream: Stream,
    pub(super) answers: Answers,
    pub(super) export: OpenExport,
    pub(super) output: Vec<u8>,
    sent: usize,
    pub(super) input: Vec<u8>,
    /// Where the socket's bytes go first.
    piece: Box<[u8]>,
    /// The latest sign of life while answers were owed.
    pub(super) heard: Instant,
}

impl Link {
    pub(super) fn new(stream: Stream, answers: Answers, export: OpenExport) -> Link {
        Link {
            stream,
            answers,
            export,
            output: Vec::new(),
            sent: 0,
            input: Vec::new(),
            piece: vec![0; 256 << 10].into(),
            heard: Instant::now(),
        }
    }

    /// A request is to be made: from the first on the server owes signs of life.
    pub(super) fn before_request(&mut self) {
        if self.answers.owed() == 0 {
            self.heard = Instant::now();
        }
    }

    pub(super) fn send(&mut self) -> Result<()> {
        while let Some(rest) = self.output.get(self.sent..).filter(|rest| !rest.is_empty()) {
            match self.stream.write(rest) {
                // TLS has a record to send first.
                Ok(0) if self.stream.wants_write() => return Ok(()),
                Ok(0) => bail!("it takes no more"),
                Ok(count) => self.sent += count,
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(()),
                Err(error) => return Err(error.into()),
            }
        }
        self.output.clear();
        self.sent = 0;
        match self.stream.flush() {
            Err(error) if error.kind() != ErrorKind::WouldBlock => Err(error.into()),
            _ => Ok(()),
        }
    }

    /// Reads what is there; says whether there may be more.
    pub(super) fn receive(&mut self) -> Result<bool> {
        while self.input.len() < INPUT_BYTES {
            match self.stream.read(&mut self.piece) {
                Ok(0) => bail!("it closed the connection"),
                Ok(count) => self.input.extend_from_slice(&self.piece[..count]),
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(false),
                Err(error) => return Err(error.into()),
            }
        }
        Ok(true)
    }

    /// Whether it has requests, or answers to come.
    pub(super) fn is_in_use(&self) -> bool {
        self.answers.owed() > 0 || self.wants_write()
    }

    pub(super) fn wants_write(&self) -> bool {
        !self.output.is_empty() || self.stream.wants_write()
    }
}
