//! Write-back: dirty blocks go to the origin in its order, many at a time, and become clean with
//! the origin's next flush (I6).
//!
//! Blocks go in the order of a sweep (`sweep.rs`), and dirty neighbours along for free. Clients'
//! reads of the origin come first.

use smallvec::SmallVec;

use crate::buffer::MemoryBuffer;
use crate::format::{BlockKey, Slot};
use crate::ids::WritebackId;
use crate::interface::{Buf, Device, DeviceError, Memory, Nanos, Operation, VolumeSlot, one_buf};
use crate::map::origin_locks::OriginWriter;
use crate::origin::Origin;
use crate::origin::backoff::Backoff;
use crate::origin::hanging::Hanging;
use crate::origin::hurry::Hurry;
use crate::origin::pace::Pace;
use crate::origin::portions::Portion;
use crate::origin::run::{Longest, Run};
use crate::origin::sweep::{IDLE_CHECK, Sweep};
use crate::origin::writeback_reads::Reads;
use crate::planted::{self, Bug};
use crate::settings::WritebackPolicy;
use crate::store::Store;
use crate::store::device_times::Transfer;
use crate::store::log::Version;
use crate::store::op::Op;
use crate::store::volumes::Volume;

/// An origin that a client used this recently belongs to the client.
pub(super) const FOREGROUND: Nanos = Nanos(15_000_000);
/// A cache device that a client used this recently belongs to the client.
pub(crate) const CACHE_FOREGROUND: Nanos = Nanos(15_000_000);
/// The bytes that write-back moves beside a client, and the time between two such portions: at most
/// 6 MiB a second, so that a client's request seldom waits behind them. Single blocks count by
/// their bytes too, or blocks written at random would hardly get back at all.
const RATE_LIMIT: (usize, Nanos) = (64 << 10, Nanos(10_000_000));
/// Beside a client that writes in sequence, write-back takes at most this part of the rate at which
/// the cache device is read, as long as there is much room for dirty data: a burst then has the
/// device nearly to itself, and an endless write gets both devices.
const STREAM_PART: u64 = 10;
/// The longest run beside such a client: it waits behind each.
const STREAM_RUN_BYTES: usize = 256 << 10;
/// The bytes in flight are at most so many times those of what goes on at most: the rest hangs, and
/// keeps memory that clients could have.
const MOST_THAT_HANG: usize = 3;
/// In so many operations at a time, for a disk to have something to choose from.
const LIMITED_DEPTH: u32 = 4;
/// Where no client has asked for anything for so long, the paced policy needs no pace.
const IDLE_AFTER: Nanos = Nanos(2_000_000_000);
/// Written versions that wait for a flush of the origin before one is asked for.
const FLUSH_AFTER_BLOCKS: usize = 16_384;

#[derive(Debug, Default)]
pub(crate) struct Writeback {
    pub(super) sweep: Sweep,
    in_flight: u32,
    /// Bytes of the runs in flight.
    in_flight_bytes: usize,
    next_check: Option<Nanos>,
    /// When a client last used the cache device in a way that could not have come from a stream.
    cache_used_at: Option<Nanos>,
    /// While a client does, so many bytes may still be moved before the next time.
    allowed_bytes: usize,
    next_allowance: Nanos,
    /// When a client last wrote.
    asked_at: Option<Nanos>,
    pub(crate) reads: Reads,
    pace: Pace,
    /// It begins nothing any more.
    is_held: bool,
    backoff: Backoff,
    hanging: Hanging,
    pub(super) hurry: Hurry,
    /// When reclaim last asked for it.
    pub(super) hurried_at: Nanos,
    /// Jobs wait for room, of a `Drop` perhaps.
    pub(super) jobs_wait: bool,
    /// Nothing is begun that nobody waits for.
    only_under_pressure: bool,
}

impl Writeback {
    /// Begins nothing any more.
    pub(crate) fn hold(&mut self) {
        self.is_held = true;
    }

    /// Waits no longer after errors of a volume's origin: somebody may have mended the cause.
    pub(crate) fn try_again(&mut self, volume: VolumeSlot) {
        self.backoff.forget(volume);
        self.sweep.begin_anew();
        self.next_check = None;
    }

    /// A flush failed of a volume, for which blocks waited that had been written back: they are dirty
    /// again, and wait.
    pub(crate) fn flush_failed(&mut self, now: Nanos, volume: VolumeSlot) {
        self.backoff.flush_failed(now, volume);
    }

    /// A flush of a volume's origin succeeded.
    pub(crate) fn flushed(&mut self, volume: VolumeSlot) {
        self.backoff.flushed(volume);
    }

    /// A volume leaves.
    pub(crate) fn forget(&mut self, volume: VolumeSlot) {
        self.backoff.forget(volume);
    }

    /// Begins only what somebody waits for.
    pub(crate) fn limit_writeback(&mut self) {
        self.only_under_pressure = true;
    }

    /// Whether anything is begun that nobody waits for.
    pub(crate) fn may_begin_what_nobody_waits_for(&self) -> bool {
        !self.only_under_pressure
    }

    /// A client writes.
    pub(crate) fn client_writes(&mut self, now: Nanos) {
        self.asked_at = Some(now);
    }

    /// A client reads from the cache, or writes to it in no sequence. (A sequential writer is
    /// better off with both devices at work: the cache fills later.)
    pub(crate) fn cache_is_used(&mut self, now: Nanos) {
        self.cache_used_at = Some(now);
    }

    /// Whether a client writes in sequence.
    pub(super) fn has_stream(&self, now: Nanos) -> bool {
        was_lately(self.asked_at, now, CACHE_FOREGROUND) && !self.cache_is_in_use(now)
    }

    /// Whether a client reads from the cache, or writes to it in no sequence.
    pub(super) fn cache_is_in_use(&self, now: Nanos) -> bool {
        was_lately(self.cache_used_at, now, CACHE_FOREGROUND)
    }

    /// Whether a client used the cache device this lately, in whatever variant.
    pub(crate) fn has_clients(&self, now: Nanos, lately: Nanos) -> bool {
        was_lately(self.asked_at, now, lately) || was_lately(self.cache_used_at, now, lately)
    }
}

/// A run of blocks on its way to the origin.
#[derive(Debug)]
pub(crate) struct WritebackJob {
    pub(super) volume: VolumeSlot,
    /// When its write to the origin began.
    pub(super) began_at: Option<Nanos>,
    pub(crate) key: BlockKey,
    /// The versions being written: by the time they are on the origin their slots can hold others.
    pub(crate) versions: SmallVec<[Version; 32]>,
    /// `None` for a run of zeroes.
    pub(crate) buf: Option<Buf>,
    /// Reads of its data that have not ended.
    pub(crate) reads: u32,
    pub(crate) unreadable: SmallVec<[u16; 2]>,
}

/// The reason that decides how fast dirty data is written back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Pressure {
    /// Somebody waits for it.
    Pressed,
    /// The rate that is to keep it at its target.
    Paced,
    /// A client uses the cache device: little at a time.
    Limited,
    /// A client uses the cache device, and leaves it idle most of the time: short pieces, one after
    /// the other.
    InPieces,
    /// A client writes in sequence, and there is much room: a part of the cache device's rate.
    Shared,
    /// The origin alone.
    Free,
}

fn was_lately(at: Option<Nanos>, now: Nanos, lately: Nanos) -> bool {
    at.is_some_and(|at| now.since(at) < lately)
}

/// The bytes that may be moved in one portion.
fn allowance(store: &Store, pressure: Pressure) -> usize {
    let times = store.operations.times.of_cache();
    let rate = times.of(Transfer::LongRead).bytes_per_second;
    if pressure != Pressure::Shared || rate == 0 {
        return RATE_LIMIT.0;
    }
    let share = u128::from(rate / STREAM_PART) * u128::from(RATE_LIMIT.1.0);
    let bytes = (share / u128::from(Nanos::SECOND.0)) as usize;
    bytes.max(RATE_LIMIT.0)
}

/// Whether dirty data is nearer to the low mark than to the high one.
fn has_much_room(store: &Store) -> bool {
    let low = store.dirty_share(store.settings.dirty_low_percent);
    store.present_dirty() < low.midpoint(store.dirty_marks().high)
}

impl Origin {
    pub(crate) fn writeback_job(&mut self, id: WritebackId) -> &mut WritebackJob {
        self.runs.at(id)
    }

    pub(crate) fn advance_writeback(
        &mut self,
        store: &mut Store,
        buffer: &MemoryBuffer,
        now: Nanos,
        memory: &mut dyn Memory,
    ) {
        if self.writeback.reads.deadline().is_some() {
            self.start_reads(store, now);
        }
        if store.present_dirty() == 0 {
            self.writeback.next_check = None;
            self.writeback.hurry = Hurry::No;
            return;
        }
        store.guess_slack();
        if self.writeback.only_under_pressure && !self.is_pressed(store) {
            self.writeback.next_check = None;
            return;
        }
        self.advance_origins_in_trouble(store, now);
        if let Some(until) = self.waits_for_origins(store) {
            // Blocks that became dirty during the pause have set no time themselves.
            self.writeback.next_check = Some(until);
            return;
        }
        self.end_hurry(store, now);
        self.idle_cache.advance(now, store);
        if !self.writeback.sweep.has_more() && self.plans_later(now) {
            self.writeback.next_check = Some(self.next_plan());
            return;
        }
        let pressure = self.pressure(store, now);
        if pressure == Pressure::Paced {
            let target = store.dirty_share(store.settings.dirty_low_percent);
            self.writeback
                .pace
                .advance(now, store.present_dirty(), target);
        }
        if matches!(pressure, Pressure::Limited | Pressure::Shared) {
            if now >= self.writeback.next_allowance {
                self.writeback.next_allowance = now.after(RATE_LIMIT.1);
                self.writeback.allowed_bytes = allowance(store, pressure);
            }
            if self.writeback.allowed_bytes == 0 {
                self.writeback.next_check = Some(self.writeback.next_allowance);
                return;
            }
        }
        let in_portions = self.goes_in_portions(store, now, pressure);
        if !in_portions {
            self.portion = Portion::default();
        } else if let Err(until) = self.advance_portion(store, now) {
            self.writeback.next_check = Some(until);
            return;
        }
        let mut depth = self.writeback_depth(store, now, pressure);
        if matches!(
            pressure,
            Pressure::Limited | Pressure::InPieces | Pressure::Shared
        ) {
            depth = depth.min(LIMITED_DEPTH);
        }
        let mut looked = false;
        // Stripes are longer than runs; together they take no more memory.
        let most_bytes = depth as usize * store.settings.writeback_run_bytes as usize;
        let most_bytes = most_bytes.min(store.settings.writeback_most_bytes());
        // What hangs may have begun when more was allowed.
        let most_with_hanging = store.settings.writeback_most_bytes() * MOST_THAT_HANG;
        while self.runs_that_go_on() < depth
            && self.bytes_that_go_on(store) < most_bytes
            && self.writeback.in_flight_bytes < most_with_hanging
            && self.pressure_allows(pressure)
            && (!in_portions || self.portion.allows())
        {
            let Some(key) = self.next_due(store) else {
                if looked || self.plans_later(now) || !self.plan_sweep(store, now) {
                    break;
                }
                looked = true;
                continue;
            };
            if !self.start_writeback(store, buffer, now, key, pressure, memory) {
                break;
            }
        }
        let is_full = self.runs_that_go_on() >= depth || self.bytes_that_go_on(store) >= most_bytes;
        let is_full = is_full && depth > 0 || in_portions && !self.portion.allows();
        self.writeback.hanging.set_full(is_full);
        let wait = if depth == 0 { FOREGROUND } else { IDLE_CHECK };
        let mut check = now.after(wait);
        if !self.writeback.sweep.has_more() {
            check = check.max(self.next_plan());
        }
        // A few runs may hang, which must not hold up the rest of a round.
        let looks_again = !self.has_runs() || self.writeback.sweep.is_cut();
        self.writeback.next_check = looks_again.then_some(check);
        match pressure {
            Pressure::Limited | Pressure::Shared => {
                self.writeback.next_check = Some(self.writeback.next_allowance);
            }
            Pressure::Paced if !self.writeback.pace.allows() => {
                self.writeback.next_check = Some(now.after(self.writeback.pace.wait()));
            }
            _ => {}
        }
        // The runs in flight may be of an origin that hangs.
        let Writeback {
            backoff, hanging, ..
        } = &self.writeback;
        let others = [backoff.first_end(), hanging.next_look()];
        let check = self.writeback.next_check.into_iter();
        self.writeback.next_check = check.chain(others.into_iter().flatten()).min();
    }

    /// Has what waited for an origin planned again once that goes on.
    #[inline]
    fn advance_origins_in_trouble(&mut self, store: &Store, now: Nanos) {
        if self.writeback.backoff.is_due(now) || self.writeback.hanging.is_due(now) {
            self.look_at_origins_in_trouble(store, now);
        }
    }

    #[cold]
    fn look_at_origins_in_trouble(&mut self, store: &Store, now: Nanos) {
        let Writeback {
            backoff,
            hanging,
            sweep,
            ..
        } = &mut self.writeback;
        let mut goes_on = backoff.advance(now);
        let did_hang = hanging.any();
        hanging.advance(now, store, backoff, &self.runs);
        goes_on |= did_hang && !hanging.any();
        if goes_on {
            sweep.go_on();
        }
    }

    /// Until when no origin takes anything, as all that have dirty data failed lately.
    fn waits_for_origins(&self, store: &Store) -> Option<Nanos> {
        let Writeback {
            is_held, backoff, ..
        } = &self.writeback;
        if *is_held {
            return Some(Nanos::NEVER);
        }
        let until = backoff.first_end()?;
        (backoff.paused_dirty(store) >= store.present_dirty()).then_some(until)
    }

    fn next_plan(&self) -> Nanos {
        self.writeback.sweep.next_plan(self.writeback.hurry)
    }

    /// Whether it is too early for a new sweep.
    fn plans_later(&self, now: Nanos) -> bool {
        now < self.next_plan()
    }

    fn pressure(&self, store: &Store, now: Nanos) -> Pressure {
        if self.is_pressed(store) {
            Pressure::Pressed
        } else if self.is_paced(store, now) {
            Pressure::Paced
        } else if self.writeback.cache_is_in_use(now) {
            if self.idle_cache.is_idle() {
                Pressure::InPieces
            } else {
                Pressure::Limited
            }
        } else if self.writeback.has_stream(now) && has_much_room(store) {
            Pressure::Shared
        } else {
            Pressure::Free
        }
    }

    /// Whether one more operation may be started.
    fn pressure_allows(&self, pressure: Pressure) -> bool {
        match pressure {
            Pressure::Paced => self.writeback.pace.allows(),
            Pressure::Limited | Pressure::Shared => self.writeback.allowed_bytes > 0,
            Pressure::Pressed | Pressure::InPieces | Pressure::Free => true,
        }
    }

    /// Whether clients leave the cache device idle most of the time, and nobody waits for
    /// write-back.
    pub(super) fn reads_in_pieces(&self, store: &Store, now: Nanos) -> bool {
        self.idle_cache.is_idle() && self.pressure(store, now) == Pressure::InPieces
    }

    /// Whether the rate decides: there are clients whom bursts would be in the way of.
    fn is_paced(&self, store: &Store, now: Nanos) -> bool {
        let left_over = |volume: &Volume| {
            !volume.away && volume.config.mode.writes().are_through() && volume.dirty_blocks > 0
        };
        store.settings.writeback_policy == WritebackPolicy::Rate
            && !store.volumes.iter().flatten().any(left_over)
            && (self.writeback.has_clients(now, IDLE_AFTER)
                || store.origin_is_used(now, IDLE_AFTER))
    }

    /// Whether write-back goes on: no error of an origin holds it up, nor the end of the cache.
    pub(crate) fn takes_writeback(&self) -> bool {
        !self.writeback.is_held && !self.writeback.backoff.any_pauses()
    }

    /// Whether there is dirty data and it waits for its time, however much more of it there is.
    pub(crate) fn writeback_waits(&self, store: &Store) -> bool {
        let writeback = &self.writeback;
        // During a pause: what becomes dirty next may be of a volume that does not pause.
        let begins_soon = writeback.backoff.any_pauses()
            || writeback.hurry != Hurry::No
            || writeback.sweep.has_more();
        let until = match writeback.is_held {
            true => Nanos::NEVER,
            false if begins_soon => return false,
            false => self.next_plan(),
        };
        store.present_dirty() > 0 && writeback.next_check == Some(until)
    }

    pub(crate) fn writeback_deadline(&self, store: &Store) -> Option<Nanos> {
        let check = self.writeback.next_check;
        let check = check.filter(|_| store.present_dirty() > 0);
        let piece = self.writeback.reads.deadline();
        check.into_iter().chain(piece).min()
    }

    /// Whether somebody waits for dirty data to become less.
    fn is_pressed(&self, store: &Store) -> bool {
        let draining = store
            .volumes
            .iter()
            .flatten()
            .any(|volume| volume.draining && volume.dirty_blocks > 0);
        draining
            || store.failed_cache()
            || !self.throttle.is_empty()
            || self.writeback.hurry == Hurry::AtOnce
            || !store.has_placed_all()
    }

    /// Whether a client of the origin comes back soon, and nobody waits for write-back.
    fn goes_in_portions(&self, store: &Store, now: Nanos, pressure: Pressure) -> bool {
        let nobody_waits = match pressure {
            Pressure::Limited | Pressure::InPieces | Pressure::Shared | Pressure::Free => true,
            Pressure::Pressed | Pressure::Paced => false,
        };
        nobody_waits && self.portions_are_due(store, now)
    }

    /// Whether runs are on their way, to origins that do not hang.
    pub(super) fn has_runs(&self) -> bool {
        self.runs_that_go_on() > 0
    }

    fn runs_that_go_on(&self) -> u32 {
        self.writeback.in_flight - self.writeback.hanging.runs
    }

    fn bytes_that_go_on(&self, store: &Store) -> usize {
        let hanging = self.writeback.hanging.blocks * store.block_bytes();
        self.writeback.in_flight_bytes - hanging
    }

    /// The number of operations that may be in flight now.
    fn writeback_depth(&self, store: &Store, now: Nanos, pressure: Pressure) -> u32 {
        let dirty = store.present_dirty();
        let full = u32::from(store.settings.writeback_depth);
        if pressure == Pressure::Paced {
            // Readers of the origin come first here too.
            let used = store.origin_is_used(now, FOREGROUND);
            if used { 1 } else { (full / 8).max(1) }
        } else if !store.origin_is_used(now, FOREGROUND) {
            // Its next request stands behind all that a quiet moment lets in.
            let comes_back = Origin::a_client_comes_back(store, now);
            let is_pressed = pressure == Pressure::Pressed;
            if comes_back && !is_pressed {
                (full / 8).max(1)
            } else {
                full
            }
        } else if pressure == Pressure::Pressed || self.writeback.hurries_in_portions() {
            (full / 8).max(1)
        } else if dirty >= store.dirty_marks().high {
            // A client that streams and bypasses a full cache gets the origin. A reader shares it
            // with writers who would soon have to wait, and with nobody else.
            let mut volumes = store.volumes.iter().flatten();
            let is_written = was_lately(self.writeback.asked_at, now, IDLE_AFTER);
            u32::from(is_written && volumes.any(|volume| volume.foreground_reads > 0))
        } else {
            0
        }
    }

    /// The next planned block that is still to be written back.
    fn next_due(&mut self, store: &Store) -> Option<BlockKey> {
        while let Some(key) = self.writeback.sweep.next() {
            if self.may_write_back(store, key).is_some() {
                return Some(key);
            }
            self.writeback.sweep.pass();
        }
        None
    }

    /// The slot of a block that may go to the origin now: dirty, its entry durable (I4), no other
    /// origin write of it in flight (I11), not there already.
    pub(super) fn may_write_back(&self, store: &Store, key: BlockKey) -> Option<Slot> {
        let slot = store.index.find(key)?;
        self.is_due(store, key, slot).then_some(slot)
    }

    /// As [`Engine::may_write_back`], for a block whose slot is known.
    pub(super) fn is_due(&self, store: &Store, key: BlockKey, slot: Slot) -> bool {
        let abandoned = store.failed.as_ref().is_some_and(|failed| failed.recorded);
        store.index.flags(slot).dirty()
            && (store.log.is_durable(slot) || abandoned || planted::is(Bug::WriteBackEarly))
            && !store.origin_locks.holds(key)
            && !store.is_written(key, slot)
            && !store.unreadable.holds(key, slot)
            && (!store.is_away(key) || planted::is(Bug::AwayWritten))
            && !self.writeback.backoff.pauses(store, key)
            && !self.writeback.hanging.holds(store, key)
    }

    /// Starts writing back the run of dirty blocks around `key`. False if memory is short.
    fn start_writeback(
        &mut self,
        store: &mut Store,
        buffer: &MemoryBuffer,
        now: Nanos,
        key: BlockKey,
        pressure: Pressure,
        memory: &mut dyn Memory,
    ) -> bool {
        let Some(volume) = store.volume_of(key) else {
            self.writeback.sweep.pass();
            return true;
        };
        let block_bytes = store.block_bytes();
        let longest_bytes = store.settings.writeback_run_bytes as usize;
        let now_bytes = match pressure {
            Pressure::Limited | Pressure::InPieces => longest_bytes.min(RATE_LIMIT.0),
            Pressure::Shared => longest_bytes.min(STREAM_RUN_BYTES),
            _ => longest_bytes,
        };
        let longest = Longest {
            now: now_bytes / block_bytes,
            alone: longest_bytes / block_bytes,
        };
        let Run {
            key,
            mut slots,
            zero,
        } = self.run_of(store, volume, key, longest);
        let buf = if zero {
            None
        } else {
            // Where memory is short a shorter run does.
            let spare = &mut self.spare;
            let Some(buf) = spare.alloc_most(slots.len(), block_bytes, memory) else {
                return false;
            };
            slots.truncate(buf.len_bytes as usize / block_bytes);
            Some(buf)
        };
        let count = slots.len() as u64;
        let versions = slots.iter().map(|slot| store.log.version(*slot)).collect();
        let job = WritebackJob {
            volume,
            began_at: None,
            key,
            versions,
            buf,
            reads: 0,
            unreadable: SmallVec::new(),
        };
        let id = self.runs.insert(Box::new(job));
        let writer = OriginWriter::WriteBack(id);
        store.origin_locks.lock(key, key.plus(count), writer);
        self.writeback.in_flight += 1;
        self.portion.run_begins(now);
        self.writeback.hanging.run_begins(now);
        self.writeback.sweep.pass();
        if pressure == Pressure::Paced {
            // Blocks written back at other times are no debt of the pace's.
            self.writeback.pace.spend(count);
        }
        let moved = count as usize * block_bytes;
        self.writeback.in_flight_bytes += moved;
        self.writeback.allowed_bytes = self.writeback.allowed_bytes.saturating_sub(moved);
        // A stripe that is kept whole beside a client is paid for with the portions to come.
        if now_bytes < longest_bytes && moved > now_bytes.max(block_bytes) {
            let portions = (moved - now_bytes) / allowance(store, pressure);
            self.writeback.next_allowance.0 += RATE_LIMIT.1.0 * portions as u64;
        }
        let Some(_buf) = buf else {
            self.write_run(store, now, id);
            return true;
        };
        self.read_run(store, buffer, id, &slots, memory);
        self.start_reads(store, now);
        if self.writeback_job(id).reads == 0 {
            self.write_run(store, now, id);
        }
        true
    }

    pub(crate) fn write_run(&mut self, store: &mut Store, now: Nanos, id: WritebackId) {
        let job = self.writeback_job(id);
        job.began_at = Some(now);
        let (volume, key, blocks, buf) = (job.volume, job.key, job.versions.len() as u64, job.buf);
        let (offset_bytes, len_bytes) = store.origin_range(volume, key, blocks);
        let operation = match buf {
            Some(buf) => Operation::Write {
                offset_bytes,
                bufs: one_buf(buf.slice(0, len_bytes)),
            },
            None => Operation::WriteZeroes {
                offset_bytes,
                len_bytes: len_bytes as u64,
            },
        };
        store.issue(
            Op::WritebackWrite { job: id },
            Device::Origin(volume),
            operation,
        );
    }

    pub(crate) fn writeback_write_done(
        &mut self,
        store: &mut Store,
        now: Nanos,
        id: WritebackId,
        result: Result<(), DeviceError>,
        memory: &mut dyn Memory,
    ) {
        let job = self.writeback_job(id);
        let (volume, key, versions) = (job.volume, job.key, job.versions.clone());
        let began_at = job.began_at;
        let blocks = versions.len() as u64;
        store.origin_written(now, volume, key, blocks);
        if result.is_ok() {
            self.writeback.backoff.written(volume);
            store.stats.written_back_blocks += blocks;
            self.throttle.written_back(blocks);
            for (i, version) in versions.into_iter().enumerate() {
                let key = key.plus(i as u64);
                // Only the version that was read is on the origin (I6).
                let on_origin = store.index.find(key).filter(|slot| {
                    planted::is(Bug::AnyVersionClean)
                        || (*slot == version.slot && store.log.holds(version))
                });
                if let Some(slot) = on_origin
                    && store.index.flags(slot).dirty()
                {
                    store.version_written(volume, key, slot);
                }
            }
            if store.written_blocks() >= FLUSH_AFTER_BLOCKS {
                store.want_origin_flush(volume);
            }
        } else {
            // The run stays dirty and is tried again later, later each time.
            store.stats.origin_write_errors += 1;
            let began_at = began_at.unwrap_or(now);
            self.writeback.backoff.write_failed(now, volume, began_at);
        }
        self.end_writeback(store, now, id, memory);
    }

    pub(crate) fn end_writeback(
        &mut self,
        store: &mut Store,
        _now: Nanos,
        id: WritebackId,
        memory: &mut dyn Memory,
    ) {
        let Some(job) = self.runs.remove(id) else {
            return;
        };
        let end = job.key.plus(job.versions.len() as u64);
        let writer = OriginWriter::WriteBack(id);
        store.origin_locks.unlock(job.key, end, writer);
        if let Some(buf) = job.buf {
            self.spare.free(buf, memory);
        }
        self.writeback.hanging.run_ended(&job);
        self.writeback.in_flight -= 1;
        self.writeback.in_flight_bytes -= job.versions.len() * store.block_bytes();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rig::Rig;
    use crate::settings::{Mode, Settings};

    #[test]
    fn write_back_beside_a_stream_takes_a_tenth_of_what_the_device_gives() {
        let mut rig = Rig::new(Mode::Writeback, Settings::default());
        assert_eq!(allowance(&rig.store, Pressure::Shared), RATE_LIMIT.0);
        rig.has_read_long();
        // 524 MB a second: 52 of them, in 10 ms.
        let shared = allowance(&rig.store, Pressure::Shared);
        assert!((520_000..526_000).contains(&shared), "{shared}");
        assert_eq!(allowance(&rig.store, Pressure::Limited), RATE_LIMIT.0);
    }
}
