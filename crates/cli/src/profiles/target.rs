//! The target of foreign settings.

use forebay_engine::{FEWER_LONG_RUNS, Mode, Settings};

use crate::settings;

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
    /// Differences from what was asked for.
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

    /// Carries out settings of ours in a row of a profile. A `?` ends it there if that setting is
    /// not at our default any more.
    ///
    /// # Errors
    /// Says what is wrong with a value.
    pub(super) fn assign(&mut self, sets: &str) -> Result<(), String> {
        for one in sets.split_whitespace() {
            let (key, value) = one.split_once('=').unwrap_or((one, ""));
            let (key, only_default) = match key.strip_prefix('?') {
                Some(key) => (key, true),
                None => (key, false),
            };
            if only_default && !settings::is_default(&self.settings, key) {
                break;
            }
            self.assign_one(key, value)?;
        }
        Ok(())
    }

    fn assign_one(&mut self, key: &str, value: &str) -> Result<(), String> {
        let wrong = || format!("`{value}` is no value of {key}");
        let number = || value.parse::<u64>().map_err(|_| wrong());
        match key {
            "mode" => self.mode = Some(value.parse()?),
            "dirty-low" => self.set_dirty_low(number()?),
            "dirty-high" => self.set_dirty_high(number()?),
            "dirty-limit" => match value.strip_prefix('+') {
                Some(more) => {
                    let high = u64::from(self.settings.dirty_high_percent);
                    let more: u64 = more.parse().map_err(|_| wrong())?;
                    self.set_dirty_limit((high + more).min(MOST_DIRTY_PERCENT.into()));
                }
                None => self.set_dirty_limit(number()?),
            },
            "writeback-bytes" => self.set_writeback_bytes(number()?),
            _ => settings::assign(&mut self.settings, key, value)?,
        }
        Ok(())
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

    /// Sets how much write-back is under way at once, by as few operations as that takes.
    pub(super) fn set_writeback_bytes(&mut self, bytes: u64) {
        let (least, most) = WRITEBACK_RUN_BYTES;
        let run = bytes.clamp(least, most) / least * least;
        let depth =
            (bytes / run * u64::from(FEWER_LONG_RUNS)).clamp(WRITEBACK_DEPTH.0, WRITEBACK_DEPTH.1);
        self.settings.writeback_run_bytes = run as u32;
        self.settings.writeback_depth = depth as u16;
        let taken = self.settings.writeback_most_bytes() as u64;
        if bytes < run || bytes >= taken + run {
            self.notes.push(format!(
                "{} of write-back at once are taken as {}",
                crate::units::size(bytes),
                crate::units::size(taken)
            ));
        }
    }
}
