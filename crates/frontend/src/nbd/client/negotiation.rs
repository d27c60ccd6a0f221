//! Fixed newstyle negotiation from the client's side: `NBD_OPT_STARTTLS` if TLS is wanted, and
//! `NBD_OPT_GO` with the block sizes. Replies stay simple ones
//! (docs/decisions/0034-one-connection-for-a-network-origin.md).

use super::super::wire::{
    CLIENT_FIXED_NEWSTYLE, CLIENT_NO_ZEROES, FLAG_FIXED_NEWSTYLE, FLAG_NO_ZEROES, GREETING_BYTES,
    MAX_STRING_BYTES, NBD_MAGIC, OPTION_MAGIC, OPTION_REPLY_BYTES, OPTION_REPLY_MAGIC, info,
    option, option_reply, transmission_flag,
};

/// The longest answer to an option that is read, in bytes.
const LONGEST_ANSWER_BYTES: u32 = 64 << 10;
/// Answers to one option beyond which a server only wastes time.
const MAX_ANSWERS: u32 = 1024;
/// The longest request that every server takes, in bytes (§ Block size constraints).
const LONGEST_BYTES: u32 = 32 << 20;
/// The least block size of a server that names none, in bytes.
const SECTOR_BYTES: u32 = 512;
/// The largest least block size that is understood, in bytes.
const LARGEST_BLOCK_BYTES: u32 = 64 << 10;

/// An export as its server describes it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OpenExport {
    /// Its size, in bytes.
    pub size_bytes: u64,
    /// Bits of [`transmission_flag`].
    pub flags: u16,
    /// Unit of offsets and lengths, in bytes; at least a sector.
    pub block_bytes: u32,
    /// The length of requests that the server says is best, in bytes, if it says.
    pub preferred_bytes: Option<u32>,
    /// The longest read or write, in bytes; whole blocks.
    pub longest_bytes: u32,
}

impl OpenExport {
    /// Whether the server set a flag of [`transmission_flag`].
    #[must_use]
    pub fn can(&self, flag: u16) -> bool {
        self.flags & transmission_flag::HAS_FLAGS != 0 && self.flags & flag != 0
    }
}

/// Why no export is opened.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// The bytes are not those of an NBD server of the fixed newstyle.
    #[error("it is no NBD server of the fixed newstyle; is it an old one, or none?")]
    NotNbd,
    /// The server has no such export.
    #[error("it has no export of that name{}", said(.0))]
    UnknownExport(Vec<u8>),
    /// The server wants TLS.
    #[error("it wants TLS: give it as nbds:// or nbds+unix://")]
    WantsTls,
    /// The server has no TLS.
    #[error("it has no TLS: give it as nbd:// or nbd+unix:// where the way to it is safe")]
    NoTls,
    /// Another error.
    #[error("it refuses (NBD error {number:#x}){}", said(.message))]
    Refused {
        /// The number of the reply.
        number: u32,
        /// The server's words.
        message: Vec<u8>,
    },
    /// An answer that makes no sense.
    #[error("its answer makes no sense: {0}")]
    Nonsense(&'static str),
}

/// The server's own words, if it has some.
fn said(message: &[u8]) -> String {
    if message.is_empty() {
        return String::new();
    }
    format!(": {}", String::from_utf8_lossy(message).escape_debug())
}

/// The state of a negotiation after some bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Progress {
    /// More bytes are needed.
    More,
    /// Both sides change to TLS now. Bytes that came with the answer are not of this connection.
    StartTls,
    /// The export is open.
    Open(OpenExport),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Greeting,
    Option(u32),
    Open,
}

/// A negotiation, from greeting to open export.
#[derive(Debug)]
pub struct Negotiation {
    name: String,
    wants_tls: bool,
    state: State,
    answers: u32,
    has_export: bool,
    export: OpenExport,
    output: Vec<u8>,
}

impl Negotiation {
    /// A negotiation for the export of this name.
    ///
    /// # Errors
    /// If the protocol has no place for such a name.
    pub fn new(name: &str, wants_tls: bool) -> Result<Self, Refusal> {
        if name.len() > MAX_STRING_BYTES {
            return Err(Refusal::Nonsense("the export's name is too long"));
        }
        Ok(Negotiation {
            name: name.to_owned(),
            wants_tls,
            state: State::Greeting,
            answers: 0,
            has_export: false,
            export: OpenExport {
                size_bytes: 0,
                flags: 0,
                block_bytes: SECTOR_BYTES,
                preferred_bytes: None,
                longest_bytes: LONGEST_BYTES,
            },
            output: Vec::new(),
        })
    }

    /// Takes the bytes that are to be sent now.
    pub fn take_output(&mut self) -> Vec<u8> {
        std::mem::take(&mut self.output)
    }

    /// Reads bytes of the server, and says how many it took.
    ///
    /// # Errors
    /// If the server does not open the export.
    pub fn receive(&mut self, bytes: &[u8]) -> Result<(usize, Progress), Refusal> {
        let mut taken = 0;
        loop {
            let rest = bytes.get(taken..).unwrap_or_default();
            let (len, progress) = match self.state {
                State::Greeting => match rest.first_chunk() {
                    Some(greeting) => (GREETING_BYTES, self.greeted(greeting)?),
                    None => return Ok((taken, Progress::More)),
                },
                State::Option(option) => match self.answered(option, rest)? {
                    Some(answered) => answered,
                    None => return Ok((taken, Progress::More)),
                },
                State::Open => return Ok((taken, Progress::Open(self.export))),
            };
            taken += len;
            if progress != Progress::More {
                return Ok((taken, progress));
            }
        }
    }

    fn greeted(&mut self, greeting: &[u8; GREETING_BYTES]) -> Result<Progress, Refusal> {
        let [magic @ .., _, _] = greeting;
        let expected = [NBD_MAGIC.to_be_bytes(), OPTION_MAGIC.to_be_bytes()].concat();
        let [.., high, low] = greeting;
        let flags = u16::from_be_bytes([*high, *low]);
        if magic[..] != expected[..] || flags & FLAG_FIXED_NEWSTYLE == 0 {
            return Err(Refusal::NotNbd);
        }
        let mut own = CLIENT_FIXED_NEWSTYLE;
        if flags & FLAG_NO_ZEROES != 0 {
            own |= CLIENT_NO_ZEROES;
        }
        self.output.extend(own.to_be_bytes());
        if self.wants_tls {
            self.ask(option::STARTTLS, &[]);
        } else {
            self.ask_for_export();
        }
        Ok(Progress::More)
    }

    fn ask_for_export(&mut self) {
        let name = self.name.as_bytes();
        let mut data = (name.len() as u32).to_be_bytes().to_vec();
        data.extend(name);
        data.extend(1u16.to_be_bytes());
        data.extend(info::BLOCK_SIZE.to_be_bytes());
        self.ask(option::GO, &data);
    }

    fn ask(&mut self, option: u32, data: &[u8]) {
        self.output.extend(OPTION_MAGIC.to_be_bytes());
        self.output.extend(option.to_be_bytes());
        self.output.extend((data.len() as u32).to_be_bytes());
        self.output.extend(data);
        self.state = State::Option(option);
        self.answers = 0;
    }

    /// Reads a reply to an option if it is there as a whole.
    fn answered(
        &mut self,
        option: u32,
        bytes: &[u8],
    ) -> Result<Option<(usize, Progress)>, Refusal> {
        let Some(header) = bytes.first_chunk::<OPTION_REPLY_BYTES>() else {
            return Ok(None);
        };
        let len_bytes = number32(header, 16)?;
        let ours = number64(header, 0)? == OPTION_REPLY_MAGIC && number32(header, 8)? == option;
        if !ours || len_bytes > LONGEST_ANSWER_BYTES {
            return Err(Refusal::Nonsense("it answers something else"));
        }
        let end = OPTION_REPLY_BYTES + len_bytes as usize;
        let Some(data) = bytes.get(OPTION_REPLY_BYTES..end) else {
            return Ok(None);
        };
        self.answers += 1;
        if self.answers > MAX_ANSWERS {
            return Err(Refusal::Nonsense("it never comes to an end"));
        }
        let progress = self.reply(option, number32(header, 12)?, data)?;
        Ok(Some((end, progress)))
    }

    fn reply(&mut self, option: u32, reply: u32, data: &[u8]) -> Result<Progress, Refusal> {
        let refused = || Refusal::Refused {
            number: reply,
            message: data.to_vec(),
        };
        match (option, reply) {
            (option::STARTTLS, option_reply::ACK) => {
                self.wants_tls = false;
                self.ask_for_export();
                Ok(Progress::StartTls)
            }
            (option::STARTTLS, _) => Err(Refusal::NoTls),
            (_, option_reply::ERR_TLS_REQD) => Err(Refusal::WantsTls),
            (option::GO, option_reply::INFO) => {
                self.take_info(data)?;
                Ok(Progress::More)
            }
            (option::GO, option_reply::ACK) => self.open().map(Progress::Open),
            (_, option_reply::ERR_UNKNOWN) => Err(Refusal::UnknownExport(data.to_vec())),
            _ => Err(refused()),
        }
    }

    fn take_info(&mut self, data: &[u8]) -> Result<(), Refusal> {
        let kind = data.first_chunk().map(|kind| u16::from_be_bytes(*kind));
        match kind {
            Some(info::EXPORT) => {
                self.has_export = true;
                self.export.size_bytes = number64(data, 2)?;
                self.export.flags = (number32(data, 8)? & 0xffff) as u16;
            }
            Some(info::BLOCK_SIZE) => {
                let least = number32(data, 2)?;
                if !least.is_power_of_two() || least > LARGEST_BLOCK_BYTES {
                    return Err(Refusal::Nonsense("its least block size"));
                }
                let preferred = number32(data, 6)?;
                self.export.block_bytes = least.max(SECTOR_BYTES);
                self.export.preferred_bytes = preferred.is_power_of_two().then_some(preferred);
                self.export.longest_bytes = number32(data, 10)?.min(LONGEST_BYTES);
            }
            Some(_) => {}
            None => return Err(Refusal::Nonsense("an empty information")),
        }
        Ok(())
    }

    fn open(&mut self) -> Result<OpenExport, Refusal> {
        let export = &mut self.export;
        if !self.has_export {
            return Err(Refusal::Nonsense("it says nothing of the export's size"));
        }
        export.longest_bytes = export.longest_bytes / export.block_bytes * export.block_bytes;
        if export.longest_bytes == 0 {
            return Err(Refusal::Nonsense("its block sizes"));
        }
        if export.size_bytes < u64::from(export.block_bytes) || export.size_bytes > 1 << 62 {
            return Err(Refusal::Nonsense("the size of the export"));
        }
        self.state = State::Open;
        Ok(self.export)
    }
}

fn number32(bytes: &[u8], at: usize) -> Result<u32, Refusal> {
    let field = bytes.get(at..).and_then(<[u8]>::first_chunk);
    let short = Refusal::Nonsense("it is too short");
    field.map(|field| u32::from_be_bytes(*field)).ok_or(short)
}

fn number64(bytes: &[u8], at: usize) -> Result<u64, Refusal> {
    let field = bytes.get(at..).and_then(<[u8]>::first_chunk);
    let short = Refusal::Nonsense("it is too short");
    field.map(|field| u64::from_be_bytes(*field)).ok_or(short)
}
