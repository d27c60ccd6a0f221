//! The steady state: pipelined 4 KiB requests cost no allocation, and little time, which is
//! printed.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::time::Instant;

use forebay_engine::{Buf, Memory};
use forebay_frontend::nbd::fuzz::{exports, opening};
use forebay_frontend::nbd::wire::RequestHeader;
use forebay_frontend::nbd::{Connection, Event, ExportTable, Lent, Limits, Parts, Settings};

struct Counting;

thread_local! {
    static ALLOCATIONS: Cell<u64> = const { Cell::new(0) };
}

// SAFETY: everything is left to the system's allocator.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATIONS.with(|count| count.set(count.get() + 1));
        // SAFETY: the caller's promise is passed on.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        // SAFETY: the caller's promise is passed on.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static COUNTING: Counting = Counting;

const DEPTH: usize = 32;
const BLOCK_BYTES: u32 = 4096;

/// A buffer for each request in flight.
struct Arena(Vec<u8>);

impl Arena {
    fn buf(index: usize) -> Buf {
        Buf {
            start_sector: index as u32 * 8,
            len_bytes: BLOCK_BYTES,
        }
    }
}

impl Memory for Arena {
    fn alloc(&mut self, _len_bytes: usize) -> Option<Buf> {
        None
    }

    fn free(&mut self, _buf: Buf) {}

    fn bytes(&self, buf: Buf) -> &[u8] {
        let start = buf.start_sector as usize * 512;
        &self.0[start..start + buf.len_bytes as usize]
    }

    fn bytes_mut(&mut self, buf: Buf) -> &mut [u8] {
        let start = buf.start_sector as usize * 512;
        &mut self.0[start..start + buf.len_bytes as usize]
    }

    fn journal_mut(&mut self, _shard: u16) -> &mut [u8] {
        &mut []
    }
}

/// A batch of requests in, all answered, all output consumed.
fn round(
    connection: &mut Connection,
    memory: &mut Arena,
    exports: &ExportTable,
    mut input: &[u8],
) -> usize {
    let mut next = 0;
    loop {
        let step = connection.receive(memory, exports, input);
        input = &input[step.consumed_bytes..];
        let part = Lent {
            buf: Arena::buf(next),
            token: next as u64,
        };
        match step.event {
            Some(Event::Request(request)) => {
                connection.reply_read(request.ticket, Parts::from_iter([part]));
            }
            Some(Event::Payload { ticket, .. }) => {
                connection.lend_payload(ticket, Parts::from_iter([part]));
                continue;
            }
            Some(Event::Write(request, _)) => connection.reply_done(request.ticket, Ok(())),
            Some(Event::Opened(_)) => continue,
            None => break,
        }
        next += 1;
    }
    let sent_bytes = connection
        .output(memory)
        .map(|piece| piece.len_bytes())
        .sum();
    connection.sent(sent_bytes);
    connection.take_released().for_each(drop);
    sent_bytes
}

#[test]
fn pipelined_requests_allocate_nothing() {
    let exports = exports();
    for structured in [false, true] {
        for command in [0, 1] {
            let settings = Settings {
                limits: Limits::default(),
                ..Settings::default()
            };
            let mut connection = Connection::new(settings);
            let mut memory = Arena(vec![0; DEPTH * BLOCK_BYTES as usize]);
            round(
                &mut connection,
                &mut memory,
                &exports,
                &opening("disk", structured),
            );
            let mut batch = Vec::new();
            for cookie in 0..DEPTH as u64 {
                let (flags, offset_bytes) = (0, cookie * u64::from(BLOCK_BYTES));
                let header = RequestHeader {
                    flags,
                    command,
                    cookie,
                    offset_bytes,
                    len_bytes: BLOCK_BYTES,
                };
                batch.extend(header.encode());
                if command == 1 {
                    batch.extend([7; BLOCK_BYTES as usize]);
                }
            }
            let expected_bytes = round(&mut connection, &mut memory, &exports, &batch);
            assert!(expected_bytes >= DEPTH * 16);
            let before = ALLOCATIONS.get();
            let start = Instant::now();
            let rounds = 2000;
            for _ in 0..rounds {
                let bytes = round(&mut connection, &mut memory, &exports, &batch);
                assert_eq!(bytes, expected_bytes);
            }
            let each_ns = start.elapsed().as_nanos() / (rounds * DEPTH) as u128;
            assert_eq!(ALLOCATIONS.get(), before, "no request allocates");
            println!("command {command}, structured {structured}: {each_ns} ns each");
        }
    }
}
