//! Durations of the requests of each volume, as a thread of the data path counts them: from taking
//! a request to its answer, over all shards that had a part in it. Reads that the cache answered
//! alone are apart from those of which the origin had a part.

use forebay_engine::{Nanos, RequestKind, VolumeSlot};

use crate::report::status::VolumeDurations;

/// A request that is timed.
#[derive(Clone, Copy, Debug)]
pub(super) struct Timed {
    began: Nanos,
    volume: VolumeSlot,
    kind: Kind,
}

#[derive(Clone, Copy, Debug)]
enum Kind {
    Read,
    Write,
    Flush,
}

impl Timed {
    /// A request that begins; none of a kind that moves no data and keeps none.
    pub(super) fn new(began: Nanos, volume: VolumeSlot, kind: RequestKind) -> Option<Timed> {
        let kind = match kind {
            RequestKind::Read => Kind::Read,
            RequestKind::Write { .. } => Kind::Write,
            RequestKind::Flush => Kind::Flush,
            RequestKind::WriteZeroes { .. } | RequestKind::Discard | RequestKind::Prefetch => {
                return None;
            }
        };
        Some(Timed {
            began,
            volume,
            kind,
        })
    }
}

/// The durations by volume.
#[derive(Debug, Default)]
pub(in crate::daemon) struct VolumeTimes(Vec<VolumeDurations>);

impl VolumeTimes {
    /// Counts a request that is answered; `bypassed`: the origin had a part in it.
    pub(super) fn record(&mut self, now: Nanos, timed: Timed, bypassed: bool) {
        let at = usize::from(timed.volume.0);
        if self.0.len() <= at {
            self.0.resize_with(at + 1, VolumeDurations::default);
        }
        let times = &mut self.0[at];
        let took = Nanos(now.0.saturating_sub(timed.began.0));
        match timed.kind {
            Kind::Read if bypassed => times.read_miss.record(took),
            Kind::Read => times.read_hit.record(took),
            Kind::Write => times.write.record(took),
            Kind::Flush => times.flush.record(took),
        }
    }

    /// The durations of a volume.
    pub(in crate::daemon) fn of(&self, volume: VolumeSlot) -> VolumeDurations {
        let times = self.0.get(usize::from(volume.0));
        times.cloned().unwrap_or_default()
    }

    /// Begins anew: another volume can have the number.
    pub(in crate::daemon) fn forget(&mut self, volume: VolumeSlot) {
        if let Some(times) = self.0.get_mut(usize::from(volume.0)) {
            *times = VolumeDurations::default();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_volume_has_its_own_and_begins_anew() {
        let mut times = VolumeTimes::default();
        let read = |volume| Timed::new(Nanos(1000), VolumeSlot(volume), RequestKind::Read).unwrap();
        times.record(Nanos(6000), read(2), false);
        times.record(Nanos(500), read(2), false);
        times.record(Nanos(4000), read(2), true);
        times.record(Nanos(9000), read(0), true);
        let of_second = times.of(VolumeSlot(2));
        let hits = &of_second.read_hit;
        assert_eq!((hits.count(), hits.sum_ns()), (2, 5000));
        let misses = &of_second.read_miss;
        assert_eq!((misses.count(), misses.sum_ns()), (1, 3000));
        assert_eq!(of_second.read().count(), 3);
        assert_eq!(times.of(VolumeSlot(1)).read().count(), 0);
        assert_eq!(times.of(VolumeSlot(9)).read().count(), 0);
        times.forget(VolumeSlot(2));
        assert_eq!(times.of(VolumeSlot(2)).read().count(), 0);
        assert_eq!(times.of(VolumeSlot(0)).read().count(), 1);
        assert!(Timed::new(Nanos(0), VolumeSlot(0), RequestKind::Discard).is_none());
    }
}
