//! Which shards of a host have something to do: only those are advanced, so that a request costs as
//! much beside 15 other shards as alone. An example with shards at positions 0 to 3:
//!
//! 1. A request goes to position 2. It is awake.
//! 2. [`Host::advance`](crate::Host::advance) advances position 2 alone. The shard has nothing to do
//!    before 40 ms, and falls asleep.
//! 3. Another shard wanted to be advanced at 30 ms. At 30 ms all are awake, and two of them fall
//!    asleep again without having looked at anything.
//!
//! A caller that takes shards to change them, by [`Host::shards_mut`](crate::Host::shards_mut) or the
//! like, wakes all.

use forebay_engine::Nanos;

/// So many shards of a host can sleep. Others are always awake.
const MOST: usize = 64;

/// See the module. Positions are those of shards among the host's own.
#[derive(Debug)]
pub(crate) struct Awake {
    /// A bit for each of the first positions.
    bits: u64,
    positions: usize,
    /// When a shard has something to do, by position, as it said when it last fell asleep.
    dues: [Nanos; MOST],
    /// The first of those asleep.
    due: Nanos,
    /// `due` may be too early: the shard of which it was says another time now.
    is_out_of_date: bool,
    /// Since the last one woke it was looked whether any of them failed.
    pub(crate) are_looked_at: bool,
}

impl Default for Awake {
    fn default() -> Awake {
        Awake {
            bits: 0,
            positions: 0,
            dues: [Nanos::NEVER; MOST],
            due: Nanos::NEVER,
            is_out_of_date: false,
            are_looked_at: false,
        }
    }
}

impl Awake {
    /// Adds a position, which is awake.
    pub(crate) fn add(&mut self) {
        self.positions += 1;
        self.wake(self.positions - 1);
    }

    #[inline(always)]
    pub(crate) fn wake(&mut self, at: usize) {
        self.are_looked_at = false;
        if at < MOST {
            self.bits |= 1 << at;
        }
    }

    pub(crate) fn wake_all(&mut self) {
        self.are_looked_at = false;
        self.bits = u64::MAX >> (MOST - self.positions.clamp(1, MOST));
        self.dues = [Nanos::NEVER; MOST];
        self.due = Nanos::NEVER;
        self.is_out_of_date = false;
    }

    /// Wakes all if one that is asleep has something to do.
    #[inline(always)]
    pub(crate) fn wake_due(&mut self, now: Nanos) {
        if self.is_out_of_date {
            self.due = self.first_due_of_sleepers();
            self.is_out_of_date = false;
        }
        if now >= self.due {
            self.wake_all();
        }
    }

    /// The first position from `from` on that is awake.
    #[inline(always)]
    pub(crate) fn next(&self, from: usize) -> Option<usize> {
        if from < MOST {
            let bits = self.bits >> from;
            if bits != 0 {
                return Some(from + bits.trailing_zeros() as usize);
            }
        }
        let from = from.max(MOST);
        (from < self.positions).then_some(from)
    }

    /// A position has nothing to do before `due`, unless that is over.
    #[inline(always)]
    pub(crate) fn sleep(&mut self, at: usize, now: Nanos, due: Nanos) {
        if at < MOST && due > now {
            self.bits &= !(1 << at);
            let before = std::mem::replace(&mut self.dues[at], due);
            self.is_out_of_date |= before == self.due && due > before;
            self.due = self.due.min(due);
        }
    }

    /// When the first of those asleep has something to do.
    #[inline(always)]
    pub(crate) fn first_due(&self) -> Nanos {
        match self.bits == 0 && !self.is_out_of_date {
            true => self.due,
            false => self.first_due_of_sleepers(),
        }
    }

    fn first_due_of_sleepers(&self) -> Nanos {
        let dues = self.dues[..self.positions.min(MOST)].iter().enumerate();
        let asleep = dues.filter(|(at, _)| self.bits & (1 << at) == 0);
        asleep.map(|(_, due)| *due).min().unwrap_or(Nanos::NEVER)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn awake(awake: &Awake) -> Vec<usize> {
        std::iter::successors(awake.next(0), |at| awake.next(at + 1)).collect()
    }

    #[test]
    fn only_those_that_were_woken_are_advanced() {
        let mut shards = Awake::default();
        (0..66).for_each(|_| shards.add());
        assert_eq!(awake(&shards).len(), 66);
        for at in 0..66 {
            shards.sleep(at, Nanos(10), Nanos(100 + at as u64));
        }
        assert_eq!(awake(&shards), [64, 65], "these never sleep");
        [63, 0, 3].into_iter().for_each(|at| shards.wake(at));
        assert_eq!(awake(&shards), [0, 3, 63, 64, 65]);
        shards.sleep(3, Nanos(10), Nanos(10));
        assert_eq!(awake(&shards).len(), 5, "it has something to do now");
        shards.sleep(3, Nanos(10), Nanos(11));
        assert_eq!(awake(&shards), [0, 63, 64, 65]);
    }

    #[test]
    fn all_wake_when_one_is_due() {
        let mut shards = Awake::default();
        (0..3).for_each(|_| shards.add());
        for (at, due) in [Nanos::NEVER, Nanos(50), Nanos(40)].into_iter().enumerate() {
            shards.sleep(at, Nanos(10), due);
        }
        shards.wake_due(Nanos(39));
        assert_eq!(awake(&shards), []);
        assert_eq!(shards.first_due(), Nanos(40));
        shards.wake_due(Nanos(40));
        assert_eq!(awake(&shards), [0, 1, 2]);
        assert_eq!(shards.first_due(), Nanos::NEVER);
    }

    #[test]
    fn one_that_was_woken_has_no_deadline_among_those_asleep() {
        let mut shards = Awake::default();
        (0..2).for_each(|_| shards.add());
        shards.sleep(0, Nanos(10), Nanos(50));
        shards.sleep(1, Nanos(10), Nanos(40));
        shards.wake(1);
        assert_eq!(shards.first_due(), Nanos(50));
        shards.sleep(1, Nanos(10), Nanos(60));
        assert_eq!(shards.first_due(), Nanos(50));
    }
}
