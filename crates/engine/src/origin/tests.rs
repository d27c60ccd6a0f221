//! Tests of write-back and the throttle by themselves, over a store.

use crate::buffer::MemoryBuffer;
use crate::format::{BlockKey, Stream};
use crate::interface::{Action, Nanos, Operation, total_bytes};
use crate::origin::Origin;
use crate::rig::{BLOCK_BYTES, Rig, VOLUME, shape};
use crate::settings::{Mode, Settings, WritebackPolicy};
use crate::store::op::Op;

struct Writer {
    rig: Rig,
    origin: Origin,
    buffer: MemoryBuffer,
}

impl Writer {
    /// A writer with durable dirty blocks, none beside another.
    fn with_scattered_blocks() -> Writer {
        let mut writer = Writer::new();
        for key in 0..64 {
            assert!(writer.rig.append(Stream::Write, key * 100, 1));
        }
        writer.rig.flush();
        writer
    }

    /// A writer that writes everything back at once.
    fn new() -> Writer {
        let settings = Settings {
            writeback_policy: WritebackPolicy::Cleaner,
            ..Settings::default()
        };
        let mut rig = Rig::new(Mode::Writeback, settings);
        let origin = Origin::new(BLOCK_BYTES, &mut rig.ram);
        Writer {
            rig,
            origin,
            buffer: MemoryBuffer::default(),
        }
    }

    fn advance(&mut self) {
        let Rig {
            store, ram, now, ..
        } = &mut self.rig;
        self.origin
            .advance_writeback(store, &self.buffer, *now, ram);
    }

    /// Carries out the operations of write-back, and returns them.
    fn run(&mut self) -> Vec<(&'static str, bool)> {
        let mut seen = Vec::new();
        while let Some(action) = self.rig.store.operations.next() {
            seen.push(shape(&action));
            self.carry_out(action);
        }
        seen
    }

    /// Carries out what write-back begins until it begins nothing more. Returns its writes.
    fn writes(&mut self) -> usize {
        let mut writes = 0;
        for _ in 0..20 {
            self.advance();
            let seen = self.run();
            writes += seen
                .iter()
                .filter(|seen| **seen == ("write", false))
                .count();
        }
        writes
    }

    fn carry_out(&mut self, action: Action) {
        let Some(op) = self.rig.carry_out(action) else {
            return;
        };
        let Rig {
            store, ram, now, ..
        } = &mut self.rig;
        match op {
            Op::WritebackRead(part) => {
                self.origin
                    .writeback_read_done(store, *now, part, Ok(()), ram);
            }
            Op::WritebackWrite { job } => {
                self.origin
                    .writeback_write_done(store, *now, job, Ok(()), ram);
            }
            other => panic!("write-back asks for no {other:?}"),
        }
    }
}

#[test]
fn nothing_is_written_back_before_its_entry_is_durable() {
    let mut writer = Writer::new();
    assert!(writer.rig.append(Stream::Write, 3, 1));
    writer.advance();
    assert_eq!(writer.run(), [], "I4");
    writer.rig.flush();
    writer.rig.now.0 += 1 << 30;
    writer.advance();
    assert_eq!(writer.run(), [("read", true), ("write", false)]);
}

#[test]
fn neighbours_go_in_one_write_and_are_clean_after_the_origins_flush() {
    let mut writer = Writer::new();
    for key in [4, 2, 3] {
        assert!(writer.rig.append(Stream::Write, key, 1));
    }
    writer.rig.flush();
    writer.advance();
    let seen = writer.run();
    let writes = seen.iter().filter(|seen| **seen == ("write", false));
    assert_eq!(writes.count(), 1, "in {seen:?}");
    assert_eq!(writer.rig.store.stats.dirty_blocks, 3, "I6");
    writer.rig.store.want_origin_flush(VOLUME);
    writer.rig.store.advance_origins(writer.rig.now);
    assert_eq!(writer.run(), [("flush", false)]);
    assert_eq!(writer.rig.store.stats.dirty_blocks, 0);
}

#[test]
fn a_version_that_was_replaced_meanwhile_stays_dirty() {
    let mut writer = Writer::new();
    assert!(writer.rig.append(Stream::Write, 3, 1));
    writer.rig.flush();
    writer.advance();
    writer.run();
    assert!(writer.rig.append(Stream::Write, 3, 1));
    writer.rig.store.want_origin_flush(VOLUME);
    writer.rig.store.advance_origins(writer.rig.now);
    writer.run();
    assert_eq!(writer.rig.store.stats.dirty_blocks, 1, "I6");
}

#[test]
fn held_write_back_begins_nothing() {
    let mut writer = Writer::new();
    assert!(writer.rig.append(Stream::Write, 3, 1));
    writer.rig.flush();
    writer.origin.writeback.hold();
    writer.advance();
    assert_eq!(writer.run(), []);
}

#[test]
fn writes_wait_at_the_limit_of_dirty_data_and_pass_below_the_high_mark() {
    let mut writer = Writer::new();
    let settings = writer.rig.store.settings.clone();
    writer.rig.store.set_settings(Settings {
        dirty_high_percent: 0,
        dirty_limit_percent: 0,
        ..settings.clone()
    });
    let index = crate::slab::SlabId::new(1);
    let Rig { store, now, .. } = &mut writer.rig;
    assert!(writer.origin.throttles(store, *now, 8));
    writer.origin.throttle.hold(index, 8);
    writer
        .origin
        .refill(store, now.after(crate::interface::Nanos::SECOND));
    assert_eq!(
        writer.origin.next_released(store),
        None,
        "it is at the limit"
    );
    store.set_settings(settings);
    assert_eq!(writer.origin.next_released(store), Some(index));
    assert!(writer.origin.throttle.is_empty());
}

#[test]
fn blocks_of_no_volume_are_left_alone() {
    let mut writer = Writer::new();
    assert!(writer.rig.append(Stream::Write, 3, 1));
    writer.rig.flush();
    assert!(writer.rig.store.index.find(BlockKey(3)).is_some());
    let volume = writer.rig.store.volumes[0].take();
    writer.advance();
    assert_eq!(writer.run(), []);
    writer.rig.store.volumes[0] = volume;
}

#[test]
fn blocks_of_a_volume_that_is_away_are_kept_and_hold_nobody_up() {
    let mut writer = Writer::new();
    assert!(writer.rig.append(Stream::Write, 3, 1));
    writer.rig.flush();
    writer.rig.store.set_away(VOLUME);
    writer.advance();
    assert_eq!(writer.run(), [], "I25");
    let store = &writer.rig.store;
    assert_eq!((store.stats.dirty_blocks, store.present_dirty()), (1, 0));
    assert_eq!(store.dirty_blocks_to_come(), 0);
    let config = store.attached(VOLUME).config;
    writer.rig.store.bring_back(VOLUME, config);
    writer.advance();
    assert!(!writer.run().is_empty(), "it is written back");
}

#[test]
fn a_reader_that_thinks_finds_the_origin_free_between_portions() {
    let mut writer = Writer::with_scattered_blocks();
    writer.rig.store.volume(VOLUME).client_waits(writer.rig.now);
    writer.rig.now.0 += 20_000_000;
    assert_eq!(writer.writes(), 8);
    writer.rig.now.0 += 10_000_000;
    writer.rig.store.advance_origins(writer.rig.now);
    assert_eq!(writer.run(), [("flush", false)], "the disk pays");
    assert_eq!(writer.writes(), 0);
    writer.rig.now.0 += 29_000_000;
    assert_eq!(writer.writes(), 0, "three times as long");
    writer.rig.now.0 += 2_000_000;
    assert_eq!(writer.writes(), 8);
    writer.rig.now = writer.rig.now.after(Nanos::SECOND);
    assert_eq!(writer.writes(), 48, "nobody comes back");
}

#[test]
fn a_portion_does_not_wait_for_ever_for_a_flush() {
    let mut writer = Writer::with_scattered_blocks();
    let mut writes_after = |wait_ns: u64| {
        writer.rig.now.0 += wait_ns;
        writer.rig.store.volume(VOLUME).client_waits(writer.rig.now);
        writer.rig.now.0 += 20_000_000;
        writer.writes()
    };
    assert_eq!(writes_after(0), 8);
    assert_eq!(writes_after(500_000_000), 0, "no flush has ended");
    assert_eq!(writes_after(600_000_000), 0, "it rests");
    assert_eq!(writes_after(Nanos::SECOND.0), 8);
}

/// A client asks for one block after the other, and an SSD is idle most of the time.
#[test]
fn short_pieces_are_read_with_pauses_beside_a_client_that_leaves_the_device_idle() {
    let mut writer = Writer::new();
    writer.rig.has_read_long();
    assert!(writer.rig.append(Stream::Write, 0, 16));
    let client_reads = |writer: &mut Writer| {
        writer.rig.now.0 += 100_000;
        writer.rig.store.stats.cache_data_read_bytes += 4096;
        writer.origin.writeback.cache_is_used(writer.rig.now);
        writer.advance();
    };
    for _ in 0..300 {
        client_reads(&mut writer);
    }
    writer.rig.flush();
    let (mut pieces, mut written) = (Vec::new(), Vec::new());
    while written.is_empty() {
        client_reads(&mut writer);
        while let Some(action) = writer.rig.store.operations.next() {
            match &action.operation {
                Operation::Read { bufs, .. } => pieces.push((writer.rig.now.0, total_bytes(bufs))),
                Operation::Write { bufs, .. } => written.push(total_bytes(bufs)),
                other => panic!("{other:?}"),
            }
            writer.carry_out(action);
        }
    }
    assert_eq!(written, [64 << 10]);
    let lengths: Vec<u64> = pieces.iter().map(|(_, bytes)| *bytes).collect();
    assert_eq!(lengths, [8 << 10; 8]);
    let pauses = pieces.windows(2).map(|pair| pair[1].0 - pair[0].0);
    assert!(pauses.clone().all(|pause| pause == 200_000), "{pieces:?}");
}
