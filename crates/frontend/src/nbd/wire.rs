//! The protocol's numbers and its messages of fixed size, each encoded to or decoded from an
//! array, so that its length is part of its type. Everything is big-endian.

/// First eight bytes of the greeting, `NBDMAGIC` (§ Newstyle negotiation).
pub const NBD_MAGIC: u64 = u64::from_be_bytes(*b"NBDMAGIC");
/// Marks newstyle in the greeting and every option, `IHAVEOPT` (§ Newstyle negotiation).
pub const OPTION_MAGIC: u64 = u64::from_be_bytes(*b"IHAVEOPT");
/// Starts each reply to an option (§ Fixed newstyle negotiation).
pub const OPTION_REPLY_MAGIC: u64 = 0x0003_e889_0455_65a9;
/// Starts each request (§ Request message).
pub const REQUEST_MAGIC: u32 = 0x2560_9513;
/// Starts each simple reply (§ Simple reply message).
pub const SIMPLE_REPLY_MAGIC: u32 = 0x6744_6698;
/// Starts each structured reply chunk (§ Structured reply chunk message).
pub const STRUCTURED_REPLY_MAGIC: u32 = 0x668e_33ef;

/// The longest string the protocol allows, in bytes (§ Conventions).
pub const MAX_STRING_BYTES: usize = 4096;
/// Zeroes after the answer to `NBD_OPT_EXPORT_NAME` for clients that did not decline them.
pub const EXPORT_NAME_ZEROES_BYTES: usize = 124;

/// Server flag: options are answered one by one.
pub const FLAG_FIXED_NEWSTYLE: u16 = 1 << 0;
/// Server flag: the zeroes after `NBD_OPT_EXPORT_NAME` can be left out.
pub const FLAG_NO_ZEROES: u16 = 1 << 1;
/// Client flag: understands fixed newstyle.
pub const CLIENT_FIXED_NEWSTYLE: u32 = 1 << 0;
/// Client flag: do not send the zeroes.
pub const CLIENT_NO_ZEROES: u32 = 1 << 1;

/// Numbers of options (§ Option types).
pub mod option {
    /// Choose an export, without an answer if it fails.
    pub const EXPORT_NAME: u32 = 1;
    /// End the session.
    pub const ABORT: u32 = 2;
    /// List the exports.
    pub const LIST: u32 = 3;
    /// Change to TLS.
    pub const STARTTLS: u32 = 5;
    /// Describe an export.
    pub const INFO: u32 = 6;
    /// Describe an export and start using it.
    pub const GO: u32 = 7;
    /// Use structured replies.
    pub const STRUCTURED_REPLY: u32 = 8;
    /// List metadata contexts.
    pub const LIST_META_CONTEXT: u32 = 9;
    /// Select metadata contexts.
    pub const SET_META_CONTEXT: u32 = 10;
    /// Use extended headers; refused.
    pub const EXTENDED_HEADERS: u32 = 11;
}

/// Types of replies to options (§ Option reply types).
pub mod option_reply {
    /// Done.
    pub const ACK: u32 = 1;
    /// An export of a list.
    pub const SERVER: u32 = 2;
    /// A piece of information on an export.
    pub const INFO: u32 = 3;
    /// A metadata context.
    pub const META_CONTEXT: u32 = 4;
    const ERROR: u32 = 1 << 31;
    /// The option is unknown.
    pub const ERR_UNSUP: u32 = ERROR | 1;
    /// The option is known and forbidden here.
    pub const ERR_POLICY: u32 = ERROR | 2;
    /// The option's data make no sense, or it came at the wrong time.
    pub const ERR_INVALID: u32 = ERROR | 3;
    /// TLS first.
    pub const ERR_TLS_REQD: u32 = ERROR | 5;
    /// No such export.
    pub const ERR_UNKNOWN: u32 = ERROR | 6;
    /// The server is going away.
    pub const ERR_SHUTDOWN: u32 = ERROR | 7;
    /// The option is longer than the server accepts.
    pub const ERR_TOO_BIG: u32 = ERROR | 9;
}

/// Types of information in `NBD_REP_INFO`.
pub mod info {
    /// Size and transmission flags.
    pub const EXPORT: u16 = 0;
    /// The canonical name.
    pub const NAME: u16 = 1;
    /// A text for people.
    pub const DESCRIPTION: u16 = 2;
    /// Minimum, preferred and maximum block size.
    pub const BLOCK_SIZE: u16 = 3;
}

/// Flags of an export (§ Transmission flags).
pub mod transmission_flag {
    /// Always set.
    pub const HAS_FLAGS: u16 = 1 << 0;
    /// Writes are refused.
    pub const READ_ONLY: u16 = 1 << 1;
    /// `NBD_CMD_FLUSH` is served.
    pub const SEND_FLUSH: u16 = 1 << 2;
    /// `NBD_CMD_FLAG_FUA` is served.
    pub const SEND_FUA: u16 = 1 << 3;
    /// The medium rotates.
    pub const ROTATIONAL: u16 = 1 << 4;
    /// `NBD_CMD_TRIM` is served.
    pub const SEND_TRIM: u16 = 1 << 5;
    /// `NBD_CMD_WRITE_ZEROES` is served.
    pub const SEND_WRITE_ZEROES: u16 = 1 << 6;
    /// `NBD_CMD_FLAG_DF` is served.
    pub const SEND_DF: u16 = 1 << 7;
    /// A flush on one connection covers writes answered on another.
    pub const CAN_MULTI_CONN: u16 = 1 << 8;
    /// `NBD_CMD_CACHE` is served.
    pub const SEND_CACHE: u16 = 1 << 10;
    /// `NBD_CMD_FLAG_FAST_ZERO` is served.
    pub const SEND_FAST_ZERO: u16 = 1 << 11;
}

/// Numbers of commands (§ Request types).
pub mod command {
    /// Read.
    pub const READ: u16 = 0;
    /// Write; the only one followed by a payload.
    pub const WRITE: u16 = 1;
    /// Disconnect.
    pub const DISC: u16 = 2;
    /// Flush.
    pub const FLUSH: u16 = 3;
    /// Discard.
    pub const TRIM: u16 = 4;
    /// Prefetch.
    pub const CACHE: u16 = 5;
    /// Write zeroes.
    pub const WRITE_ZEROES: u16 = 6;
    /// Block status.
    pub const BLOCK_STATUS: u16 = 7;
}

/// Flags of commands (§ Command flags).
pub mod command_flag {
    /// Answer when durable.
    pub const FUA: u16 = 1 << 0;
    /// Zeroes must be allocated.
    pub const NO_HOLE: u16 = 1 << 1;
    /// At most one content chunk.
    pub const DF: u16 = 1 << 2;
    /// At most one extent for each context.
    pub const REQ_ONE: u16 = 1 << 3;
    /// Fail rather than be as slow as a write.
    pub const FAST_ZERO: u16 = 1 << 4;
}

/// Types of structured reply chunks (§ Structured reply types).
pub mod chunk {
    /// Nothing more.
    pub const NONE: u16 = 0;
    /// Data at an offset.
    pub const OFFSET_DATA: u16 = 1;
    /// Extents of one metadata context.
    pub const BLOCK_STATUS: u16 = 5;
    /// Set in the type of every chunk that is an error.
    pub const ERROR_BIT: u16 = 1 << 15;
    /// An error and its message.
    pub const ERROR: u16 = ERROR_BIT | 1;
    /// Flag: the last chunk of its reply.
    pub const FLAG_DONE: u16 = 1 << 0;
}

/// Fields written one after the other into an array of exactly their size.
struct Pack<const N: usize> {
    bytes: [u8; N],
    at: usize,
}

impl<const N: usize> Pack<N> {
    fn new() -> Self {
        Pack {
            bytes: [0; N],
            at: 0,
        }
    }

    fn put<const F: usize>(mut self, field: [u8; F]) -> Self {
        self.bytes[self.at..self.at + F].copy_from_slice(&field);
        self.at += F;
        self
    }

    fn u16(self, value: u16) -> Self {
        self.put(value.to_be_bytes())
    }

    fn u32(self, value: u32) -> Self {
        self.put(value.to_be_bytes())
    }

    fn u64(self, value: u64) -> Self {
        self.put(value.to_be_bytes())
    }

    fn done(self) -> [u8; N] {
        debug_assert_eq!(self.at, N, "every byte of a message is given");
        self.bytes
    }
}

fn field<const N: usize, const F: usize>(bytes: &[u8; N], at: usize) -> [u8; F] {
    std::array::from_fn(|index| bytes[at + index])
}

/// Length of the server's greeting, in bytes.
pub const GREETING_BYTES: usize = 18;
/// Length of the client's flags, in bytes.
pub const CLIENT_FLAGS_BYTES: usize = 4;
/// Length of an option's header, in bytes.
pub const OPTION_HEADER_BYTES: usize = 16;
/// Length of the header of a reply to an option, in bytes.
pub const OPTION_REPLY_BYTES: usize = 20;
/// Length of a request without its payload, in bytes.
pub const REQUEST_BYTES: usize = 28;
/// Length of a simple reply without data, in bytes.
pub const SIMPLE_REPLY_BYTES: usize = 16;
/// Length of a chunk's header, in bytes.
pub const CHUNK_BYTES: usize = 20;
/// Length of a data chunk without its data, in bytes.
pub const DATA_CHUNK_BYTES: usize = CHUNK_BYTES + 8;
/// Length of an error chunk without its message, in bytes.
pub const ERROR_CHUNK_BYTES: usize = CHUNK_BYTES + 6;
/// Length of a block status chunk without its descriptors, in bytes.
pub const STATUS_CHUNK_BYTES: usize = CHUNK_BYTES + 4;
/// Length of one descriptor of block status, in bytes.
pub const DESCRIPTOR_BYTES: usize = 8;

const _: () = {
    assert!(GREETING_BYTES == 8 + 8 + 2);
    assert!(OPTION_HEADER_BYTES == 8 + 4 + 4);
    assert!(OPTION_REPLY_BYTES == 8 + 4 + 4 + 4);
    assert!(REQUEST_BYTES == 4 + 2 + 2 + 8 + 8 + 4);
    assert!(SIMPLE_REPLY_BYTES == 4 + 4 + 8);
    assert!(CHUNK_BYTES == 4 + 2 + 2 + 8 + 4);
};

/// The server's first bytes (§ Newstyle negotiation).
#[must_use]
pub fn greeting() -> [u8; GREETING_BYTES] {
    Pack::new()
        .u64(NBD_MAGIC)
        .u64(OPTION_MAGIC)
        .u16(FLAG_FIXED_NEWSTYLE | FLAG_NO_ZEROES)
        .done()
}

/// The header of an option (§ Newstyle negotiation).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OptionHeader {
    /// A number in [`option`], or any other.
    pub option: u32,
    /// Length of the data that follow, in bytes.
    pub len_bytes: u32,
}

impl OptionHeader {
    /// Reads a header; `None` if its magic number is wrong.
    #[must_use]
    pub fn decode(bytes: &[u8; OPTION_HEADER_BYTES]) -> Option<Self> {
        if u64::from_be_bytes(field(bytes, 0)) != OPTION_MAGIC {
            return None;
        }
        Some(OptionHeader {
            option: u32::from_be_bytes(field(bytes, 8)),
            len_bytes: u32::from_be_bytes(field(bytes, 12)),
        })
    }
}

/// The header of a reply to `option`, of a type in [`mod@option_reply`], before `len_bytes` of data.
#[must_use]
pub fn option_reply(option: u32, reply: u32, len_bytes: u32) -> [u8; OPTION_REPLY_BYTES] {
    Pack::new()
        .u64(OPTION_REPLY_MAGIC)
        .u32(option)
        .u32(reply)
        .u32(len_bytes)
        .done()
}

/// The answer to `NBD_OPT_EXPORT_NAME`, before the zeroes.
#[must_use]
pub fn export_name_reply(size_bytes: u64, flags: u16) -> [u8; 10] {
    Pack::new().u64(size_bytes).u16(flags).done()
}

/// `NBD_INFO_EXPORT`.
#[must_use]
pub fn info_export(size_bytes: u64, flags: u16) -> [u8; 12] {
    Pack::new()
        .u16(info::EXPORT)
        .u64(size_bytes)
        .u16(flags)
        .done()
}

/// `NBD_INFO_BLOCK_SIZE`; sizes in bytes.
#[must_use]
pub fn info_block_size(minimum_bytes: u32, preferred_bytes: u32, maximum_bytes: u32) -> [u8; 14] {
    Pack::new()
        .u16(info::BLOCK_SIZE)
        .u32(minimum_bytes)
        .u32(preferred_bytes)
        .u32(maximum_bytes)
        .done()
}

/// A request, as it stands on the wire (§ Request message).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RequestHeader {
    /// Bits of [`command_flag`].
    pub flags: u16,
    /// A number in [`command`], or any other.
    pub command: u16,
    /// The client's name for the request.
    pub cookie: u64,
    /// Where it starts, in bytes.
    pub offset_bytes: u64,
    /// Its length, in bytes.
    pub len_bytes: u32,
}

impl RequestHeader {
    /// Reads a request; `None` if its magic number is wrong.
    #[must_use]
    pub fn decode(bytes: &[u8; REQUEST_BYTES]) -> Option<Self> {
        if u32::from_be_bytes(field(bytes, 0)) != REQUEST_MAGIC {
            return None;
        }
        Some(RequestHeader {
            flags: u16::from_be_bytes(field(bytes, 4)),
            command: u16::from_be_bytes(field(bytes, 6)),
            cookie: u64::from_be_bytes(field(bytes, 8)),
            offset_bytes: u64::from_be_bytes(field(bytes, 16)),
            len_bytes: u32::from_be_bytes(field(bytes, 24)),
        })
    }

    /// Writes a request, as a client does.
    #[must_use]
    pub fn encode(&self) -> [u8; REQUEST_BYTES] {
        Pack::new()
            .u32(REQUEST_MAGIC)
            .u16(self.flags)
            .u16(self.command)
            .u64(self.cookie)
            .u64(self.offset_bytes)
            .u32(self.len_bytes)
            .done()
    }
}

/// A simple reply; `error` is zero for success (§ Simple reply message).
#[must_use]
pub fn simple_reply(error: u32, cookie: u64) -> [u8; SIMPLE_REPLY_BYTES] {
    Pack::new()
        .u32(SIMPLE_REPLY_MAGIC)
        .u32(error)
        .u64(cookie)
        .done()
}

fn chunk_header<const N: usize>(flags: u16, kind: u16, cookie: u64, len_bytes: u32) -> Pack<N> {
    Pack::new()
        .u32(STRUCTURED_REPLY_MAGIC)
        .u16(flags)
        .u16(kind)
        .u64(cookie)
        .u32(len_bytes)
}

/// `NBD_REPLY_TYPE_NONE`: success, nothing to say.
#[must_use]
pub fn none_chunk(cookie: u64) -> [u8; CHUNK_BYTES] {
    chunk_header(chunk::FLAG_DONE, chunk::NONE, cookie, 0).done()
}

/// `NBD_REPLY_TYPE_OFFSET_DATA`, the only chunk of its reply, before `len_bytes` of data.
#[must_use]
pub fn data_chunk(cookie: u64, offset_bytes: u64, len_bytes: u32) -> [u8; DATA_CHUNK_BYTES] {
    chunk_header(chunk::FLAG_DONE, chunk::OFFSET_DATA, cookie, len_bytes + 8)
        .u64(offset_bytes)
        .done()
}

/// `NBD_REPLY_TYPE_ERROR`, the only chunk of its reply, before a message of `message_bytes`.
#[must_use]
pub fn error_chunk(cookie: u64, error: u32, message_bytes: u16) -> [u8; ERROR_CHUNK_BYTES] {
    chunk_header(
        chunk::FLAG_DONE,
        chunk::ERROR,
        cookie,
        6 + u32::from(message_bytes),
    )
    .u32(error)
    .u16(message_bytes)
    .done()
}

/// `NBD_REPLY_TYPE_BLOCK_STATUS` for one context, before `descriptors` descriptors.
#[must_use]
pub fn status_chunk(
    last: bool,
    cookie: u64,
    context_id: u32,
    descriptors: u32,
) -> [u8; STATUS_CHUNK_BYTES] {
    let flags = if last { chunk::FLAG_DONE } else { 0 };
    chunk_header(
        flags,
        chunk::BLOCK_STATUS,
        cookie,
        4 + descriptors * DESCRIPTOR_BYTES as u32,
    )
    .u32(context_id)
    .done()
}

/// A descriptor of block status: a length in bytes and the context's flags.
#[must_use]
pub fn descriptor(len_bytes: u32, flags: u32) -> [u8; DESCRIPTOR_BYTES] {
    Pack::new().u32(len_bytes).u32(flags).done()
}
