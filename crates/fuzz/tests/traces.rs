//! Traces in all formats, plain and compressed: from bytes to requests, in bounded memory.
//!
//! The first byte of an input says the format and whether what is malformed is left out.

use std::io::Write;

use forebay_fuzz::mutate::{mutate, pick};
use forebay_fuzz::{Counting, Outcome, SplitMix64, Surface, run};
use forebay_trace::{Format, Kind, Recorded, TraceError, TraceReader};

#[global_allocator]
static COUNTING: Counting = Counting;

/// Numbers and marks that are put anywhere.
const WORDS: [&[u8]; 16] = [
    b"\n",
    b",",
    b" ",
    b"-1",
    b"18446744073709551615",
    b"18446744073709551616",
    b"99999999999999999999999999",
    b"0.0000000000000001",
    b"1e309",
    b"\0",
    b"\xff\xff\xff\xff\xff\xff\xff\xff",
    b"FOREBAYT",
    b"\x07\x74\x61\x65",
    b"\x1f\x8b",
    b"\x28\xb5\x2f\xfd",
    b"\x50\x2a\x4d\x18\xff\xff\xff\xff",
];

/// A valid trace of each format.
fn samples() -> Vec<(Format, Vec<u8>)> {
    let texts = [
        (
            Format::Blocks,
            "7\n\n# a comment\n 8 \r\n9\n18446744073709551614\n",
        ),
        (
            Format::Blkparse,
            "  8,0    3        2     0.000001829   697  Q   W 223488 + 8 [kjournald]\n\
             \x20 8,16   0        3     1.500000000   697  Q RSM 15 + 2 [x y]\n\
             \x20 8,0    3        6     0.000002197   697  Q   D 0 + 800 [fstrim]\nCPU0 (8,0):\n",
        ),
        (
            Format::Fio,
            "fio version 2 iolog\n/dev/a add\n/dev/a open\n/dev/a read 4096 8192\n/dev/a wait 1500 0\n\
             /dev/b write 512 512\n/dev/a trim 0 4096\n/dev/a close\n",
        ),
        (
            Format::Fio,
            "fio version 3 iolog\n0 f add\n5 f open\n1000000 f write 0 4097\n2000000 f read 4096 1\n",
        ),
        (
            Format::Msr,
            "128166385295514663,hm,0,Write,9056014336,2048,2833\n128166385305514663,hm,1,Read,4095,2,2617\n",
        ),
        (
            Format::Alibaba,
            "device_id,opcode,offset,length,timestamp\n419,W,8192,16384,1577808000000177\n7,R,0,512,1577808000000178\n",
        ),
        (
            Format::Tencent,
            "1538323200,16,8,1,1058\n1538323201,15,2,0,1063\n",
        ),
        (
            Format::Spc,
            "0,20941264,8192,W,0.551706\n1, 7, 1024, r, 1,more\n",
        ),
        (
            Format::CloudPhysics,
            "version,time,op,size,lbn\n1,5633898,2a,512,42932745\n1,5633899,28,8192,8\n1,5,12,36,0\n",
        ),
    ];
    let mut samples: Vec<(Format, Vec<u8>)> = texts
        .into_iter()
        .map(|(format, text)| (format, text.as_bytes().to_vec()))
        .collect();
    for big_endian in [false, true] {
        let records = [
            blktrace(2 | 1 << 26, 0, 0, b"a message", big_endian),
            blktrace(1 | 1 << 16, 8, 8192, b"", big_endian),
            blktrace(1 | 1 << 17 | 1 << 29, 0, 4096, b"", big_endian),
            blktrace(1 | 1 << 17, 16, 512, b"0123", big_endian),
        ];
        samples.push((Format::Blktrace, records.concat()));
    }
    let vscsi_1 = [vscsi_1(0x28, 8192, 8), vscsi_1(0x8a, 512, 16)].concat();
    samples.push((Format::Vscsi, vscsi_1));
    let vscsi_2 = [vscsi_2(0x28, 8192, 8), vscsi_2(0x12, 36, 0)].concat();
    samples.push((Format::Vscsi, vscsi_2));
    let mut objects = Vec::new();
    for object in [3_u64, 4, 3] {
        objects.extend(7_u32.to_le_bytes());
        objects.extend(object.to_le_bytes());
        objects.extend(512_u32.to_le_bytes());
        objects.extend((-2_i64).to_le_bytes());
    }
    samples.push((Format::OracleGeneral, objects));
    samples.push((Format::Forebay, recording()));
    samples
}

fn recording() -> Vec<u8> {
    let kinds = [Kind::Read, Kind::Write, Kind::Flush, Kind::Discard];
    let mut bytes = Recorded::header(1 << 30).to_vec();
    for (at, kind) in (0..).zip(kinds) {
        let recorded = Recorded {
            time_ns: at * 1000,
            kind,
            offset_bytes: at * 8192,
            len_bytes: 4096,
        };
        bytes.extend(recorded.encode());
    }
    bytes.extend(Recorded::end(9000, 2));
    bytes
}

fn blktrace(action: u32, sector: u64, bytes: u32, pdu: &[u8], big_endian: bool) -> Vec<u8> {
    let mut record = Vec::new();
    let pdu_bytes = pdu.len() as u64;
    for (value, size) in [
        (0x6561_7407, 4),
        (1, 4),
        (2_000_000_000, 8),
        (sector, 8),
        (u64::from(bytes), 4),
        (u64::from(action), 4),
        (1, 4),
        (0x0080_0010, 4),
        (0, 4),
        (0, 2),
        (pdu_bytes, 2),
    ] {
        if big_endian {
            record.extend(&u64::to_be_bytes(value)[8 - size..]);
        } else {
            record.extend(&u64::to_le_bytes(value)[..size]);
        }
    }
    record.extend(pdu);
    record
}

fn vscsi_1(command: u16, bytes: u32, sector: u64) -> Vec<u8> {
    let mut record = 9_u32.to_le_bytes().to_vec();
    record.extend(bytes.to_le_bytes());
    record.extend(1_u32.to_le_bytes());
    record.extend(command.to_le_bytes());
    record.extend(0x100_u16.to_le_bytes());
    record.extend(sector.to_le_bytes());
    record.extend(1_500_000_u64.to_le_bytes());
    record
}

fn vscsi_2(command: u16, bytes: u32, sector: u64) -> Vec<u8> {
    let mut record = command.to_le_bytes().to_vec();
    record.extend(0x200_u16.to_le_bytes());
    record.extend(9_u32.to_le_bytes());
    record.extend(bytes.to_le_bytes());
    record.extend(1_u32.to_le_bytes());
    record.extend(sector.to_le_bytes());
    record.extend(1_500_000_u64.to_le_bytes());
    record.extend(5_u64.to_le_bytes());
    record
}

fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    encoder.write_all(bytes).expect("memory");
    encoder.finish().expect("memory")
}

fn zstd(bytes: &[u8]) -> Vec<u8> {
    let level = ruzstd::encoding::CompressionLevel::Fastest;
    ruzstd::encoding::compress_to_vec(bytes, level)
}

struct Traces {
    /// Each format plain, then with gzip and with zstd.
    samples: Vec<(Format, Vec<u8>)>,
    plain: usize,
    requests: u64,
    skipped: u64,
}

impl Traces {
    fn new() -> Traces {
        let mut samples = samples();
        let plain = samples.len();
        for at in 0..plain {
            let (format, bytes) = samples[at].clone();
            let longer = bytes.repeat(20);
            samples.push((format, gzip(&bytes)));
            samples.push((format, zstd(&longer)));
        }
        // Far longer than its file.
        samples.push((Format::Blocks, gzip(&b"1\n".repeat(50_000))));
        let two = [
            zstd(b"1\n2\n"),
            b"\x5a\x2a\x4d\x18\x04\0\0\0skip".to_vec(),
            zstd(b"3\n"),
        ];
        samples.push((Format::Blocks, two.concat()));
        Traces {
            samples,
            plain,
            requests: 0,
            skipped: 0,
        }
    }
}

impl Surface for Traces {
    fn name(&self) -> &'static str {
        "traces"
    }

    fn most_bytes(&self) -> usize {
        16 << 20
    }

    fn forge(&mut self, random: &mut SplitMix64, input: &mut Vec<u8>) {
        let end = match random.below(4) {
            0 => self.samples.len(),
            _ => self.plain,
        };
        let at = random.below(end as u64) as usize;
        let (format, sample) = &self.samples[at];
        let format = match random.below(32) {
            0 => pick(random, &Format::ALL),
            _ => *format,
        };
        let number = Format::ALL.iter().position(|known| *known == format);
        input.push(number.unwrap_or(0) as u8 | ((random.below(2) as u8) << 7));
        let mut rest = sample.clone();
        if random.below(8) == 0 {
            let (_, other) = &self.samples[random.below(end as u64) as usize];
            rest.extend_from_slice(other);
        }
        for _ in 0..random.below(5) {
            mutate(&mut rest, &WORDS, random);
        }
        input.append(&mut rest);
    }

    fn feed(&mut self, input: &[u8]) -> Outcome {
        let Some((&how, trace)) = input.split_first() else {
            return Outcome::Rejected("nothing");
        };
        let format = Format::ALL[usize::from(how & 0x7f) % Format::ALL.len()];
        let skip_bad = how & 0x80 != 0;
        let reader = TraceReader::new(trace, format, 4096, skip_bad);
        let mut reader = reader.expect("memory does not fail").with_all_kinds();
        let mut requests = 0;
        let mut failed = None;
        for request in reader.by_ref() {
            match request {
                Ok(request) => {
                    requests += 1;
                    let end = request.first_block.checked_add(u64::from(request.blocks));
                    assert!(end.is_some(), "the blocks of a request have numbers");
                }
                Err(error) => failed = Some(error),
            }
        }
        self.requests += requests;
        self.skipped += reader.skipped();
        std::hint::black_box(reader.dropped());
        let is_packed = trace.starts_with(b"\x1f\x8b") || trace.starts_with(b"\x28\xb5\x2f\xfd");
        match (failed, requests, is_packed) {
            (Some(TraceError::Io(_)), ..) => Outcome::Rejected("an error of the device"),
            (Some(error), _, packed) => {
                std::hint::black_box(error.to_string());
                match packed {
                    true => Outcome::Rejected("malformed, compressed"),
                    false => Outcome::Rejected("malformed"),
                }
            }
            (None, 0, _) => Outcome::Rejected("no request in it"),
            (None, _, true) => Outcome::Accepted("requests, compressed"),
            (None, _, false) => Outcome::Accepted("requests"),
        }
    }

    fn reached(&self) -> Vec<(&'static str, u64)> {
        vec![
            ("requests", self.requests),
            ("malformed lines and records left out", self.skipped),
        ]
    }
}

#[test]
fn whatever_a_trace_holds_is_read_or_malformed() {
    run(&mut Traces::new(), 10_000);
}
