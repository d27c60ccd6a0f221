//! The reference model: for each sector the values a read may return and those a power cut may
//! leave. It knows nothing of caches; it states the contract of a disk with a volatile cache.
//!
//! Events are numbered; a value that was superseded keeps the number of the event that did it. A
//! flush removes every value that was superseded before its submission from the values that a power
//! cut may leave. A value that left that set never returns, however many crashes later.

use smallvec::SmallVec;

use crate::payload::{INITIAL, Value, ZERO};

/// A point in the order of events.
pub type Event = u64;

const NEVER: Event = Event::MAX;

/// A value that is acknowledged (or may be there after a failure).
#[derive(Clone, Copy, Debug)]
struct Held {
    value: Value,
    since: Event,
}

/// A value that a power cut may leave.
#[derive(Clone, Copy, Debug)]
struct Kept {
    value: Value,
    acked: Event,
    superseded: Event,
    /// A crash may have left this value or another: only one is really there.
    alternative: bool,
    /// A write or flush failed and its client was told: this value may come back until the sector
    /// is written again (I10: uncertain for ever).
    uncertain: bool,
}

#[derive(Clone, Debug, Default)]
struct Sector {
    /// The last acknowledged value; several if writes overlapped, failed or were cut short.
    now: SmallVec<[Held; 2]>,
    kept: SmallVec<[Kept; 4]>,
    /// Writes in flight, with when they were submitted.
    flying: SmallVec<[Held; 2]>,
    /// Values that left `now`, for reads that were in flight then.
    past: SmallVec<[Held; 2]>,
    /// Values to which the origin may have fallen back when its flush failed, until somebody who
    /// asks for a flush has been told.
    lost: SmallVec<[Held; 2]>,
    changed: Event,
    /// A device lied about what no reader can check: any value this sector ever had is allowed,
    /// until a later write of it is durable.
    forgotten: bool,
    /// When it was written after that.
    rewritten: Option<Event>,
    /// When it was no longer forgotten: reads submitted before that may return anything.
    remembered: Event,
}

/// Effect of a write on its sectors.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Effect {
    /// They hold this value.
    Store(Value),
    /// They hold zeroes or what they held.
    Discard,
}

impl Effect {
    fn value(self) -> Value {
        match self {
            Effect::Store(value) => value,
            Effect::Discard => ZERO,
        }
    }
}

/// A range of sectors of a volume.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Range {
    /// The volume.
    pub volume: u16,
    /// Its first sector.
    pub sector: u64,
    /// The number of sectors.
    pub count: u64,
}

impl Range {
    /// The sectors of a volume from `sector`, `count` of them.
    #[must_use]
    pub fn of(volume: u16, sector: u64, count: u64) -> Range {
        Range {
            volume,
            sector,
            count,
        }
    }
}

/// See the module.
#[derive(Clone, Debug)]
pub struct Model {
    volumes: Vec<Vec<Sector>>,
    clock: Event,
}

impl Model {
    /// Volumes of this many sectors, all holding what they held before.
    #[must_use]
    pub fn new(sectors: &[u64]) -> Model {
        let sector = Sector {
            now: SmallVec::from_slice(&[Held {
                value: INITIAL,
                since: 0,
            }]),
            kept: SmallVec::from_slice(&[Kept {
                value: INITIAL,
                acked: 0,
                superseded: NEVER,
                alternative: false,
                uncertain: false,
            }]),
            ..Sector::default()
        };
        Model {
            volumes: sectors
                .iter()
                .map(|count| vec![sector.clone(); *count as usize])
                .collect(),
            clock: 0,
        }
    }

    fn tick(&mut self) -> Event {
        self.clock += 1;
        self.clock
    }

    fn sectors(&mut self, range: Range) -> &mut [Sector] {
        let from = range.sector as usize;
        &mut self.volumes[usize::from(range.volume)][from..from + range.count as usize]
    }

    /// A write was submitted. The answer names it in [`Model::written`].
    pub fn write(&mut self, range: Range, effect: Effect) -> Event {
        let at = self.tick();
        let value = effect.value();
        for sector in self.sectors(range) {
            sector.flying.push(Held { value, since: at });
            sector.changed = at;
            let before = sector.kept.iter().position(|kept| kept.value == value);
            // Of zeroes an earlier write may be uncertain still.
            let before = before.map(|index| sector.kept.swap_remove(index));
            sector.kept.push(Kept {
                value,
                acked: NEVER,
                superseded: NEVER,
                alternative: false,
                uncertain: before.is_some_and(|kept| kept.uncertain),
            });
        }
        at
    }

    /// A write was answered; with `durable` it promised to be (FUA).
    pub fn written(
        &mut self,
        range: Range,
        effect: Effect,
        submitted: Event,
        ok: bool,
        durable: bool,
    ) {
        let at = self.tick();
        let value = effect.value();
        for sector in self.sectors(range) {
            let flying = sector
                .flying
                .iter()
                .position(|flying| flying.value == value && flying.since == submitted);
            sector
                .flying
                .swap_remove(flying.expect("a write is answered once"));
            if ok && effect != Effect::Discard {
                sector.supersede(at, |held| held.since > submitted);
            }
            sector.now.retain(|held| held.value != value);
            sector.now.push(Held { value, since: at });
            // Zeroes can be on their way more than once.
            let again = sector.flying.iter().any(|flying| flying.value == value);
            if let Some(kept) = sector.kept.iter_mut().find(|kept| kept.value == value) {
                kept.acked = if again { NEVER } else { at };
            }
            sector.changed = at;
            if ok {
                for kept in &mut sector.kept {
                    kept.uncertain &= effect == Effect::Discard;
                }
            } else {
                sector.doubt();
            }
            sector.settle(at);
            if ok && durable {
                sector
                    .kept
                    .retain(|kept| kept.value == value || kept.acked > submitted);
                // A read in flight may have found what the origin fell back to.
                for held in std::mem::take(&mut sector.lost) {
                    sector.past.push(Held {
                        value: held.value,
                        since: at,
                    });
                }
                sector.remember(at, true);
            }
            if ok && effect != Effect::Discard {
                sector.rewritten = Some(at);
            }
        }
    }

    /// A read or flush was submitted.
    pub fn begin(&mut self) -> Event {
        self.tick()
    }

    /// A flush of a volume, submitted at `submitted`, was answered.
    pub fn flushed(&mut self, volume: u16, submitted: Event, ok: bool) {
        let at = self.tick();
        for sector in &mut self.volumes[usize::from(volume)] {
            if ok {
                sector.kept.retain(|kept| kept.superseded > submitted);
                sector.remember(at, sector.rewritten.is_some_and(|at| at < submitted));
                // A loss before this flush must have been reported by now, and not by an answer that is
                // still on its way (I10).
                sector.lost.retain(|held| held.since > submitted);
            } else {
                for held in std::mem::take(&mut sector.lost) {
                    sector.may_hold(held.value, at);
                }
                sector.doubt();
                // I10: no later flush makes that write durable.
                sector.rewritten = None;
            }
        }
    }

    /// A read submitted at `submitted` returned this.
    ///
    /// # Errors
    /// With what it should have been.
    pub fn read(
        &mut self,
        volume: u16,
        sector: u64,
        submitted: Event,
        value: Value,
    ) -> Result<(), String> {
        let at = self.tick();
        let sector = &mut self.volumes[usize::from(volume)][sector as usize];
        let allowed = sector.forgotten
            || submitted < sector.remembered
            || sector.now.iter().any(|held| held.value == value)
            || sector.flying.iter().any(|held| held.value == value)
            || sector.lost.iter().any(|held| held.value == value)
            || sector
                .past
                .iter()
                .any(|held| held.value == value && held.since > submitted);
        if !allowed {
            return Err(format!("read w{value}, expected {}", sector.expectation()));
        }
        if sector.flying.is_empty() && sector.changed < submitted {
            sector.pin(at, value);
        }
        Ok(())
    }

    /// The value that a sector holds, if it has held that and nothing else since `since`.
    #[must_use]
    pub fn settled(&self, volume: u16, sector: u64, since: Event) -> Option<Value> {
        let sector = &self.volumes[usize::from(volume)][sector as usize];
        let is_settled = !sector.forgotten
            && sector.changed < since
            && sector.flying.is_empty()
            && sector.lost.is_empty();
        match sector.now.as_slice() {
            [only] if is_settled => Some(only.value),
            _ => None,
        }
    }

    /// Checks that the contents of the origin alone, now and possibly after a power cut, satisfy
    /// the contract.
    ///
    /// # Errors
    /// With what is wrong.
    pub fn origin_alone(
        &self,
        volume: u16,
        sector: u64,
        value: Value,
        current: bool,
    ) -> Result<(), String> {
        let sector = &self.volumes[usize::from(volume)][sector as usize];
        if sector.forgotten {
            return Ok(());
        }
        let now = sector
            .now
            .iter()
            .chain(&sector.flying)
            .any(|held| held.value == value);
        let kept = sector.kept.iter().any(|kept| kept.value == value);
        let lost = sector.lost.iter().any(|held| held.value == value);
        if current && !now && !lost {
            return Err(format!("holds w{value}, expected {}", sector.expectation()));
        }
        if !kept && !lost {
            return Err(format!(
                "may hold w{value} after a power cut, which only {:?} may survive",
                sector.survivors()
            ));
        }
        Ok(())
    }

    /// The daemon was killed: each request in flight happened or did not.
    pub fn killed(&mut self) {
        let at = self.tick();
        for sector in self.volumes.iter_mut().flatten() {
            for held in std::mem::take(&mut sector.flying) {
                sector.may_hold(held.value, at);
            }
            for held in std::mem::take(&mut sector.lost) {
                sector.may_hold(held.value, at);
            }
            sector.past.clear();
            sector.changed = at;
        }
    }

    /// Power was cut: one of the values that may survive did.
    pub fn power_cut(&mut self) {
        let at = self.tick();
        for sector in self.volumes.iter_mut().flatten() {
            sector.flying.clear();
            sector.past.clear();
            sector.rewritten = None;
            sector.now = sector
                .kept
                .iter()
                .map(|kept| Held {
                    value: kept.value,
                    since: at,
                })
                .collect();
            for held in std::mem::take(&mut sector.lost) {
                sector.may_hold(held.value, at);
            }
            sector.changed = at;
        }
    }

    /// A recovery is complete: its decisions are durable, and only values that may be read now may
    /// ever come back. A sector that is `is_buffered` is an exception: its newest value is in
    /// memory, and a power cut may leave the values it could before.
    pub fn recovered(&mut self, is_buffered: impl Fn(usize, usize) -> bool) {
        for (volume, sectors) in self.volumes.iter_mut().enumerate() {
            for (at, sector) in sectors.iter_mut().enumerate() {
                if !is_buffered(volume, at) {
                    sector.is_decided();
                }
            }
        }
    }

    /// A device lied where no checksum helps (a lost or misdirected write of metadata, an old
    /// image): this sector may hold anything it ever held.
    pub fn forget_sector(&mut self, volume: u16, sector: u64) {
        let sector = &mut self.volumes[usize::from(volume)][sector as usize];
        sector.forgotten = true;
        sector.rewritten = None;
    }

    /// The origin lost `before`, an unflushed write of this sector, and now holds `value`. If what
    /// it lost was superseded already, what supersedes it is in the cache, and this is no news: no
    /// read that begins from now on may see `value`, nor may one that began before.
    pub fn origin_lost(&mut self, volume: u16, sector: u64, before: Value, value: Value) {
        let at = self.tick();
        let sector = &mut self.volumes[usize::from(volume)][sector as usize];
        let mut newest = sector.now.iter().chain(&sector.flying).chain(&sector.lost);
        if newest.all(|held| held.value != before) {
            return;
        }
        let told = |kept: &Kept| kept.value == value && kept.uncertain;
        if sector.kept.iter().any(told) {
            sector.may_hold(value, at);
            sector.changed = at;
            // Its client was told of an earlier failure, and this one is no news, unless a write
            // is on its way: that one's client was told of nothing.
            if sector.flying.is_empty() {
                return;
            }
        }
        sector.lost.retain(|held| held.value != value);
        sector.lost.push(Held { value, since: at });
        // A read in flight can have been before.
        sector.changed = at;
    }

    /// Describes a sector, for traces.
    #[must_use]
    pub fn describe(&self, volume: u16, sector: u64) -> String {
        let sector = &self.volumes[usize::from(volume)][sector as usize];
        format!(
            "{}; may survive: {:?}",
            sector.expectation(),
            sector.survivors()
        )
    }
}

impl Sector {
    /// Removes from `now` what `stays` does not keep.
    fn supersede(&mut self, at: Event, stays: impl Fn(&Held) -> bool) {
        let past = &mut self.past;
        self.now.retain(|held| {
            let keep = stays(held);
            if !keep {
                if past.len() >= 4096 {
                    past.remove(0);
                }
                past.push(Held {
                    value: held.value,
                    since: at,
                });
            }
            keep
        });
    }

    /// Fixes the values that may be read now as all that may ever come back.
    fn is_decided(&mut self) {
        let now = self.now.iter();
        self.kept = now
            .map(|held| Kept {
                value: held.value,
                acked: held.since,
                superseded: NEVER,
                alternative: true,
                uncertain: false,
            })
            .collect();
    }

    /// Marks what is neither there nor on its way as superseded.
    fn settle(&mut self, at: Event) {
        for kept in &mut self.kept {
            let lives = self
                .now
                .iter()
                .chain(&self.flying)
                .any(|held| held.value == kept.value);
            if !lives && !kept.uncertain && kept.superseded == NEVER {
                kept.superseded = at;
            }
        }
    }

    fn remember(&mut self, at: Event, rewritten: bool) {
        if self.forgotten && rewritten {
            (self.forgotten, self.remembered) = (false, at);
        }
    }

    /// Nothing that may survive now is superseded by anything but a new write.
    fn doubt(&mut self) {
        for kept in &mut self.kept {
            (kept.uncertain, kept.superseded) = (true, NEVER);
        }
    }

    fn pin(&mut self, at: Event, value: Value) {
        if self.forgotten {
            // The cached value and that on the origin may differ; reads can go either way.
            return;
        }
        if self.now.len() == 1 && self.now[0].value == value {
            return;
        }
        self.supersede(at, |held| held.value == value);
        if self.now.is_empty() {
            self.now.push(Held {
                value,
                since: self.changed,
            });
        }
        self.lost.clear();
        // Of what a crash may have left only one was there.
        if self
            .kept
            .iter()
            .any(|kept| kept.alternative && kept.value == value)
        {
            self.kept
                .retain(|kept| !kept.alternative || kept.value == value);
        }
        self.keep(value, at);
        self.settle(at);
    }

    fn may_hold(&mut self, value: Value, at: Event) {
        if self.now.iter().all(|held| held.value != value) {
            self.now.push(Held { value, since: at });
        }
        self.keep(value, at);
    }

    /// A power cut may leave this value, superseded before or not.
    fn keep(&mut self, value: Value, at: Event) {
        match self.kept.iter_mut().find(|kept| kept.value == value) {
            Some(kept) => kept.superseded = NEVER,
            None => self.kept.push(Kept {
                value,
                acked: at,
                superseded: NEVER,
                alternative: false,
                uncertain: false,
            }),
        }
    }

    fn expectation(&self) -> String {
        let now: Vec<String> = self
            .now
            .iter()
            .map(|held| format!("w{}", held.value))
            .collect();
        let flying: Vec<String> = self
            .flying
            .iter()
            .map(|held| format!("w{}", held.value))
            .collect();
        let mut text = now.join(" or ");
        if !flying.is_empty() {
            text += &format!(" (in flight: {})", flying.join(", "));
        }
        text
    }

    fn survivors(&self) -> Vec<Value> {
        self.kept.iter().map(|kept| kept.value).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RANGE: Range = Range {
        volume: 0,
        sector: 0,
        count: 1,
    };

    fn stored(model: &mut Model, value: Value) {
        let at = model.write(RANGE, Effect::Store(value));
        model.written(RANGE, Effect::Store(value), at, true, false);
    }

    fn reads(model: &mut Model, value: Value) -> bool {
        let at = model.begin();
        model.read(0, 0, at, value).is_ok()
    }

    #[test]
    fn what_a_flush_covered_survives_and_what_it_superseded_does_not() {
        let mut model = Model::new(&[1]);
        stored(&mut model, 2);
        let flush = model.begin();
        stored(&mut model, 3);
        model.flushed(0, flush, true);
        model.power_cut();
        model.recovered(|_, _| false);
        assert!(!reads(&mut model.clone(), INITIAL));
        assert!(reads(&mut model.clone(), 3));
        assert!(reads(&mut model, 2), "either may have survived");
        assert!(!reads(&mut model, 3), "a read pins what did");
        model.power_cut();
        assert!(!reads(&mut model, 3), "what left never returns");
    }

    #[test]
    fn overlapping_writes_leave_either() {
        let mut model = Model::new(&[1]);
        let first = model.write(RANGE, Effect::Store(2));
        let second = model.write(RANGE, Effect::Store(3));
        model.written(RANGE, Effect::Store(3), second, true, false);
        model.written(RANGE, Effect::Store(2), first, true, false);
        assert!(reads(&mut model.clone(), 2) && reads(&mut model.clone(), 3));
        assert!(!reads(&mut model, INITIAL));
    }

    #[test]
    fn forced_writes_survive_alone() {
        let mut model = Model::new(&[1]);
        let at = model.write(RANGE, Effect::Store(2));
        model.written(RANGE, Effect::Store(2), at, true, true);
        model.power_cut();
        assert!(reads(&mut model.clone(), 2) && !reads(&mut model, INITIAL));
    }

    #[test]
    fn a_kill_loses_nothing_acknowledged() {
        let mut model = Model::new(&[1]);
        stored(&mut model, 2);
        model.write(RANGE, Effect::Store(3));
        model.killed();
        assert!(!reads(&mut model.clone(), INITIAL));
        assert!(reads(&mut model.clone(), 2) && reads(&mut model, 3));
    }

    #[test]
    fn a_discard_leaves_old_or_zero_until_read() {
        let mut model = Model::new(&[1]);
        let at = model.write(RANGE, Effect::Discard);
        model.written(RANGE, Effect::Discard, at, true, false);
        assert!(reads(&mut model.clone(), INITIAL));
        assert!(reads(&mut model, ZERO) && !reads(&mut model, INITIAL));
    }

    #[test]
    fn zeroes_that_failed_stay_uncertain_when_others_follow() {
        let mut model = Model::new(&[1]);
        let zeroes = model.write(RANGE, Effect::Store(ZERO));
        model.written(RANGE, Effect::Store(ZERO), zeroes, false, true);
        stored(&mut model, 3);
        let flush = model.begin();
        model.flushed(0, flush, false);
        let discard = model.write(RANGE, Effect::Discard);
        model.written(RANGE, Effect::Discard, discard, true, false);
        assert!(reads(&mut model, 3), "it was no discard then");
        let flush = model.begin();
        model.flushed(0, flush, true);
        assert_eq!(model.origin_alone(0, 0, ZERO, false), Ok(()));
        stored(&mut model, 4);
        let flush = model.begin();
        model.flushed(0, flush, true);
        assert!(model.origin_alone(0, 0, ZERO, false).is_err());
    }

    #[test]
    fn a_loss_is_news_to_a_write_that_is_in_flight() {
        let mut model = Model::new(&[1]);
        let flush = model.begin();
        model.flushed(0, flush, false);
        let write = model.write(RANGE, Effect::Store(2));
        model.origin_lost(0, 0, 2, INITIAL);
        model.written(RANGE, Effect::Store(2), write, true, false);
        assert_eq!(model.origin_alone(0, 0, INITIAL, true), Ok(()));
        let flush = model.begin();
        model.flushed(0, flush, true);
        assert!(model.origin_alone(0, 0, INITIAL, true).is_err(), "unheard");
    }

    #[test]
    fn a_loss_of_what_was_superseded_is_no_news() {
        let mut model = Model::new(&[1]);
        stored(&mut model, 2);
        let read = model.begin();
        stored(&mut model, 3);
        model.origin_lost(0, 0, 2, INITIAL);
        assert!(model.clone().read(0, 0, read, 2).is_ok());
        assert!(model.clone().read(0, 0, read, INITIAL).is_err());
        assert!(!reads(&mut model, INITIAL));
    }

    #[test]
    fn a_loss_after_a_loss_is_news() {
        let mut model = Model::new(&[1]);
        stored(&mut model, 2);
        stored(&mut model, 3);
        model.origin_lost(0, 0, 3, 2);
        model.origin_lost(0, 0, 2, INITIAL);
        assert!(reads(&mut model, INITIAL));
    }

    #[test]
    fn a_read_in_flight_may_see_what_was_just_superseded() {
        let mut model = Model::new(&[1]);
        let read = model.begin();
        stored(&mut model, 2);
        assert!(model.read(0, 0, read, INITIAL).is_ok());
        assert!(!reads(&mut model, INITIAL));
    }
}
