//! The order of the log and the origin in a write-through (I4, I9).

mod common;

use common::{Fate, Rig};
use forebay_engine::{
    Action, Buf, Device, Failure, Memory, Mode, Nanos, Operation, RequestId, RequestKind, Settings,
};

const BLOCK: usize = 4096;
const LONG: usize = 64 << 10;

fn rig() -> Rig {
    Rig::new(16 << 20, 64 << 20, Settings::default(), Mode::Writethrough)
}

/// A rig whose cache holds these bytes already, clean.
fn warm(len_bytes: usize) -> Rig {
    let mut rig = rig();
    rig.write(0, &vec![1; len_bytes], false);
    rig.simple(RequestKind::Flush, 0, 0);
    rig.settle();
    assert_eq!(rig.engine.stats().dirty_blocks, 0);
    rig
}

/// Starts a write of the byte 2 at the beginning, and does what can be done.
fn start(rig: &mut Rig, len_bytes: usize) -> RequestId {
    start_write(rig, len_bytes, false)
}

fn start_write(rig: &mut Rig, len_bytes: usize, fua: bool) -> RequestId {
    let buf = rig.ram.alloc(len_bytes).expect("memory");
    rig.ram.bytes_mut(buf).fill(2);
    let kind = RequestKind::Write { fua };
    let id = rig.start(kind, 0, len_bytes as u32, buf);
    while rig.turn() {}
    id
}

fn is_on_origin(rig: &Rig, len_bytes: usize) -> bool {
    rig.origin.0[..len_bytes].iter().all(|byte| *byte == 2)
}

fn is_of_cache(action: &Action) -> bool {
    matches!(action.device, Device::Cache(_))
}

fn hold_cache(action: &Action) -> Fate {
    if is_of_cache(action) {
        return Fate::Held;
    }
    Fate::Done
}

fn hold_cache_and_fail_flush_of_origin(action: &Action) -> Fate {
    match (is_of_cache(action), &action.operation) {
        (true, _) => Fate::Held,
        (false, Operation::Flush) => Fate::Fails,
        (false, _) => Fate::Done,
    }
}

fn hold_rest_on_origin_and_fail_its_flush(action: &Action) -> Fate {
    let offset_bytes = match &action.operation {
        Operation::Write { offset_bytes, .. } | Operation::WriteZeroes { offset_bytes, .. } => {
            *offset_bytes
        }
        _ => 0,
    };
    match &action.operation {
        _ if is_of_cache(action) => Fate::Done,
        Operation::Flush => Fate::Fails,
        _ if offset_bytes >= BLOCK as u64 => Fate::Held,
        _ => Fate::Done,
    }
}

fn hold_flush_of_cache(action: &Action) -> Fate {
    if is_of_cache(action) && action.operation == Operation::Flush {
        return Fate::Held;
    }
    Fate::Done
}

fn hold_long_writes_of_cache(action: &Action) -> Fate {
    match &action.operation {
        Operation::Write { bufs, .. } if is_of_cache(action) => {
            let len_bytes: u32 = bufs.iter().map(|buf: &Buf| buf.len_bytes).sum();
            if len_bytes as usize > BLOCK {
                return Fate::Held;
            }
            Fate::Done
        }
        _ => Fate::Done,
    }
}

fn fail_writes_of_cache(action: &Action) -> Fate {
    if is_of_cache(action) && matches!(action.operation, Operation::Write { .. }) {
        return Fate::Fails;
    }
    Fate::Done
}

fn fail_flush_of_cache(action: &Action) -> Fate {
    if is_of_cache(action) && action.operation == Operation::Flush {
        return Fate::Fails;
    }
    Fate::Done
}

#[test]
fn the_origin_is_written_beside_the_log_where_nothing_older_survives() {
    for len_bytes in [BLOCK, LONG] {
        let mut rig = rig();
        rig.fate = hold_cache;
        let id = start(&mut rig, len_bytes);
        assert!(is_on_origin(&rig, len_bytes), "{len_bytes}");
        assert!(rig.engine.next_ack().is_none(), "the log has it not");
        rig.fate = |_| Fate::Done;
        rig.release();
        assert_eq!(rig.finish(id), Ok(()));
        rig.simple(RequestKind::Flush, 0, 0);
        assert_eq!(rig.engine.stats().dirty_blocks, 0);
        assert_eq!(rig.read(0, len_bytes as u32), vec![2; len_bytes]);
        assert_eq!(rig.engine.stats().read_blocks_hit, len_bytes as u64 / 4096);
    }
}

#[test]
fn an_older_entry_is_superseded_durably_before_the_origin_is_written() {
    for len_bytes in [BLOCK, LONG] {
        let mut rig = warm(len_bytes);
        rig.fate = hold_flush_of_cache;
        let id = start(&mut rig, len_bytes);
        assert!(!is_on_origin(&rig, len_bytes), "{len_bytes}");
        rig.fate = |_| Fate::Done;
        rig.release();
        while rig.turn() {}
        assert!(is_on_origin(&rig, len_bytes), "{len_bytes}");
        assert_eq!(rig.finish(id), Ok(()));
    }
}

#[test]
fn a_long_write_waits_for_a_drop_and_not_for_its_data() {
    let mut rig = warm(LONG);
    rig.fate = hold_long_writes_of_cache;
    let id = start(&mut rig, LONG);
    assert!(is_on_origin(&rig, LONG));
    assert!(rig.engine.next_ack().is_none());
    rig.fate = |_| Fate::Done;
    rig.release();
    assert_eq!(rig.finish(id), Ok(()));
    assert_eq!(rig.read(0, LONG as u32), vec![2; LONG]);
}

#[test]
fn a_cache_that_fails_beside_the_origin_leaves_what_the_origin_has() {
    let mut rig = rig();
    rig.fate = fail_writes_of_cache;
    let id = start(&mut rig, LONG);
    assert!(is_on_origin(&rig, LONG));
    assert_eq!(answer_of_failed(&mut rig, id), Ok(()));
    assert_eq!(rig.read(0, LONG as u32), vec![2; LONG]);
    assert_eq!(rig.engine.stats().dirty_blocks, 0);
}

/// The SSD dies under a write of cached blocks: no client hears of it.
#[test]
fn a_write_goes_past_a_cache_that_fails_under_it() {
    for (len_bytes, fate) in [
        (BLOCK, fail_writes_of_cache as fn(&Action) -> Fate),
        (LONG, fail_writes_of_cache),
        (BLOCK, fail_flush_of_cache),
        (LONG, fail_flush_of_cache),
    ] {
        let mut rig = warm(len_bytes);
        rig.fate = fate;
        let id = start(&mut rig, len_bytes);
        assert!(!is_on_origin(&rig, len_bytes), "before it is on record");
        assert_eq!(answer_of_failed(&mut rig, id), Ok(()));
        assert!(is_on_origin(&rig, len_bytes));
        assert_eq!(rig.read(0, len_bytes as u32), vec![2; len_bytes]);
        rig.simple(RequestKind::Flush, 0, 0);
    }
}

/// All answers, by their requests.
fn answers(rig: &mut Rig) -> Vec<(RequestId, Result<(), Failure>)> {
    rig.settle();
    let acks = std::iter::from_fn(|| rig.engine.next_ack());
    let mut answers: Vec<_> = acks.map(|ack| (ack.id, ack.result)).collect();
    answers.sort_unstable_by_key(|(id, _)| *id);
    answers
}

/// The cache still has data that a failed flush of the origin lost, and writes it there again.
#[test]
fn a_flush_that_fails_before_the_log_ends_leaves_the_write_dirty() {
    for (len_bytes, fua) in [(BLOCK, false), (LONG, false), (BLOCK, true), (LONG, true)] {
        let mut rig = rig();
        rig.fate = hold_cache_and_fail_flush_of_origin;
        let id = start_write(&mut rig, len_bytes, fua);
        assert!(is_on_origin(&rig, len_bytes));
        let flush = rig.start(RequestKind::Flush, 0, 0, Buf::EMPTY);
        while rig.turn() {}
        rig.origin.0[..len_bytes].fill(0);
        rig.fate = |_| Fate::Done;
        rig.release();
        assert_eq!(answers(&mut rig), [(id, Ok(())), (flush, Err(Failure::Io))]);
        rig.simple(RequestKind::Flush, 0, 0);
        rig.drain();
        assert!(is_on_origin(&rig, len_bytes), "{len_bytes}, FUA {fua}");
    }
}

/// The flush fails between the first and the last of several writes of the origin.
#[test]
fn a_flush_that_fails_amid_a_write_leaves_all_of_it_dirty() {
    let mut rig = rig();
    rig.write(0, &vec![1; 3 * BLOCK], false);
    rig.fate = hold_rest_on_origin_and_fail_its_flush;
    let zeroes = RequestKind::WriteZeroes { fua: false };
    let id = rig.start(zeroes, 512, 2 * BLOCK as u32, Buf::EMPTY);
    while rig.turn() {}
    let flush = rig.start(RequestKind::Flush, 0, 0, Buf::EMPTY);
    while rig.turn() {}
    rig.origin.0[..3 * BLOCK].fill(9);
    rig.fate = |_| Fate::Done;
    rig.release();
    assert_eq!(answers(&mut rig), [(id, Ok(())), (flush, Err(Failure::Io))]);
    rig.simple(RequestKind::Flush, 0, 0);
    rig.drain();
    let mut expected = vec![1; 3 * BLOCK];
    expected[512..512 + 2 * BLOCK].fill(0);
    assert!(rig.origin.0[..3 * BLOCK] == expected);
}

/// The answer says that the origin alone has it, so that a failed flush of the origin is told.
#[test]
fn a_write_that_the_origin_took_alone_counts_as_bypassed() {
    let mut rig = rig();
    rig.fate = fail_writes_of_cache;
    let id = start(&mut rig, LONG);
    wait_for_record(&mut rig);
    while rig.turn() {}
    let ack = rig.engine.next_ack().expect("it is on record");
    assert_eq!((ack.id, ack.result, ack.bypassed), (id, Ok(()), true));
}

/// FUA needs a flush of the SSD, which fails: the origin's is enough.
#[test]
fn a_forced_write_goes_past_a_cache_that_fails_under_it() {
    for (len_bytes, fate) in [
        (BLOCK, fail_writes_of_cache as fn(&Action) -> Fate),
        (LONG, fail_writes_of_cache),
        (BLOCK, fail_flush_of_cache),
        (LONG, fail_flush_of_cache),
    ] {
        for mut rig in [rig(), warm(len_bytes)] {
            rig.fate = fate;
            let id = start_write(&mut rig, len_bytes, true);
            assert_eq!(answer_of_failed(&mut rig, id), Ok(()));
            assert!(is_on_origin(&rig, len_bytes));
            assert_eq!(rig.read(0, len_bytes as u32), vec![2; len_bytes]);
            rig.simple(RequestKind::Flush, 0, 0);
        }
    }
}

/// The answer of a request when the failure is on record.
fn answer_of_failed(rig: &mut Rig, id: RequestId) -> Result<(), Failure> {
    wait_for_record(rig);
    rig.finish(id)
}

/// Lets time pass until the failure is to be recorded, and says that it is.
fn wait_for_record(rig: &mut Rig) {
    while rig.engine.wants_record().is_none() {
        assert!(rig.engine.next_ack().is_none(), "before it is on record");
        rig.turn();
        rig.now = rig.now.after(Nanos(1_000_000));
    }
    rig.engine.failure_recorded();
}
