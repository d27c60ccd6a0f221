//! The load of each cache device: of two that hold the same data the one is asked that answers sooner.

use forebay_engine::Nanos;

/// A new time counts as one of this many in the average.
const AVERAGED: u64 = 8;
/// Of so many reads of a device one is timed: to keep the time of each costs a hit 100 instructions.
const TIMED_OF: u32 = 8;

#[derive(Clone, Copy, Debug, Default)]
struct Load {
    /// Reads and writes that the device has not answered.
    in_flight: u32,
    /// Reads that began, modulo 2^32.
    reads: u32,
    /// The average time that a read takes for each operation that is in flight with it, in nanoseconds;
    /// 0 if none was timed.
    each_ns: u64,
}

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct Loads {
    devices: [Load; 16],
}

/// An operation that is in flight.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Begun {
    at: Nanos,
    /// Operations that were in flight then, with this one.
    with: u32,
}

impl Loads {
    /// A read is about to begin: whether its time is wanted. The first of a device is.
    pub(crate) fn times_next_read(&mut self, device: u8) -> bool {
        let load = &mut self.devices[usize::from(device)];
        load.reads = load.reads.wrapping_add(1);
        load.reads % TIMED_OF == 1
    }

    /// An operation begins whose time is not wanted; [`Loads::ends_untimed`] tells of its end.
    pub(crate) fn begins_untimed(&mut self, device: u8) {
        self.devices[usize::from(device)].in_flight += 1;
    }

    pub(crate) fn ends_untimed(&mut self, device: u8) {
        self.devices[usize::from(device)].in_flight -= 1;
    }

    pub(crate) fn begins(&mut self, now: Nanos, device: u8) -> Begun {
        let load = &mut self.devices[usize::from(device)];
        load.in_flight += 1;
        Begun {
            at: now,
            with: load.in_flight,
        }
    }

    /// An operation ends; `read` if it is a read that went well.
    pub(crate) fn ends(&mut self, now: Nanos, device: u8, begun: Begun, read: bool) {
        let load = &mut self.devices[usize::from(device)];
        load.in_flight -= 1;
        if read {
            let each = now.since(begun.at).0 / u64::from(begun.with);
            load.each_ns = match load.each_ns {
                0 => each.max(1),
                old => ((old * (AVERAGED - 1) + each) / AVERAGED).max(1),
            };
        }
    }

    /// Which of two devices answers a read sooner: 0 or 1. The first, if neither does.
    pub(crate) fn sooner(&self, devices: [u8; 2]) -> usize {
        let [first, second] = devices.map(|device| self.devices[usize::from(device)]);
        let is_known = first.each_ns > 0 && second.each_ns > 0;
        let wait = |load: Load| {
            let each = if is_known { load.each_ns } else { 1 };
            u64::from(load.in_flight + 1).saturating_mul(each)
        };
        usize::from(wait(second) < wait(first))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// So many reads in a row, each of which takes so long.
    fn reads(loads: &mut Loads, device: u8, count: u32, took: u64) {
        for _ in 0..count {
            let begun = loads.begins(Nanos(0), device);
            loads.ends(Nanos(took), device, begun, true);
        }
    }

    #[test]
    fn equal_devices_take_turns_by_what_is_in_flight() {
        let mut loads = Loads::default();
        assert_eq!(loads.sooner([3, 5]), 0);
        let begun = loads.begins(Nanos(0), 3);
        assert_eq!(loads.sooner([3, 5]), 1);
        loads.begins(Nanos(0), 5);
        assert_eq!(loads.sooner([3, 5]), 0);
        loads.ends(Nanos(9), 3, begun, false);
        assert_eq!(loads.sooner([5, 3]), 1);
    }

    #[test]
    fn one_of_eight_reads_of_each_device_is_timed() {
        let mut loads = Loads::default();
        let timed = |loads: &mut Loads, device| {
            let mut reads = (1..=17).map(|at| (at, loads.times_next_read(device)));
            let timed = reads.by_ref().filter(|(_, is_timed)| *is_timed);
            timed.map(|(at, _)| at).collect::<Vec<_>>()
        };
        assert_eq!(timed(&mut loads, 3), [1, 9, 17]);
        assert_eq!(timed(&mut loads, 0), [1, 9, 17]);
        loads.begins_untimed(3);
        assert_eq!(loads.sooner([3, 5]), 1, "it counts as in flight");
        loads.ends_untimed(3);
        assert_eq!(loads.sooner([3, 5]), 0);
    }

    #[test]
    fn a_slow_device_is_asked_when_the_other_has_a_queue() {
        let mut loads = Loads::default();
        reads(&mut loads, 0, 50, 400_000);
        reads(&mut loads, 1, 50, 100_000);
        for _ in 0..3 {
            assert_eq!(loads.sooner([0, 1]), 1);
            loads.begins(Nanos(0), 1);
        }
        assert_eq!(loads.sooner([0, 1]), 0);
    }

    #[test]
    fn a_device_that_became_slow_is_known_after_a_few_reads() {
        let mut loads = Loads::default();
        reads(&mut loads, 0, 50, 100_000);
        reads(&mut loads, 1, 50, 110_000);
        assert_eq!(loads.sooner([0, 1]), 0);
        reads(&mut loads, 0, 4, 1_000_000);
        assert_eq!(loads.sooner([0, 1]), 1);
    }
}
