//! Free segments, and which of them the next one is: of the device that has most of them, so that
//! several devices work at a time. Where dirty data is kept on two devices the
//! write stream opens a segment with a second place (`format::places`), and room is counted in
//! segments of that kind: the number of pairs on two devices each. An example with 3 devices:
//!
//! 1. Devices 0, 1 and 2 have 9, 6 and 1 free segments: 7 pairs, since 9 have only 7 partners.
//! 2. The write stream takes a pair from the devices with most, 0 and 1: 8, 5, 1 and 6 pairs.
//! 3. Main takes one from the device with most, 0: 7, 5, 1 and still 6 pairs.
//!
//! So an opening takes one pair at most, and reclaim's reserve (I18) is there on any two devices, or
//! on the last one that is left. Where a device was lost or added, or one copy was kept until now, no
//! pair may be left. Then reclaim opens segments on one device, and copies their dirty data later.

use std::collections::VecDeque;

use crate::format::SegmentId;
use crate::format::extents::MAX_DEVICES;

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct FreeSegments {
    /// In the order in which they became free, of a cache on one device.
    ids: VecDeque<SegmentId>,
    /// Of a cache on several devices.
    devices: Option<Box<Devices>>,
}

/// Free segments by device, so that none is searched for among those of others.
#[derive(Debug)]
struct Devices {
    /// By segment: the device of its place.
    of: Vec<u8>,
    /// Free segments of each, with their turns among those of all devices.
    free: [VecDeque<(i64, SegmentId)>; MAX_DEVICES],
    /// The turns of the first and behind the last one of all devices.
    turns: (i64, i64),
    /// Devices that are in the cache and not lost.
    in_use: u16,
    /// Dirty data has a second place.
    keeps_two: bool,
    /// Free segments of all devices.
    total: usize,
    /// As [`Devices::count_pairs`] says: asked for with each request, and changed with each segment.
    pairs: usize,
}

/// Pairs on two devices each that can be made of so many segments, most of them on one device.
pub(crate) fn possible_pairs(total: usize, most: usize) -> usize {
    (total / 2).min(total - most)
}

impl Devices {
    fn with_most(&self, other_than: Option<u8>) -> Option<u8> {
        let numbers = (0..MAX_DEVICES as u8).filter(|number| Some(*number) != other_than);
        let on = |number: &u8| self.free[usize::from(*number)].len();
        let most = numbers.max_by_key(|number| (on(number), !*number))?;
        (on(&most) > 0).then_some(most)
    }

    fn count(&mut self) {
        self.total = self.free.iter().map(VecDeque::len).sum();
        self.pairs = self.count_pairs();
    }

    fn count_pairs(&self) -> usize {
        if self.in_use.count_ones() < 2 {
            return self.total;
        }
        let most = self.free.iter().map(VecDeque::len).max().unwrap_or(0);
        possible_pairs(self.total, most)
    }

    fn push_back(&mut self, id: SegmentId) {
        let turn = self.turns.1;
        self.turns.1 += 1;
        self.free[usize::from(self.of[id.0 as usize])].push_back((turn, id));
    }

    fn push_front(&mut self, id: SegmentId) {
        self.turns.0 -= 1;
        let turn = self.turns.0;
        self.free[usize::from(self.of[id.0 as usize])].push_front((turn, id));
    }

    fn take_on(&mut self, device: u8) -> Option<SegmentId> {
        let (_, id) = self.free[usize::from(device)].pop_front()?;
        self.count();
        Some(id)
    }

    fn in_order(&self) -> Vec<SegmentId> {
        let mut all: Vec<_> = self.free.iter().flatten().copied().collect();
        all.sort_unstable_by_key(|(turn, _)| *turn);
        all.into_iter().map(|(_, id)| id).collect()
    }
}

impl FreeSegments {
    /// Segments that can be opened, whatever their streams. Where no pair is left, a segment on one
    /// device counts: after a change of devices or copies all free segments may be on one, and
    /// reclaim, which frees some of another, must not wait for itself.
    #[inline(always)]
    pub(crate) fn len(&self) -> usize {
        match &self.devices {
            None => self.ids.len(),
            Some(devices) if devices.keeps_two => devices.pairs.max(usize::from(devices.total > 0)),
            Some(devices) => devices.total,
        }
    }

    /// Takes segments of several devices in turn from now on: `of` says the device of each segment,
    /// and `in_use` which devices are not lost. `None` if there is one device.
    pub(crate) fn stripe(&mut self, of: Option<(Vec<u8>, u16)>, keeps_two: bool) {
        let ids = self.in_order();
        self.devices = None;
        let Some((of, in_use)) = of else {
            self.ids = ids.into();
            return;
        };
        self.ids.clear();
        let mut devices = Devices {
            of,
            free: Default::default(),
            turns: (0, 0),
            in_use,
            keeps_two,
            total: 0,
            pairs: 0,
        };
        ids.into_iter().for_each(|id| devices.push_back(id));
        devices.count();
        self.devices = Some(Box::new(devices));
    }

    /// All of them, in the order in which they became free.
    pub(crate) fn in_order(&self) -> Vec<SegmentId> {
        match &self.devices {
            None => self.ids.iter().copied().collect(),
            Some(devices) => devices.in_order(),
        }
    }

    /// All of them, in no order.
    pub(crate) fn iter(&self) -> impl Iterator<Item = SegmentId> {
        let striped = self.devices.iter().flat_map(|devices| &devices.free);
        let striped = striped.flatten().map(|(_, id)| *id);
        self.ids.iter().copied().chain(striped)
    }

    /// Puts segments for which this is true after all others.
    pub(crate) fn put_last(&mut self, is_last: impl Fn(SegmentId) -> bool) {
        let mut ids = self.in_order();
        ids.sort_by_key(|id| is_last(*id));
        match &mut self.devices {
            None => self.ids = ids.into(),
            Some(devices) => {
                devices.free.iter_mut().for_each(VecDeque::clear);
                ids.into_iter().for_each(|id| devices.push_back(id));
            }
        }
    }

    /// The segments of a cache on one device, to change.
    #[cfg(test)]
    pub(crate) fn ids(&mut self) -> &mut VecDeque<SegmentId> {
        assert!(self.devices.is_none(), "there are several devices");
        &mut self.ids
    }

    pub(crate) fn push_back(&mut self, id: SegmentId) {
        match &mut self.devices {
            None => self.ids.push_back(id),
            Some(devices) => {
                devices.push_back(id);
                devices.count();
            }
        }
    }

    pub(crate) fn push_front(&mut self, id: SegmentId) {
        match &mut self.devices {
            None => self.ids.push_front(id),
            Some(devices) => {
                devices.push_front(id);
                devices.count();
            }
        }
    }

    /// Leaves out those for which this is false.
    pub(crate) fn retain(&mut self, stays: impl Fn(SegmentId) -> bool) {
        let Some(devices) = &mut self.devices else {
            return self.ids.retain(|id| stays(*id));
        };
        for free in &mut devices.free {
            free.retain(|(_, id)| stays(*id));
        }
        devices.count();
    }

    /// The device with more free segments than all others together, where dirty data is kept on two:
    /// one more there makes no pair.
    pub(crate) fn lonely_device(&self) -> Option<u8> {
        let devices = self.devices.as_ref().filter(|devices| devices.keeps_two)?;
        if devices.in_use.count_ones() < 2 {
            return None;
        }
        let most = devices.with_most(None)?;
        (devices.free[usize::from(most)].len() * 2 > devices.total).then_some(most)
    }

    /// Takes the next segment to be opened.
    pub(crate) fn take(&mut self) -> Option<SegmentId> {
        let Some(devices) = &mut self.devices else {
            return self.ids.pop_front();
        };
        let device = devices.with_most(None)?;
        devices.take_on(device)
    }

    /// Takes the next segment to be opened for dirty data, and the one whose place holds its second
    /// copy: on another device, if there are two with room.
    pub(crate) fn take_pair(&mut self) -> Option<(SegmentId, Option<SegmentId>)> {
        let Some(devices) = self.devices.as_mut().filter(|devices| devices.keeps_two) else {
            return self.take().map(|id| (id, None));
        };
        let first = devices.with_most(None)?;
        let second = devices.with_most(Some(first));
        let id = devices.take_on(first)?;
        Some((id, second.and_then(|second| devices.take_on(second))))
    }

    /// Takes a segment whose place is on another device than that of `id`, if there are two copies.
    pub(crate) fn take_for_second(&mut self, id: SegmentId) -> Option<SegmentId> {
        let devices = (self.devices.as_mut()).filter(|devices| devices.keeps_two)?;
        let second = devices.with_most(Some(devices.of[id.0 as usize]))?;
        devices.take_on(second)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// So many free segments on each device.
    fn free(counts: &[u32]) -> FreeSegments {
        let mut free = FreeSegments::default();
        let mut of = Vec::new();
        for (device, count) in (0..).zip(counts) {
            for _ in 0..*count {
                free.push_back(SegmentId(of.len() as u32));
                of.push(device);
            }
        }
        free.stripe(Some((of, (1 << counts.len()) - 1)), true);
        free
    }

    #[test]
    fn an_opening_takes_one_pair_at_most() {
        let mut free = free(&[9, 6, 1]);
        assert_eq!(free.len(), 7);
        let (first, second) = free.take_pair().expect("there is room");
        assert_eq!((first, second), (SegmentId(0), Some(SegmentId(9))));
        assert_eq!(free.len(), 6);
        assert_eq!(free.take(), Some(SegmentId(1)));
        assert_eq!(free.len(), 6);
        for left in (0..6).rev() {
            let (first, second) = free.take_pair().expect("there is room");
            assert_ne!(free.devices.as_ref().unwrap().of[first.0 as usize], {
                free.devices.as_ref().unwrap().of[second.expect("a pair").0 as usize]
            });
            // The last one, on one device, is for reclaim.
            assert_eq!(free.len(), left.max(1));
        }
    }

    #[test]
    fn a_device_has_no_partners_for_more_than_all_others_have() {
        assert_eq!(free(&[9, 6, 1]).lonely_device(), Some(0));
        assert_eq!(free(&[7, 6, 1]).lonely_device(), None);
        assert_eq!(free(&[0, 1]).lonely_device(), Some(1));
        assert_eq!(free(&[3]).lonely_device(), None);
    }

    #[test]
    fn reclaim_does_not_wait_for_a_pair_that_it_has_to_free_itself() {
        let mut free = free(&[0, 3]);
        assert_eq!(free.len(), 1, "for reclaim, not for clients");
        assert_eq!(free.take_pair(), Some((SegmentId(0), None)));
        let mut none = self::free(&[0, 0]);
        assert_eq!((none.len(), none.take_pair()), (0, None));
    }

    /// Pairs that devices with so many segments can make: each takes one of two devices.
    fn possible(counts: &[u32]) -> usize {
        let total: u32 = counts.iter().sum();
        let most = counts.iter().copied().max().unwrap_or(0);
        (total / 2).min(total - most) as usize
    }

    #[test]
    fn unequal_devices_are_used_as_far_as_pairs_can_be_made_of_them() {
        let mut state = 1u32;
        let mut random = |below: u32| {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            (state >> 8) % below
        };
        for _ in 0..300 {
            let devices = 2 + random(5);
            let counts: Vec<u32> = (0..devices).map(|_| random(120)).collect();
            let mut free = free(&counts);
            let mut pairs = 0;
            while let Some((_, Some(_))) = free.take_pair() {
                pairs += 1;
            }
            assert_eq!(pairs, possible(&counts), "{counts:?}");
        }
    }

    #[test]
    fn one_copy_takes_devices_in_turn() {
        let mut free = free(&[3, 3]);
        let of = free.devices.as_ref().expect("there are two").of.clone();
        free.stripe(Some((of, 0b11)), false);
        assert_eq!(free.len(), 6);
        let taken: Vec<u32> = std::iter::from_fn(|| free.take_pair())
            .map(|(id, second)| {
                assert_eq!(second, None);
                id.0
            })
            .collect();
        assert_eq!(taken, [0, 3, 1, 4, 2, 5]);
    }

    #[test]
    fn the_order_in_which_segments_became_free_outlives_a_change_of_devices() {
        let mut free = free(&[3, 2]);
        let order = |free: &FreeSegments| free.in_order().iter().map(|id| id.0).collect::<Vec<_>>();
        assert_eq!(free.take_for_second(SegmentId(3)), Some(SegmentId(0)));
        assert_eq!(free.take_for_second(SegmentId(1)), Some(SegmentId(3)));
        free.push_front(SegmentId(3));
        free.push_back(SegmentId(0));
        free.retain(|id| id.0 != 1);
        assert_eq!(order(&free), [3, 2, 4, 0]);
        free.stripe(Some((vec![0, 0, 0, 1, 1], 0b11)), false);
        assert_eq!(order(&free), [3, 2, 4, 0]);
        free.stripe(None, false);
        assert_eq!(order(&free), [3, 2, 4, 0]);
    }

    #[test]
    fn the_last_device_goes_on_alone() {
        let mut free = free(&[4]);
        assert_eq!(free.len(), 4);
        assert_eq!(free.take_pair(), Some((SegmentId(0), None)));
        free.push_front(SegmentId(0));
        free.retain(|id| id.0 > 1);
        assert_eq!(free.len(), 2);
        free.stripe(None, false);
        assert_eq!(free.take_pair(), Some((SegmentId(2), None)));
        assert_eq!(free.len(), 1);
    }
}
