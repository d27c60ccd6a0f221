//! Up to the open export: flags, options, contexts, TLS.

use forebay_frontend::nbd::fuzz::small_limits;
use forebay_frontend::nbd::{Event, ExportId, Limits, Phase, Reason, TlsPolicy, TlsServer};

use crate::client::{
    ACK, Client, DISK_FLAGS, ERR_INVALID, ERR_POLICY, ERR_TLS_REQD, ERR_TOO_BIG, ERR_UNKNOWN,
    ERR_UNSUP, STILL_FLAGS, contexts, kinds, option_bytes, option_replies, request, string,
};

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

    // Bytes after STARTTLS in a packet are never taken for an option.
    let mut client = Client::connect(policy, small_limits());
    client.send(&[0, 0, 0, 3]);
    client.send(&[option_bytes(5, b""), option_bytes(7, &string("disk"))].concat());
    assert!(matches!(client.reason(), Some(Reason::Tls { .. })));
    client.receive();
    assert_eq!(client.connection.phase(), Phase::Closed);
}
