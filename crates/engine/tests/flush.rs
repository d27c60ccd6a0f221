//! A client's flush, and the writes it waits for.

mod common;

use common::Fate;
use common::Rig;
use forebay_engine::{
    Action, Buf, Device, Failure, Mode, Nanos, Operation, RequestId, RequestKind, Settings,
};

const BLOCK: u64 = 4096;

fn rig(mode: Mode) -> Rig {
    let settings = Settings {
        dirty_low_percent: 0,
        ..Settings::default()
    };
    Rig::new(16 << 20, 64 << 20, settings, mode)
}

/// A disk takes seconds for a flush after scattered writes. What write-back put there is in the
/// cache too, and dirty, until its own flush.
#[test]
fn it_does_not_wait_for_what_write_back_wrote() {
    let mut rig = rig(Mode::Writeback);
    for block in 0..32 {
        rig.write(block * 7 * BLOCK, &[1; BLOCK as usize], false);
    }
    rig.simple(RequestKind::Flush, 0, 0);
    while rig.engine.unflushed_blocks(rig.volume) == 0 {
        rig.turn();
        rig.now = rig.now.after(forebay_engine::Nanos(20_000_000));
    }
    // Answered at once, with nothing asked of any device.
    let flush = rig.start(RequestKind::Flush, 0, 0, forebay_engine::Buf::EMPTY);
    let ack = rig.engine.next_ack().expect("an answer");
    assert_eq!((ack.id, ack.result), (flush, Ok(())));
    assert!(rig.engine.unflushed_blocks(rig.volume) > 0);
    assert_eq!(
        rig.engine.stats().dirty_blocks,
        32,
        "clean only after a flush"
    );
}

#[test]
fn it_waits_for_what_a_client_wrote_to_the_origin() {
    for mode in [Mode::Writethrough, Mode::Writearound] {
        let mut rig = rig(mode);
        let flushes = rig.engine.stats().origin_flushes;
        rig.write(0, &[1; BLOCK as usize], false);
        rig.simple(RequestKind::Flush, 0, 0);
        assert_eq!(rig.engine.stats().origin_flushes, flushes + 1, "{mode:?}");
        rig.simple(RequestKind::Flush, 0, 0);
        assert_eq!(rig.engine.stats().origin_flushes, flushes + 1, "{mode:?}");
    }
}

fn flushes_of_the_origin_fail(action: &Action) -> Fate {
    match (action.device, &action.operation) {
        (Device::Origin(_), Operation::Flush) => Fate::Fails,
        _ => Fate::Done,
    }
}

/// Lets time pass until a flush of the origin has ended that no client asked for.
fn until_a_flush_failed(rig: &mut Rig) {
    rig.fate = flushes_of_the_origin_fail;
    let before = rig.engine.stats().origin_flushes;
    while rig.engine.stats().origin_flushes == before {
        rig.turn();
        rig.now = rig.now.after(Nanos(20_000_000));
    }
    rig.turn();
}

/// Answer to a flush of the client's.
fn flushed(rig: &mut Rig) -> Result<(), Failure> {
    let flush = rig.start(RequestKind::Flush, 0, 0, Buf::EMPTY);
    rig.finish(flush)
}

/// I10. A disk that was away, as an iSCSI disk whose target restarts: a file system that hears an error
/// goes read-only, though the cache has all of its data.
#[test]
fn a_failed_flush_of_what_write_back_wrote_is_no_error_of_a_clients() {
    let mut rig = rig(Mode::Writeback);
    rig.write(0, &[1; BLOCK as usize], false);
    until_a_flush_failed(&mut rig);
    assert_eq!(flushed(&mut rig), Ok(()));
    assert_eq!(rig.engine.stats().dirty_blocks, 1, "to be written again");
    rig.fate = |_| Fate::Done;
    rig.drain();
    assert_eq!(rig.origin.0[..BLOCK as usize], [1; BLOCK as usize]);
}

#[test]
fn a_failed_flush_of_what_a_client_wrote_to_the_origin_is_told_once() {
    let mut rig = rig(Mode::Writearound);
    rig.write(0, &[1; BLOCK as usize], false);
    until_a_flush_failed(&mut rig);
    rig.fate = |_| Fate::Done;
    assert_eq!(rig.engine.next_unheard(), None, "nobody has asked");
    assert_eq!(flushed(&mut rig), Err(Failure::Io));
    assert_eq!(rig.engine.next_unheard(), Some(rig.volume));
    assert_eq!(flushed(&mut rig), Ok(()));
    assert_eq!(rig.engine.next_unheard(), None);
}

/// I10. A command that hears of it, or a trim that is made durable, does not learn from it that
/// earlier writes may be lost.
#[test]
fn a_failed_flush_that_no_client_asked_for_is_told_to_the_next_that_does() {
    for fails_in_its_own in [true, false] {
        let mut rig = rig(Mode::Writearound);
        rig.write(0, &[1; BLOCK as usize], false);
        if !fails_in_its_own {
            until_a_flush_failed(&mut rig);
        }
        rig.fate = flushes_of_the_origin_fail;
        let name = RequestId(1 << 20).unheard();
        rig.start_as(name, RequestKind::Flush, 0, 0, Buf::EMPTY);
        assert_eq!(rig.finish(name), Err(Failure::Io));
        assert_eq!(rig.engine.next_unheard(), None, "it is no client's");
        rig.fate = |_| Fate::Done;
        assert_eq!(flushed(&mut rig), Err(Failure::Io), "{fails_in_its_own}");
        assert_eq!(flushed(&mut rig), Ok(()));
    }
}

/// The blocks that waited for it are dirty again: without a pause they would be written at the
/// origin's full speed for as long as its flushes fail.
#[test]
fn write_back_pauses_longer_each_time_a_flush_fails() {
    let mut rig = rig(Mode::Writeback);
    rig.fate = flushes_of_the_origin_fail;
    for block in 0..100 {
        rig.write(block * 3 * BLOCK, &[7; BLOCK as usize], false);
    }
    rig.pass(Nanos(600 * Nanos::SECOND.0));
    let (written, flushes) = {
        let stats = rig.engine.stats();
        (stats.written_back_blocks, stats.origin_flushes)
    };
    assert!((10..40).contains(&flushes), "{flushes} in ten minutes");
    assert!(written <= flushes * 100, "{written} blocks");
    rig.fate = |_| Fate::Done;
    rig.pass(Nanos(60 * Nanos::SECOND.0));
    assert_eq!(rig.engine.stats().dirty_blocks, 0, "all is well again");
}
