//! Plans of caches that keep dirty data on two devices (I28): which of them fails, how, and how many go.

use super::crash;
use crate::plan::{Config, FaultRates, Step};
use crate::rng::Rng;

/// Dirty data on two devices, of which one fails, is gone for a while, and is replaced.
pub(super) fn two_copies(config: &mut Config, steps: &mut Vec<Step>, rng: &mut Rng) {
    (config.copies, config.first_copies) = (2, 2);
    config.cache_devices = rng.pick(&[2, 2, 2, 3]) as u8;
    config.geometry.segments_per_shard = rng.pick(&[20, 24, 32, 48]);
    config.spare_bytes = 0;
    config.alternates = true;
    config.leftover = false;
    config.returns_old = false;
    config.creation_cuts.clear();
    config.origin_faults = FaultRates::NONE;
    config.reconnects = 0;
    config.failing_device = Some(rng.below(u64::from(config.cache_devices)) as u8);
    config.missing_percent = rng.pick(&[0, 0, 20, 50]);
    let rate = rng.pick(&[0, 10, 100, 1000]);
    config.cache_faults = FaultRates {
        read: rng.pick(&[0, 10, 300]),
        write: rate,
        flush: rng.pick(&[0, 10, 300]),
        flush_loss_percent: 50,
        sticky_percent: rng.pick(&[0, 50]),
        ..FaultRates::NONE
    };
    let concerns_more_devices = |step: &Step| {
        matches!(
            step,
            Step::Grow { .. }
                | Step::Shrink { .. }
                | Step::Keep
                | Step::CacheGone
                | Step::DeviceGone { .. }
                | Step::Rot { .. }
                | Step::Harm { .. }
        )
    };
    steps.retain(|step| !concerns_more_devices(step));
    let failing = config.failing_device.unwrap_or(0);
    for _ in 0..rng.pick(&[1, 2, 4, 8]) {
        let at = rng.below(steps.len() as u64 + 1) as usize;
        let cut = rng.percent(15).then(|| rng.below(16) as u32);
        let step = match rng.below(10) {
            0..5 => Step::DeviceGone { device: failing },
            5..8 => Step::Shrink {
                device: failing,
                keep: 0,
                cut,
            },
            _ => Step::Grow {
                device: failing,
                segments: 100,
                cut,
            },
        };
        steps.insert(at, step);
    }
}

/// The failing device of several loses writes, writes and reads elsewhere, returns what was before,
/// and rots, on four fifths of the seeds.
pub(super) fn silent_faults(config: &mut Config, steps: &mut Vec<Step>, rng: &mut Rng) {
    if rng.percent(25) {
        config.cache_devices = 4;
    }
    if rng.percent(20) {
        return;
    }
    for rate in config.cache_faults.lies_mut() {
        *rate = rng.pick(&[0, 0, 10, 100, 1000]);
    }
    for _ in 0..rng.pick(&[0, 1, 4, 16]) {
        let at = rng.below(steps.len() as u64 + 1) as usize;
        let (place, metadata) = (rng.bits(), rng.percent(50));
        steps.insert(at, Step::Rot { place, metadata });
    }
}

/// A second device goes after the one that fails, where dirty data is on two others by then.
pub(super) fn second_device(config: &mut Config, steps: &mut Vec<Step>, rng: &mut Rng) {
    config.cache_devices = rng.pick(&[3, 3, 4]) as u8;
    let failing = fail_any(config, steps, rng);
    for _ in 0..rng.pick(&[1, 1, 2]) {
        let is_gone = |step: &Step| matches!(step, Step::DeviceGone { .. });
        let first = steps.iter().position(is_gone).filter(|_| rng.percent(60));
        let from = first.map_or(0, |at| at as u64 + 1);
        let until = steps.len() as u64;
        let near = if rng.percent(50) {
            (from + 10).min(until)
        } else {
            until
        };
        let at = rng.between(from, near) as usize;
        let device = another_than(failing, config, rng);
        steps.insert(at, Step::SecondGone { device });
    }
}

fn fail_any(config: &mut Config, steps: &mut [Step], rng: &mut Rng) -> u8 {
    let failing = rng.below(u64::from(config.cache_devices)) as u8;
    fail_instead(config, steps, failing)
}

/// Has this device fail, in the steps too that concern one that does.
fn fail_instead(config: &mut Config, steps: &mut [Step], failing: u8) -> u8 {
    config.failing_device = Some(failing);
    for step in steps {
        match step {
            Step::DeviceGone { device }
            | Step::Shrink { device, .. }
            | Step::Grow { device, .. } => *device = failing,
            _ => {}
        }
    }
    failing
}

fn another_than(failing: u8, config: &Config, rng: &mut Rng) -> u8 {
    let others = (0..config.cache_devices).filter(|other| *other != failing);
    let others: Vec<u64> = others.map(u64::from).collect();
    rng.pick(&others) as u8
}

/// The device that fails, or has failed, is replaced.
pub(super) fn replacements(config: &mut Config, steps: &mut Vec<Step>, rng: &mut Rng) {
    config.cache_devices = rng.pick(&[3, 3, 4]) as u8;
    config.spare_devices = 1;
    let last = u64::from(config.cache_devices) - 2;
    let failing = fail_instead(config, steps, rng.between(0, last) as u8);
    let cut_percent = rng.pick(&[0, 10, 40]);
    for _ in 0..rng.pick(&[1, 2, 4]) {
        let at = rng.below(steps.len() as u64 + 1) as usize;
        let cut = rng.percent(cut_percent).then(|| rng.below(16) as u32);
        let device = failing;
        steps.insert(at, Step::Replace { device, cut });
    }
}

/// The device that fails is missing at a start after a power cut, leaves, and is added again as it was,
/// all of it several times.
pub(super) fn device_returns(config: &mut Config, steps: &mut Vec<Step>, rng: &mut Rng) {
    config.cache_devices = rng.pick(&[2, 3, 3, 4]) as u8;
    let failing = fail_any(config, steps, rng);
    config.missing_percent = rng.pick(&[40, 70, 100]);
    let cut_percent = rng.pick(&[0, 10, 40]);
    for _ in 0..rng.pick(&[1, 2, 4]) {
        let mut at = rng.below(steps.len() as u64 + 1) as usize;
        let mut cut = || rng.percent(cut_percent).then(|| rng.below(16) as u32);
        let leaves = Step::Shrink {
            device: failing,
            keep: 0,
            cut: cut(),
        };
        let comes = Step::Grow {
            device: failing,
            segments: 100,
            cut: cut(),
        };
        let crashes = [crash(rng, 80, 50), crash(rng, 50, 30)].map(Step::Crash);
        let [first, second] = crashes;
        for step in [first, leaves, comes, second] {
            steps.insert(at, step);
            at = rng.between(at as u64 + 1, (at as u64 + 20).min(steps.len() as u64)) as usize;
        }
    }
}

/// Two devices go at a time, and come back as they were. The device that fails says so: what it
/// lied about could be nowhere else.
pub(super) fn devices_at_a_time(config: &mut Config, steps: &mut Vec<Step>, rng: &mut Rng) {
    config.cache_devices = rng.pick(&[2, 3, 3, 4]) as u8;
    let failing = fail_any(config, steps, rng);
    steps.retain(|step| !matches!(step, Step::Rot { .. }));
    config.cache_faults = FaultRates {
        write: config.cache_faults.write,
        flush: config.cache_faults.flush,
        flush_loss_percent: config.cache_faults.flush_loss_percent,
        ..FaultRates::NONE
    };
    for _ in 0..rng.pick(&[1, 1, 2, 3]) {
        let mut at = rng.below(steps.len() as u64 + 1) as usize;
        let device = another_than(failing, config, rng);
        steps.insert(at, Step::BothGone { device });
        if rng.percent(80) {
            at = (at + rng.between(1, 60) as usize).min(steps.len());
            steps.insert(at, Step::Crash(crash(rng, 50, 20)));
        }
    }
}

/// Dirty data begins on one device, or is on one for a while, on two fifths of the seeds. No device
/// fails before all of it is on two.
pub(super) fn number_of_copies(config: &mut Config, steps: &mut Vec<Step>, rng: &mut Rng) {
    if !rng.percent(40) {
        return;
    }
    let cut_percent = rng.pick(&[0, 10, 40]);
    let mut cut = || rng.percent(cut_percent).then(|| rng.below(16) as u32);
    let (first, second, third) = (cut(), cut(), cut());
    config.first_copies = rng.pick(&[1, 1, 2]) as u8;
    config.changes_copies = true;
    let mut at = rng.below(steps.len() as u64 / 2 + 1) as usize;
    let mut changes = vec![
        Step::Copies {
            copies: 2,
            cut: first,
        },
        Step::CopiesWhole,
    ];
    if rng.percent(50) {
        let down = [
            Step::Copies {
                copies: 1,
                cut: second,
            },
            Step::Copies {
                copies: 2,
                cut: third,
            },
        ];
        changes.splice(1..1, down);
    }
    for step in changes {
        steps.insert(at, step);
        at = rng.between(at as u64 + 1, (at as u64 + 40).min(steps.len() as u64)) as usize;
    }
}
