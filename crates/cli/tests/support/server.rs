//! A server of the NBD protocol inside a test, which answers as the test says. It takes one client
//! after the other, or several at a time, and has simple replies only.

use std::io::{self, Read, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::sync::{Arc, Mutex};

use super::MIB;

/// The image that most tests have behind it, in bytes, and its blocks.
pub(crate) const SIZE: u64 = 32 * MIB;
pub(crate) const BLOCK: u64 = 4096;
/// A host that was shut out gets it from librbd, through `qemu-nbd`.
pub(crate) const ESHUTDOWN: u32 = 108;

/// A block that tells its place.
pub(crate) fn contents(block: u64) -> Vec<u8> {
    (block + 1).to_le_bytes().repeat(BLOCK as usize / 8)
}

/// An image of such blocks.
pub(crate) fn image() -> Vec<u8> {
    (0..SIZE / BLOCK).flat_map(contents).collect()
}

const NO_ZEROES: u32 = 2;
const GO: u32 = 7;
const INFO: u32 = 3;
const ACK: u32 = 1;
const UNSUPPORTED: u32 = (1 << 31) + 1;
/// `NBD_FLAG_HAS_FLAGS` and `NBD_FLAG_SEND_FLUSH`.
const FLAGS: u16 = 1 + 4;
const CAN_MULTI_CONN: u16 = 1 << 8;
const REQUEST: u32 = 0x2560_9513;
const REPLY: u32 = 0x6744_6698;

pub(crate) const READ: u16 = 0;
pub(crate) const WRITE: u16 = 1;
const DISCONNECT: u16 = 2;
pub(crate) const FLUSH: u16 = 3;

/// A request as the client makes it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Request {
    pub(crate) command: u16,
    pub(crate) offset_bytes: u64,
    /// Its client: the number of those that opened the export before.
    pub(crate) client: u64,
}

/// The answer to a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Answer {
    /// It is carried out.
    Right,
    /// It fails with this number.
    Error(u32),
    /// It is carried out, and the connection ends after so many bytes of the reply.
    Cut(usize),
    /// Nothing follows.
    Silent,
}

type Rule = Box<dyn FnMut(Request) -> Answer + Send>;

struct Shared {
    contents: Mutex<Vec<u8>>,
    rule: Mutex<Rule>,
    /// Clients that opened the export.
    clients: Mutex<u64>,
    flags: u16,
}

/// A server that goes on until the test ends.
pub(crate) struct Server(Arc<Shared>);

impl Server {
    /// Listens on a unix socket; every answer is right at first.
    pub(crate) fn start(socket: &Path, contents: Vec<u8>) -> Server {
        Server::listen(socket, contents, FLAGS)
    }

    /// Likewise, for several clients at a time, which it tells.
    pub(crate) fn start_shared(socket: &Path, contents: Vec<u8>) -> Server {
        Server::listen(socket, contents, FLAGS | CAN_MULTI_CONN)
    }

    fn listen(socket: &Path, contents: Vec<u8>, flags: u16) -> Server {
        let listener = UnixListener::bind(socket).unwrap();
        let shared = Arc::new(Shared {
            contents: Mutex::new(contents),
            rule: Mutex::new(Box::new(|_| Answer::Right)),
            clients: Mutex::new(0),
            flags,
        });
        let own = Arc::clone(&shared);
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let of_client = Arc::clone(&own);
                // Each client goes away at some time, in an order or not.
                let converse =
                    move || stream.and_then(|mut stream| of_client.converse(&mut stream));
                if flags & CAN_MULTI_CONN == 0 {
                    let _ = converse();
                } else {
                    std::thread::spawn(converse);
                }
            }
        });
        Server(shared)
    }

    /// Answers by another rule from now on.
    pub(crate) fn answer_by(&self, rule: impl FnMut(Request) -> Answer + Send + 'static) {
        *self.0.rule.lock().unwrap() = Box::new(rule);
    }

    pub(crate) fn contents(&self) -> Vec<u8> {
        self.0.contents.lock().unwrap().clone()
    }

    pub(crate) fn clients(&self) -> u64 {
        *self.0.clients.lock().unwrap()
    }
}

impl Shared {
    fn converse(&self, stream: &mut UnixStream) -> io::Result<()> {
        stream.write_all(b"NBDMAGICIHAVEOPT\x00\x03")?;
        let no_zeroes = word(stream)? & NO_ZEROES != 0;
        assert!(no_zeroes, "the daemon's client takes all that is offered");
        while !self.is_open_after_option(stream)? {}
        let mut clients = self.clients.lock().unwrap();
        let client = *clients;
        *clients += 1;
        drop(clients);
        while self.take_request(stream, client)? {}
        Ok(())
    }

    fn is_open_after_option(&self, stream: &mut UnixStream) -> io::Result<bool> {
        let mut magic = [0; 8];
        stream.read_exact(&mut magic)?;
        let option = word(stream)?;
        let mut data = vec![0; word(stream)? as usize];
        stream.read_exact(&mut data)?;
        if option != GO {
            reply(stream, option, UNSUPPORTED, &[])?;
            return Ok(false);
        }
        let size_bytes = self.contents.lock().unwrap().len() as u64;
        // NBD_INFO_EXPORT is 0.
        let mut info = vec![0, 0];
        info.extend(size_bytes.to_be_bytes());
        info.extend(self.flags.to_be_bytes());
        reply(stream, option, INFO, &info)?;
        reply(stream, option, ACK, &[])?;
        Ok(true)
    }

    fn take_request(&self, stream: &mut UnixStream, client: u64) -> io::Result<bool> {
        let mut header = [0; 28];
        stream.read_exact(&mut header)?;
        assert_eq!(header[..4], REQUEST.to_be_bytes());
        let command = u16::from_be_bytes([header[6], header[7]]);
        let cookie = &header[8..16];
        let offset_bytes = u64::from_be_bytes(header[16..24].try_into().unwrap());
        let len = u32::from_be_bytes(header[24..].try_into().unwrap()) as usize;
        if command == DISCONNECT {
            return Ok(false);
        }
        let mut data = vec![0; if command == WRITE { len } else { 0 }];
        stream.read_exact(&mut data)?;
        let request = Request {
            command,
            offset_bytes,
            client,
        };
        let answer = (self.rule.lock().unwrap())(request);
        let error = match answer {
            Answer::Silent => return Ok(true),
            Answer::Error(error) => error,
            Answer::Right | Answer::Cut(_) => 0,
        };
        let mut bytes = REPLY.to_be_bytes().to_vec();
        bytes.extend(error.to_be_bytes());
        bytes.extend(cookie);
        if error == 0 {
            let mut contents = self.contents.lock().unwrap();
            let place = &mut contents[offset_bytes as usize..];
            match command {
                READ => bytes.extend(&place[..len]),
                WRITE => place[..len].copy_from_slice(&data),
                FLUSH => {}
                other => panic!("command {other} was not offered"),
            }
        }
        if let Answer::Cut(at) = answer {
            bytes.truncate(at);
        }
        stream.write_all(&bytes)?;
        Ok(!matches!(answer, Answer::Cut(_)))
    }
}

fn word(stream: &mut UnixStream) -> io::Result<u32> {
    let mut bytes = [0; 4];
    stream.read_exact(&mut bytes)?;
    Ok(u32::from_be_bytes(bytes))
}

fn reply(stream: &mut UnixStream, option: u32, kind: u32, data: &[u8]) -> io::Result<()> {
    let mut bytes = 0x0003_e889_0455_65a9u64.to_be_bytes().to_vec();
    bytes.extend(option.to_be_bytes());
    bytes.extend(kind.to_be_bytes());
    bytes.extend((data.len() as u32).to_be_bytes());
    bytes.extend(data);
    stream.write_all(&bytes)
}
