//! A client of the NBD protocol, as far as a replay needs one (`doc/proto.md` of the NBD project):
//! fixed newstyle negotiation with `NBD_OPT_GO`, simple replies, one request at a time on each
//! connection.

use std::io::{self, ErrorKind, Read, Write};
use std::net::TcpStream;
use std::os::unix::net::UnixStream;

use anyhow::{Context, Result, anyhow, bail};
use forebay_frontend::nbd::wire::{
    self, CLIENT_FIXED_NEWSTYLE, CLIENT_NO_ZEROES, FLAG_FIXED_NEWSTYLE, FLAG_NO_ZEROES,
    GREETING_BYTES, NBD_MAGIC, OPTION_MAGIC, OPTION_REPLY_BYTES, OPTION_REPLY_MAGIC, RequestHeader,
    SIMPLE_REPLY_BYTES, SIMPLE_REPLY_MAGIC, command, info, option, option_reply, transmission_flag,
};
use forebay_trace::Kind;

use super::operations::Operation;
use super::target::{Data, Failed, Session, Target, pieces};
use crate::failure::{Usage, wrong_usage};

/// The longest request that every server takes (proto.md, "Block size constraints").
const LONGEST_BYTES: u32 = 32 << 20;
/// Block size of a server that names none.
const BLOCK_BYTES: u32 = 512;
/// The longest answer to an option that is read.
const LONGEST_ANSWER_BYTES: u32 = 64 << 10;

/// Where an export is.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Place {
    socket: Socket,
    export: String,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Socket {
    Unix(String),
    Tcp(String),
}

/// Reads `nbd://HOST:PORT/EXPORT` or `nbd+unix:///EXPORT?socket=PATH`.
fn parse(uri: &str) -> Result<Place> {
    let wrong = || {
        Usage(format!(
            "`{uri}` is no target such as nbd://HOST:PORT/EXPORT, nbd+unix:///EXPORT?socket=PATH or /dev/sdb"
        ))
    };
    let (scheme, rest) = uri.split_once("://").ok_or_else(wrong)?;
    let (path, query) = rest.split_once('?').unwrap_or((rest, ""));
    let (host, export) = path.split_once('/').unwrap_or((path, ""));
    let socket = match scheme {
        "nbd+unix" => {
            let mut settings = query.split('&');
            let socket = settings.find_map(|setting| setting.strip_prefix("socket="));
            Socket::Unix(decoded(socket.ok_or_else(wrong)?).ok_or_else(wrong)?)
        }
        "nbd" if host.is_empty() => return Err(wrong().into()),
        "nbd" => {
            let has_port = host.rsplit_once(':').is_some_and(|(_, port)| {
                !port.is_empty() && port.bytes().all(|byte| byte.is_ascii_digit())
            });
            let default = if has_port { "" } else { ":10809" };
            Socket::Tcp(format!("{host}{default}"))
        }
        "nbds" | "nbds+unix" => {
            let told = "a replay does not speak TLS: use the volume's unix socket";
            return Err(Usage(told.to_owned()).into());
        }
        _ => return Err(wrong().into()),
    };
    let export = decoded(export).ok_or_else(wrong)?;
    Ok(Place { socket, export })
}

/// Text with `%41` for `A`.
fn decoded(text: &str) -> Option<String> {
    let mut bytes = Vec::new();
    let mut rest = text.as_bytes();
    while let Some((&first, behind)) = rest.split_first() {
        rest = behind;
        if first != b'%' {
            bytes.push(first);
            continue;
        }
        let digits = rest.get(..2).filter(|two| two.is_ascii())?;
        let digits = std::str::from_utf8(digits).ok()?;
        bytes.push(u8::from_str_radix(digits, 16).ok()?);
        rest = &rest[2..];
    }
    String::from_utf8(bytes).ok()
}

trait Stream: Read + Write + Send {}
impl<T: Read + Write + Send> Stream for T {}

/// An export, as the server describes it.
#[derive(Clone, Copy, Debug)]
struct Export {
    size_bytes: u64,
    flags: u16,
    block_bytes: u32,
    longest_bytes: u32,
}

impl Export {
    fn can(&self, flag: u16) -> bool {
        self.flags & flag != 0
    }
}

/// A target for a URI.
pub(super) fn open(uri: &str, read_only: bool, depth: u16) -> Result<Target> {
    let place = parse(uri)?;
    let uri = uri.to_owned();
    let connect = move || connect(&place).with_context(|| format!("cannot replay on {uri}"));
    let export = connect()?.1;
    if !read_only && export.can(transmission_flag::READ_ONLY) {
        wrong_usage!("the server offers this export to be read only; replay with --reads-only");
    }
    if !read_only && depth > 1 && !export.can(transmission_flag::CAN_MULTI_CONN) {
        wrong_usage!(
            "the server does not say that a flush on one connection is good for the writes of another: replay with --depth 1"
        );
    }
    Ok(Target {
        size_bytes: export.size_bytes,
        block_bytes: u64::from(export.block_bytes),
        discards: export.can(transmission_flag::SEND_TRIM),
        zeroes: export.can(transmission_flag::SEND_WRITE_ZEROES),
        open: Box::new(move || {
            let (stream, export) = connect()?;
            Ok(Box::new(Connection {
                stream,
                export,
                next: 0,
                read: Vec::new(),
                message: Vec::new(),
                data: Data::new(),
            }))
        }),
    })
}

fn connect(place: &Place) -> Result<(Box<dyn Stream>, Export)> {
    let mut stream: Box<dyn Stream> = match &place.socket {
        Socket::Unix(path) => {
            Box::new(UnixStream::connect(path).with_context(|| format!("cannot reach {path}"))?)
        }
        Socket::Tcp(address) => {
            let stream =
                TcpStream::connect(address).with_context(|| format!("cannot reach {address}"))?;
            stream.set_nodelay(true)?;
            Box::new(stream)
        }
    };
    let export = negotiate(&mut *stream, &place.export).context("the server does not agree")?;
    Ok((stream, export))
}

fn number<const N: usize>(bytes: &[u8], at: usize) -> Result<[u8; N]> {
    let end = at + N;
    let field = bytes.get(at..end).and_then(|field| field.try_into().ok());
    field.context("an answer of the server's is too short")
}

fn negotiate(stream: &mut dyn Stream, name: &str) -> Result<Export> {
    let mut greeting = [0; GREETING_BYTES];
    stream.read_exact(&mut greeting)?;
    let flags = u16::from_be_bytes(number(&greeting, 16)?);
    let magics = [
        u64::from_be_bytes(number(&greeting, 0)?),
        u64::from_be_bytes(number(&greeting, 8)?),
    ];
    if magics != [NBD_MAGIC, OPTION_MAGIC] || flags & FLAG_FIXED_NEWSTYLE == 0 {
        bail!("it is no NBD server of the fixed newstyle; is it an old one, or none?");
    }
    let mut message = CLIENT_FIXED_NEWSTYLE.to_be_bytes().to_vec();
    if flags & FLAG_NO_ZEROES != 0 {
        message = (CLIENT_FIXED_NEWSTYLE | CLIENT_NO_ZEROES)
            .to_be_bytes()
            .to_vec();
    }
    message.extend(OPTION_MAGIC.to_be_bytes());
    message.extend(option::GO.to_be_bytes());
    message.extend((4 + name.len() as u32 + 4).to_be_bytes());
    message.extend((name.len() as u32).to_be_bytes());
    message.extend(name.as_bytes());
    message.extend(1u16.to_be_bytes());
    message.extend(info::BLOCK_SIZE.to_be_bytes());
    stream.write_all(&message)?;
    let mut export = Export {
        size_bytes: 0,
        flags: 0,
        block_bytes: BLOCK_BYTES,
        longest_bytes: LONGEST_BYTES,
    };
    while let Some(about) = answer(stream)? {
        take_info(&about, &mut export)?;
    }
    let longest_bytes = export.longest_bytes / export.block_bytes * export.block_bytes;
    if export.size_bytes < u64::from(export.block_bytes) || longest_bytes == 0 {
        bail!("the export is empty, or its block sizes make no sense");
    }
    Ok(Export {
        longest_bytes,
        ..export
    })
}

/// The data of the next information, or `None` when the export is open.
fn answer(stream: &mut dyn Stream) -> Result<Option<Vec<u8>>> {
    let mut header = [0; OPTION_REPLY_BYTES];
    stream.read_exact(&mut header)?;
    let reply = u32::from_be_bytes(number(&header, 12)?);
    let len_bytes = u32::from_be_bytes(number(&header, 16)?);
    if u64::from_be_bytes(number(&header, 0)?) != OPTION_REPLY_MAGIC
        || len_bytes > LONGEST_ANSWER_BYTES
    {
        bail!("its answer is not NBD; is it an NBD server?");
    }
    let mut data = vec![0; len_bytes as usize];
    stream.read_exact(&mut data)?;
    match reply {
        option_reply::ACK => Ok(None),
        option_reply::INFO => Ok(Some(data)),
        option_reply::ERR_UNKNOWN => bail!("{}", refusal("it has no export of that name", &data)),
        option_reply::ERR_TLS_REQD => bail!("it wants TLS, which a replay does not speak"),
        other => bail!(
            "{}",
            refusal(&format!("it refuses (NBD error {other:#x})"), &data)
        ),
    }
}

/// With the server's own words, if it has some.
fn refusal(what: &str, said: &[u8]) -> String {
    if said.is_empty() {
        return what.to_owned();
    }
    format!("{what}: {}", String::from_utf8_lossy(said).escape_debug())
}

fn take_info(about: &[u8], export: &mut Export) -> Result<()> {
    match u16::from_be_bytes(number(about, 0)?) {
        info::EXPORT => {
            export.size_bytes = u64::from_be_bytes(number(about, 2)?);
            export.flags = u16::from_be_bytes(number(about, 10)?);
        }
        info::BLOCK_SIZE => {
            let least = u32::from_be_bytes(number(about, 2)?);
            let most = u32::from_be_bytes(number(about, 10)?);
            if !least.is_power_of_two() || least > 64 << 10 {
                return Err(anyhow!("its least block size is {least}"));
            }
            export.block_bytes = least.max(BLOCK_BYTES);
            export.longest_bytes = most.min(LONGEST_BYTES);
        }
        _ => {}
    }
    Ok(())
}

struct Connection {
    stream: Box<dyn Stream>,
    export: Export,
    next: u64,
    read: Vec<u8>,
    message: Vec<u8>,
    data: Data,
}

impl Session for Connection {
    fn carry_out(&mut self, operation: &Operation) -> Result<(), Failed> {
        let longest = match operation.kind {
            Kind::Read | Kind::Write => self.export.longest_bytes,
            _ => u32::MAX,
        };
        // A flush that the server does not know is none that it needs.
        if operation.kind == Kind::Flush && !self.export.can(transmission_flag::SEND_FLUSH) {
            return Ok(());
        }
        for (offset_bytes, len_bytes) in pieces(operation, longest) {
            let error = self
                .piece(operation.kind, offset_bytes, len_bytes)
                .map_err(|error| Failed::Lost(error.to_string()))?;
            if error != 0 {
                let kind = operation.kind;
                return Err(Failed::Refused(format!(
                    "{} of {len_bytes} bytes at {offset_bytes}: the server answers with error {error}",
                    kind.name()
                )));
            }
        }
        Ok(())
    }
}

impl Connection {
    /// Sends a request and returns its answer: 0 or the server's number of the error.
    fn piece(&mut self, kind: Kind, offset_bytes: u64, len_bytes: u32) -> io::Result<u32> {
        self.next += 1;
        let header = RequestHeader {
            flags: 0,
            command: match kind {
                Kind::Read => command::READ,
                Kind::Write => command::WRITE,
                Kind::WriteZeroes => command::WRITE_ZEROES,
                Kind::Discard => command::TRIM,
                Kind::Flush => command::FLUSH,
            },
            cookie: self.next,
            offset_bytes,
            len_bytes,
        };
        self.message.clear();
        self.message.extend(header.encode());
        if kind == Kind::Write {
            let end = self.message.len() + len_bytes as usize;
            while self.message.len() < end {
                let piece = (end - self.message.len()).min(Data::PIECE_BYTES);
                self.message.extend(self.data.next(piece));
            }
        }
        self.stream.write_all(&self.message)?;
        let mut reply = [0; SIMPLE_REPLY_BYTES];
        self.stream.read_exact(&mut reply)?;
        let [m0, m1, m2, m3, e0, e1, e2, e3, cookie @ ..] = reply;
        let magic = u32::from_be_bytes([m0, m1, m2, m3]);
        if magic != SIMPLE_REPLY_MAGIC || u64::from_be_bytes(cookie) != self.next {
            let told = "the server's answer belongs to no request";
            return Err(io::Error::new(ErrorKind::InvalidData, told));
        }
        let error = u32::from_be_bytes([e0, e1, e2, e3]);
        if error == 0 && kind == Kind::Read {
            let len = len_bytes as usize;
            if self.read.len() < len {
                self.read.resize(len, 0);
            }
            self.stream.read_exact(&mut self.read[..len])?;
        }
        Ok(error)
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        let goodbye = RequestHeader {
            flags: 0,
            command: wire::command::DISC,
            cookie: 0,
            offset_bytes: 0,
            len_bytes: 0,
        };
        // A server that is gone needs none.
        let _ = self.stream.write_all(&goodbye.encode());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn uris_are_understood_or_refused() {
        let place = |uri: &str| parse(uri).map(|place| (place.socket, place.export)).ok();
        let unix = |path: &str| Socket::Unix(path.to_owned());
        let tcp = |address: &str| Socket::Tcp(address.to_owned());
        for (uri, expected) in [
            (
                "nbd+unix:///sdb?socket=/run/a%20b.sock",
                Some((unix("/run/a b.sock"), "sdb")),
            ),
            ("nbd://host/x%2fy", Some((tcp("host:10809"), "x/y"))),
            ("nbd://[::1]:7/", Some((tcp("[::1]:7"), ""))),
            ("nbd://[::1]", Some((tcp("[::1]:10809"), ""))),
            ("nbd:///x", None),
            ("nbd+unix:///x", None),
            ("nbd://h/%4", None),
            ("nbds://host/x", None),
            ("http://host/x", None),
        ] {
            let expected = expected.map(|(socket, export)| (socket, export.to_owned()));
            assert_eq!(place(uri), expected, "{uri}");
        }
    }
}
