//! What foreign settings change.

use forebay_engine::{Admission, Mode, Nanos, Replacement, Settings};

use super::value::word;
use crate::units::Age;

/// The most dirty data, in percent, for which the engine still has room to reclaim (I18).
const MOST_DIRTY_PERCENT: u8 = 90;
const WRITEBACK_RUN_BYTES: (u64, u64) = (64 << 10, 1 << 20);
const WRITEBACK_DEPTH: (u64, u64) = (1, 256);

/// Our settings, while foreign ones are applied to them.
#[derive(Debug)]
pub(crate) struct Target {
    pub(super) settings: Settings,
    /// The mode that a foreign setting asks for.
    pub(super) mode: Option<Mode>,
    /// What is not quite what was asked for.
    pub(super) notes: Vec<String>,
}

impl Target {
    pub(super) fn new(settings: Settings) -> Target {
        Target {
            settings,
            mode: None,
            notes: Vec::new(),
        }
    }

    /// Sets where write-back begins; the limits above make way as far as they must.
    pub(super) fn set_dirty_low(&mut self, percent: u64) {
        let percent = self.at_most_dirty(percent);
        let settings = &mut self.settings;
        settings.dirty_low_percent = percent;
        settings.dirty_high_percent = settings.dirty_high_percent.max(percent);
        settings.dirty_limit_percent = settings.dirty_limit_percent.max(percent);
    }

    /// Sets where writes slow down; the limits on both sides make way as far as they must.
    pub(super) fn set_dirty_high(&mut self, percent: u64) {
        let percent = self.at_most_dirty(percent);
        let settings = &mut self.settings;
        settings.dirty_high_percent = percent;
        settings.dirty_low_percent = settings.dirty_low_percent.min(percent);
        settings.dirty_limit_percent = settings.dirty_limit_percent.max(percent);
    }

    /// Sets the most dirty data; the limits below make way as far as they must.
    pub(super) fn set_dirty_limit(&mut self, percent: u64) {
        let percent = self.at_most_dirty(percent);
        let settings = &mut self.settings;
        settings.dirty_limit_percent = percent;
        settings.dirty_low_percent = settings.dirty_low_percent.min(percent);
        settings.dirty_high_percent = settings.dirty_high_percent.min(percent);
    }

    /// Sets which blocks stay, by that cache's word for it.
    pub(super) fn set_replacement(
        &mut self,
        text: &str,
        words: &[(&str, Replacement)],
    ) -> Result<(), String> {
        self.settings.replacement = word(text, words)?;
        Ok(())
    }

    fn at_most_dirty(&mut self, percent: u64) -> u8 {
        match u8::try_from(percent) {
            Ok(percent) if percent <= MOST_DIRTY_PERCENT => percent,
            _ => {
                self.notes.push(format!(
                    "{percent} % is taken as {MOST_DIRTY_PERCENT} %: the rest is needed to make room"
                ));
                MOST_DIRTY_PERCENT
            }
        }
    }

    /// Sets the age at which dirty data is written back whatever its amount; 0 seconds for never.
    pub(super) fn set_age_or_never(&mut self, seconds: u64) {
        self.settings.age_limit = match seconds {
            0 => Age::NEVER,
            _ => Nanos(seconds.saturating_mul(Nanos::SECOND.0)),
        };
    }

    /// Sets how much write-back is under way at once, by as few operations as that takes.
    pub(super) fn set_writeback_bytes(&mut self, bytes: u64) {
        let (least, most) = WRITEBACK_RUN_BYTES;
        let run = bytes.clamp(least, most) / least * least;
        let depth = (bytes / run).clamp(WRITEBACK_DEPTH.0, WRITEBACK_DEPTH.1);
        self.settings.writeback_run_bytes = run as u32;
        self.settings.writeback_depth = depth as u16;
        if bytes < run || bytes > run * WRITEBACK_DEPTH.1 {
            self.notes.push(format!(
                "{} of write-back at once are taken as {}",
                crate::units::size(bytes),
                crate::units::size(run * depth)
            ));
        }
    }

    /// Reads are promoted as seldom as is possible.
    pub(super) fn keep_reads_out(&mut self) {
        self.settings.read_admission = most_touches();
    }
}

/// The strictest admission there is.
pub(super) fn most_touches() -> Admission {
    (1..=u8::MAX)
        .rev()
        .find_map(|touches| Admission::nth_touch(touches).ok())
        .unwrap_or(Admission::SECOND_TOUCH)
}
