//! The marks of dirty data: the settings', lower while dirty data holds more room than it fills.
//!
//! A segment is free when none of its blocks is dirty any more, and a sweep of write-back takes a
//! quarter of the dirty data in the order of the origin. Two examples, with 85 and 90 % set:
//!
//! - A long write lies in the log as it does on the origin, so that segments become free one after
//!   the other. A sweep of 100 MB leaves 5 MB of slack: writes slow down at 85 %.
//! - Random writes leave a dirty block in nearly each segment of the quarter until the sweep ends.
//!   A sweep of 100 MB leaves 100 MB of slack. With 60 % of dirty data the log is full to nine
//!   tenths, and writes slow down there. At 70 % they would wait for room. Write-back would then
//!   hurry from one old segment to the next, with few neighbours to write in one go.
//!
//! Blocks that clients read again keep their room: with an eighth of the shard in main the marks are
//! at most 78 and 82 %. A sixteenth of the shard is free, on its way out, or clean and among dirty
//! blocks.

use crate::format::{Sequence, Stream};
use crate::settings::Settings;
use crate::stats::Stats;
use crate::store::Store;

/// Up to the first the settings hold, in percent of the sweep. From the second on the marks are at
/// their lowest.
const SLACK: (u64, u64) = (30, 80);
/// The high mark and the limit at their lowest, in percent; a setting below that stays.
const LOWEST: (u64, u64) = (60, 70);
/// The high mark and the limit at their highest, in percent, of a shard without blocks that were read.
/// Each is lower by the share of those.
const HIGHEST: (u64, u64) = (90, 94);
/// The part of probation that counts as read again, in percent of the shard: the share that reclaim
/// leaves to it.
const MOST_PROBATION: u64 = 10;

/// Before the first sweep: writes of so many blocks on average, of 4 KiB, leave little slack.
const LONG_WRITE_BLOCKS: u64 = 16;

/// Numbers of dirty blocks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct DirtyMarks {
    /// Writes slow down here.
    pub(crate) high: u64,
    /// Fewer are let in than are written back.
    pub(crate) limit: u64,
    /// There are no more.
    pub(crate) most: u64,
}

/// Places whose block is not dirty, in those segments of a sweep of write-back that still have a dirty
/// one: the most during the sweep, in percent of its blocks.
#[derive(Debug, Default)]
pub(super) struct Slack {
    /// Of the sweep before, if there was one.
    last_sweep_percent: Option<u64>,
    this_sweep: Option<Sweep>,
}

#[derive(Debug)]
struct Sweep {
    blocks: u64,
    /// The generation of its youngest segment.
    youngest: Sequence,
    slack_percent: u64,
}

impl Slack {
    /// The slack, or a guess by the length of writes as long as no sweep has shown any.
    fn percent(&self, stats: &Stats) -> u64 {
        let this = self.this_sweep.as_ref();
        let this = this.map_or(0, |sweep| sweep.slack_percent);
        let last = self.last_sweep_percent.unwrap_or_else(|| {
            let blocks = stats.write_blocks_hit + stats.write_blocks_missed;
            let are_long = blocks > stats.write_requests * LONG_WRITE_BLOCKS;
            if are_long { 0 } else { 100 }
        });
        last.max(this)
    }
}

impl Store {
    /// The marks in force.
    #[inline]
    pub(crate) fn dirty_marks(&self) -> DirtyMarks {
        self.marks
    }

    /// Changes the settings, and what follows from them.
    pub(crate) fn set_settings(&mut self, settings: Settings) {
        self.settings = settings;
        self.reckon_marks();
    }

    /// Reckons the marks anew: the settings, the room that they give shares of, or the slack is
    /// another.
    pub(super) fn reckon_marks(&mut self) {
        let tight = SLACK.1 - self.slack.percent(&self.stats).clamp(SLACK.0, SLACK.1);
        let read = self.read_percent();
        let mark = |set: u8, lowest: u64, highest: u64| {
            let set = u64::from(set);
            let highest = highest.saturating_sub(read).max(lowest);
            let most = lowest + (highest - lowest) * tight / (SLACK.1 - SLACK.0);
            self.dirty_room * most.min(set) / 100
        };
        let (high, limit) = (
            self.settings.dirty_high_percent,
            self.settings.dirty_limit_percent,
        );
        let limit_now = mark(limit, LOWEST.1, HIGHEST.1);
        self.marks = DirtyMarks {
            high: mark(high, LOWEST.0, HIGHEST.0).min(limit_now),
            limit: limit_now,
            most: self.dirty_share(limit),
        };
        self.stats.dirty_high_blocks = self.marks.high;
        self.stats.dirty_limit_blocks = self.marks.limit;
    }

    /// The share of the shard with blocks that were read, and that dirty data leaves alone above its
    /// lowest marks.
    fn read_percent(&self) -> u64 {
        let segments = |stream: Stream| self.log.streams[stream as usize].order.len() as u64;
        let usable = (self.log.usable_segments() as u64).max(1);
        let percent = |stream: Stream| segments(stream) * 100 / usable;
        percent(Stream::Main) + percent(Stream::Probation).min(MOST_PROBATION)
    }

    /// Reckons the marks by the writes so far, where dirty data reaches them and no sweep has shown
    /// any slack yet: a long write that then bypasses the cache would keep write-back from it.
    #[inline]
    pub(crate) fn guess_slack(&mut self) {
        if self.slack.last_sweep_percent.is_none() && self.dirty_is_high() {
            self.reckon_marks();
        }
    }

    /// Looks at the slack when a flush of an origin has made blocks clean.
    pub(super) fn notice_slack(&mut self) {
        let Some(sweep) = &mut self.slack.this_sweep else {
            return;
        };
        let log = &self.log;
        let places = log.geometry.slots_per_segment() - log.geometry.first_slot() - 1;
        let segments = log.streams[Stream::Write as usize].order.iter();
        let slack = segments
            .map(|id| &log.segments[id.0 as usize])
            .take_while(|segment| segment.generation <= sweep.youngest)
            .filter(|segment| segment.dirty > 0)
            .map(|segment| u64::from(places.saturating_sub(segment.dirty)));
        let percent = slack.sum::<u64>() * 100 / sweep.blocks;
        sweep.slack_percent = sweep.slack_percent.max(percent);
        self.reckon_marks();
    }

    /// Write-back begins with a sweep of so many blocks, the youngest of them in a segment of this
    /// generation. One of the write stream's tail alone says that there is no room.
    pub(crate) fn sweep_begins(&mut self, is_of_tail: bool, blocks: usize, youngest: Sequence) {
        let slack = &mut self.slack;
        if is_of_tail {
            (slack.last_sweep_percent, slack.this_sweep) = (Some(100), None);
        } else if blocks > 0 {
            let next = Sweep {
                blocks: blocks as u64,
                youngest,
                slack_percent: 0,
            };
            if let Some(ended) = slack.this_sweep.replace(next) {
                slack.last_sweep_percent = Some(ended.slack_percent);
            }
        }
        self.reckon_marks();
    }

    /// Whether dirty data is at its limit.
    pub(crate) fn dirty_is_at_limit(&self) -> bool {
        self.dirty_blocks_to_come() >= self.dirty_marks().limit
    }

    /// Whether dirty data is at its high mark.
    pub(crate) fn dirty_is_high(&self) -> bool {
        self.dirty_blocks_to_come() >= self.dirty_marks().high
    }

    /// Dirty blocks that write-back can make clean. Blocks that cannot be read from the cache
    /// device are left out: the write that they would hold up may replace them.
    pub(crate) fn dirty_blocks_to_come(&self) -> u64 {
        self.present_dirty().saturating_sub(self.unreadable.len())
    }

    /// True if there is room for copies of written blocks. Near the mark at which writers are held
    /// back, the cache writes as fast as it can be emptied, and a copy takes from that.
    pub(crate) fn has_room_for_written(&self) -> bool {
        self.present_dirty() < self.dirty_marks().high / 4 * 3
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rig::Rig;
    use crate::settings::Mode;

    /// A rig with dirty segments: of the first so many the blocks are clean but for one.
    fn rig(settings: Settings) -> Rig {
        let mut rig = Rig::new(Mode::Writeback, settings);
        let places = rig.store.log.geometry.slots_per_segment() as usize;
        for first in 0..4 * places as u64 {
            assert!(rig.append(Stream::Write, first, 1));
        }
        rig
    }

    fn percents(store: &Store) -> (u64, u64, u64) {
        let of = |blocks: u64| (blocks * 100).div_ceil(store.share(100));
        let marks = store.dirty_marks();
        (of(marks.high), of(marks.limit), of(marks.most))
    }

    /// A sweep of all blocks, after which so many of each segment with dirty blocks are dirty still.
    fn sweep(rig: &mut Rig, still_dirty: u32) {
        let store = &mut rig.store;
        let blocks = store.stats.dirty_blocks as usize;
        let segments = store.log.streams[Stream::Write as usize].order.clone();
        let youngest = store.log.segments[segments[segments.len() - 1].0 as usize].generation;
        store.sweep_begins(false, blocks, youngest);
        let before: Vec<u32> = segments
            .iter()
            .map(|id| store.log.segments[id.0 as usize].dirty)
            .collect();
        for id in &segments {
            store.log.segment(*id).dirty = still_dirty;
        }
        store.notice_slack();
        for (id, dirty) in segments.iter().zip(before) {
            store.log.segment(*id).dirty = dirty;
        }
    }

    #[test]
    fn the_marks_are_low_until_a_sweep_has_shown_that_segments_become_free() {
        let mut rig = rig(Settings::default());
        assert_eq!(percents(&rig.store), (60, 70, 90));
        sweep(&mut rig, 0);
        assert_eq!(percents(&rig.store), (60, 70, 90), "it has not ended");
        sweep(&mut rig, 0);
        assert_eq!(percents(&rig.store), (85, 90, 90));
    }

    #[test]
    fn long_writes_alone_raise_the_marks_before_the_first_sweep() {
        let mut rig = rig(Settings::default());
        let stats = &mut rig.store.stats;
        (stats.write_requests, stats.write_blocks_missed) = (10, 320);
        rig.store.guess_slack();
        assert_eq!(percents(&rig.store), (60, 70, 90), "there is room");
        let high = rig.store.dirty_marks().high;
        let dirty = std::mem::replace(&mut rig.store.stats.dirty_blocks, high);
        rig.store.guess_slack();
        assert_eq!(percents(&rig.store), (85, 90, 90));
        rig.store.stats.dirty_blocks = dirty;
        sweep(&mut rig, 1);
        assert_eq!(percents(&rig.store), (60, 70, 90), "a sweep knows better");
    }

    #[test]
    fn the_marks_come_down_in_the_middle_of_a_sweep_that_frees_nothing() {
        let mut rig = rig(Settings::default());
        sweep(&mut rig, 0);
        sweep(&mut rig, 1);
        assert_eq!(percents(&rig.store), (60, 70, 90));
        sweep(&mut rig, 0);
        assert_eq!(percents(&rig.store), (60, 70, 90), "the one before counts");
        sweep(&mut rig, 0);
        assert_eq!(percents(&rig.store), (85, 90, 90));
    }

    #[test]
    fn somebody_who_waits_for_room_brings_them_down() {
        let mut rig = rig(Settings::default());
        sweep(&mut rig, 0);
        sweep(&mut rig, 0);
        rig.store.sweep_begins(true, 9, Sequence::ZERO);
        assert_eq!(percents(&rig.store), (60, 70, 90));
    }

    #[test]
    fn blocks_that_were_read_keep_their_room() {
        let mut rig = rig(Settings::default());
        sweep(&mut rig, 0);
        let segments = rig.store.log.usable_segments();
        while rig.store.log.streams[Stream::Main as usize].order.len() * 10 < segments {
            assert!(rig.append(Stream::Main, 1 << 20, 1));
        }
        sweep(&mut rig, 0);
        assert_eq!(percents(&rig.store), (80, 84, 90));
    }

    #[test]
    fn a_setting_below_them_holds() {
        let mut rig = rig(Settings {
            dirty_high_percent: 20,
            dirty_limit_percent: 30,
            ..Settings::default()
        });
        assert_eq!(percents(&rig.store), (20, 30, 30));
        sweep(&mut rig, 0);
        sweep(&mut rig, 0);
        assert_eq!(percents(&rig.store), (20, 30, 30));
    }
}
