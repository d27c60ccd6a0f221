//! Trials: miniature caches that run three variants of S3-FIFO on a sample of the blocks, so that
//! the cache leaves plain S3-FIFO where another clearly misses less (miniature simulation:
//! Waldspurger, Saemundsson, Ahmad, Park, USENIX ATC 2017).
//!
//! No one variant is best everywhere. Where a load goes round more blocks than there is room for,
//! whatever comes back pushes out blocks that would have come back too; where most blocks are used
//! twice at most, waiting for proof keeps out blocks worth keeping.

use std::collections::VecDeque;

use crate::format::BlockKey;
use crate::map::ghost::remembered;
use crate::map::index::MAX_HITS;
use crate::map::locks::KeyMap;
use crate::settings::Settings;
use crate::settings::laboratory::Laboratory;
use crate::settings::replacement::Replacement;

/// Blocks of a miniature cache. From 64 on the choice hardly changes (docs/decisions/0014).
const BLOCKS: usize = 256;
/// After so many uses in the sample the variants are compared.
const PERIOD: u32 = BLOCKS as u32 / 8;
/// The count of a miss when it happens.
const MISS: u64 = 1 << 16;
/// This part of what was counted fades in each period, so that four times as many uses weigh as a
/// miniature has blocks. The worth of a variant shows when blocks come back; with a shorter memory
/// the choice follows the time in between.
const FADES: u64 = 32;
/// The count of a copy into main. A variant that copies much has to save misses by it. Otherwise
/// chance would choose, where writes are spread evenly, between a variant that wears the device and
/// others that do not.
const COPY: u64 = MISS / 16;
/// The most that probation has of the steady variant, in percent.
const STEADY_PROBATION_PERCENT: u8 = 3;

/// The ways of the cache with new blocks and with blocks that come back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Variant {
    /// S3-FIFO as it is set.
    Plain,
    /// Lets a block that comes back into main only in place of a block there that was not hit, and
    /// keeps probation short: of blocks that go round, a part stays.
    Steady,
    /// A single hit on probation leads to main.
    Eager,
}

impl Variant {
    /// As users read it.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Variant::Plain => "plain",
            Variant::Steady => "steady",
            Variant::Eager => "eager",
        }
    }

    const ALL: [Variant; 3] = [Variant::Plain, Variant::Steady, Variant::Eager];

    /// The share of the cache that is for blocks on probation, in percent.
    pub(crate) fn probation_percent(self, settings: &Settings) -> u8 {
        match self {
            Variant::Steady => settings.probation_percent.min(STEADY_PROBATION_PERCENT),
            Variant::Plain | Variant::Eager => settings.probation_percent,
        }
    }

    /// The number of hits that lead from probation to main.
    pub(crate) fn promotion_hits(self, settings: &Settings) -> u8 {
        match self {
            Variant::Eager => 1,
            Variant::Plain | Variant::Steady => settings.promotion_hits,
        }
    }
}

/// The miniatures of one shard.
#[derive(Debug)]
pub(crate) struct Trials {
    /// Keys that are mixed to less than this are of the sample.
    limit: u64,
    miniatures: [Miniature; 3],
    best: Variant,
    seen: u32,
    laboratory: Laboratory,
}

impl Trials {
    /// The trials of a shard with so many slots.
    pub(crate) fn new(slots: usize, settings: &Settings) -> Trials {
        let of_one = u64::MAX / slots.max(1) as u64;
        let adapts = settings.replacement == Replacement::Adaptive;
        Trials {
            limit: if adapts {
                of_one.saturating_mul(BLOCKS as u64)
            } else {
                0
            },
            miniatures: Variant::ALL.map(|variant| Miniature::new(variant, settings)),
            best: Variant::Plain,
            seen: 0,
            laboratory: settings.laboratory,
        }
    }

    /// Whether a block is of the sample.
    #[inline]
    pub(crate) fn sample(&self, key: BlockKey) -> bool {
        // Fibonacci hashing (Knuth, TAOCP 3, 6.4) spreads the sample evenly over runs of blocks.
        key.0.wrapping_mul(0x9e37_79b9_7f4a_7c15) < self.limit
    }

    /// The variant to be in; the plain one if nothing is tried.
    #[inline]
    pub(crate) fn best(&self) -> Variant {
        self.best
    }

    /// A block of the sample was read or written.
    #[cold]
    pub(crate) fn note_use(&mut self, key: BlockKey) {
        for miniature in &mut self.miniatures {
            miniature.note_use(key);
        }
        self.seen += 1;
        if self.seen == PERIOD {
            self.seen = 0;
            self.compare();
        }
    }

    fn compare(&mut self) {
        let Laboratory {
            steady,
            eager,
            margin_misses,
            ..
        } = self.laboratory;
        let cost = |variant: &Variant| self.miniatures[*variant as usize].cost;
        if cost(&Variant::Plain) <= cost(&self.best) {
            self.best = Variant::Plain;
        }
        let allowed = Variant::ALL.into_iter().filter(|variant| match variant {
            Variant::Plain => true,
            Variant::Steady => steady,
            Variant::Eager => eager,
        });
        // A smaller lead in a sample is chance, and a wrong variant costs more than a missed one:
        // it pushes out blocks that another would have kept.
        if let Some(least) = allowed.min_by_key(cost)
            && cost(&least) + u64::from(margin_misses) * MISS <= cost(&self.best)
        {
            self.best = least;
        }
        for miniature in &mut self.miniatures {
            miniature.cost -= miniature.cost / FADES;
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    Probation,
    Main,
    Ghost,
}

/// An ideal, block-granular S3-FIFO cache of one variant, without data.
#[derive(Debug)]
struct Miniature {
    variant: Variant,
    probation_most: usize,
    promotion_hits: u8,
    probation: VecDeque<BlockKey>,
    main: VecDeque<BlockKey>,
    ghost: VecDeque<BlockKey>,
    /// Where each of them is, and its hits.
    blocks: KeyMap<(Place, u8)>,
    /// Misses and copies, as they count, less what faded.
    cost: u64,
}

impl Miniature {
    fn new(variant: Variant, settings: &Settings) -> Miniature {
        let probation_percent = usize::from(variant.probation_percent(settings));
        Miniature {
            variant,
            probation_most: (BLOCKS * probation_percent / 100).max(1),
            promotion_hits: variant.promotion_hits(settings),
            probation: VecDeque::new(),
            main: VecDeque::new(),
            ghost: VecDeque::new(),
            blocks: KeyMap::default(),
            cost: 0,
        }
    }

    fn note_use(&mut self, key: BlockKey) {
        match self.blocks.get_mut(&key) {
            Some((Place::Probation | Place::Main, hits)) => {
                *hits = (*hits + 1).min(MAX_HITS);
                return;
            }
            Some((Place::Ghost, _)) => {
                let at = self.ghost.iter().position(|ghost| *ghost == key);
                self.ghost.remove(at.expect("it is among what left"));
                self.let_in(key, true);
            }
            None => self.let_in(key, false),
        }
        self.cost += MISS;
    }

    fn let_in(&mut self, key: BlockKey, comes_back: bool) {
        let to_main = comes_back && (self.variant != Variant::Steady || self.main_makes_way());
        while self.probation.len() + self.main.len() >= BLOCKS {
            if self.main.len() > BLOCKS - self.probation_most || self.probation.is_empty() {
                self.evict_from_main();
            } else {
                self.evict_from_probation();
            }
        }
        if to_main {
            self.main.push_back(key);
            self.blocks.insert(key, (Place::Main, 0));
        } else {
            self.probation.push_back(key);
            self.blocks.insert(key, (Place::Probation, 0));
        }
    }

    /// Whether the oldest block of main was not hit; if it was, that costs it a hit and it becomes
    /// the youngest.
    fn main_makes_way(&mut self) -> bool {
        if self.main.len() < BLOCKS - self.probation_most {
            return true;
        }
        let oldest = self.main[0];
        let (_, hits) = self.blocks.get_mut(&oldest).expect("it is in main");
        if *hits == 0 {
            return true;
        }
        *hits -= 1;
        self.main.rotate_left(1);
        false
    }

    fn evict_from_main(&mut self) {
        while let Some(key) = self.main.pop_front() {
            let (_, hits) = self.blocks.get_mut(&key).expect("it is in main");
            if *hits == 0 {
                self.blocks.remove(&key);
                return;
            }
            *hits -= 1;
            self.main.push_back(key);
        }
    }

    fn evict_from_probation(&mut self) {
        let Some(key) = self.probation.pop_front() else {
            return;
        };
        let state = self.blocks.get_mut(&key).expect("it is on probation");
        if state.1 >= self.promotion_hits {
            *state = (Place::Main, 0);
            self.main.push_back(key);
            self.cost += COPY;
            return;
        }
        *state = (Place::Ghost, 0);
        self.ghost.push_back(key);
        if self.ghost.len() > remembered(BLOCKS)
            && let Some(forgotten) = self.ghost.pop_front()
        {
            self.blocks.remove(&forgotten);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SLOTS: usize = 4096;

    fn after(uses: impl Iterator<Item = u64>) -> Trials {
        let mut trials = Trials::new(SLOTS, &Settings::default());
        for key in uses.map(BlockKey) {
            if trials.sample(key) {
                trials.note_use(key);
            }
        }
        trials
    }

    #[test]
    fn the_sample_is_as_large_a_part_as_a_miniature_is_of_the_shard() {
        let trials = Trials::new(SLOTS, &Settings::default());
        let sampled = (0..SLOTS as u64).filter(|key| trials.sample(BlockKey(*key)));
        let sampled = sampled.count();
        assert!(sampled.abs_diff(BLOCKS) < 8, "{sampled}");
        let settings = Settings {
            replacement: Replacement::S3Fifo,
            ..Settings::default()
        };
        let fixed = Trials::new(SLOTS, &settings);
        assert!((0..SLOTS as u64).all(|key| !fixed.sample(BlockKey(key))));
    }

    #[test]
    fn round_more_than_there_is_room_for_a_part_stays() {
        let round = SLOTS as u64 * 5 / 4;
        let trials = after((0..round).cycle().take(round as usize * 20));
        assert_eq!(trials.best(), Variant::Steady);
        // Blocks that stay are hit each time round: four fifths of it at best.
        let each = trials.miniatures[Variant::Steady as usize].cost;
        let plain = trials.miniatures[Variant::Plain as usize].cost;
        assert!(each * 10 < plain * 9, "{each} of {plain}");
    }

    #[test]
    fn what_is_used_twice_is_kept_where_most_is_used_once() {
        // Of six new blocks one is used again soon after, and a last time when probation has lost
        // it.
        let uses = (0..20_000u64).flat_map(|at| {
            let once = (0..5).map(move |other| Some((1 << 40) + at * 5 + other));
            let again = [Some(at), at.checked_sub(50), at.checked_sub(1_100)];
            once.chain(again).flatten()
        });
        let trials = after(uses);
        let costs = trials.miniatures.each_ref().map(|each| each.cost);
        assert_eq!(trials.best(), Variant::Eager, "{costs:?}");
    }

    #[test]
    fn where_nothing_comes_back_nothing_changes() {
        assert_eq!(after(0..200_000).best(), Variant::Plain);
    }

    #[test]
    fn another_manner_saves_a_margin_and_plain_need_not() {
        let mut trials = Trials::new(SLOTS, &Settings::default());
        let margin = u64::from(Laboratory::default().margin_misses) * MISS;
        let plain = 400 * MISS;
        let mut after = |steady, eager| {
            let costs = [plain, steady, eager];
            for (miniature, cost) in trials.miniatures.iter_mut().zip(costs) {
                miniature.cost = cost;
            }
            trials.compare();
            trials.best()
        };
        assert_eq!(after(plain - margin + 1, plain), Variant::Plain);
        assert_eq!(after(plain - margin, plain), Variant::Steady);
        assert_eq!(after(plain - 1, plain - margin), Variant::Steady);
        assert_eq!(after(plain, plain), Variant::Plain);
    }
}
