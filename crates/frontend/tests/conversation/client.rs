//! A client's end of a conversation, and what it says and expects.

use forebay_engine::Memory;
use forebay_frontend::nbd::fuzz::{HeapMemory, exports, opening, small_limits};
use forebay_frontend::nbd::wire::RequestHeader;
use forebay_frontend::nbd::{
    Connection, Event, Lent, Limits, Parts, Reason, Request, Settings, TlsPolicy,
};

pub(crate) const ACK: u32 = 1;
pub(crate) const ERR_UNSUP: u32 = 0x8000_0001;
pub(crate) const ERR_POLICY: u32 = 0x8000_0002;
pub(crate) const ERR_INVALID: u32 = 0x8000_0003;
pub(crate) const ERR_TLS_REQD: u32 = 0x8000_0005;
pub(crate) const ERR_UNKNOWN: u32 = 0x8000_0006;
pub(crate) const ERR_SHUTDOWN: u32 = 0x8000_0007;
pub(crate) const ERR_TOO_BIG: u32 = 0x8000_0009;

/// A client's end, and the loop's.
pub(crate) struct Client {
    pub(crate) connection: Connection,
    pub(crate) memory: HeapMemory,
    pub(crate) left: Vec<u8>,
}

impl Client {
    pub(crate) fn connect(tls: TlsPolicy, limits: Limits) -> Self {
        let connection = Connection::new(Settings { limits, tls });
        let mut client = Client {
            connection,
            memory: HeapMemory::default(),
            left: Vec::new(),
        };
        assert_eq!(client.receive(), *b"NBDMAGICIHAVEOPT\x00\x03");
        client
    }

    /// A client in the middle of option haggling.
    pub(crate) fn haggling() -> Self {
        let mut client = Client::connect(TlsPolicy::Off, small_limits());
        client.send(&[0, 0, 0, 3]);
        client
    }

    /// A client with an export open.
    pub(crate) fn open(export: &str, structured: bool) -> Self {
        Client::open_with(export, structured, small_limits())
    }

    pub(crate) fn open_with(export: &str, structured: bool, limits: Limits) -> Self {
        let mut client = Client::connect(TlsPolicy::Off, limits);
        let events = client.send(&opening(export, structured));
        assert!(matches!(events[..], [Event::Opened(_)]), "{events:?}");
        client.receive();
        client
    }

    /// Sends bytes; payloads get buffers by themselves.
    pub(crate) fn send(&mut self, bytes: &[u8]) -> Vec<Event> {
        let mut input = std::mem::take(&mut self.left);
        input.extend_from_slice(bytes);
        let mut events = Vec::new();
        let mut rest = input.as_slice();
        let exports = exports();
        loop {
            let step = self.connection.receive(&mut self.memory, &exports, rest);
            rest = &rest[step.consumed_bytes..];
            match step.event {
                Some(Event::Payload {
                    ticket, len_bytes, ..
                }) => {
                    let parts = self.parts(&[len_bytes]);
                    self.connection.lend_payload(ticket, parts);
                }
                Some(event) => events.push(event),
                None => break,
            }
        }
        self.left = rest.to_vec();
        events
    }

    pub(crate) fn parts(&mut self, lengths: &[u32]) -> Parts {
        let mut parts = Parts::new();
        for &len_bytes in lengths {
            let buf = self.memory.alloc(len_bytes as usize).unwrap();
            parts.push(Lent {
                buf,
                token: u64::from(buf.start_sector),
            });
        }
        parts
    }

    pub(crate) fn receive(&mut self) -> Vec<u8> {
        let mut bytes = Vec::new();
        for piece in self.connection.output(&self.memory) {
            bytes.extend_from_slice(piece.bytes(&self.memory));
        }
        self.connection.sent(bytes.len());
        bytes
    }

    pub(crate) fn option(&mut self, option: u32, data: &[u8]) -> Vec<(u32, Vec<u8>)> {
        self.send(&option_bytes(option, data));
        option_replies(option, &self.receive())
    }

    /// Sends one request that is refused; returns the error's number.
    pub(crate) fn refused(
        &mut self,
        flags: u16,
        command: u16,
        offset_bytes: u64,
        len_bytes: u32,
    ) -> u32 {
        let events = self.send(&request(flags, command, offset_bytes, len_bytes));
        if command == 1 {
            assert_eq!(
                self.receive(),
                b"",
                "a refused write is answered after its payload"
            );
            assert!(self.send(&vec![7; len_bytes as usize - 1]).is_empty());
            assert_eq!(self.receive(), b"");
            self.send(&[7]);
        }
        assert!(events.is_empty(), "{events:?}");
        let reply = self.receive();
        assert_eq!(
            reply[..16],
            simple(u32::from_be_bytes(reply[4..8].try_into().unwrap()))
        );
        assert_eq!(reply.len(), 16);
        u32::from_be_bytes(reply[4..8].try_into().unwrap())
    }

    pub(crate) fn accepted(&mut self, bytes: &[u8]) -> Request {
        let events = self.send(bytes);
        match events[..] {
            [Event::Request(request) | Event::Write(request, _)] => request,
            _ => panic!("{events:?}"),
        }
    }

    pub(crate) fn reason(&self) -> Option<&Reason> {
        self.connection.reason()
    }
}

pub(crate) fn option_bytes(option: u32, data: &[u8]) -> Vec<u8> {
    let mut bytes = b"IHAVEOPT".to_vec();
    bytes.extend(option.to_be_bytes());
    bytes.extend((data.len() as u32).to_be_bytes());
    bytes.extend_from_slice(data);
    bytes
}

pub(crate) fn option_replies(option: u32, mut bytes: &[u8]) -> Vec<(u32, Vec<u8>)> {
    let mut replies = Vec::new();
    while !bytes.is_empty() {
        assert_eq!(bytes[..8], 0x0003_e889_0455_65a9_u64.to_be_bytes());
        assert_eq!(bytes[8..12], option.to_be_bytes());
        let kind = u32::from_be_bytes(bytes[12..16].try_into().unwrap());
        let len_bytes = u32::from_be_bytes(bytes[16..20].try_into().unwrap()) as usize;
        replies.push((kind, bytes[20..20 + len_bytes].to_vec()));
        bytes = &bytes[20 + len_bytes..];
    }
    replies
}

pub(crate) fn kinds(replies: &[(u32, Vec<u8>)]) -> Vec<u32> {
    replies.iter().map(|(kind, _)| *kind).collect()
}

pub(crate) const COOKIE: u64 = 0x1122_3344_5566_7788;

pub(crate) fn request(flags: u16, command: u16, offset_bytes: u64, len_bytes: u32) -> Vec<u8> {
    RequestHeader {
        flags,
        command,
        cookie: COOKIE,
        offset_bytes,
        len_bytes,
    }
    .encode()
    .to_vec()
}

pub(crate) fn simple(error: u32) -> Vec<u8> {
    let mut bytes = vec![0x67, 0x44, 0x66, 0x98];
    bytes.extend(error.to_be_bytes());
    bytes.extend(COOKIE.to_be_bytes());
    bytes
}

pub(crate) fn string(text: &str) -> Vec<u8> {
    let mut bytes = (text.len() as u32).to_be_bytes().to_vec();
    bytes.extend_from_slice(text.as_bytes());
    bytes
}

pub(crate) fn contexts(export: &str, queries: &[&str]) -> Vec<u8> {
    let mut bytes = string(export);
    bytes.extend((queries.len() as u32).to_be_bytes());
    queries.iter().for_each(|query| bytes.extend(string(query)));
    bytes
}

// Flags of the fuzzer's exports: all but rotational, and those of a read-only disk.
pub(crate) const DISK_FLAGS: u16 = 0b1101_0110_1101;
pub(crate) const STILL_FLAGS: u16 = 0b0101_0001_1111;
