//! With an export open: commands, their answers, limits, the end.

use forebay_engine::Memory;
use forebay_frontend::nbd::fuzz::exports;
use forebay_frontend::nbd::wire::{self, RequestHeader};
use forebay_frontend::nbd::{
    BlockState, Command, ErrorCode, Event, Phase, Reason, Request, StatusExtent, Ticket,
};

use crate::client::{ACK, COOKIE, Client, ERR_SHUTDOWN, kinds, request, simple};

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
        StatusExtent {
            len_bytes: 4096,
            state,
        },
        StatusExtent {
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
