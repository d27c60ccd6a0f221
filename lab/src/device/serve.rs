//! The loop of one virtual device: requests enter the model when they arrive, and are answered
//! when the model says that they complete.

use std::collections::HashMap;
use std::io::{ErrorKind, Read as _, Write as _};
use std::os::fd::AsFd as _;
use std::os::unix::net::{UnixDatagram, UnixListener, UnixStream};
use std::sync::Arc;

use anyhow::{Context as _, bail};
use forebay_engine::{Buf, Memory as _};
use forebay_frontend::nbd::fuzz::HeapMemory;
use forebay_frontend::nbd::{
    Command, Connection, Event, Export, ExportId, ExportName, ExportTable, Lent, Limits, Parts,
    Phase, Reason, Request, Settings, TlsPolicy,
};
use forebay_model::{Command as ModelCommand, DeviceModel};
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use super::{Image, Traffic};
use crate::clock::Clock;
use crate::realtime;

const PART_BYTES: u32 = 1 << 20;

/// Above QEMU's I/O threads: a device is ready the moment its model is.
const PRIORITY: u8 = 5;

pub(super) struct Server {
    index: usize,
    model: Box<dyn DeviceModel>,
    image: Image,
    clock: Arc<Clock>,
    wakes: UnixDatagram,
    exports: ExportTable,
    connection: Connection,
    memory: HeapMemory,
    in_flight: HashMap<u64, InFlight>,
    next_id: u64,
    traffic: Traffic,
}

#[derive(Clone, Copy)]
struct InFlight {
    request: Request,
    flush: u64,
}

impl Server {
    pub(super) fn new(
        index: usize,
        model: Box<dyn DeviceModel>,
        image: Image,
        clock: Arc<Clock>,
        wakes: UnixDatagram,
    ) -> Server {
        let connection = Connection::new(Settings {
            limits: Limits::default(),
            tls: TlsPolicy::default(),
        });
        Server {
            index,
            model,
            image,
            clock,
            wakes,
            exports: ExportTable::default(),
            connection,
            memory: HeapMemory::default(),
            in_flight: HashMap::new(),
            next_id: 0,
            traffic: Traffic::default(),
        }
    }

    pub(super) fn run(mut self, listener: &UnixListener) -> anyhow::Result<(Image, Traffic)> {
        self.exports.add(Export {
            id: ExportId(0),
            name: ExportName::new("")?,
            description: ExportName::new("")?,
            size_bytes: self.image.size_bytes(),
            min_block_bytes: 512,
            read_only: false,
            rotational: false,
            fast_zero: false,
        })?;
        realtime::raise_this_thread(PRIORITY);
        let (mut stream, _) = listener.accept().context("nobody connected")?;
        stream.set_nonblocking(true)?;
        self.wakes.set_nonblocking(true)?;
        let mut buffer = vec![0; 64 << 10];
        let mut filled_bytes = 0;
        loop {
            let completed = self.complete_due()?;
            let used_bytes = self.take(&buffer[..filled_bytes])?;
            buffer.copy_within(used_bytes..filled_bytes, 0);
            filled_bytes -= used_bytes;
            self.send(&mut stream)?;
            if self.connection.phase() == Phase::Closed {
                break;
            }
            if self.receive(&mut stream, &mut buffer, &mut filled_bytes)? || completed {
                continue;
            }
            self.wait(&stream)?;
        }
        self.check_end()?;
        self.connection.abandon();
        Ok((self.image, self.traffic))
    }

    /// A guest whose disk goes away without a power cut sees errors that nobody planned.
    fn check_end(&self) -> anyhow::Result<()> {
        match self.connection.reason() {
            // QEMU was killed in the middle of a message.
            None | Some(Reason::Truncated) => Ok(()),
            Some(reason) if reason.is_clean() => Ok(()),
            Some(reason) => bail!("the connection ended: {reason}"),
        }
    }

    /// Whether anything came, the end of the stream included.
    fn receive(
        &mut self,
        stream: &mut UnixStream,
        buffer: &mut [u8],
        filled_bytes: &mut usize,
    ) -> anyhow::Result<bool> {
        if !self.connection.wants_input() {
            return Ok(false);
        }
        let space = self.connection.payload_space().next();
        let read = match space {
            Some(space) => {
                let into = &mut self.memory.bytes_mut(space.buf)[space.skip_bytes as usize..];
                let read = stream.read(into);
                if let Ok(bytes) = read {
                    self.connection.payload_received(bytes as u32);
                }
                read
            }
            None => stream
                .read(&mut buffer[*filled_bytes..])
                .inspect(|bytes| *filled_bytes += bytes),
        };
        match read {
            Ok(0) => self.connection.end_of_stream(),
            Ok(_) => {}
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(false),
            // QEMU was killed: the power failed.
            Err(error) if error.kind() == ErrorKind::ConnectionReset => {
                self.connection.end_of_stream();
            }
            Err(error) => return Err(error).context("cannot read from QEMU"),
        }
        Ok(true)
    }

    fn take(&mut self, input: &[u8]) -> anyhow::Result<usize> {
        let mut used_bytes = 0;
        loop {
            let rest = &input[used_bytes..];
            let step = self
                .connection
                .receive(&mut self.memory, &self.exports, rest);
            used_bytes += step.consumed_bytes;
            match step.event {
                None => return Ok(used_bytes),
                Some(Event::Opened(_)) => {}
                Some(Event::Payload {
                    ticket, len_bytes, ..
                }) => {
                    let parts = self.alloc(len_bytes)?;
                    self.connection.lend_payload(ticket, parts);
                }
                Some(Event::Request(request)) => self.start(request, &Parts::new())?,
                Some(Event::Write(request, parts)) => self.start(request, &parts)?,
            }
        }
    }

    fn alloc(&mut self, len_bytes: u32) -> anyhow::Result<Parts> {
        let mut parts = Parts::new();
        let mut left_bytes = len_bytes;
        while left_bytes > 0 {
            let part_bytes = left_bytes.min(PART_BYTES);
            let Some(buf) = self.memory.alloc(part_bytes as usize) else {
                bail!("the device has named all buffers it can name; run shorter experiments");
            };
            let token = u64::from(buf.start_sector);
            parts.push(Lent { buf, token });
            left_bytes -= part_bytes;
        }
        Ok(parts)
    }

    fn start(&mut self, request: Request, payload: &Parts) -> anyhow::Result<()> {
        let (offset, len) = (request.offset_bytes, u64::from(request.len_bytes));
        let mut flush = 0;
        let command = match request.command {
            Command::Read => {
                self.traffic.reads += 1;
                self.traffic.read_bytes += len;
                ModelCommand::read(offset, len)
            }
            Command::Write { fua } => {
                self.traffic.writes += 1;
                self.traffic.written_bytes += len;
                let mut at = offset;
                for part in payload {
                    self.image.write(self.memory.bytes(part.buf), at)?;
                    at += u64::from(part.buf.len_bytes);
                    self.memory.free(part.buf);
                }
                if fua {
                    flush = self.image.begin_flush();
                }
                ModelCommand {
                    fua,
                    ..ModelCommand::write(offset, len)
                }
            }
            Command::Trim { .. } | Command::WriteZeroes { .. } => {
                self.traffic.discards += 1;
                self.image.zero(offset, len)?;
                ModelCommand::discard(offset, len)
            }
            Command::Flush => {
                self.traffic.flushes += 1;
                flush = self.image.begin_flush();
                ModelCommand::flush()
            }
            Command::Cache | Command::BlockStatus { .. } => {
                let error = forebay_frontend::nbd::ErrorCode::NotSupported;
                self.connection.reply_done(request.ticket, Err(error));
                return Ok(());
            }
        };
        self.next_id += 1;
        self.in_flight
            .insert(self.next_id, InFlight { request, flush });
        self.model
            .submit(self.clock.now_ns(), self.next_id, command);
        Ok(())
    }

    fn complete_due(&mut self) -> anyhow::Result<bool> {
        let mut any = false;
        while let Some((id, ended_ns)) = self.model.pop_done(self.clock.now_ns()) {
            any = true;
            self.traffic.late_ns += self.clock.now_ns().saturating_sub(ended_ns);
            let Some(InFlight { request, flush }) = self.in_flight.remove(&id) else {
                bail!("the model completed command {id}, which is not in flight");
            };
            match request.command {
                Command::Read => {
                    let parts = self.alloc(request.len_bytes)?;
                    let mut at = request.offset_bytes;
                    for part in &parts {
                        self.image.read(self.memory.bytes_mut(part.buf), at)?;
                        at += u64::from(part.buf.len_bytes);
                    }
                    self.connection.reply_read(request.ticket, parts);
                    continue;
                }
                // Forced unit access covers more than the one write here, as on a drive that
                // carries it out as a flush.
                Command::Flush | Command::Write { fua: true } => self.image.flushed(flush),
                _ => {}
            }
            self.connection.reply_done(request.ticket, Ok(()));
        }
        Ok(any)
    }

    fn send(&mut self, stream: &mut UnixStream) -> anyhow::Result<()> {
        let mut bytes = Vec::new();
        for piece in self.connection.output(&self.memory) {
            bytes.extend_from_slice(piece.bytes(&self.memory));
        }
        let mut left = bytes.as_slice();
        while !left.is_empty() {
            match stream.write(left) {
                Ok(written) => left = &left[written..],
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock => {
                    poll(&mut [PollFd::new(stream, PollFlags::OUT)], None)?;
                }
                Err(error) if error.kind() == ErrorKind::BrokenPipe => {
                    self.connection.end_of_stream();
                    break;
                }
                Err(error) => return Err(error).context("cannot write to QEMU"),
            }
        }
        self.connection.sent(bytes.len());
        let released: Vec<u64> = self.connection.take_released().collect();
        for token in released {
            self.memory.free(Buf {
                start_sector: token as u32,
                len_bytes: 0,
            });
        }
        Ok(())
    }

    fn wait(&mut self, stream: &UnixStream) -> anyhow::Result<()> {
        let next_ns = self.model.next_event_ns();
        self.clock.sleep(self.index, next_ns);
        let timeout = next_ns.map(|at_ns| {
            let guest_ns = at_ns.saturating_sub(self.clock.now_ns());
            let host_ns = self.clock.host_ns_for(guest_ns);
            Timespec {
                tv_sec: (host_ns / 1_000_000_000) as i64,
                tv_nsec: (host_ns % 1_000_000_000) as i64,
            }
        });
        let mut descriptors = [
            PollFd::from_borrowed_fd(stream.as_fd(), PollFlags::IN),
            PollFd::from_borrowed_fd(self.wakes.as_fd(), PollFlags::IN),
        ];
        let polled = poll(&mut descriptors, timeout.as_ref());
        let woken = !descriptors[1].revents().is_empty();
        self.clock.wake(self.index);
        match polled {
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(error).context("cannot wait for QEMU"),
        }
        let mut byte = [0; 1];
        while woken && self.wakes.recv(&mut byte).is_ok() {}
        self.model.advance(self.clock.now_ns());
        Ok(())
    }
}
