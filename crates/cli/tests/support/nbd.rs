//! A client of just enough of NBD to know exactly what was acknowledged.

use std::collections::HashMap;
use std::io::{self, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

const READ: u16 = 0;
const WRITE: u16 = 1;
const FLUSH: u16 = 3;
const TRIM: u16 = 4;
const WRITE_ZEROES: u16 = 6;
const FUA: u16 = 1;
const EXPORT_NAME: u32 = 1;
const GO: u32 = 7;
const ACK: u32 = 1;
const INFO: u32 = 3;

/// A connection with an export open.
pub(crate) struct Client {
    stream: UnixStream,
    /// The size that it was told.
    pub(crate) size_bytes: u64,
    next: u64,
    /// Requests not answered, with the length of what a read brings.
    waiting: HashMap<u64, usize>,
    answered: Arc<AtomicU64>,
}

/// An answer.
pub(crate) struct Reply {
    pub(crate) cookie: u64,
    pub(crate) error: u32,
    pub(crate) data: Vec<u8>,
}

impl Client {
    /// Opens the only export.
    pub(crate) fn connect(socket: &Path) -> io::Result<Client> {
        let mut client = Client::greeted(socket)?;
        client.option(EXPORT_NAME, &[])?;
        let mut answer = [0; 10];
        client.stream.read_exact(&mut answer)?;
        client.size_bytes = u64::from_be_bytes(answer[..8].try_into().unwrap());
        Ok(client)
    }

    /// Opens an export by its name, or returns what the server says instead.
    pub(crate) fn open(socket: &Path, name: &str) -> io::Result<Result<Client, String>> {
        let mut client = Client::greeted(socket)?;
        let mut wanted = (name.len() as u32).to_be_bytes().to_vec();
        wanted.extend(name.bytes());
        wanted.extend([0, 0]);
        client.option(GO, &wanted)?;
        loop {
            let mut header = [0; 20];
            client.stream.read_exact(&mut header)?;
            let word = |at: usize| u32::from_be_bytes(header[at..at + 4].try_into().unwrap());
            let mut data = vec![0; word(16) as usize];
            client.stream.read_exact(&mut data)?;
            match word(12) {
                ACK => return Ok(Ok(client)),
                // NBD_INFO_EXPORT
                INFO if data[..2] == [0, 0] => {
                    client.size_bytes = u64::from_be_bytes(data[2..10].try_into().unwrap());
                }
                INFO => {}
                _ => return Ok(Err(String::from_utf8(data).unwrap())),
            }
        }
    }

    fn greeted(socket: &Path) -> io::Result<Client> {
        let mut stream = UnixStream::connect(socket)?;
        stream.set_read_timeout(Some(super::LIMIT))?;
        let mut greeting = [0; 18];
        stream.read_exact(&mut greeting)?;
        assert_eq!(&greeting[..8], b"NBDMAGIC");
        stream.write_all(&3u32.to_be_bytes())?;
        Ok(Client {
            stream,
            size_bytes: 0,
            next: 0,
            waiting: HashMap::new(),
            answered: Arc::default(),
        })
    }

    fn option(&mut self, number: u32, data: &[u8]) -> io::Result<()> {
        let mut option = b"IHAVEOPT".to_vec();
        option.extend(number.to_be_bytes());
        option.extend((data.len() as u32).to_be_bytes());
        option.extend(data);
        self.stream.write_all(&option)
    }

    fn request(
        &mut self,
        (command, flags): (u16, u16),
        offset: u64,
        len: u32,
        payload: &[u8],
        reads: usize,
    ) -> io::Result<u64> {
        let cookie = self.next;
        self.next += 1;
        let mut message = 0x2560_9513u32.to_be_bytes().to_vec();
        message.extend(flags.to_be_bytes());
        message.extend(command.to_be_bytes());
        message.extend(cookie.to_be_bytes());
        message.extend(offset.to_be_bytes());
        message.extend(len.to_be_bytes());
        message.extend(payload);
        self.stream.write_all(&message)?;
        self.waiting.insert(cookie, reads);
        Ok(cookie)
    }

    pub(crate) fn begin_write(&mut self, offset: u64, data: &[u8]) -> io::Result<u64> {
        self.request((WRITE, 0), offset, data.len() as u32, data, 0)
    }

    /// A write that is durable when it is answered.
    pub(crate) fn begin_durable_write(&mut self, offset: u64, data: &[u8]) -> io::Result<u64> {
        self.request((WRITE, FUA), offset, data.len() as u32, data, 0)
    }

    /// Announces a write, and sends nothing of it.
    pub(crate) fn announce_write(&mut self, offset: u64, len: u32) -> io::Result<u64> {
        self.request((WRITE, 0), offset, len, &[], 0)
    }

    pub(crate) fn begin_zeroes(&mut self, offset: u64, len: u32) -> io::Result<u64> {
        self.request((WRITE_ZEROES, 0), offset, len, &[], 0)
    }

    pub(crate) fn begin_trim(&mut self, offset: u64, len: u32) -> io::Result<u64> {
        self.request((TRIM, 0), offset, len, &[], 0)
    }

    pub(crate) fn begin_read(&mut self, offset: u64, len: u32) -> io::Result<u64> {
        self.request((READ, 0), offset, len, &[], len as usize)
    }

    pub(crate) fn begin_flush(&mut self) -> io::Result<u64> {
        self.request((FLUSH, 0), 0, 0, &[], 0)
    }

    pub(crate) fn waiting(&self) -> usize {
        self.waiting.len()
    }

    /// The number of answers, for whoever watches from another thread.
    pub(crate) fn answered(&self) -> Arc<AtomicU64> {
        Arc::clone(&self.answered)
    }

    /// The next answer.
    pub(crate) fn reply(&mut self) -> io::Result<Reply> {
        let mut header = [0; 16];
        self.stream.read_exact(&mut header)?;
        assert_eq!(header[..4], 0x6744_6698u32.to_be_bytes());
        let error = u32::from_be_bytes(header[4..8].try_into().unwrap());
        let cookie = u64::from_be_bytes(header[8..].try_into().unwrap());
        let len = self
            .waiting
            .remove(&cookie)
            .expect("an answer to a request");
        let mut data = vec![0; if error == 0 { len } else { 0 }];
        self.stream.read_exact(&mut data)?;
        self.answered.fetch_add(1, Ordering::Relaxed);
        Ok(Reply {
            cookie,
            error,
            data,
        })
    }

    pub(crate) fn read(&mut self, offset: u64, len: u32) -> Vec<u8> {
        self.begin_read(offset, len).unwrap();
        let reply = self.reply().unwrap();
        assert_eq!(reply.error, 0, "read at {offset}");
        reply.data
    }

    pub(crate) fn write(&mut self, offset: u64, data: &[u8]) {
        self.begin_write(offset, data).unwrap();
        assert_eq!(self.reply().unwrap().error, 0, "write at {offset}");
    }

    pub(crate) fn flush(&mut self) {
        self.begin_flush().unwrap();
        assert_eq!(self.reply().unwrap().error, 0);
    }
}
