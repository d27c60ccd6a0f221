//! Origins that fail or hang beside others that are sound.

mod common;

use common::{Fate, Ram, Rig};
use forebay_engine::*;

const BLOCK: u64 = 4096;
const ORIGIN_BYTES: u64 = 1 << 30;
const FAILING: VolumeSlot = VolumeSlot(0);
const SOUND: VolumeSlot = VolumeSlot(1);

/// A cache of this size, with volumes on two parts of one origin.
fn rig(cache_bytes: usize) -> Rig {
    rig_with(cache_bytes, Settings::default())
}

fn rig_with(cache_bytes: usize, settings: Settings) -> Rig {
    let ram = Ram::new(64 << 20);
    Rig::with_two_volumes(cache_bytes, ORIGIN_BYTES as usize, ram, settings)
}

fn is_its(action: &Action) -> bool {
    action.device == Device::Origin(FAILING)
}

/// This fate for writes to its origin.
fn of_writes(action: &Action, fate: Fate) -> Fate {
    match action.operation {
        Operation::Write { .. } | Operation::WriteZeroes { .. } if is_its(action) => fate,
        _ => Fate::Done,
    }
}

/// This fate for flushes of its origin.
fn of_flushes(action: &Action, fate: Fate) -> Fate {
    match action.operation {
        Operation::Flush if is_its(action) => fate,
        _ => Fate::Done,
    }
}

fn writes_to_it_fail(action: &Action) -> Fate {
    of_writes(action, Fate::Fails)
}

fn writes_to_it_hang(action: &Action) -> Fate {
    of_writes(action, Fate::Held)
}

fn flushes_of_it_fail(action: &Action) -> Fate {
    of_flushes(action, Fate::Fails)
}

fn flushes_of_it_hang(action: &Action) -> Fate {
    of_flushes(action, Fate::Held)
}

fn dirty_blocks(rig: &Rig, volume: VolumeSlot) -> u64 {
    rig.engine.volume_blocks(volume).unwrap().0
}

/// Single blocks, none beside another.
fn write_scattered(rig: &mut Rig, volume: VolumeSlot, blocks: u64) {
    rig.volume = volume;
    for block in 0..blocks {
        rig.write(block * 3 * BLOCK, &[7; BLOCK as usize], false);
    }
}

/// So many KiB in one piece, which is written back in long runs.
fn write_in_one_piece(rig: &mut Rig, volume: VolumeSlot, kib: u64) {
    rig.volume = volume;
    for at in (0..kib).step_by(64) {
        rig.write(at << 10, &[5; 64 << 10], false);
    }
}

/// So many MiB, all of which go in a few writes.
fn write_zeroes(rig: &mut Rig, mib: u64) {
    rig.volume = FAILING;
    for at in 0..mib {
        let zeroes = RequestKind::WriteZeroes { fua: false };
        rig.simple(zeroes, at << 20, 1 << 20);
    }
}

/// The time until nothing of the sound volume is dirty.
fn time_until_clean(rig: &mut Rig) -> Nanos {
    let began = rig.now;
    while dirty_blocks(rig, SOUND) > 0 {
        assert!(rig.now.since(began) < Nanos(300 * Nanos::SECOND.0));
        rig.pass(Nanos::SECOND);
    }
    Nanos(rig.now.since(began).0)
}

/// Its origin answers from now on, and gets writes again.
fn takes_all_again(rig: &mut Rig) {
    rig.fate = |_| Fate::Done;
    rig.release();
    rig.pass(Nanos(60 * Nanos::SECOND.0));
    assert_eq!(dirty_blocks(rig, FAILING), 0, "it gets writes again");
}

#[test]
fn one_failing_origin_holds_up_no_other() {
    for fate in [writes_to_it_fail, flushes_of_it_fail] {
        let mut rig = rig(64 << 20);
        rig.fate = fate;
        write_scattered(&mut rig, FAILING, 4000);
        write_scattered(&mut rig, SOUND, 1000);
        assert!(time_until_clean(&mut rig).0 <= 10 * Nanos::SECOND.0);
        assert_eq!(dirty_blocks(&rig, FAILING), 4000);
        rig.fate = |_| Fate::Done;
        rig.pass(Nanos(60 * Nanos::SECOND.0));
        assert_eq!(dirty_blocks(&rig, FAILING), 0, "a pause ends");
    }
}

#[test]
fn one_hanging_origin_holds_up_no_other() {
    let mut rig = rig(64 << 20);
    rig.fate = writes_to_it_hang;
    write_scattered(&mut rig, FAILING, 4000);
    write_scattered(&mut rig, SOUND, 1000);
    assert!(time_until_clean(&mut rig).0 <= 10 * Nanos::SECOND.0);
    write_scattered(&mut rig, SOUND, 1000);
    assert!(time_until_clean(&mut rig).0 <= 10 * Nanos::SECOND.0);
    assert_eq!(dirty_blocks(&rig, FAILING), 4000);
    takes_all_again(&mut rig);
}

/// A depth of four has room for one long run, and all that hang are fewer than four.
#[test]
fn few_writes_that_hang_hold_up_no_other_where_no_more_may_be_on_their_way() {
    for depth in [1, 3, 4, 8] {
        let settings = Settings {
            writeback_depth: depth,
            ..Settings::default()
        };
        let mut rig = rig_with(64 << 20, settings);
        rig.fate = writes_to_it_hang;
        write_in_one_piece(&mut rig, FAILING, 8 << 10);
        write_scattered(&mut rig, SOUND, 1000);
        let time = time_until_clean(&mut rig);
        assert!(time.0 <= 10 * Nanos::SECOND.0, "depth {depth}: {time:?}");
        takes_all_again(&mut rig);
    }
}

fn reads_of_it_hang(action: &Action) -> Fate {
    match action.operation {
        Operation::Read { .. } if is_its(action) => Fate::Held,
        _ => Fate::Done,
    }
}

/// Write-back leaves an origin to the clients who wait for it, but not all others to one that waits
/// without end.
#[test]
fn a_client_that_waits_for_a_hanging_origin_holds_up_no_other() {
    // A flush of nobody's may be on its way before the client's.
    let (read, flush) = (RequestKind::Read, RequestKind::Flush);
    let reads_hang = reads_of_it_hang as fn(&Action) -> Fate;
    for (fate, before_s, kind, len_bytes) in [
        (reads_hang, 0, read, 4096),
        (flushes_of_it_hang, 0, flush, 0),
        (flushes_of_it_hang, 30, flush, 0),
    ] {
        let mut rig = rig(64 << 20);
        rig.fate = fate;
        rig.volume = FAILING;
        rig.engine.set_mode(FAILING, Mode::Writethrough);
        rig.write(0, &[1; 4096], false);
        rig.pass(Nanos(before_s * Nanos::SECOND.0));
        write_scattered(&mut rig, SOUND, 1000);
        rig.volume = FAILING;
        let buf = rig.ram.alloc(4096).unwrap();
        let id = rig.start(kind, 512 << 20, len_bytes, buf.slice(0, len_bytes as usize));
        let time = time_until_clean(&mut rig);
        let age_limit = Settings::default().age_limit;
        let limit = age_limit.after(Nanos(15 * Nanos::SECOND.0));
        assert!(time <= limit, "{kind:?}: {time:?}");
        let mut acks = std::iter::from_fn(|| rig.engine.next_ack());
        assert!(acks.all(|ack| ack.id != id), "it waits still");
    }
}

fn one_write_to_it_hangs(action: &Action) -> Fate {
    match action.operation {
        Operation::Write {
            offset_bytes: 0, ..
        } if is_its(action) => Fate::Held,
        _ => Fate::Done,
    }
}

#[test]
fn one_write_that_hangs_keeps_no_other_of_its_origin() {
    let mut rig = rig(64 << 20);
    rig.fate = one_write_to_it_hangs;
    write_scattered(&mut rig, FAILING, 4000);
    write_scattered(&mut rig, SOUND, 10);
    rig.pass(Nanos(40 * Nanos::SECOND.0));
    assert_eq!(dirty_blocks(&rig, SOUND), 0);
    // The blocks that go in one write with it.
    assert!(
        dirty_blocks(&rig, FAILING) <= 1,
        "{}",
        dirty_blocks(&rig, FAILING)
    );
}

#[test]
fn it_is_asked_seldom_however_much_waits_for_it() {
    let mut rig = rig(64 << 20);
    rig.fate = writes_to_it_fail;
    write_scattered(&mut rig, FAILING, 4000);
    rig.pass(Nanos(100 * Nanos::SECOND.0));
    let before = rig.engine.stats().origin_write_errors;
    assert!(before > 0);
    rig.pass(Nanos(300 * Nanos::SECOND.0));
    // One depth of runs, each 30 s.
    let depth = u64::from(Settings::default().writeback_depth);
    let errors = rig.engine.stats().origin_write_errors - before;
    assert!(errors <= 11 * depth, "{errors}");
}

/// Writes beyond the cut-off bypass the cache, one of them of cached blocks, and so does one of parts of
/// blocks that nobody asked for before.
#[test]
fn the_log_takes_a_write_that_bypasses_the_cache_and_fails() {
    let settings = Settings {
        write_admission: Admission::SECOND_TOUCH,
        sequential_cutoff_bytes: Some(8 << 10),
        ..Settings::default()
    };
    let mut rig = rig_with(64 << 20, settings.clone());
    rig.origin.0[..1 << 20].fill(9);
    rig.volume = FAILING;
    let cached = 40 * BLOCK;
    // From behind, so that they are no stream.
    for block in (0..4).rev() {
        rig.read(cached + block * BLOCK, BLOCK as u32);
    }
    for block in 0..4 {
        let state = rig.engine.block_state(FAILING, cached + block * BLOCK);
        assert_eq!(state, (true, false));
    }
    rig.fate = writes_to_it_fail;
    let writes = [
        (0, vec![1; 16 << 10], false),
        (20 * BLOCK, vec![2; 64 << 10], true),
        (10 * BLOCK + 512, vec![3; BLOCK as usize], false),
        (cached, vec![4; 16 << 10], false),
    ];
    for (offset_bytes, data, fua) in &writes {
        let ended = rig.end_of_write(*offset_bytes, data, *fua);
        assert_eq!(ended, Ok(()), "{offset_bytes}");
    }
    let stats = rig.engine.stats();
    let past = [BypassReason::Sequential, BypassReason::Admission];
    let past = past.map(|reason| stats.bypasses.written_blocks(reason));
    assert_eq!(past, [4 + 16 + 4, 2], "they bypass");
    assert_eq!(stats.refused_writes_logged, writes.len() as u64);
    rig.fate = |_| Fate::Done;
    rig.simple(RequestKind::Flush, 0, 0);
    let mut rig = rig.kill(settings, Mode::Writeback);
    for (offset_bytes, data, _) in &writes {
        assert_eq!(rig.read(*offset_bytes, data.len() as u32), *data);
    }
    assert_eq!(rig.read(10 * BLOCK, 512), [9; 512], "the rest of its block");
    rig.drain();
    for (offset_bytes, data, _) in &writes {
        let start = *offset_bytes as usize;
        assert_eq!(rig.origin.0[start..start + data.len()], *data);
    }
}

/// Writes that an administrator keeps out of the cache stay out, and so do all in other modes.
#[test]
fn the_log_takes_nothing_that_it_may_not() {
    let spent = Settings {
        write_budget_bytes_per_day: Some(0),
        ..Settings::default()
    };
    // The cut-off is asked first.
    let long_and_spent = Settings {
        sequential_cutoff_bytes: Some(2048),
        ..spent.clone()
    };
    let cases = [
        (spent, Mode::Writeback),
        (long_and_spent, Mode::Writeback),
        (Settings::default(), Mode::Writearound),
        (Settings::default(), Mode::Passthrough),
    ];
    for (settings, mode) in cases {
        let mut rig = rig_with(64 << 20, settings);
        rig.engine.set_mode(FAILING, mode);
        rig.fate = writes_to_it_fail;
        rig.volume = FAILING;
        let ended = rig.end_of_write(0, &[1; 4096], false);
        assert_eq!(ended, Err(Failure::Io), "{mode:?}");
        assert_eq!(dirty_blocks(&rig, FAILING), 0, "{mode:?}");
    }
}

/// More dirty blocks than one plan passes by are older than the sound volume's.
#[test]
fn a_plan_goes_on_behind_what_it_passed_by() {
    let mut rig = rig(1 << 30);
    rig.fate = writes_to_it_fail;
    write_zeroes(&mut rig, 400);
    write_scattered(&mut rig, SOUND, 1000);
    assert!(time_until_clean(&mut rig).0 <= 10 * Nanos::SECOND.0);
    assert_eq!(dirty_blocks(&rig, FAILING), 400 << 8);
}

#[test]
fn blocks_that_wait_for_a_flush_are_looked_at_the_more_seldom_the_more_they_are() {
    let mut rig = rig(1 << 30);
    rig.fate = flushes_of_it_hang;
    write_zeroes(&mut rig, 512);
    rig.simple(RequestKind::Flush, 0, 0);
    rig.pass(Nanos(100 * Nanos::SECOND.0));
    assert_eq!(rig.engine.stats().written_back_blocks, 512 << 8);
    let began = rig.now;
    let mut looks = 0;
    while rig.now.since(began) < Nanos(10 * Nanos::SECOND.0) {
        rig.now = rig
            .engine
            .next_deadline()
            .unwrap()
            .max(rig.now.after(Nanos(1)));
        rig.turn();
        looks += 1;
    }
    // A plan passes by 32,768 of them, and 65 ms go by until the next.
    assert!(looks <= 200, "{looks}");
    rig.fate = |_| Fate::Done;
    rig.release();
    rig.pass(Nanos(10 * Nanos::SECOND.0));
    assert_eq!(dirty_blocks(&rig, FAILING), 0);
}

fn all_of_it_hangs(action: &Action) -> Fate {
    if is_its(action) {
        Fate::Held
    } else {
        Fate::Done
    }
}

#[test]
fn a_volume_leaves_beside_one_whose_origin_hangs() {
    let mut rig = rig(64 << 20);
    write_scattered(&mut rig, SOUND, 10);
    write_scattered(&mut rig, FAILING, 10);
    rig.volume = SOUND;
    rig.drain();
    rig.fate = all_of_it_hangs;
    rig.volume = FAILING;
    rig.engine.set_draining(FAILING, true);
    let buf = rig.ram.alloc(1 << 20).unwrap();
    let kinds = [
        (RequestKind::Read, 4096),
        (RequestKind::Read, 128 << 10),
        (RequestKind::Write { fua: true }, 1 << 20),
        (RequestKind::Discard, 8192),
        (RequestKind::Flush, 0),
    ];
    for (at, (kind, len_bytes)) in kinds.into_iter().enumerate() {
        let buf = buf.slice(0, len_bytes as usize);
        rig.start(kind, (at as u64 + 1) << 22, len_bytes, buf);
    }
    for _ in 0..100 {
        rig.turn();
        rig.now = rig.now.after(Nanos(1_000_000));
    }
    assert!(!rig.engine.is_idle(), "requests of the other wait");
    assert_eq!(rig.engine.remove_volume(SOUND), Ok(()));
    assert!(rig.engine.remove_volume(FAILING).is_err());
    takes_all_again(&mut rig);
}

/// Each kind of thing that a shard may be doing for a volume keeps it until it is done.
#[test]
fn a_volume_stays_until_nothing_is_in_progress_for_it() {
    let (read, write) = (RequestKind::Read, RequestKind::Write { fua: false });
    let (discard, flush) = (RequestKind::Discard, RequestKind::Flush);
    let (back, through) = (Mode::Writeback, Mode::Writethrough);
    let (cached, other) = (0, 64 << 20);
    let kinds = [
        ("hit", back, read, cached, 4096),
        ("long hit", back, read, cached, 65536),
        ("promotion", back, read, other, 4096),
        ("long promotion", back, read, other, 65536),
        ("read past the cache", Mode::Writearound, read, cached, 4096),
        (
            "write past the cache",
            Mode::Passthrough,
            write,
            other,
            4096,
        ),
        ("write", back, write, cached, 4096),
        ("long write", back, write, cached, 65536),
        ("write through", through, write, cached, 4096),
        ("discard", back, discard, cached, 65536),
        ("flush", through, flush, cached, 0),
    ];
    for (name, mode, kind, offset_bytes, len_bytes) in kinds {
        let mut rig = rig(64 << 20);
        // Zeroes would need no read of the cache device.
        rig.origin.0.fill(9);
        rig.volume = SOUND;
        rig.engine.set_mode(SOUND, mode);
        rig.read(0, 64 << 10);
        if kind == flush {
            rig.write(128 << 20, &[3; 4096], false);
        }
        rig.drain();
        rig.fate = |_| Fate::Held;
        let buf = rig.ram.alloc(64 << 10).unwrap();
        let buf = buf.slice(0, len_bytes as usize);
        rig.start(kind, offset_bytes, len_bytes, buf);
        rig.turn();
        assert!(rig.engine.next_ack().is_none(), "{name}");
        assert_eq!(dirty_blocks(&rig, SOUND), 0, "{name}");
        assert!(rig.engine.remove_volume(SOUND).is_err(), "{name}");
        rig.fate = |_| Fate::Done;
        rig.release();
        rig.pass(Nanos::SECOND);
        rig.drain();
        rig.pass(Nanos::SECOND);
        assert_eq!(rig.engine.remove_volume(SOUND), Ok(()), "{name}");
    }
}
