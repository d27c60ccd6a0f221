//! Requests made singly, each waited for: before the first job of a connection.

use std::io::{self, ErrorKind, Read, Write};

use anyhow::anyhow;
use forebay_cache::Change;
use forebay_engine::{DeviceError, Storage};
use forebay_frontend::nbd::client::{Answers, Event, OpenExport};
use forebay_frontend::nbd::wire::command;
use forebay_io::RemoteKind;

use super::jobs::way_of;
use super::stream::Stream;

/// The protocol's number for a server that shuts down, and librbd's for a client that was shut out.
pub(super) const NBD_ESHUTDOWN: u32 = 108;

/// The error of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Failed {
    /// The connection is of no more use.
    Lost,
    /// The server answers with this error.
    Refused(u32),
}

/// A connection on which one request is made at a time.
pub(super) struct Caller<'a> {
    pub(super) stream: &'a mut Stream,
    pub(super) answers: &'a mut Answers,
    pub(super) export: OpenExport,
    /// The server has answered that this host is shut out.
    pub(super) is_shut_out: bool,
    /// Why the connection is of no more use.
    broken: Option<io::Error>,
}

impl<'a> Caller<'a> {
    pub(super) fn new(
        stream: &'a mut Stream,
        answers: &'a mut Answers,
        export: OpenExport,
    ) -> Caller<'a> {
        Caller {
            stream,
            answers,
            export,
            is_shut_out: false,
            broken: None,
        }
    }

    /// The error of a request for a message: with the reason, if the connection was lost.
    pub(super) fn reason(&mut self, error: DeviceError) -> anyhow::Error {
        match self.broken.take() {
            Some(why) if is_timeout(&why) => anyhow!("it does not answer"),
            Some(why) => anyhow!("the connection broke: {why}"),
            None => error.into(),
        }
    }

    /// Sends a change again, cut as a job is.
    pub(super) fn send_again(&mut self, change: &Change) -> Result<(), Failed> {
        let (kind, offset_bytes, len_bytes) = match change {
            Change::Write { offset_bytes, data } => {
                (RemoteKind::Write, *offset_bytes, data.len() as u64)
            }
            Change::Zeroes {
                offset_bytes,
                len_bytes,
            } => (RemoteKind::WriteZeroes, *offset_bytes, *len_bytes),
            Change::Discard {
                offset_bytes,
                len_bytes,
            } => (RemoteKind::Discard, *offset_bytes, *len_bytes),
        };
        let (command, longest, has_data) = way_of(kind, &self.export);
        let zeroes = match kind {
            RemoteKind::WriteZeroes if has_data => vec![0; longest as usize],
            _ => Vec::new(),
        };
        let mut at = 0;
        while at < len_bytes {
            let piece_bytes = (len_bytes - at).min(u64::from(longest)) as u32;
            let from = match change {
                Change::Write { data, .. } => &data[at as usize..],
                Change::Zeroes { .. } | Change::Discard { .. } => &zeroes,
            };
            let piece = &from[..from.len().min(piece_bytes as usize)];
            self.call(command, offset_bytes + at, piece_bytes, piece, &mut [])?;
            at += u64::from(piece_bytes);
        }
        Ok(())
    }

    fn call(
        &mut self,
        command: u16,
        offset_bytes: u64,
        len_bytes: u32,
        data: &[u8],
        into: &mut [u8],
    ) -> Result<(), Failed> {
        let (_, header) = self.answers.ask(command, offset_bytes, len_bytes);
        let sent = self.stream.write_all(&header);
        let sent = sent.and_then(|()| self.stream.write_all(data));
        let answered = sent
            .and_then(|()| self.stream.flush())
            .and_then(|()| self.answer(into));
        match answered.map_err(|why| self.is_lost(why))? {
            0 => Ok(()),
            error => {
                self.is_shut_out |= error == NBD_ESHUTDOWN;
                Err(Failed::Refused(error))
            }
        }
    }

    fn is_lost(&mut self, why: io::Error) -> Failed {
        self.broken = Some(why);
        Failed::Lost
    }

    fn answer(&mut self, into: &mut [u8]) -> io::Result<u32> {
        let wrong = |error| io::Error::new(ErrorKind::InvalidData, error);
        let mut bytes: Vec<u8> = Vec::new();
        let mut piece = vec![0; 64 << 10];
        loop {
            let step = self.answers.receive(&bytes).map_err(wrong)?;
            match step.event {
                Some(Event::Done { error, .. }) => return Ok(error),
                Some(Event::Data { at_bytes, .. }) => {
                    let at = at_bytes as usize;
                    let place = into.get_mut(at..at + step.taken);
                    let place = place.ok_or(ErrorKind::InvalidData)?;
                    place.copy_from_slice(&bytes[..step.taken]);
                }
                None if step.taken == 0 => {
                    let count = self.stream.read(&mut piece)?;
                    if count == 0 {
                        return Err(io::Error::other("the server closed it"));
                    }
                    bytes.extend_from_slice(&piece[..count]);
                }
                None => {}
            }
            bytes.drain(..step.taken);
        }
    }
}

/// The limit of a socket has passed, or TCP has given up.
fn is_timeout(why: &io::Error) -> bool {
    matches!(why.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut)
}

impl Storage for Caller<'_> {
    fn size_bytes(&self) -> u64 {
        self.export.size_bytes
    }

    fn read(&mut self, offset_bytes: u64, into: &mut [u8]) -> Result<(), DeviceError> {
        // Samples begin and end with blocks of every size that is served, but for the end of a
        // file of odd length.
        let len_bytes = into.len() as u32;
        let answer = self.call(command::READ, offset_bytes, len_bytes, &[], into);
        answer.map_err(|failed| match failed {
            Failed::Lost => DeviceError::Gone,
            Failed::Refused(_) => DeviceError::Io,
        })
    }

    fn write(&mut self, _: u64, _: &[u8]) -> Result<(), DeviceError> {
        Err(DeviceError::Unsupported)
    }

    fn flush(&mut self) -> Result<(), DeviceError> {
        Err(DeviceError::Unsupported)
    }
}
