//! Pauses of write-back after errors of an origin: twice as long each time, until all is well.
//! Volumes of other origins go on.
//!
//! A write that succeeded says little where flushes fail: its blocks are dirty again after the next
//! one, and would be written at the origin's full speed for as long as that goes on.

use crate::format::BlockKey;
use crate::interface::{Nanos, VolumeSlot};
use crate::store::Store;

/// The first pause, and the longest.
const PAUSE: (Nanos, Nanos) = (Nanos(200_000_000), Nanos(30_000_000_000));

/// A volume whose origin failed lately.
#[derive(Debug)]
struct Failing {
    volume: VolumeSlot,
    /// The pause that the last error brought, until a write succeeds.
    last: Option<Nanos>,
    /// The time of that error.
    at: Nanos,
    /// The end of the pause, unless it is over.
    until: Option<Nanos>,
    /// A flush failed that blocks written back had waited for.
    flush_failed: bool,
}

/// The volumes whose origins failed lately.
#[derive(Debug, Default)]
pub(super) struct Backoff {
    failing: Vec<Failing>,
}

impl Backoff {
    /// A write to a volume's origin failed. If it began before the last error, it says nothing new.
    pub(super) fn write_failed(&mut self, now: Nanos, volume: VolumeSlot, began_at: Nanos) {
        let (first, longest) = PAUSE;
        let failing = self.of(volume);
        if failing.last.is_some() && began_at <= failing.at {
            return;
        }
        failing.at = now;
        let pause = failing
            .last
            .map_or(first, |last| Nanos((last.0 * 2).min(longest.0)));
        (failing.last, failing.until) = (Some(pause), Some(now.after(pause)));
    }

    /// A flush of a volume's origin failed.
    pub(super) fn flush_failed(&mut self, now: Nanos, volume: VolumeSlot) {
        self.write_failed(now, volume, now);
        self.of(volume).flush_failed = true;
    }

    /// A write to a volume's origin succeeded.
    pub(super) fn written(&mut self, volume: VolumeSlot) {
        if let Some(failing) = self.known(volume)
            && !failing.flush_failed
        {
            failing.last = None;
        }
    }

    /// A flush of a volume's origin succeeded.
    pub(super) fn flushed(&mut self, volume: VolumeSlot) {
        if let Some(failing) = self.known(volume)
            && failing.flush_failed
        {
            (failing.flush_failed, failing.last) = (false, None);
        }
    }

    /// Whether there is a pause that may be over, or a volume to forget.
    #[inline]
    pub(super) fn is_due(&self, now: Nanos) -> bool {
        let mut failing = self.failing.iter();
        failing.any(|failing| failing.until.is_none_or(|until| until <= now))
    }

    /// Ends the pauses that are over. Returns whether there was one.
    pub(super) fn advance(&mut self, now: Nanos) -> bool {
        let mut any_ended = false;
        self.failing.retain_mut(|failing| {
            let is_over = failing.until.is_some_and(|until| until <= now);
            if is_over {
                failing.until = None;
            }
            any_ended |= is_over;
            failing.until.is_some() || failing.last.is_some() || failing.flush_failed
        });
        any_ended
    }

    /// Forgets a volume.
    pub(super) fn forget(&mut self, volume: VolumeSlot) {
        self.failing.retain(|failing| failing.volume != volume);
    }

    /// Whether nothing of a block's volume is written back now.
    pub(super) fn pauses(&self, store: &Store, key: BlockKey) -> bool {
        store.is_of(self.paused(), key)
    }

    /// Whether any volume pauses.
    pub(super) fn any_pauses(&self) -> bool {
        self.paused().next().is_some()
    }

    /// Dirty blocks of the volumes that pause.
    pub(super) fn paused_dirty(&self, store: &Store) -> u64 {
        store.present_dirty_in(self.paused())
    }

    /// The first end of a pause.
    pub(super) fn first_end(&self) -> Option<Nanos> {
        let ends = self.failing.iter().filter_map(|failing| failing.until);
        ends.min()
    }

    /// Volumes that pause.
    pub(super) fn paused(&self) -> impl Iterator<Item = VolumeSlot> {
        let failing = self.failing.iter();
        let paused = failing.filter(|failing| failing.until.is_some());
        paused.map(|failing| failing.volume)
    }

    fn known(&mut self, volume: VolumeSlot) -> Option<&mut Failing> {
        let mut failing = self.failing.iter_mut();
        failing.find(|failing| failing.volume == volume)
    }

    fn of(&mut self, volume: VolumeSlot) -> &mut Failing {
        if self.known(volume).is_none() {
            self.failing.push(Failing {
                volume,
                last: None,
                at: Nanos(0),
                until: None,
                flush_failed: false,
            });
        }
        self.known(volume).expect("just added")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FAILS: VolumeSlot = VolumeSlot(0);
    const SOUND: VolumeSlot = VolumeSlot(1);

    /// Waits for the end of the pause, and fails again. Returns the new pause.
    fn fails_again(backoff: &mut Backoff, now: &mut Nanos, flush: bool) -> Nanos {
        *now = backoff.first_end().unwrap_or(*now);
        backoff.advance(*now);
        assert!(!backoff.any_pauses());
        if flush {
            backoff.flush_failed(*now, FAILS);
        } else {
            backoff.write_failed(*now, FAILS, *now);
        }
        Nanos(backoff.first_end().unwrap().since(*now).0)
    }

    #[test]
    fn pauses_grow_until_a_write_succeeds() {
        let (mut backoff, mut now) = (Backoff::default(), Nanos::SECOND);
        let pauses = [(); 9].map(|()| fails_again(&mut backoff, &mut now, false).0 / 100_000_000);
        assert_eq!(pauses, [2, 4, 8, 16, 32, 64, 128, 256, 300]);
        backoff.written(SOUND);
        assert_eq!(fails_again(&mut backoff, &mut now, false), PAUSE.1);
        backoff.written(FAILS);
        assert_eq!(fails_again(&mut backoff, &mut now, false), PAUSE.0);
    }

    #[test]
    fn where_flushes_fail_they_grow_until_one_of_that_volume_succeeds() {
        let (mut backoff, mut now) = (Backoff::default(), Nanos::SECOND);
        assert_eq!(fails_again(&mut backoff, &mut now, true), PAUSE.0);
        backoff.written(FAILS);
        backoff.flushed(SOUND);
        let twice = Nanos(PAUSE.0.0 * 2);
        assert_eq!(fails_again(&mut backoff, &mut now, true), twice);
        backoff.flushed(FAILS);
        assert_eq!(fails_again(&mut backoff, &mut now, true), PAUSE.0);
    }

    #[test]
    fn writes_that_fail_together_are_one_failure() {
        let (mut backoff, mut now) = (Backoff::default(), Nanos::SECOND);
        let began_at = Nanos(0);
        for _ in 0..32 {
            backoff.write_failed(now, FAILS, began_at);
        }
        assert_eq!(backoff.first_end(), Some(now.after(PAUSE.0)));
        backoff.write_failed(now.after(Nanos::SECOND), FAILS, began_at);
        assert_eq!(backoff.first_end(), Some(now.after(PAUSE.0)));
        let twice = Nanos(PAUSE.0.0 * 2);
        assert_eq!(fails_again(&mut backoff, &mut now, false), twice);
    }
}
