//! A small NBD server on a RAM disk: a thread for each connection, blocking sockets, answers in
//! the wrong order whenever there are several.

use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpListener};
use std::os::unix::net::UnixListener;
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::thread;

use forebay_engine::{Buf, Memory};
use forebay_frontend::nbd::fuzz::HeapMemory;
use forebay_frontend::nbd::{
    BlockState, Command, Connection, Event, Export, ExportId, ExportName, ExportTable, Lent,
    Limits, Parts, Phase, Request, Settings, StatusExtent, TlsPolicy,
};

pub(crate) const DISK_BYTES: usize = 16 << 20;
const BLOCK_BYTES: usize = 4096;

#[derive(Clone)]
struct Disk {
    data: Vec<u8>,
    dirty: Vec<bool>,
}

#[derive(Clone)]
pub(crate) struct Server {
    disks: Arc<[Mutex<Disk>; 2]>,
    exports: Arc<ExportTable>,
    tls: TlsPolicy,
}

impl Server {
    /// Serves `disk`, and `still`, which is read-only.
    pub(crate) fn new(tls: TlsPolicy) -> Self {
        let mut exports = ExportTable::default();
        for (id, name, read_only) in [(0, "disk", false), (1, "still", true)] {
            exports
                .add(Export {
                    id: ExportId(id),
                    name: ExportName::new(name).unwrap(),
                    description: ExportName::new(format!("the {name} of the tests")).unwrap(),
                    size_bytes: DISK_BYTES as u64,
                    min_block_bytes: 512,
                    read_only,
                    rotational: false,
                    fast_zero: true,
                })
                .unwrap();
        }
        let disk = || {
            let blocks = DISK_BYTES / BLOCK_BYTES;
            Mutex::new(Disk {
                data: vec![0; DISK_BYTES],
                dirty: vec![false; blocks],
            })
        };
        Server {
            disks: Arc::new([disk(), disk()]),
            exports: Arc::new(exports),
            tls,
        }
    }

    pub(crate) fn listen_unix(&self, path: &Path) {
        let listener = UnixListener::bind(path).unwrap();
        let server = self.clone();
        thread::spawn(move || {
            for stream in listener.incoming() {
                let (server, stream) = (server.clone(), stream.unwrap());
                thread::spawn(move || server.serve(stream));
            }
        });
    }

    pub(crate) fn listen_tcp(&self) -> SocketAddr {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let server = self.clone();
        thread::spawn(move || {
            for stream in listener.incoming() {
                let (server, stream) = (server.clone(), stream.unwrap());
                stream.set_nodelay(true).unwrap();
                thread::spawn(move || server.serve(stream));
            }
        });
        address
    }

    fn serve(&self, mut stream: impl Read + Write) {
        let settings = Settings {
            limits: Limits::default(),
            tls: self.tls.clone(),
        };
        let mut session = Session {
            connection: Connection::new(settings),
            memory: HeapMemory::default(),
            disk: 0,
            waiting: Vec::new(),
        };
        let mut buffer = vec![0; 64 << 10];
        let mut filled_bytes = 0;
        loop {
            let used_bytes = session.take(self, &buffer[..filled_bytes]);
            buffer.copy_within(used_bytes..filled_bytes, 0);
            filled_bytes -= used_bytes;
            let answered = session.answer_all(self);
            let Ok(sent) = session.send(&mut stream) else {
                break;
            };
            if session.connection.phase() == Phase::Closed {
                break;
            }
            if answered || sent || !session.connection.wants_input() {
                continue;
            }
            let space = session.connection.payload_space().next();
            let read = match space {
                Some(space) => {
                    let into =
                        &mut session.memory.bytes_mut(space.buf)[space.skip_bytes as usize..];
                    let read = stream.read(into);
                    if let Ok(bytes) = read {
                        session.connection.payload_received(bytes as u32);
                    }
                    read
                }
                None => stream.read(&mut buffer[filled_bytes..]).inspect(|bytes| {
                    filled_bytes += bytes;
                }),
            };
            match read {
                Ok(0) => session.connection.end_of_stream(),
                Ok(_) => {}
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(_) => break,
            }
        }
        session.connection.abandon();
        session.free_released();
        assert_eq!(session.memory.allocated(), 0, "all buffers come back");
    }
}

struct Session {
    connection: Connection,
    memory: HeapMemory,
    disk: usize,
    waiting: Vec<(Request, Parts)>,
}

impl Session {
    fn take(&mut self, server: &Server, input: &[u8]) -> usize {
        let mut used_bytes = 0;
        loop {
            let rest = &input[used_bytes..];
            let step = self
                .connection
                .receive(&mut self.memory, &server.exports, rest);
            used_bytes += step.consumed_bytes;
            match step.event {
                None => return used_bytes,
                Some(Event::Opened(ExportId(disk))) => self.disk = disk as usize,
                Some(Event::Request(request)) => self.waiting.push((request, Parts::new())),
                Some(Event::Write(request, parts)) => self.waiting.push((request, parts)),
                Some(Event::Payload {
                    ticket, len_bytes, ..
                }) => {
                    let parts = self.alloc(len_bytes);
                    self.connection.lend_payload(ticket, parts);
                }
            }
        }
    }

    fn alloc(&mut self, len_bytes: u32) -> Parts {
        let mut parts = Parts::new();
        let mut left_bytes = len_bytes;
        while left_bytes > 0 {
            let part_bytes = left_bytes.min(1 << 20);
            let buf = self.memory.alloc(part_bytes as usize).unwrap();
            parts.push(Lent {
                buf,
                token: u64::from(buf.start_sector),
            });
            left_bytes -= part_bytes;
        }
        parts
    }

    fn answer_all(&mut self, server: &Server) -> bool {
        let answered = !self.waiting.is_empty();
        while let Some((request, parts)) = self.waiting.pop() {
            let mut disk = server.disks[self.disk].lock().unwrap();
            self.answer(&mut disk, request, parts);
        }
        answered
    }

    fn answer(&mut self, disk: &mut Disk, request: Request, parts: Parts) {
        let start = request.offset_bytes as usize;
        let end = start + request.len_bytes as usize;
        let blocks = start / BLOCK_BYTES..end.div_ceil(BLOCK_BYTES);
        match request.command {
            Command::Read => {
                let parts = self.alloc(request.len_bytes);
                let mut at = start;
                for part in &parts {
                    let bytes = self.memory.bytes_mut(part.buf);
                    bytes.copy_from_slice(&disk.data[at..at + bytes.len()]);
                    at += bytes.len();
                }
                return self.connection.reply_read(request.ticket, parts);
            }
            Command::BlockStatus { .. } => {
                let extents: Vec<_> = blocks
                    .map(|block| extent(disk, block, start, end))
                    .collect();
                return self.connection.reply_status(request.ticket, &extents);
            }
            Command::Write { .. } => {
                let mut at = start;
                for part in &parts {
                    let bytes = self.memory.bytes(part.buf);
                    disk.data[at..at + bytes.len()].copy_from_slice(bytes);
                    at += bytes.len();
                    self.memory.free(part.buf);
                }
                disk.dirty[blocks].fill(true);
            }
            Command::Trim { .. } | Command::WriteZeroes { .. } => {
                disk.data[start..end].fill(0);
                disk.dirty[blocks].fill(true);
            }
            Command::Flush => disk.dirty.fill(false),
            Command::Cache => {}
        }
        self.connection.reply_done(request.ticket, Ok(()));
    }

    fn send(&mut self, stream: &mut impl Write) -> std::io::Result<bool> {
        let mut bytes = Vec::new();
        for piece in self.connection.output(&self.memory) {
            bytes.extend_from_slice(piece.bytes(&self.memory));
        }
        stream.write_all(&bytes)?;
        self.connection.sent(bytes.len());
        self.free_released();
        Ok(!bytes.is_empty())
    }

    fn free_released(&mut self) {
        for token in self.connection.take_released() {
            self.memory.free(Buf {
                start_sector: token as u32,
                len_bytes: 0,
            });
        }
    }
}

fn extent(disk: &Disk, block: usize, start: usize, end: usize) -> StatusExtent {
    let bytes = block * BLOCK_BYTES..(block + 1) * BLOCK_BYTES;
    let len_bytes = bytes.end.min(end) - bytes.start.max(start);
    let zero = disk.data[bytes].iter().all(|&byte| byte == 0);
    let dirty = disk.dirty[block];
    let state = BlockState {
        hole: false,
        zero,
        cached: dirty,
        dirty,
    };
    StatusExtent {
        len_bytes: len_bytes as u64,
        state,
    }
}
