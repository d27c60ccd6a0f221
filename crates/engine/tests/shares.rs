//! Blocks that are kept for a volume, while dirty data of another waits for its origin.

mod common;

use std::collections::HashSet;

use common::{Fate, Ram, Rig};
use forebay_engine::{
    Action, Buf, Device, Memory, Nanos, Operation, RequestId, RequestKind, Settings,
    VolumeSettings, VolumeSlot,
};

const BLOCK: usize = 4096;
const ORIGIN_BYTES: usize = 256 << 20;
const SHARE_PERCENT: u8 = 40;

/// Two volumes before the rig's one origin: the rig's own, which reads, and another, which writes.
fn rig_of_two() -> Rig {
    let ram = Ram::new(128 << 20);
    let mut rig = Rig::with_two_volumes(64 << 20, ORIGIN_BYTES, ram, Settings::default());
    let own = VolumeSettings {
        least_share_percent: Some(SHARE_PERCENT),
        ..VolumeSettings::default()
    };
    rig.engine.set_volume_settings(rig.volume, own);
    rig.volume = VolumeSlot(1);
    rig
}

fn writes_of_the_origin_hang(action: &Action) -> Fate {
    match (action.device, &action.operation) {
        (Device::Origin(_), Operation::Write { .. }) => Fate::Held,
        _ => Fate::Done,
    }
}

/// I8. Copies to main free nothing there when all its blocks are kept. An origin that is away for
/// an hour would cost the SSD an hour of writes.
#[test]
fn blocks_that_are_kept_are_not_copied_round_and_round_while_the_origin_is_away() {
    let mut rig = rig_of_two();
    let (reads, writes) = (VolumeSlot(0), rig.volume);
    let (_, capacity_blocks) = rig.engine.occupancy();
    let kept_blocks = read_the_share(&mut rig);
    rig.volume = writes;
    rig.fate = writes_of_the_origin_hang;
    let buf = rig.ram.alloc(BLOCK).unwrap();
    let written = (0..capacity_blocks).find(|block| {
        write_somewhere(&mut rig, *block, buf);
        !has_an_answer(&mut rig)
    });
    assert!(written.is_some(), "there is room for all of them");
    let (_, cached) = rig.engine.volume_blocks(reads).unwrap();
    assert!(
        cached >= kept_blocks * 9 / 10,
        "{cached} of {kept_blocks} are there"
    );
    let before = rig.engine.stats().retained_blocks;
    assert!(!has_an_answer(&mut rig));
    let copied = rig.engine.stats().retained_blocks - before;
    assert!(copied <= cached, "{copied} copies");
    rig.fate = |_| Fate::Done;
    rig.release();
    assert!(has_an_answer(&mut rig), "the origin takes writes again");
}

/// I8. A block that clients read is worth a copy, and no reason to copy all others again.
#[test]
fn a_block_that_is_read_has_others_copied_no_more_often() {
    let mut rig = rig_of_two();
    let (reads, writes) = (VolumeSlot(0), rig.volume);
    let kept_blocks = read_the_share(&mut rig);
    rig.fate = writes_of_the_origin_hang;
    let [from, into] = [(); 2].map(|()| rig.ram.alloc(BLOCK).unwrap());
    let mut waiting = HashSet::new();
    let (mut begun, mut idle_turns, mut copied) = (0, 0, 0);
    while idle_turns < 20_000 {
        rig.volume = writes;
        while waiting.len() < 256 {
            waiting.insert(write_somewhere(&mut rig, begun, from));
            begun += 1;
        }
        if idle_turns % 20 == 0 {
            rig.volume = reads;
            rig.start(RequestKind::Read, 0, BLOCK as u32, into);
        }
        if !rig.turn() {
            rig.now = rig.now.after(Nanos(1_000_000));
        }
        idle_turns += 1;
        while let Some(ack) = rig.engine.next_ack() {
            if waiting.remove(&ack.id) {
                idle_turns = 0;
            }
        }
        if idle_turns == 10_000 {
            copied = rig.engine.stats().retained_blocks;
        }
    }
    let copied = rig.engine.stats().retained_blocks - copied;
    assert!(copied <= kept_blocks, "{copied} copies");
}

/// Reads what is kept for the first volume, again and again. Returns the number of blocks.
fn read_the_share(rig: &mut Rig) -> u64 {
    let (_, capacity_blocks) = rig.engine.occupancy();
    let kept_blocks = capacity_blocks * u64::from(SHARE_PERCENT) / 100 - 256;
    rig.volume = VolumeSlot(0);
    for _ in 0..3 {
        for run in 0..kept_blocks / 32 {
            rig.read(run << 17, 128 << 10);
        }
    }
    kept_blocks
}

/// Starts the n-th write of a block, of which no two are of the same.
fn write_somewhere(rig: &mut Rig, nth: u64, buf: Buf) -> RequestId {
    let place = nth * 40_503 % (ORIGIN_BYTES / BLOCK) as u64;
    let kind = RequestKind::Write { fua: false };
    rig.start(kind, place * BLOCK as u64, BLOCK as u32, buf)
}

/// Whether a request that waits has its answer some time soon.
fn has_an_answer(rig: &mut Rig) -> bool {
    (0..10_000).any(|_| {
        if !rig.turn() {
            rig.now = rig.now.after(Nanos(1_000_000));
        }
        rig.engine.next_ack().is_some()
    })
}
