//! Every format by a small sample written after its specification, and what is malformed.

use std::io::Write;

use forebay_trace::{Format, Kind, Place, Recorded, Request, TraceError, TraceReader};

/// `(volume, first block, blocks, kind)`, in blocks of 4 KiB.
type Short = (u32, u64, u32, Kind);

fn read(format: Format, trace: &[u8]) -> Result<Vec<Request>, TraceError> {
    TraceReader::new(trace, format, 4096, false)
        .expect("memory")
        .collect()
}

fn short(requests: &[Request]) -> Vec<Short> {
    let short = |request: &Request| {
        (
            request.volume,
            request.first_block,
            request.blocks,
            request.kind,
        )
    };
    requests.iter().map(short).collect()
}

fn seconds(requests: &[Request]) -> Vec<f64> {
    let seconds = |request: &Request| request.time_ns.map_or(-1.0, |nanos| nanos as f64 / 1e9);
    requests.iter().map(seconds).collect()
}

fn place(error: TraceError) -> (Place, String) {
    match error {
        TraceError::Malformed { place, bad } => (place, bad.to_string()),
        TraceError::Io(error) => panic!("{error}"),
    }
}

/// The malformed one is found where it is; skipping gives the rest.
fn malformed(format: Format, trace: &[u8], at: Place, word: &str, rest: usize, skipped: u64) {
    let (found, said) = place(read(format, trace).expect_err("malformed"));
    assert_eq!(found, at, "{format}: {said}");
    assert!(said.contains(word), "{format}: {said}");
    let mut reader = TraceReader::new(trace, format, 4096, true).expect("memory");
    assert_eq!(
        reader.by_ref().filter_map(Result::ok).count(),
        rest,
        "{format}"
    );
    assert_eq!(reader.skipped(), skipped, "{format}");
}

const R: Kind = Kind::Read;
const W: Kind = Kind::Write;

#[test]
fn text_formats() {
    for (format, trace, expected, times) in [
        (
            Format::Blocks,
            "7\n\n# a comment\n 8 \r\n9",
            &[(0, 7, 1, R), (0, 8, 1, R), (0, 9, 1, R)][..],
            &[-1.0, -1.0, -1.0][..],
        ),
        (
            // Unmerged requests, a flush, a discard, a plug, a message, an ill-formed summary.
            Format::Blkparse,
            "  8,0    3        1     0.000000000   697  G   W 223490 + 8 [kjournald]\n\
             \x20 8,0    3        2     0.000001829   697  Q   W 223488 + 8 [kjournald]\n\
             \x20 8,16   0        3     1.500000000   697  Q RSM 15 + 2 [x y]\n\
             \x20 8,0    3        4     0.000002197   697  P   N [kjournald]\n\
             \x20 8,0    3        5     0.000002197   697  Q FWS [kjournald]\n\
             \x20 8,0    3        6     0.000002197   697  Q   D 0 + 800 [fstrim]\n\
             \x20 8,0    3        0     0.000002197     0  m   N cfq idle\n\
             CPU0 (8,0):\n Reads Queued:           1,        4KiB\n\nTotal (8,0):\n nonsense\n",
            &[(0, 27936, 1, W), (1, 1, 2, R)],
            &[0.000001829, 1.5],
        ),
        (
            Format::Fio,
            "fio version 2 iolog\n/dev/a add\n/dev/a open\n/dev/a read 4096 8192\n\
             /dev/a wait 1500 0\n/dev/a sync 0 0\n/dev/b write 512 512\n/dev/a trim 0 4096\n/dev/a close\n",
            &[(0, 1, 2, R), (1, 0, 1, W)],
            &[-1.0, 0.0015],
        ),
        (
            Format::Fio,
            "fio version 3 iolog\n0 f add\n5 f open\n1000000 f write 0 4097\n2000000 f read 4096 1\n",
            &[(0, 0, 2, W), (0, 1, 1, R)],
            &[1.0, 2.0],
        ),
        (
            Format::Msr,
            "128166385295514663,hm,0,Write,9056014336,2048,2833\n\
             128166385305514663,hm,1,Read,4095,2,2617\n",
            &[(0, 2210941, 1, W), (1, 0, 2, R)],
            &[0.0, 1.0],
        ),
        (
            Format::Alibaba,
            "device_id,opcode,offset,length,timestamp\n419,W,8192,16384,1577808000000177\n\
             7,R,0,512,1577808000000178\n",
            &[(0, 2, 4, W), (1, 0, 1, R)],
            &[1577808000.000177, 1577808000.000178],
        ),
        (
            Format::Tencent,
            "1538323200,16,8,1,1058\n1538323201,15,2,0,1063\n",
            &[(0, 2, 1, W), (1, 1, 2, R)],
            &[1538323200.0, 1538323201.0],
        ),
        (
            Format::Spc,
            "0,20941264,8192,W,0.551706\n1, 7, 1024, r, 1,more\n",
            &[(0, 2617658, 2, W), (1, 0, 2, R)],
            &[0.551706, 1.0],
        ),
        (
            Format::CloudPhysics,
            "version,time,op,size,lbn\n1,5633898,2a,512,42932745\n1,5633899,28,8192,8\n1,5,12,36,0\n",
            &[(0, 5366593, 1, W), (0, 1, 2, R)],
            &[5633898.0, 5633899.0],
        ),
    ] {
        let found =
            read(format, trace.as_bytes()).unwrap_or_else(|error| panic!("{format}: {error}"));
        assert_eq!(short(&found), expected, "{format}");
        for (found, expected) in seconds(&found).into_iter().zip(times) {
            assert!(
                (found - expected).abs() < 1e-6,
                "{format}: {found} for {expected}"
            );
        }
    }
}

#[test]
fn text_that_is_malformed() {
    for (format, trace, line, word, rest) in [
        (Format::Blocks, "1\n-2\n3\n", 2, "a block number", 2),
        (
            Format::Blocks,
            "18446744073709551615\n1\n",
            1,
            "a block number",
            1,
        ),
        (
            Format::Blkparse,
            "8,0 0 1 0.1 1 Q W 8 - 8 [x]\n8,0 0 1 0.1 1 Q W 8 + 8 [x]\n",
            1,
            "`+`",
            1,
        ),
        (Format::Blkparse, "8 0 1 0.1 1 Q W 8 + 8 [x]\n", 1, "8,0", 0),
        (
            Format::Fio,
            "fio version 2 iolog\nf read 0 4096\nf reed 0 4096\nf read 0\n",
            3,
            "expected read",
            1,
        ),
        (
            Format::Msr,
            "1,hm,0,Write,0,2048,1\n1,hm,0,Write,0\n",
            2,
            "the end of the line",
            1,
        ),
        (
            Format::Msr,
            "1,hm,0,Erase,0,2048,1\n",
            1,
            "Read or Write",
            0,
        ),
        (
            Format::Alibaba,
            "1,R,0,18446744073709551615,5\n",
            1,
            "1 GiB",
            0,
        ),
        (
            Format::Alibaba,
            "1,R,18446744073709551615,512,5\n",
            1,
            "2^64",
            0,
        ),
        (
            Format::Tencent,
            "1,36028797018963968,8,1,5\n",
            1,
            "a sector below 2^55",
            0,
        ),
        (Format::Tencent, "1,0,8,2,5\n", 1, "0 (read)", 0),
        (
            Format::Spc,
            "0,1,512,W,0.5x\n0,1,512,W,0.5\n",
            1,
            "a timestamp",
            1,
        ),
        (Format::CloudPhysics, "1,5,zz,512,1\n", 1, "SCSI", 0),
    ] {
        let wrong = trace.lines().count() - rest - usize::from(trace.starts_with("fio"));
        malformed(
            format,
            trace.as_bytes(),
            Place::Line(line),
            word,
            rest,
            wrong as u64,
        );
    }
    // A line without an end must not fill the memory, and no line is lost behind it.
    let mut trace = vec![b'1'; 1 << 20];
    trace.extend(b"\n5\n");
    malformed(Format::Blocks, &trace, Place::Line(1), "64 KiB", 1, 1);
    // The wrong kind of file altogether.
    assert!(read(Format::Fio, b"\x7FELF\x02\x01\n").is_err());
}

fn blktrace(action: u32, sector: u64, bytes: u32, pdu: &[u8], big_endian: bool) -> Vec<u8> {
    let mut record = Vec::new();
    let mut put = |value: u64, size: usize| {
        if big_endian {
            record.extend(&value.to_be_bytes()[8 - size..]);
        } else {
            record.extend(&value.to_le_bytes()[..size]);
        }
    };
    put(0x6561_7407, 4);
    put(1, 4);
    put(2_000_000_000, 8);
    put(sector, 8);
    put(u64::from(bytes), 4);
    put(u64::from(action), 4);
    put(1, 4); // process
    put(0x0080_0010, 4); // device
    put(0, 4); // CPU
    put(0, 2); // error
    put(pdu.len() as u64, 2);
    record.extend(pdu);
    record
}

const QUEUED_READ: u32 = 1 | 1 << 16 | 1 << 20;
const QUEUED_WRITE: u32 = 1 | 1 << 17 | 1 << 20;

#[test]
fn blktrace_in_either_byte_order() {
    for big_endian in [false, true] {
        let trace = [
            blktrace(2 | 1 << 26, 0, 0, b"a message", big_endian),
            blktrace(QUEUED_READ, 8, 8192, b"", big_endian),
            blktrace(QUEUED_WRITE | 1 << 29, 0, 4096, b"", big_endian),
            blktrace(7 | 1 << 16 | 1 << 22, 8, 8192, b"issued", big_endian),
            blktrace(QUEUED_WRITE, 16, 512, b"0123", big_endian),
        ]
        .concat();
        let found = read(Format::Blktrace, &trace).expect("well formed");
        assert_eq!(
            short(&found),
            [(0x0080_0010, 1, 2, R), (0x0080_0010, 2, 1, W)]
        );
        assert_eq!(seconds(&found), [2.0, 2.0]);
    }
    let good = blktrace(QUEUED_READ, 8, 8192, b"", false);
    let trace = [&good[..], b"garbage", &good].concat();
    malformed(Format::Blktrace, &trace, Place::Byte(48), "version 7", 2, 1);
    malformed(
        Format::Blktrace,
        &trace[..54],
        Place::Byte(48),
        "version 7",
        1,
        1,
    );
    malformed(
        Format::Blktrace,
        &good[..47],
        Place::Byte(0),
        "48 bytes",
        0,
        1,
    );
    let cut = blktrace(QUEUED_READ, 8, 8192, b"0123", false);
    malformed(
        Format::Blktrace,
        &cut[..50],
        Place::Byte(0),
        "4 bytes that belong",
        0,
        1,
    );
}

fn vscsi(version: u16, command: u16, bytes: u32, sector: u64) -> Vec<u8> {
    let (version, command) = ((version << 8).to_le_bytes(), command.to_le_bytes());
    let (serial, bytes, elements) = (9u32.to_le_bytes(), bytes.to_le_bytes(), 1u32.to_le_bytes());
    let (sector, micros) = (sector.to_le_bytes(), 1_500_000u64.to_le_bytes());
    if version[1] == 1 {
        [
            &serial[..],
            &bytes,
            &elements,
            &command,
            &version,
            &sector,
            &micros,
        ]
        .concat()
    } else {
        let response = 5u64.to_le_bytes();
        [
            &command[..],
            &version,
            &serial,
            &bytes,
            &elements,
            &sector,
            &micros,
            &response,
        ]
        .concat()
    }
}

#[test]
fn vscsi_of_both_versions() {
    for version in [1, 2] {
        let trace = [
            vscsi(version, 0x28, 8192, 8),
            vscsi(version, 0x12, 36, 0),
            vscsi(version, 0x8A, 512, 16),
        ]
        .concat();
        let found = read(Format::Vscsi, &trace).expect("well formed");
        assert_eq!(short(&found), [(0, 1, 2, R), (0, 2, 1, W)]);
        assert_eq!(seconds(&found), [1.5, 1.5]);
        let cut = &trace[..trace.len() - 1];
        let size = if version == 1 { 32 } else { 40 };
        let expected = format!("{size} bytes");
        malformed(Format::Vscsi, cut, Place::Byte(2 * size), &expected, 1, 1);
    }
    let mixed = [
        vscsi(1, 0x28, 8192, 8),
        vscsi(9, 0x28, 8192, 8)[..32].to_vec(),
    ]
    .concat();
    malformed(Format::Vscsi, &mixed, Place::Byte(32), "version 1", 1, 1);
    malformed(
        Format::Vscsi,
        &[0; 100],
        Place::Byte(0),
        "version 1 or 2",
        0,
        1,
    );
}

#[test]
fn oracle_general() {
    let record = |object: u64| {
        [
            &3u32.to_le_bytes()[..],
            &object.to_le_bytes(),
            &512u32.to_le_bytes(),
            &[0xFF; 8],
        ]
        .concat()
    };
    let trace = [record(7), record(u64::MAX - 1)].concat();
    let found = read(Format::OracleGeneral, &trace).expect("well formed");
    assert_eq!(short(&found), [(0, 7, 1, R), (0, u64::MAX - 1, 1, R)]);
    assert_eq!(seconds(&found), [3.0, 3.0]);
    malformed(
        Format::OracleGeneral,
        &trace[..40],
        Place::Byte(24),
        "24 bytes",
        1,
        1,
    );
}

/// Three blocks as zstd made it: two frames and a skippable one between them.
fn zstd(name: &str) -> Vec<u8> {
    let raw = |text: &[u8]| {
        // A frame of one raw block: magic, descriptor (single segment), content size, block header.
        let header = ((text.len() as u32) << 3 | 1).to_le_bytes();
        let mut frame = vec![0x28, 0xB5, 0x2F, 0xFD, 0x20, text.len() as u8];
        frame.extend(&header[..3]);
        frame.extend(text);
        frame
    };
    let skippable = [&[0x5A, 0x2A, 0x4D, 0x18][..], &4u32.to_le_bytes(), b"skip"].concat();
    match name {
        "frames" => [raw(b"1\n2\n"), skippable, raw(b"3\n")].concat(),
        _ => [skippable, raw(b"1\n2\n3\n")].concat(),
    }
}

fn gzip(text: &[u8]) -> Vec<u8> {
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    encoder.write_all(text).expect("memory");
    encoder.finish().expect("memory")
}

#[test]
fn compressed_or_not() {
    let two_members = [gzip(b"1\n2\n"), gzip(b"3\n")].concat();
    for trace in [
        b"1\n2\n3\n".to_vec(),
        gzip(b"1\n2\n3\n"),
        two_members,
        zstd("frames"),
        zstd("skippable first"),
    ] {
        let found = read(Format::Blocks, &trace).expect("well formed");
        assert_eq!(short(&found), [(0, 1, 1, R), (0, 2, 1, R), (0, 3, 1, R)]);
    }
    assert!(read(Format::Blocks, b"").expect("empty").is_empty());
    // Broken off: requests before the break count, the end is reported.
    for trace in [gzip(&b"1\n".repeat(1000)), zstd("frames")] {
        let cut = &trace[..trace.len() - 2];
        let (_, said) = place(read(Format::Blocks, cut).expect_err("cut"));
        assert!(said.contains("more compressed data"), "{said}");
        let mut reader = TraceReader::new(cut, Format::Blocks, 4096, true).expect("memory");
        assert!(reader.by_ref().all(|request| request.is_ok()));
        assert_eq!(reader.skipped(), 1);
    }
}

#[test]
fn recordings_of_our_own() {
    let recorded = |time_ns, kind, offset_bytes, len_bytes| Recorded {
        time_ns,
        kind,
        offset_bytes,
        len_bytes,
    };
    let requests = [
        recorded(5, R, 4096, 8192),
        recorded(6, Kind::Flush, 0, 0),
        recorded(7, Kind::Discard, 1 << 40, u32::MAX),
        recorded(8, Kind::WriteZeroes, 0, 512),
        recorded(2_000_000_000, W, 12288, 1),
    ];
    let mut trace = Recorded::header(1 << 41).to_vec();
    trace.extend(requests.iter().flat_map(Recorded::encode));
    let whole = [&trace[..], &Recorded::end(9, 77)].concat();

    let data = read(Format::Forebay, &whole).expect("well-formed");
    assert_eq!(short(&data), [(0, 1, 2, R), (0, 3, 1, W)]);
    assert_eq!(seconds(&data), [5e-9, 2.0]);
    let mut reader = TraceReader::new(&whole[..], Format::Forebay, 4096, false)
        .expect("memory")
        .with_all_kinds();
    let all: Vec<Request> = reader
        .by_ref()
        .map(|request| request.expect("well-formed"))
        .collect();
    let kinds: Vec<Kind> = all.iter().map(|request| request.kind).collect();
    assert_eq!(kinds, [R, Kind::Flush, Kind::Discard, Kind::WriteZeroes, W]);
    assert_eq!((all[1].blocks, all[2].blocks), (0, 1 << 20));
    assert_eq!(reader.dropped(), 77);

    malformed(Format::Forebay, &trace, Place::Byte(144), "cut off", 2, 1);
    let mut wrong = whole.clone();
    wrong[24 + 20] = 9;
    malformed(Format::Forebay, &wrong, Place::Byte(24), "found 9", 1, 1);
    wrong = [&whole[..], &whole[24..48]].concat();
    let behind = Place::Byte(whole.len() as u64);
    malformed(Format::Forebay, &wrong, behind, "behind the end", 2, 1);
    wrong = whole.clone();
    wrong[8] = 2;
    malformed(Format::Forebay, &wrong, Place::Byte(0), "version 2", 2, 1);
    wrong[0] = b'X';
    malformed(
        Format::Forebay,
        &wrong,
        Place::Byte(0),
        "of Forebay's",
        2,
        1,
    );
}

#[test]
fn names_are_read_and_unknown_ones_answered_with_those_known() {
    for format in Format::ALL {
        assert_eq!(format.name().parse(), Ok(format));
    }
    let said = "nonsense".parse::<Format>().expect_err("unknown");
    assert!(
        said.contains("blkparse") && said.contains("oracle-general"),
        "{said}"
    );
}

/// Whatever the bytes are: no panic, and an end.
#[test]
fn any_bytes_in_any_format() {
    let mut state = 1u64;
    let mut byte = || {
        state = state
            .wrapping_mul(6364136223846793005)
            .wrapping_add(1442695040888963407);
        (state >> 56) as u8
    };
    let alphabet = b"0123456789,,,. \n\nRWQ+readwite\x00\xFF\x1F\x8B(";
    for round in 0..300 {
        let mut trace: Vec<u8> = (0..round * 7)
            .map(|_| {
                if round % 2 == 0 {
                    byte()
                } else {
                    alphabet[byte() as usize % alphabet.len()]
                }
            })
            .collect();
        for head in [
            &b""[..],
            b"\x1F\x8B\x08",
            b"\x28\xB5\x2F\xFD",
            b"\x07tae",
            b"fio version 2 iolog\n",
            b"FOREBAYT\x01\0\0\0",
        ] {
            trace.splice(..head.len().min(trace.len()), head.iter().copied());
            for format in Format::ALL {
                let reader = TraceReader::new(&trace[..], format, 4096, true).expect("memory");
                assert!(reader.take(100_000).count() < 100_000);
            }
        }
    }
}

/// A zstd frame of this window descriptor whose blocks are so many times 128 KiB of newlines.
fn zstd_of_newlines(window: u8, blocks: usize) -> Vec<u8> {
    let mut frame = vec![0x28, 0xB5, 0x2F, 0xFD, 0, window];
    for block in 1..=blocks {
        let is_last = u32::from(block == blocks);
        let header = (128 << 10) << 3 | 1 << 1 | is_last;
        frame.extend(&header.to_le_bytes()[..3]);
        frame.push(b'\n');
    }
    frame
}

/// Found by `make fuzz SURFACE=traces`: all that a frame holds was kept in memory, up to the window
/// that it names.
#[test]
fn a_window_that_no_memory_holds_is_refused() {
    // 8 MiB is read; 4 GiB, and 1 TiB in a later frame, are not.
    let short = zstd_of_newlines(13 << 3, 3);
    assert!(
        read(Format::Blocks, &short)
            .expect("well formed")
            .is_empty()
    );
    for (before, window) in [(&[][..], 22 << 3), (&short[..], 30 << 3)] {
        let trace = [before, &zstd_of_newlines(window, 2000)].concat();
        let (_, said) = place(read(Format::Blocks, &trace).expect_err("refused"));
        assert!(said.contains("128 MiB"), "{said}");
    }
}
