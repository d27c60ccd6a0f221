//! Clean segments that would be room where dirty data is kept on two devices. A free segment is room
//! then if another device has one for its second copy.
//!
//! An example. The first device has 30 free segments, the second none, and dirty data of which the
//! origin takes nothing fills it. Clean segments of the first device would be no room, so they stay.
//! With one clean segment on the second, that and all before it in its stream are given up for a pair.

use crate::format::{Sequence, Stream};
use crate::store::Store;

/// The result of a look through a stream.
#[derive(Clone, Copy, Debug)]
enum Seen {
    /// No segment that would make a pair up to this generation.
    None(Sequence),
    /// Such a segment, of this generation.
    One(Sequence),
}

/// See the module.
#[derive(Debug, Default)]
pub(super) struct Partners {
    lonely: Option<u8>,
    /// By stream, as long as that is the lonely device: what was seen is not looked at again.
    seen: [Option<Seen>; Stream::COUNT],
}

impl Partners {
    /// Brings it up to date.
    pub(super) fn look(&mut self, store: &Store) {
        let lonely = store.log.free.lonely_device();
        if lonely != self.lonely {
            *self = Partners {
                lonely,
                ..Partners::default()
            };
        }
        if let Some(lonely) = lonely {
            self.look_through(store, Stream::Main, lonely);
            self.look_through(store, Stream::Probation, lonely);
        }
    }

    /// Whether segments of clean blocks of this stream would be room.
    pub(super) fn has(&self, stream: Stream) -> bool {
        self.lonely.is_none() || matches!(self.seen[stream as usize], Some(Seen::One(_)))
    }

    fn look_through(&mut self, store: &Store, stream: Stream, lonely: u8) {
        let log = &store.log;
        let order = &log.streams[stream as usize].order;
        let generation = |id: &_| log.generation_of(*id);
        let seen = &mut self.seen[stream as usize];
        let behind = match *seen {
            Some(Seen::One(there)) if order.front().is_some_and(|id| generation(id) <= there) => {
                return;
            }
            Some(Seen::One(behind) | Seen::None(behind)) => behind,
            None => Sequence::ZERO,
        };
        let begin = order.partition_point(|id| generation(id) <= behind);
        let mut rest = order.range(begin..);
        let one = rest.find(|id| log.map.device_of(**id) != lonely);
        *seen = Some(match one {
            Some(id) => Seen::One(generation(id)),
            None => Seen::None(order.back().map_or(behind, generation)),
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rig::Rig;
    use crate::settings::{Mode, Settings};

    /// Segments in turn on two devices, of which the first has more free ones than the second.
    #[test]
    fn a_segment_of_the_other_device_is_looked_for_once() {
        let mut rig = Rig::new(Mode::Writeback, Settings::default());
        let mut partners = Partners::default();
        partners.look(&rig.store);
        assert!(partners.has(Stream::Main), "one device has no partners");
        let per_segment = rig.store.log.geometry.slots_per_segment() as u16;
        for first in 0..4 {
            assert!(rig.append(Stream::Main, first * 100, per_segment / 2));
        }
        let Partners { lonely, .. } = partners;
        assert_eq!(lonely, None);
        partners.lonely = Some(0);
        partners.look_through(&rig.store, Stream::Main, 0);
        assert!(!partners.has(Stream::Main), "all are on the lonely device");
        let youngest = rig.store.log.streams[Stream::Main as usize].order.back();
        let youngest = rig.store.log.generation_of(*youngest.unwrap());
        assert!(
            matches!(partners.seen[Stream::Main as usize], Some(Seen::None(up_to)) if up_to == youngest)
        );
        partners.seen[Stream::Main as usize] = None;
        partners.look_through(&rig.store, Stream::Main, 1);
        assert!(partners.has(Stream::Main), "the oldest is on another");
    }
}
