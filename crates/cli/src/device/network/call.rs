//! Requests made singly, each waited for: before the first job of a connection.

use std::io::{self, ErrorKind, Read, Write};

use forebay_cache::Change;
use forebay_engine::{DeviceError, Storage};
use forebay_frontend::nbd::client::{Answers, Event, OpenExport};
use forebay_frontend::nbd::wire::{command, transmission_flag};

use super::stream::Stream;

/// The longest range of a request without data, in bytes.
pub(super) const LONGEST_RANGE_BYTES: u32 = 128 << 20;

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
}

impl Caller<'_> {
    /// Sends a change again.
    pub(super) fn send_again(&mut self, change: &Change) -> Result<(), Failed> {
        match change {
            Change::Write { offset_bytes, data } => self.write(*offset_bytes, data),
            Change::Zeroes {
                offset_bytes,
                len_bytes,
            } => self.zero(*offset_bytes, *len_bytes),
            Change::Discard {
                offset_bytes,
                len_bytes,
            } => self.range(command::TRIM, *offset_bytes, *len_bytes),
        }
    }

    fn write(&mut self, offset_bytes: u64, data: &[u8]) -> Result<(), Failed> {
        let mut at = offset_bytes;
        for piece in data.chunks(self.export.longest_bytes as usize) {
            self.call(command::WRITE, at, piece.len() as u32, piece, &mut [])?;
            at += piece.len() as u64;
        }
        Ok(())
    }

    fn zero(&mut self, offset_bytes: u64, len_bytes: u64) -> Result<(), Failed> {
        if self.export.can(transmission_flag::SEND_WRITE_ZEROES) {
            return self.range(command::WRITE_ZEROES, offset_bytes, len_bytes);
        }
        let zeroes = vec![0; len_bytes.min(1 << 20) as usize];
        let end = offset_bytes + len_bytes;
        let mut at = offset_bytes;
        while at < end {
            let piece = (end - at).min(zeroes.len() as u64) as usize;
            self.write(at, &zeroes[..piece])?;
            at += piece as u64;
        }
        Ok(())
    }

    fn range(&mut self, command: u16, offset_bytes: u64, len_bytes: u64) -> Result<(), Failed> {
        let end = offset_bytes + len_bytes;
        let mut at = offset_bytes;
        while at < end {
            let piece = (end - at).min(u64::from(LONGEST_RANGE_BYTES)) as u32;
            self.call(command, at, piece, &[], &mut [])?;
            at += u64::from(piece);
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
        sent.and_then(|()| self.stream.flush())
            .map_err(|_| Failed::Lost)?;
        match self.answer(into).map_err(|_| Failed::Lost)? {
            0 => Ok(()),
            error => {
                self.is_shut_out |= error == NBD_ESHUTDOWN;
                Err(Failed::Refused(error))
            }
        }
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
                        return Err(ErrorKind::UnexpectedEof.into());
                    }
                    bytes.extend_from_slice(&piece[..count]);
                }
                None => {}
            }
            bytes.drain(..step.taken);
        }
    }
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
