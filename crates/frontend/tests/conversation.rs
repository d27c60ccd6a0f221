//! Conversations byte for byte: each option and command, at its extremes.

use forebay_engine::Memory;
use forebay_frontend::nbd::fuzz::{HeapMemory, exports, opening, small_limits};
use forebay_frontend::nbd::wire::{self, RequestHeader};
use forebay_frontend::nbd::{
    BlockState, Command, Connection, ErrorCode, Event, ExportId, Extent, Lent, Limits, Parts,
    Phase, Reason, Request, Settings, Ticket, TlsPolicy, TlsServer,
};

const ACK: u32 = 1;
const ERR_UNSUP: u32 = 0x8000_0001;
const ERR_POLICY: u32 = 0x8000_0002;
const ERR_INVALID: u32 = 0x8000_0003;
const ERR_TLS_REQD: u32 = 0x8000_0005;
const ERR_UNKNOWN: u32 = 0x8000_0006;
const ERR_SHUTDOWN: u32 = 0x8000_0007;
const ERR_TOO_BIG: u32 = 0x8000_0009;

/// A client's end, and the loop's.
struct Client {
    connection: Connection,
    memory: HeapMemory,
    left: Vec<u8>,
}

impl Client {
    fn connect(tls: TlsPolicy, limits: Limits) -> Self {
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
    fn haggling() -> Self {
        let mut client = Client::connect(TlsPolicy::Off, small_limits());
        client.send(&[0, 0, 0, 3]);
        client
    }

    /// A client with an export open.
    fn open(export: &str, structured: bool) -> Self {
        Client::open_with(export, structured, small_limits())
    }

    fn open_with(export: &str, structured: bool, limits: Limits) -> Self {
        let mut client = Client::connect(TlsPolicy::Off, limits);
        let events = client.send(&opening(export, structured));
        assert!(matches!(events[..], [Event::Opened(_)]), "{events:?}");
        client.receive();
        client
    }

    /// Sends bytes; payloads get buffers by themselves.
    fn send(&mut self, bytes: &[u8]) -> Vec<Event> {
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

    fn parts(&mut self, lengths: &[u32]) -> Parts {
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

    fn receive(&mut self) -> Vec<u8> {
        let mut bytes = Vec::new();
        for piece in self.connection.output(&self.memory) {
            bytes.extend_from_slice(piece.bytes(&self.memory));
        }
        self.connection.sent(bytes.len());
        bytes
    }

    fn option(&mut self, option: u32, data: &[u8]) -> Vec<(u32, Vec<u8>)> {
        self.send(&option_bytes(option, data));
        option_replies(option, &self.receive())
    }

    /// Sends one request that is refused; returns the error's number.
    fn refused(&mut self, flags: u16, command: u16, offset_bytes: u64, len_bytes: u32) -> u32 {
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

    fn accepted(&mut self, bytes: &[u8]) -> Request {
        let events = self.send(bytes);
        match events[..] {
            [Event::Request(request) | Event::Write(request, _)] => request,
            _ => panic!("{events:?}"),
        }
    }

    fn reason(&self) -> Option<&Reason> {
        self.connection.reason()
    }
}

fn option_bytes(option: u32, data: &[u8]) -> Vec<u8> {
    let mut bytes = b"IHAVEOPT".to_vec();
    bytes.extend(option.to_be_bytes());
    bytes.extend((data.len() as u32).to_be_bytes());
    bytes.extend_from_slice(data);
    bytes
}

fn option_replies(option: u32, mut bytes: &[u8]) -> Vec<(u32, Vec<u8>)> {
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

fn kinds(replies: &[(u32, Vec<u8>)]) -> Vec<u32> {
    replies.iter().map(|(kind, _)| *kind).collect()
}

const COOKIE: u64 = 0x1122_3344_5566_7788;

fn request(flags: u16, command: u16, offset_bytes: u64, len_bytes: u32) -> Vec<u8> {
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

fn simple(error: u32) -> Vec<u8> {
    let mut bytes = vec![0x67, 0x44, 0x66, 0x98];
    bytes.extend(error.to_be_bytes());
    bytes.extend(COOKIE.to_be_bytes());
    bytes
}

fn string(text: &str) -> Vec<u8> {
    let mut bytes = (text.len() as u32).to_be_bytes().to_vec();
    bytes.extend_from_slice(text.as_bytes());
    bytes
}

fn contexts(export: &str, queries: &[&str]) -> Vec<u8> {
    let mut bytes = string(export);
    bytes.extend((queries.len() as u32).to_be_bytes());
    queries.iter().for_each(|query| bytes.extend(string(query)));
    bytes
}

// What the exports of the fuzzer are told as: all flags but rotational, and a disk to look at.
const DISK_FLAGS: u16 = 0b1101_0110_1101;
const STILL_FLAGS: u16 = 0b0101_0001_1111;

#[test]
fn unknown_client_flags_end_the_session() {
    let mut client = Client::connect(TlsPolicy::Off, small_limits());
    client.send(&[0, 0, 0, 7]);
    assert_eq!(client.reason(), Some(&Reason::ClientFlags { flags: 7 }));
    assert_eq!(client.connection.phase(), Phase::Closed);
}

#[test]
fn export_name_with_and_without_zeroes() {
    for (flags, zeroes) in [(1_u8, 124), (3, 0), (0, 124)] {
        let mut client = Client::connect(TlsPolicy::Off, small_limits());
        client.send(&[0, 0, 0, flags]);
        let events = client.send(&option_bytes(1, b"still"));
        assert_eq!(events, [Event::Opened(ExportId(2))]);
        let mut expected = (1_u64 << 20).to_be_bytes().to_vec();
        expected.extend(STILL_FLAGS.to_be_bytes());
        expected.extend(vec![0; zeroes]);
        assert_eq!(client.receive(), expected);
        assert_eq!(client.connection.phase(), Phase::Transmitting);
    }
}

#[test]
fn export_name_cannot_be_refused_only_cut_off() {
    for name in [&b"none"[..], b"", b"a\0b", &[0xff], &[b'x'; 5000]] {
        let mut client = Client::haggling();
        client.send(&option_bytes(1, name));
        assert_eq!(client.receive(), b"");
        assert_eq!(client.reason(), Some(&Reason::ExportRefused));
    }
    let mut client = Client::haggling();
    client.send(&[b"IHAVEOPT", &[0, 0, 0, 1, 0xff, 0xff, 0xff, 0xff][..]].concat());
    assert!(matches!(
        client.reason(),
        Some(Reason::OptionTooLong { .. })
    ));
}

#[test]
fn without_fixed_newstyle_only_export_name_is_an_option() {
    let mut client = Client::connect(TlsPolicy::Off, small_limits());
    client.send(&[0, 0, 0, 2]);
    client.send(&option_bytes(3, b""));
    assert_eq!(
        client.reason(),
        Some(&Reason::NotFixedNewstyle { option: 3 })
    );
}

#[test]
fn list_names_and_describes() {
    let mut client = Client::haggling();
    let replies = client.option(3, b"");
    let entry = |name: &str| (2, [string(name), b"fuzzed".to_vec()].concat());
    assert_eq!(replies, [entry("disk"), entry("still"), (ACK, Vec::new())]);
    assert_eq!(kinds(&client.option(3, b"x")), [ERR_INVALID]);
}

#[test]
fn abort_is_acknowledged() {
    let mut client = Client::haggling();
    client.send(&option_bytes(2, b""));
    assert_eq!(client.connection.phase(), Phase::Ending);
    assert_eq!(option_replies(2, &client.receive()), [(ACK, Vec::new())]);
    assert_eq!(client.connection.phase(), Phase::Closed);
    assert_eq!(client.reason(), Some(&Reason::Aborted));
}

#[test]
fn info_and_go_tell_what_they_are_asked() {
    let mut wanted = string("disk");
    wanted.extend([0, 4, 0, 1, 0, 2, 0, 3, 0xff, 0xff]);
    let mut size = vec![0, 0];
    size.extend((1_u64 << 20).to_be_bytes());
    size.extend((DISK_FLAGS & !(1 << 7)).to_be_bytes());
    let mut block_size = vec![0, 3];
    for bytes in [512_u32, 4096, 65_536] {
        block_size.extend(bytes.to_be_bytes());
    }
    let expected = [
        (3, size.clone()),
        (3, b"\0\x01disk".to_vec()),
        (3, b"\0\x02fuzzed".to_vec()),
        (3, block_size.clone()),
        (ACK, Vec::new()),
    ];
    let mut client = Client::haggling();
    assert_eq!(client.option(6, &wanted), expected);
    assert_eq!(client.connection.phase(), Phase::Negotiating);
    let plain = [string("disk"), vec![0, 0]].concat();
    assert_eq!(
        client.option(6, &plain),
        [(3, size), (3, block_size), (ACK, Vec::new())]
    );
    assert_eq!(client.option(7, &wanted), expected);
    assert_eq!(client.connection.phase(), Phase::Transmitting);
}

#[test]
fn malformed_info_is_refused_and_the_session_goes_on() {
    let mut client = Client::haggling();
    let long = [&0xffff_ffff_u32.to_be_bytes()[..], b"x"].concat();
    let many = [string("disk"), vec![0xff, 0xff]].concat();
    let extra = [string("disk"), vec![0, 0, 0]].concat();
    for data in [&b""[..], &long, &many, &extra, &[0, 0, 0, 1, 0, 0, 0]] {
        for option in [6, 7] {
            assert_eq!(
                kinds(&client.option(option, data)),
                [ERR_INVALID],
                "{data:?}"
            );
        }
    }
    let none = [string("none"), vec![0, 0]].concat();
    assert_eq!(kinds(&client.option(7, &none)), [ERR_UNKNOWN]);
    assert_eq!(kinds(&client.option(8, b"")), [ACK]);
}

#[test]
fn unknown_options_are_refused() {
    let mut client = Client::haggling();
    for option in [0, 4, 11, 12, 13, u32::MAX] {
        assert_eq!(kinds(&client.option(option, b"anything")), [ERR_UNSUP]);
    }
    assert_eq!(kinds(&client.option(5, b"")), [ERR_POLICY]);
    assert_eq!(kinds(&client.option(5, b"x")), [ERR_INVALID]);
    assert_eq!(kinds(&client.option(8, b"x")), [ERR_INVALID]);
}

#[test]
fn options_too_long_are_skipped_exactly() {
    let mut client = Client::haggling();
    assert_eq!(kinds(&client.option(3, &[7; 8193])), [ERR_TOO_BIG]);
    assert_eq!(kinds(&client.option(99, &vec![7; 1 << 20])), [ERR_TOO_BIG]);
    assert_eq!(kinds(&client.option(8, b"")), [ACK]);
    client.send(&[b"IHAVEOPT", &[0, 0, 0, 3, 0xff, 0xff, 0xff, 0xff][..]].concat());
    assert_eq!(
        client.reason(),
        Some(&Reason::OptionTooLong {
            option: 3,
            len_bytes: u32::MAX
        })
    );
}

#[test]
fn options_without_end_are_cut_off() {
    let mut client = Client::haggling();
    let storm = option_bytes(3, b"").repeat(65_535);
    client.send(&storm);
    let mut received_bytes = 0;
    while client.connection.reason().is_none() {
        received_bytes += client.receive().len();
        client.send(b"");
    }
    assert_eq!(client.reason(), Some(&Reason::TooManyOptions { limit: 64 }));
    assert!(received_bytes <= 64 * 200, "{received_bytes}");
}

#[test]
fn answers_not_read_stop_the_haggling() {
    let limits = Limits {
        max_options: 100_000,
        ..small_limits()
    };
    let mut client = Client::connect(TlsPolicy::Off, limits);
    client.send(&[0, 0, 0, 3]);
    client.send(&option_bytes(3, b"").repeat(10_000));
    assert!(!client.connection.wants_input());
    assert!(
        client.left.len() > 100_000,
        "options not answered stay with the loop"
    );
    assert!(client.receive().len() < 70_000);
    assert!(client.connection.wants_input());
}

#[test]
fn a_wrong_option_magic_ends_the_session() {
    let mut client = Client::haggling();
    client.send(&[b"IHAVEOPX", &[0; 8][..]].concat());
    assert_eq!(client.reason(), Some(&Reason::OptionMagic));
}

#[test]
fn contexts_need_structured_replies() {
    let mut client = Client::haggling();
    for option in [9, 10] {
        let replies = client.option(option, &contexts("disk", &[]));
        assert_eq!(kinds(&replies), [ERR_INVALID]);
    }
}

#[test]
fn contexts_are_listed_and_selected() {
    let mut client = Client::haggling();
    client.option(8, b"");
    let allocation = |id: u8| (4, [&[0, 0, 0, id], &b"base:allocation"[..]].concat());
    let state = |id: u8| (4, [&[0, 0, 0, id], &b"forebay:state"[..]].concat());
    let ack = || (ACK, Vec::new());
    for (queries, expected) in [
        (&[][..], vec![allocation(0), state(0), ack()]),
        (&["base:"], vec![allocation(0), ack()]),
        (&["forebay:"], vec![state(0), ack()]),
        (
            &["forebay:state", "base:allocation"],
            vec![allocation(0), state(0), ack()],
        ),
        (&["qemu:dirty-bitmap", ""], vec![ack()]),
    ] {
        assert_eq!(
            client.option(9, &contexts("disk", queries)),
            expected,
            "{queries:?}"
        );
    }
    for (queries, expected) in [
        (&[][..], vec![ack()]),
        (&["base:"], vec![ack()]),
        (&["base:allocation"], vec![allocation(1), ack()]),
        (
            &["base:allocation", "forebay:state", "x"],
            vec![allocation(1), state(2), ack()],
        ),
    ] {
        assert_eq!(
            client.option(10, &contexts("disk", queries)),
            expected,
            "{queries:?}"
        );
    }
    for option in [9, 10] {
        assert_eq!(
            kinds(&client.option(option, &contexts("none", &[]))),
            [ERR_UNKNOWN]
        );
        let hostile = [string("disk"), vec![0xff; 4]].concat();
        assert_eq!(kinds(&client.option(option, &hostile)), [ERR_INVALID]);
        assert_eq!(kinds(&client.option(option, b"")), [ERR_INVALID]);
    }
}

#[test]
fn contexts_of_another_export_do_not_count() {
    let mut client = Client::haggling();
    client.option(8, b"");
    client.option(10, &contexts("disk", &["base:allocation"]));
    client.option(7, &[string("still"), vec![0, 0]].concat());
    client.send(&request(0, 7, 0, 4096));
    let reply = client.receive();
    assert_eq!(reply[20..24], 22_u32.to_be_bytes());
}

#[test]
fn tls_comes_first_where_it_is_required() {
    let made = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
    let (certificate, key) = (made.cert.pem(), made.signing_key.serialize_pem());
    let server = TlsServer::from_pem(certificate.as_bytes(), key.as_bytes(), None).unwrap();
    let policy = TlsPolicy::Required(server);
    let mut client = Client::connect(policy.clone(), small_limits());
    client.send(&[0, 0, 0, 3]);
    for option in [3, 6, 7, 8, 9, 10, 99] {
        assert_eq!(kinds(&client.option(option, b"")), [ERR_TLS_REQD]);
    }
    assert_eq!(kinds(&client.option(5, b"")), [ACK]);
    client.send(&option_bytes(3, b""));
    assert!(
        matches!(client.reason(), Some(Reason::Tls { .. })),
        "options in the clear are over"
    );

    let mut client = Client::connect(policy.clone(), small_limits());
    client.send(&[0, 0, 0, 3]);
    client.send(&option_bytes(1, b"disk"));
    assert_eq!(client.reason(), Some(&Reason::ExportRefused));

    // What follows STARTTLS in the same packet is never taken for an option.
    let mut client = Client::connect(policy, small_limits());
    client.send(&[0, 0, 0, 3]);
    client.send(&[option_bytes(5, b""), option_bytes(7, &string("disk"))].concat());
    assert!(matches!(client.reason(), Some(Reason::Tls { .. })));
    client.receive();
    assert_eq!(client.connection.phase(), Phase::Closed);
}

#[test]
fn simple_read_in_pieces_with_its_buffers_given_back() {
    let mut client = Client::open("disk", false);
    let read = client.accepted(&request(0, 0, 4096, 1536));
    assert_eq!(
        (read.command, read.offset_bytes, read.len_bytes),
        (Command::Read, 4096, 1536)
    );
    let parts = client.parts(&[512, 1024]);
    client.memory.bytes_mut(parts[0].buf).fill(1);
    client.memory.bytes_mut(parts[1].buf).fill(2);
    client.connection.reply_read(read.ticket, parts);
    let expected = [simple(0), vec![1; 512], vec![2; 1024]].concat();
    let mut received = Vec::new();
    while received.len() < expected.len() {
        assert_eq!(client.connection.take_released().count(), 0);
        let mut bytes = Vec::new();
        for piece in client.connection.output(&client.memory) {
            bytes.extend_from_slice(piece.bytes(&client.memory));
        }
        bytes.truncate(7);
        client.connection.sent(bytes.len());
        received.extend(bytes);
    }
    assert_eq!(received, expected);
    assert_eq!(
        client.connection.take_released().collect::<Vec<_>>(),
        [0, 1]
    );
    assert_eq!(client.connection.in_flight(), 0);
}

#[test]
fn structured_read_is_one_chunk() {
    for flags in [0, 4] {
        let mut client = Client::open("disk", true);
        let read = client.accepted(&request(flags, 0, 4096, 512));
        let parts = client.parts(&[512]);
        client.connection.reply_read(read.ticket, parts);
        let mut expected = vec![0x66, 0x8e, 0x33, 0xef, 0, 1, 0, 1];
        expected.extend(COOKIE.to_be_bytes());
        expected.extend(520_u32.to_be_bytes());
        expected.extend(4096_u64.to_be_bytes());
        expected.extend([0; 512]);
        assert_eq!(client.receive(), expected);
    }
}

#[test]
fn structured_errors_say_why() {
    let mut client = Client::open("disk", true);
    let read = client.accepted(&request(0, 0, 0, 512));
    client
        .connection
        .reply_done(read.ticket, Err(ErrorCode::Io));
    assert_eq!(client.receive(), wire::error_chunk(COOKIE, 5, 0));
    client.send(&request(0, 0, 1, 512));
    let message = "the request is not aligned to the minimum block size";
    let mut expected = wire::error_chunk(COOKIE, 22, message.len() as u16).to_vec();
    expected.extend_from_slice(message.as_bytes());
    assert_eq!(client.receive(), expected);
    client.send(&request(4, 0, 0, 66_048));
    assert_eq!(
        client.receive()[20..24],
        75_u32.to_be_bytes(),
        "too long not to fragment"
    );
}

#[test]
fn requests_of_no_length_are_done_at_once() {
    let mut client = Client::open("disk", true);
    client.send(&request(0, 0, 512, 0));
    assert_eq!(client.receive(), wire::none_chunk(COOKIE));
    for command in [1, 4, 5, 6] {
        assert!(client.send(&request(0, command, 512, 0)).is_empty());
        assert_eq!(client.receive(), simple(0));
    }
    client.send(&request(0, 7, 512, 0));
    assert_eq!(client.receive()[20..24], 22_u32.to_be_bytes());
    let mut client = Client::open("disk", false);
    client.send(&request(0, 0, 1 << 20, 0));
    assert_eq!(client.receive(), simple(0));
}

#[test]
fn writes_land_in_the_buffers_lent() {
    let mut client = Client::open("disk", false);
    let payload: Vec<u8> = (0..1024_u32).map(|index| index as u8).collect();
    let bytes = [request(1, 1, 1024, 1024), payload.clone()].concat();
    let exports = exports();
    let step = client
        .connection
        .receive(&mut client.memory, &exports, &bytes[..30]);
    assert_eq!(step.consumed_bytes, 28);
    let Some(Event::Payload {
        ticket,
        offset_bytes: 1024,
        len_bytes: 1024,
    }) = step.event
    else {
        panic!("{step:?}")
    };
    assert!(
        !client.connection.wants_input(),
        "nothing is read before there is room"
    );
    let step = client
        .connection
        .receive(&mut client.memory, &exports, &bytes[28..30]);
    assert_eq!((step.consumed_bytes, step.event), (0, None));
    let parts = client.parts(&[512, 512]);
    client.connection.lend_payload(ticket, parts.clone());
    let step = client
        .connection
        .receive(&mut client.memory, &exports, &bytes[28..30]);
    assert_eq!((step.consumed_bytes, step.event), (2, None));

    // The rest is received straight into the buffers.
    let spaces: Vec<_> = client.connection.payload_space().collect();
    assert_eq!(
        spaces
            .iter()
            .map(|space| space.skip_bytes)
            .collect::<Vec<_>>(),
        [2, 0]
    );
    client.memory.bytes_mut(parts[0].buf)[2..].copy_from_slice(&payload[2..512]);
    client.connection.payload_received(510);
    assert_eq!(client.connection.payload_space().count(), 1);
    client
        .memory
        .bytes_mut(parts[1].buf)
        .copy_from_slice(&payload[512..]);
    client.connection.payload_received(512);
    assert_eq!(client.connection.payload_space().count(), 0);
    let step = client.connection.receive(&mut client.memory, &exports, &[]);
    let Some(Event::Write(request, got)) = step.event else {
        panic!("{step:?}")
    };
    assert_eq!(request.command, Command::Write { fua: true });
    assert_eq!(got, parts);
    let stored: Vec<u8> = got
        .iter()
        .flat_map(|part| client.memory.bytes(part.buf).to_vec())
        .collect();
    assert_eq!(stored, payload);
    client.connection.reply_done(request.ticket, Ok(()));
    assert_eq!(client.receive(), simple(0));
}

#[test]
fn a_write_without_memory_is_skipped_exactly() {
    let mut client = Client::open("disk", false);
    let exports = exports();
    let step = client
        .connection
        .receive(&mut client.memory, &exports, &request(0, 1, 0, 512));
    let Some(Event::Payload { ticket, .. }) = step.event else {
        panic!("{step:?}")
    };
    client
        .connection
        .refuse_payload(ticket, ErrorCode::NoMemory);
    let events = client.send(&[vec![9; 512], request(0, 3, 0, 0)].concat());
    assert!(matches!(
        events[..],
        [Event::Request(Request {
            command: Command::Flush,
            ..
        })]
    ));
    assert_eq!(client.receive(), simple(12));
}

#[test]
fn commands_become_what_they_say() {
    let mut client = Client::open("disk", true);
    let zeroes = |fua, no_hole, fast| Command::WriteZeroes { fua, no_hole, fast };
    for (flags, command, expected) in [
        (0, 4, Command::Trim { fua: false }),
        (1, 4, Command::Trim { fua: true }),
        (0, 5, Command::Cache),
        (1, 5, Command::Cache),
        (0, 6, zeroes(false, false, false)),
        (1 | 2, 6, zeroes(true, true, false)),
        (16, 6, zeroes(false, false, true)),
    ] {
        let request = client.accepted(&request(flags, command, 512, 1 << 19));
        assert_eq!(request.command, expected);
        client.connection.reply_done(request.ticket, Ok(()));
        assert_eq!(client.receive(), simple(0));
    }
    let flush = client.accepted(&request(1, 3, 0, 0));
    assert_eq!(flush.command, Command::Flush);
    let fast = client.accepted(&request(16, 6, 0, 512));
    client
        .connection
        .reply_done(fast.ticket, Err(ErrorCode::NotSupported));
    assert_eq!(client.receive(), wire::error_chunk(COOKIE, 95, 0));
}

#[test]
fn block_status_is_told_in_each_context() {
    let mut client = Client::open("disk", true);
    let state = BlockState {
        cached: true,
        ..BlockState::default()
    };
    let extents = [
        Extent {
            len_bytes: 4096,
            state,
        },
        Extent {
            len_bytes: 4096,
            state: BlockState {
                dirty: true,
                ..state
            },
        },
    ];
    let all = client.accepted(&request(0, 7, 0, 8192));
    assert_eq!(all.command, Command::BlockStatus { one: false });
    client.connection.reply_status(all.ticket, &extents);
    let expected = [
        wire::status_chunk(false, COOKIE, 1, 1).to_vec(),
        wire::descriptor(8192, 0).to_vec(),
        wire::status_chunk(true, COOKIE, 2, 2).to_vec(),
        wire::descriptor(4096, 1).to_vec(),
        wire::descriptor(4096, 3).to_vec(),
    ];
    assert_eq!(client.receive(), expected.concat());
    let one = client.accepted(&request(8, 7, 0, 8192));
    client.connection.reply_status(one.ticket, &extents);
    let expected = [
        wire::status_chunk(false, COOKIE, 1, 1).to_vec(),
        wire::descriptor(8192, 0).to_vec(),
        wire::status_chunk(true, COOKIE, 2, 1).to_vec(),
        wire::descriptor(4096, 1).to_vec(),
    ];
    assert_eq!(client.receive(), expected.concat());
}

#[test]
fn bad_requests_are_refused_and_the_session_goes_on() {
    const EPERM: u32 = 1;
    const EINVAL: u32 = 22;
    const ENOSPC: u32 = 28;
    const SIZE: u64 = 1 << 20;
    let mut client = Client::open("disk", false);
    for (flags, command, offset_bytes, len_bytes, error) in [
        (0, 0, 1, 512, EINVAL),
        (0, 0, 0, 511, EINVAL),
        (0, 0, SIZE, 512, EINVAL),
        (0, 0, u64::MAX, u32::MAX, EINVAL),
        (0, 0, u64::MAX - 511, 512, EINVAL),
        (0, 0, 0, 66_048, EINVAL),
        (4, 0, 0, 512, EINVAL),
        (0x8000, 0, 0, 512, EINVAL),
        (0, 1, SIZE, 512, ENOSPC),
        (0, 1, u64::MAX - 511, 512, ENOSPC),
        (0, 1, 3, 512, EINVAL),
        (0, 1, 0, 66_048, EINVAL),
        (0, 1, 0, 3 << 20, ENOSPC),
        (2, 1, 0, 512, EINVAL),
        (0, 3, 512, 0, EINVAL),
        (0, 3, 0, 512, EINVAL),
        (0, 4, SIZE, 512, EINVAL),
        (0, 5, SIZE, 512, EINVAL),
        (0, 6, SIZE, 512, ENOSPC),
        (0, 6, 0, u32::MAX, ENOSPC),
        (8, 6, 0, 512, EINVAL),
        (0, 7, 0, 512, EINVAL),
        (0, 8, 0, 512, EINVAL),
        (0, u16::MAX, 0, 512, EINVAL),
    ] {
        let got = client.refused(flags, command, offset_bytes, len_bytes);
        assert_eq!(got, error, "{flags} {command} {offset_bytes} {len_bytes}");
    }
    let read = client.accepted(&request(0, 0, SIZE - 512, 512));
    client
        .connection
        .reply_done(read.ticket, Err(ErrorCode::Io));
    assert_eq!(client.receive(), simple(5));
    let mut client = Client::open("still", false);
    for command in [1, 4, 6] {
        assert_eq!(client.refused(0, command, 0, 512), EPERM);
    }
    assert_eq!(client.refused(16, 6, 0, 512), EINVAL);
    assert_eq!(
        client.accepted(&request(0, 3, 0, 0)).command,
        Command::Flush
    );
}

#[test]
fn replies_go_out_in_any_order() {
    let mut client = Client::open("disk", false);
    let mut bytes = Vec::new();
    for cookie in 0..5_u64 {
        let header = RequestHeader {
            flags: 0,
            command: 0,
            cookie,
            offset_bytes: cookie * 512,
            len_bytes: 512,
        };
        bytes.extend(header.encode());
    }
    let events = client.send(&bytes);
    let tickets: Vec<Ticket> = events
        .iter()
        .map(|event| match event {
            Event::Request(request) => request.ticket,
            other => panic!("{other:?}"),
        })
        .collect();
    let mut expected = Vec::new();
    for index in [3, 0, 4, 1, 2] {
        let parts = client.parts(&[512]);
        client.memory.bytes_mut(parts[0].buf).fill(index as u8);
        client.connection.reply_read(tickets[index], parts);
        expected.extend(wire::simple_reply(0, index as u64));
        expected.extend([index as u8; 512]);
    }
    assert_eq!(client.receive(), expected);
}

#[test]
fn a_client_at_its_limits_is_not_read_from() {
    let mut client = Client::open("disk", false);
    let flushes = request(0, 3, 0, 0).repeat(20);
    let events = client.send(&flushes);
    assert_eq!(events.len(), 8);
    assert!(!client.connection.wants_input());
    for event in events {
        let Event::Request(request) = event else {
            panic!("{event:?}")
        };
        client.connection.reply_done(request.ticket, Ok(()));
    }
    assert!(
        !client.connection.wants_input(),
        "answers not read count, too"
    );
    assert!(client.send(b"").is_empty());
    client.receive();
    assert!(client.connection.wants_input());
    assert_eq!(client.send(b"").len(), 8);

    let mut client = Client::open("disk", false);
    let events = client.send(&request(0, 0, 0, 65_536).repeat(3));
    assert_eq!(events.len(), 2, "128 KiB in flight are allowed");
    assert!(!client.connection.wants_input());
    let Event::Request(read) = events[0] else {
        panic!("{events:?}")
    };
    client
        .connection
        .reply_done(read.ticket, Err(ErrorCode::Io));
    client.receive();
    assert_eq!(client.send(b"").len(), 1);
    // Errors, too, are answered only as fast as they are read.
    let mut client = Client::open("disk", false);
    client.send(&request(0, 99, 0, 0).repeat(1000));
    assert!(!client.connection.wants_input());
    assert_eq!(client.receive().len(), 8 * 16);
}

#[test]
fn garbage_after_go_closes() {
    let mut client = Client::open("disk", false);
    let read = client.accepted(&request(0, 0, 0, 512));
    client.send(&[0xaa; 28]);
    assert_eq!(client.reason(), Some(&Reason::RequestMagic));
    assert_eq!(
        client.connection.phase(),
        Phase::Ending,
        "what was asked before is answered"
    );
    client
        .connection
        .reply_done(read.ticket, Err(ErrorCode::Io));
    assert_eq!(client.receive(), simple(5));
    assert_eq!(client.connection.phase(), Phase::Closed);
}

#[test]
fn disconnect_waits_for_what_is_in_flight() {
    let mut client = Client::open("disk", false);
    let flush = client.accepted(&request(0, 3, 0, 0));
    client.send(&[request(0, 2, 0, 0), request(0, 3, 0, 0)].concat());
    assert_eq!(client.connection.phase(), Phase::Ending);
    assert!(!client.connection.wants_input());
    client.connection.reply_done(flush.ticket, Ok(()));
    assert_eq!(client.receive(), simple(0));
    assert_eq!(client.connection.phase(), Phase::Closed);
    assert_eq!(client.reason(), Some(&Reason::Disconnected));
}

#[test]
fn a_stream_that_ends_within_a_payload_gives_its_buffers_back() {
    let mut client = Client::open("disk", false);
    client.send(&[request(0, 1, 0, 512), vec![1; 100]].concat());
    client.connection.end_of_stream();
    assert_eq!(client.reason(), Some(&Reason::Truncated));
    assert_eq!(client.connection.take_released().count(), 1);
    assert_eq!(client.connection.phase(), Phase::Closed);
}

#[test]
fn late_answers_to_an_abandoned_connection_are_taken() {
    let mut client = Client::open("disk", false);
    let events = client.send(&[request(0, 0, 0, 512), request(0, 3, 0, 0)].concat());
    let [Event::Request(read), Event::Request(flush)] = events[..] else {
        panic!("{events:?}")
    };
    client.connection.abandon();
    assert_eq!(client.connection.in_flight(), 2);
    let parts = client.parts(&[512]);
    client.connection.reply_read(read.ticket, parts);
    client.connection.reply_done(flush.ticket, Ok(()));
    assert_eq!(client.connection.in_flight(), 0);
    assert_eq!(client.connection.take_released().count(), 1);
    assert_eq!(client.receive(), b"");
}

#[test]
fn a_server_that_goes_away_says_so() {
    let mut client = Client::haggling();
    client.connection.shut_down();
    assert_eq!(kinds(&client.option(3, b"")), [ERR_SHUTDOWN]);
    assert_eq!(kinds(&client.option(2, b"")), [ACK]);
    let mut client = Client::open("disk", false);
    let flush = client.accepted(&request(0, 3, 0, 0));
    client.connection.shut_down();
    assert_eq!(client.refused(0, 0, 0, 512), 108);
    assert_eq!(client.refused(0, 1, 0, 512), 108);
    client.connection.reply_done(flush.ticket, Ok(()));
    assert_eq!(client.receive(), simple(0));
}
