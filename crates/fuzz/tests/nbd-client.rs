//! Bytes from a server to the NBD client: the protocol machine, without sockets.
//!
//! The first byte of an input says what the client wants; the rest is what the server says. The
//! negotiation is followed by answers to requests that the client made.

use forebay_frontend::nbd::client::{Answers, Event, Negotiation, Progress};
use forebay_frontend::nbd::wire::{
    command, greeting, info_block_size, info_export, none_chunk, option, option_reply, simple_reply,
};
use forebay_fuzz::mutate::mutate;
use forebay_fuzz::{Counting, Outcome, SplitMix64, Surface, run};

#[global_allocator]
static COUNTING: Counting = Counting;

/// Requests in flight; each read is of so many bytes.
const REQUESTS: u64 = 8;
const READ_BYTES: u32 = 4096;

#[derive(Default)]
struct NbdClient {
    open: u64,
    answered: u64,
    filled_bytes: u64,
}

fn reply(into: &mut Vec<u8>, option: u32, kind: u32, data: &[u8]) {
    into.extend(forebay_frontend::nbd::wire::option_reply(
        option,
        kind,
        data.len() as u32,
    ));
    into.extend_from_slice(data);
}

fn converse(random: &mut SplitMix64, into: &mut Vec<u8>) {
    into.extend(greeting());
    let size = info_export(1 << (10 + random.below(30)), random.bits() as u16 | 1);
    reply(into, option::GO, option_reply::INFO, &size);
    let sizes = info_block_size(1 << random.below(13), 4096, 32 << 20);
    reply(into, option::GO, option_reply::INFO, &sizes);
    reply(into, option::GO, option_reply::ACK, &[]);
    for cookie in 1..=REQUESTS {
        match random.below(8) {
            0 => into.extend(simple_reply(5, cookie)),
            1 => into.extend(simple_reply(0, random.below(2 * REQUESTS))),
            // Nobody asked for structured replies.
            2 => into.extend(none_chunk(cookie)),
            _ => {
                into.extend(simple_reply(0, cookie));
                into.resize(into.len() + READ_BYTES as usize, 7);
            }
        }
    }
}

impl Surface for NbdClient {
    fn name(&self) -> &'static str {
        "nbd-client"
    }

    fn most_bytes(&self) -> usize {
        1 << 20
    }

    fn forge(&mut self, random: &mut SplitMix64, input: &mut Vec<u8>) {
        let manner = random.bits() as u8;
        input.push(manner);
        converse(random, input);
        let words: [&[u8]; 2] = [&[0x67, 0x44, 0x66, 0x98], &[0x66, 0x8e, 0x33, 0xef]];
        mutate(input, &words, random);
    }

    fn feed(&mut self, input: &[u8]) -> Outcome {
        let Some((&manner, said)) = input.split_first() else {
            return Outcome::Rejected("nothing");
        };
        let mut negotiation =
            Negotiation::new("disk", manner & 0x30 == 0x30).expect("a name of four bytes");
        let rest = match negotiation.receive(said) {
            Err(_) => return Outcome::Rejected("negotiation"),
            Ok((_, Progress::More)) => return Outcome::Rejected("cut short"),
            Ok((_, Progress::StartTls)) => return Outcome::Accepted("TLS"),
            Ok((taken, Progress::Open(_))) => &said[taken..],
        };
        self.open += 1;
        let mut answers = Answers::default();
        for number in 1..=REQUESTS {
            let command = if (manner >> 1) & 7 == number as u8 {
                command::FLUSH
            } else {
                command::READ
            };
            answers.ask(command, number * u64::from(READ_BYTES), READ_BYTES);
        }
        self.read(&mut answers, rest, usize::from(manner >> 4) + 1)
    }

    fn reached(&self) -> Vec<(&'static str, u64)> {
        vec![
            ("exports opened", self.open),
            ("requests answered", self.answered),
            ("bytes filled", self.filled_bytes),
        ]
    }
}

impl NbdClient {
    /// Reads answers that come in pieces of some length.
    fn read(&mut self, answers: &mut Answers, said: &[u8], piece: usize) -> Outcome {
        let (mut at, mut there) = (0, 0);
        loop {
            let Ok(step) = answers.receive(&said[at..there]) else {
                return Outcome::Rejected("answers");
            };
            at += step.taken;
            match step.event {
                None if step.taken == 0 && there == said.len() => break,
                None if step.taken == 0 => there = (there + piece * 64).min(said.len()),
                None => {}
                Some(Event::Data { at_bytes, .. }) => {
                    assert!(at_bytes as usize + step.taken <= READ_BYTES as usize);
                    self.filled_bytes += step.taken as u64;
                }
                Some(Event::Done { .. }) => self.answered += 1,
            }
        }
        Outcome::Accepted("answers")
    }
}

#[test]
fn answers_of_a_server_never_do_harm() {
    run(&mut NbdClient::default(), 20_000);
}
