//! Tests of admission and replacement by themselves, over a store and without a request in
//! progress.

use crate::bypass::BypassReason;
use crate::format::{BlockKey, Stream};
use crate::interface::{Device, Nanos, OpId, Operation, RequestKind};
use crate::map::locks::Owner;
use crate::policy::Policy;
use crate::policy::admission::Missed;
use crate::rig::{Rig, VOLUME, mebibyte};
use crate::settings::mode::Writes;
use crate::settings::{Admission, Mode, Settings};
use crate::store::log::RECLAIM_RESERVE;
use crate::store::stripe::Stripe;

const WRITE: RequestKind = RequestKind::Write { fua: false };

struct Cache {
    rig: Rig,
    policy: Policy,
}

impl Cache {
    fn new(mode: Mode, settings: Settings) -> Cache {
        let rig = Rig::new(mode, settings);
        let policy = Policy::new(rig.store.log.usable_slots(), &rig.store.settings);
        Cache { rig, policy }
    }

    fn read(&mut self, key: u64, sequential: bool) -> Option<BypassReason> {
        let missed = Missed {
            volume: VOLUME,
            key: BlockKey(key),
            count: 2,
            sequential,
        };
        self.policy
            .read_bypass(&self.rig.store, self.rig.now, missed)
    }

    /// Writes 8 MiB to a device, which takes so long for each.
    fn transfer(&mut self, device: Device, each: Nanos) {
        let write = Operation::Write {
            offset_bytes: 0,
            bufs: mebibyte(),
        };
        self.rig.time(device, &write, 8, each);
        self.rig.now = self.rig.store.operations.times.now;
    }

    /// The device empties its own memory.
    fn flush(&mut self, device: Device) {
        let times = &mut self.rig.store.operations.times;
        let op = times.begins(OpId(0), device, &Operation::Flush);
        times.ends(op, true);
    }

    fn write(&mut self, blocks: u32, stream_bytes: u64) -> Option<BypassReason> {
        let writes = self.rig.store.attached(VOLUME).config.mode.writes();
        let request = Rig::request(WRITE, 0, blocks);
        let asked = (&request, writes);
        self.policy
            .write_bypass(&self.rig.store, self.rig.now, asked, stream_bytes)
    }
}

#[test]
fn a_missed_block_is_let_in_unless_there_is_a_reason() {
    let mut cache = Cache::new(Mode::Writeback, Settings::default());
    assert_eq!(cache.read(8, false), None);
    assert_eq!(cache.read(8, true), Some(BypassReason::Sequential));
    cache
        .rig
        .store
        .locks
        .try_lock(BlockKey(9), Owner::FastWrite);
    assert_eq!(cache.read(8, false), Some(BypassReason::Busy));
    cache
        .rig
        .store
        .origin_written(cache.rig.now, VOLUME, BlockKey(100), 1);
    assert_eq!(cache.read(100, false), Some(BypassReason::Unflushed), "I6");
    cache.rig.store.log.free.ids().truncate(RECLAIM_RESERVE + 1);
    assert_eq!(cache.read(1 << 19, false), Some(BypassReason::NoRoom));
    cache.rig.store.fail_cache("a test");
    assert_eq!(cache.read(8, false), Some(BypassReason::Failed));
}

#[test]
fn each_mode_lets_in_what_its_row_says() {
    let rows = [
        (Mode::Writeback, Writes::Log, None, None),
        (Mode::Writethrough, Writes::LogAndOrigin, None, None),
        (
            Mode::Writearound,
            Writes::LogAndOriginIfCached,
            None,
            Some(BypassReason::Mode),
        ),
        (
            Mode::Readonly,
            Writes::Origin,
            None,
            Some(BypassReason::Mode),
        ),
        (
            Mode::Passthrough,
            Writes::Origin,
            Some(BypassReason::Mode),
            Some(BypassReason::Mode),
        ),
    ];
    for (mode, writes, read, write) in rows {
        let mut cache = Cache::new(mode, Settings::default());
        assert_eq!(mode.writes(), writes);
        assert_eq!(cache.read(8, false), read, "{mode:?}");
        assert_eq!(cache.write(1, 4096), write, "{mode:?}");
    }
}

#[test]
fn a_long_write_bypasses_a_log_that_is_short_until_there_is_room_for_several() {
    let mut cache = Cache::new(Mode::Writeback, Settings::default());
    assert_eq!(cache.write(64, 256 << 10), None);
    let mut kept: Vec<_> = cache
        .rig
        .store
        .log
        .free
        .ids()
        .drain(RECLAIM_RESERVE..)
        .collect();
    assert_eq!(cache.write(1, 4096), None, "a short one waits");
    assert_eq!(cache.write(64, 256 << 10), Some(BypassReason::NoRoom));
    cache.rig.store.log.free.ids().extend(kept.pop());
    assert_eq!(cache.write(64, 256 << 10), Some(BypassReason::NoRoom));
    let missing = RECLAIM_RESERVE + 4 - cache.rig.store.log.free.len();
    cache.rig.store.log.free.ids().extend(kept.drain(..missing));
    assert_eq!(cache.write(64, 256 << 10), None);
    cache.rig.store.log.free.ids().pop_back();
    assert_eq!(cache.write(64, 256 << 10), None, "there is room still");
}

#[test]
fn a_stream_is_let_in_again_well_below_the_mark_of_dirty_data() {
    let mut cache = Cache::new(Mode::Writeback, Settings::default());
    let high = cache.rig.store.dirty_marks().high;
    let with_dirty = |cache: &mut Cache, blocks| {
        cache.rig.store.stats.dirty_blocks = blocks;
        cache.write(32, 2 << 20)
    };
    assert_eq!(with_dirty(&mut cache, high - 1), None);
    let limit = Some(BypassReason::DirtyLimit);
    assert_eq!(with_dirty(&mut cache, high), limit);
    assert_eq!(with_dirty(&mut cache, high - 1), limit);
    let well_below = high - cache.rig.store.share(9);
    assert_eq!(with_dirty(&mut cache, well_below), None);
    assert_eq!(with_dirty(&mut cache, high - 1), None);
}

#[test]
fn a_long_write_goes_where_it_ends_sooner() {
    let mut cache = Cache::new(Mode::Writeback, Settings::default());
    let sooner = Some(BypassReason::OriginSooner);
    let (ssd, origin) = (Device::Cache(0), Device::Origin(VOLUME));
    cache.transfer(ssd, Nanos(10_000_000));
    assert_eq!(
        cache.write(64, 256 << 10),
        None,
        "nothing is known of the origin"
    );
    cache.transfer(origin, Nanos(9_000_000));
    assert_eq!(cache.write(64, 256 << 10), None, "not by a fifth");
    cache.transfer(origin, Nanos(2_000_000));
    cache.transfer(origin, Nanos(2_000_000));
    assert_eq!(cache.write(64, 256 << 10), sooner);
    assert_eq!(cache.write(1, 4096), None, "a short one is logged");
    let later = cache.rig.now.after(Nanos(9 * Nanos::SECOND.0));
    cache.rig.store.operations.times.now = later;
    assert_eq!(
        cache.write(64, 256 << 10),
        None,
        "the cache device is tried again"
    );
    cache.transfer(ssd, Nanos(10_000_000));
    assert_eq!(cache.write(64, 256 << 10), sooner);
    assert!(cache.rig.append(Stream::Write, 60, 1));
    assert_eq!(cache.write(64, 256 << 10), None, "a block is cached (I4)");
}

/// A cache whose devices have shown what they do in the long run: the origin nine tenths of the SSD.
fn with_a_fast_origin() -> Cache {
    let mut cache = Cache::new(Mode::Writeback, Settings::default());
    for (device, each) in [(Device::Cache(0), 9), (Device::Origin(VOLUME), 10)] {
        (0..8).for_each(|_| cache.transfer(device, Nanos(each * 1_000_000)));
        cache.flush(device);
    }
    cache
}

#[test]
fn a_long_write_goes_past_a_cache_device_that_gains_nothing() {
    let mut cache = with_a_fast_origin();
    let sooner = Some(BypassReason::OriginSooner);
    assert_eq!(cache.write(64, 256 << 10), sooner);
    assert_eq!(cache.write(1, 2 << 20), sooner, "in sequence");
    assert_eq!(cache.write(1, 4096), None);
    assert!(cache.rig.append(Stream::Probation, 2, 1));
    assert_eq!(
        cache.write(64, 256 << 10),
        sooner,
        "clean blocks do not matter"
    );
    assert!(cache.rig.append(Stream::Write, 60, 1));
    assert_eq!(cache.write(64, 256 << 10), None, "I5");
    let mut cache = with_a_fast_origin();
    cache.transfer(Device::Origin(VOLUME), Nanos(20_000_000));
    (0..8).for_each(|_| cache.transfer(Device::Origin(VOLUME), Nanos(20_000_000)));
    cache.flush(Device::Origin(VOLUME));
    assert_eq!(cache.write(64, 256 << 10), None, "it is half as fast");
    let mut cache = with_a_fast_origin();
    (0..7).for_each(|_| cache.transfer(Device::Origin(VOLUME), Nanos(20_000_000)));
    assert_eq!(
        cache.write(64, 256 << 10),
        sooner,
        "what it may hold in memory"
    );
    cache.transfer(Device::Origin(VOLUME), Nanos(20_000_000));
    assert_eq!(cache.write(64, 256 << 10), None, "more than it holds");
}

#[test]
fn a_part_of_a_stripe_does_not_go_past_the_cache_for_being_sooner() {
    let mut cache = with_a_fast_origin();
    let sooner = Some(BypassReason::OriginSooner);
    let volume = cache.rig.store.volume(VOLUME);
    volume.set_stripe(Stripe::new(384 << 10, 0));
    assert_eq!(cache.write(64, 256 << 10), None);
    assert_eq!(cache.write(64, 2 << 20), None, "in sequence");
    assert_eq!(cache.write(96, 384 << 10), sooner);
    let volume = cache.rig.store.volume(VOLUME);
    volume.set_stripe(Stripe::new(8 << 20, 0));
    assert_eq!(cache.write(255, 8 << 20), None);
    assert_eq!(cache.write(256, 1 << 20), sooner, "requests are no longer");
    let limit = Some(BypassReason::DirtyLimit);
    let marks = cache.rig.store.dirty_marks();
    cache.rig.store.stats.dirty_blocks = marks.high + 1;
    assert_eq!(cache.write(64, 2 << 20), None, "it waits for write-back");
    assert_eq!(cache.write(256, 2 << 20), limit);
    cache.rig.store.stats.dirty_blocks = marks.limit;
    assert_eq!(cache.write(64, 2 << 20), limit, "write-back is stuck");
}

#[test]
fn a_block_that_must_be_wanted_twice_is_let_in_the_second_time() {
    let settings = Settings {
        read_admission: "second-touch".parse::<Admission>().expect("an admission"),
        ..Settings::default()
    };
    let mut cache = Cache::new(Mode::Writeback, settings);
    assert_eq!(cache.read(8, false), Some(BypassReason::Admission));
    assert_eq!(cache.read(8, false), None);
}

#[test]
fn a_promoted_block_goes_to_main_if_the_ghost_remembers_it() {
    let mut cache = Cache::new(Mode::Writeback, Settings::default());
    let store = &mut cache.rig.store;
    let key = BlockKey(77);
    assert_eq!(
        cache.policy.stream_of_promoted(store, key),
        Stream::Probation
    );
    store.ghost.insert(crate::map::index::hash(key));
    assert_eq!(cache.policy.stream_of_promoted(store, key), Stream::Main);
}
