//! Troubles of a running cache, in plain words.

use serde::{Deserialize, Serialize};

use crate::quoting::in_shell;
use crate::report::copies::Copies;
use crate::report::health::DeviceHealth;
use crate::report::status::{
    AlteredFile, CacheStatus, FailingDevice, Lately, Status, VolumeStatus,
};
use crate::units::{duration, size};

/// Seconds without write-back that count as trouble.
const STUCK_SECONDS: f64 = 30.0;

/// Seconds after which a frozen volume was perhaps forgotten.
const LONG_FROZEN_SECONDS: f64 = 60.0;

/// A trouble now, or within the last minute.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Trouble {
    /// A fixed word for each kind of trouble.
    pub(crate) kind: String,
    pub(crate) text: String,
    /// The volume that it concerns, if it is one's own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) volume: Option<String>,
}

impl Trouble {
    /// Whether it is the same trouble as another, whatever its words say of it now.
    pub(crate) fn is_same(&self, other: &Trouble) -> bool {
        (&self.kind, &self.volume) == (&other.kind, &other.volume)
    }
}

/// Everything that is wrong, what is worst first.
pub(crate) fn of(status: &Status) -> Vec<Trouble> {
    let mut found = Found::default();
    if let Some(cache) = &status.cache {
        failed_cache(&mut found, cache);
        forgotten(&mut found, cache);
        copies(&mut found, cache);
        buffer(&mut found, cache);
    }
    away(&mut found, status);
    frozen(&mut found, status);
    sizes(&mut found, status);
    files(&mut found, status);
    failures(&mut found, status);
    health(&mut found, status);
    if let Some(cache) = status
        .cache
        .as_ref()
        .filter(|cache| cache.failure.is_none())
    {
        dirty(&mut found, status, cache);
    }
    gate(&mut found, &status.lately);
    found.0
}

#[derive(Default)]
struct Found(Vec<Trouble>);

impl Found {
    fn add(&mut self, kind: &str, text: String) {
        self.0.push(Trouble {
            kind: kind.to_owned(),
            text,
            volume: None,
        });
    }

    /// The trouble that was added last concerns this volume.
    fn of_volume(&mut self, name: &str) {
        if let Some(last) = self.0.last_mut() {
            last.volume = Some(name.to_owned());
        }
    }

    fn add_if_any(&mut self, count: u64, kind: &str, text: &str) {
        if count > 0 {
            self.add(kind, format!("{count} {text}"));
        }
    }
}

fn failed_cache(found: &mut Found, cache: &CacheStatus) {
    if let Some(failure) = &cache.failure {
        found.add(
            "cache-given-up",
            format!(
                "the cache on {} failed ({failure}): volumes go on without it, and write back what is dirty on it as far as \
                 it can be read. Stop the daemon, write out the rest with `forebay drain --offline`, and make a cache \
                 on a sound device with `forebay create --force`",
                cache.device
            ),
        );
    }
    for damage in &cache.recovery.damage {
        found.add(
            "damage",
            format!(
                "the cache was damaged when it was attached: {damage}; check its device (smartctl)"
            ),
        );
    }
}

/// Clean blocks that were forgotten at the start, since a device has returned what it was not given.
fn forgotten(found: &mut Found, cache: &CacheStatus) {
    let Some(why) = &cache.recovery.clean_left else {
        return;
    };
    found.add(
        "clean-forgotten",
        format!(
            "the clean blocks of the cache were forgotten at its start: {why}. Nothing is lost: they are on their \
             origins, and dirty data is on two devices. One of the SSDs has damaged data without an error; look at \
             them (smartctl) and replace it with `forebay cache replace`"
        ),
    );
}

/// A cache that is to keep two copies of dirty data, and has one device for them.
fn copies(found: &mut Found, cache: &CacheStatus) {
    if cache.copies() != Copies::Alone || cache.failure.is_some() {
        return;
    }
    let lost = cache.lost_in_words().unwrap_or_default();
    let then = match cache.lost.first() {
        Some(first) => format!(
            "the cache goes on without {lost}. Put another in its place with `forebay cache replace {} NEW`",
            in_shell(&first.in_words())
        ),
        None => "add another with `forebay cache add`".to_owned(),
    };
    found.add(
        "one-copy",
        format!(
            "dirty data is on {} alone, which may not die now: {then}",
            cache.device
        ),
    );
}

fn away(found: &mut Found, status: &Status) {
    for volume in &status.volumes {
        let Some(why) = &volume.away else { continue };
        found.add(
            "volume-away",
            format!(
                "volume {0} is not served: {why}. Its {1} of dirty data stay in the cache. Bring the disk back and \
                 `forebay reload`, or give them up with `forebay detach {0} --force`",
                volume.name,
                size(volume.dirty_bytes)
            ),
        );
        found.of_volume(&volume.name);
    }
}

/// Volumes that somebody froze, and perhaps forgot.
fn frozen(found: &mut Found, status: &Status) {
    for volume in &status.volumes {
        let Some(seconds) = volume.frozen_seconds else {
            continue;
        };
        if seconds < LONG_FROZEN_SECONDS {
            continue;
        }
        found.add(
            "volume-frozen",
            format!(
                "volume {0} is frozen for {1}: its writes wait for `forebay thaw {2}`",
                volume.name,
                duration(seconds),
                in_shell(&volume.name)
            ),
        );
        found.of_volume(&volume.name);
    }
}

/// Volumes that are smaller than their origins, and block devices than their volumes.
fn sizes(found: &mut Found, status: &Status) {
    for volume in &status.volumes {
        if let Some(why) = &volume.not_grown {
            let text = format!(
                "volume {} stays at {}: {why}",
                volume.name,
                size(volume.size_bytes)
            );
            found.add("not-grown", text);
            found.of_volume(&volume.name);
        }
        if let (Some(device), Some(bytes)) = (&volume.block_device, volume.block_device_bytes) {
            let text = format!(
                "{device} has {}, and volume {} has grown to {}: the kernel cannot change the size of a block device \
                 in use (Linux 6.16 and newer can); take it out of use, `forebay stop`, and start again",
                size(bytes),
                volume.name,
                size(volume.size_bytes)
            );
            found.add("block-device-smaller", text);
            found.of_volume(&volume.name);
        }
    }
}

fn buffer(found: &mut Found, cache: &CacheStatus) {
    if cache.unstored_bytes > 0 {
        found.add(
            "buffered-writes-stuck",
            format!(
                "{} of acknowledged writes are in memory alone: neither the cache nor the origin takes them; \
                 they are tried again every second. Check both devices, and do not reboot before this is gone",
                size(cache.unstored_bytes)
            ),
        );
    }
}

/// Files and devices that are served, and are no longer what they were.
fn files(found: &mut Found, status: &Status) {
    for file in &status.altered_files {
        let AlteredFile {
            path,
            size_bytes,
            served_bytes,
            ..
        } = file;
        let is_cache = !volumes_on(status, path).any(|_| true);
        if file.deleted {
            let save = if is_cache {
                "`forebay drain` writes what is dirty to the origins; make another cache then"
            } else {
                "copy its data from the volume to another place before that"
            };
            found.add(
                "file-deleted",
                format!("{path} was deleted while it is served, and is gone when the daemon stops: {save}"),
            );
        } else if file.is_device {
            found.add(
                "device-shrank",
                format!(
                    "{path} has {size_bytes} bytes instead of {served_bytes}: it was made smaller while it is served. \
                     What was beyond its end is lost, and requests there fail; give it its size again (lvextend)"
                ),
            );
        } else {
            let rest = if is_cache {
                "blocks that were in the part cut off are read from the origin, or are errors if they were dirty"
            } else {
                "data in the part that was cut off is lost"
            };
            found.add(
                "file-cut-short",
                format!(
                    "{path} has {size_bytes} bytes instead of {served_bytes}: it was cut short while it is served. \
                     `truncate -s {served_bytes} {}` gives it its size again; {rest}",
                    in_shell(path)
                ),
            );
        }
    }
}

/// The volumes whose origin a device is.
fn volumes_on<'a>(status: &'a Status, device: &'a str) -> impl Iterator<Item = &'a VolumeStatus> {
    let mut volumes = status.volumes.iter();
    std::iter::from_fn(move || volumes.find(|volume| volume.origin == device))
}

/// Operations that failed, of the cache or of origins, and why:
/// `: cannot write /dev/sdb (volume data): No space left on device`.
fn causes(status: &Status, of_cache: bool, wanted: fn(&str) -> bool) -> String {
    let mut text = String::new();
    for failing in &status.failing {
        let names: Vec<&str> = volumes_on(status, &failing.device)
            .map(|volume| volume.name.as_str())
            .collect();
        if names.is_empty() != of_cache || !wanted(&failing.doing) {
            continue;
        }
        let volume = match names.as_slice() {
            [] => String::new(),
            names => format!(" (volume {})", names.join(", ")),
        };
        let FailingDevice {
            device,
            doing,
            error,
            ..
        } = failing;
        let before = if text.is_empty() { ": " } else { "; " };
        text += &format!("{before}cannot {doing} {device}{volume}: {error}");
    }
    text
}

fn failures(found: &mut Found, status: &Status) {
    let lately = &status.lately;
    found.add_if_any(
        lately.failed_requests,
        "failed-requests",
        "requests were answered with an error in the last minute; the log says more",
    );
    found.add_if_any(
        lately.origin_errors,
        "origin-failing",
        &match causes(status, false, |_| true) {
            none if none.is_empty() => {
                "reads or writes of an origin device failed in the last minute; check it, and its cables".to_owned()
            }
            causes => format!("reads or writes of an origin device failed in the last minute{causes}"),
        },
    );
    found.add_if_any(
        lately.cache_errors,
        "cache-errors",
        &format!(
            "reads or writes of the cache device failed in the last minute{}; check it (smartctl), and drain and \
             replace it if this goes on",
            causes(status, true, |_| true)
        ),
    );
    found.add_if_any(
        lately.checksum_errors,
        "checksum-errors",
        "blocks on the cache did not match their checksums in the last minute; drain and replace its device if this goes on",
    );
}

fn health(found: &mut Found, status: &Status) {
    let devices = status.cache.iter().flat_map(|cache| &cache.devices);
    for device in devices {
        let trouble = device.health.as_ref().and_then(DeviceHealth::trouble);
        if let Some(trouble) = trouble {
            found.add(
                "device-health",
                format!(
                    "the cache device {} {trouble}; `forebay cache add` another device and `forebay cache remove` this \
                     one, before it fails",
                    device.path
                ),
            );
        }
    }
}

fn dirty(found: &mut Found, status: &Status, cache: &CacheStatus) {
    let lately = &status.lately;
    let (high, limit) = (cache.dirty_high_bytes, cache.dirty_limit_bytes);
    let so_much = format!("{} are dirty", size(cache.dirty_bytes));
    // A little below: a write that does not fit any more waits there.
    let is_full = cache.dirty_bytes > 0 && cache.dirty_bytes >= limit - limit / 50;
    let refusing = causes(status, false, |doing| doing != "read");
    if is_full && !refusing.is_empty() {
        found.add(
            "writes-wait",
            format!("dirty data is at its limit ({so_much}), and its origin takes none of it{refusing}. Writes wait until it does"),
        );
    } else if is_full {
        found.add(
            "dirty-at-limit",
            format!("dirty data is at its limit ({so_much}): writes are as slow as the origin until less is written, or more of the cache may be dirty (dirty-limit)"),
        );
    } else if lately.throttled_requests > 0 {
        found.add(
            "throttled",
            format!(
                "{so_much}: {} writes were slowed down in the last minute so that write-back keeps up",
                lately.throttled_requests
            ),
        );
    }
    let stands_still = lately.written_back_blocks == 0 && lately.seconds >= STUCK_SECONDS;
    if cache.dirty_bytes > high && stands_still {
        found.add(
            "write-back-paused",
            format!(
                "{so_much}, and nothing was written back in the last {:.0} s; is the origin there, and without errors?",
                lately.seconds
            ),
        );
    }
}

fn gate(found: &mut Found, lately: &Lately) {
    found.add_if_any(
        lately.congested_blocks,
        "congested",
        "blocks bypassed the cache in the last minute because its device is slower than the congestion limit; `forebay explain` says which",
    );
    found.add_if_any(
        lately.over_budget_blocks,
        "write-budget-spent",
        "blocks bypassed the cache in the last minute because the day's write budget is spent; `forebay explain` says more",
    );
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kinds(status: &Status) -> Vec<String> {
        of(status).into_iter().map(|trouble| trouble.kind).collect()
    }

    #[test]
    fn a_sound_cache_has_no_trouble() {
        assert_eq!(
            kinds(&crate::report::status::example()),
            Vec::<String>::new()
        );
    }

    #[test]
    fn dirty_data_is_trouble_at_its_limit_and_when_it_stays() {
        let mut status = crate::report::status::example();
        status.cache.as_mut().unwrap().dirty_bytes = 69 << 20;
        status.lately.written_back_blocks = 1;
        assert_eq!(kinds(&status), ["dirty-at-limit"]);
        status.lately.written_back_blocks = 0;
        assert_eq!(kinds(&status), ["dirty-at-limit", "write-back-paused"]);
        status.cache.as_mut().unwrap().dirty_bytes = 65 << 20;
        status.lately.throttled_requests = 3;
        assert_eq!(kinds(&status), ["throttled", "write-back-paused"]);
        status.lately.seconds = 5.0;
        assert_eq!(kinds(&status), ["throttled"]);
    }

    #[test]
    fn sizes_that_differ_are_told() {
        let mut status = crate::report::status::example();
        let path = status.volumes[0].origin.clone();
        status.volumes[0].not_grown = Some("no room".to_owned());
        status.volumes[0].block_device = Some("/dev/ublkb0".to_owned());
        status.volumes[0].block_device_bytes = Some(1 << 30);
        status.altered_files = vec![AlteredFile {
            path: path.clone(),
            is_device: true,
            deleted: false,
            size_bytes: 1 << 20,
            served_bytes: 1 << 30,
        }];
        assert_eq!(
            kinds(&status),
            ["not-grown", "block-device-smaller", "device-shrank"]
        );
        let found = of(&status);
        assert!(found[0].text.ends_with(": no room"), "{}", found[0].text);
        assert!(found[1].text.contains("Linux 6.16"), "{}", found[1].text);
        let shrank = format!("{path} has 1048576 bytes instead of 1073741824");
        assert!(found[2].text.starts_with(&shrank), "{}", found[2].text);
        assert!(found[..2].iter().all(|trouble| trouble.volume.is_some()));
    }

    #[test]
    fn an_origin_that_fails_is_named_with_its_cause() {
        let mut status = crate::report::status::example();
        let origin = status.volumes[0].origin.clone();
        status.failing = vec![FailingDevice {
            device: origin.clone(),
            doing: "write".to_owned(),
            error: "No space left on device".to_owned(),
            seconds_ago: 3.0,
        }];
        status.lately.origin_errors = 7;
        let (cause, found) = (
            format!("cannot write {origin} (volume {})", status.volumes[0].name),
            of(&status),
        );
        assert_eq!(found[0].kind, "origin-failing");
        assert!(found[0].text.contains(&cause), "{}", found[0].text);
        assert!(!found[0].text.contains("cables"), "{}", found[0].text);
        status.cache.as_mut().unwrap().dirty_bytes = 69 << 20;
        let found = of(&status);
        let waiting = found.iter().find(|found| found.kind == "writes-wait");
        assert!(waiting.unwrap().text.contains(&cause));
        status.failing[0].doing = "read".to_owned();
        assert!(kinds(&status).contains(&"dirty-at-limit".to_owned()));
    }

    #[test]
    fn failures_come_first_and_a_cache_that_is_gone_has_no_dirty_marks() {
        let mut status = crate::report::status::example();
        let cache = status.cache.as_mut().unwrap();
        cache.failure = Some("it is gone".to_owned());
        cache.dirty_bytes = 69 << 20;
        cache.unstored_bytes = 12 << 10;
        status.lately.failed_requests = 1;
        status.lately.origin_errors = 2;
        status.lately.congested_blocks = 3;
        status.lately.over_budget_blocks = 4;
        assert_eq!(
            kinds(&status),
            [
                "cache-given-up",
                "buffered-writes-stuck",
                "failed-requests",
                "origin-failing",
                "congested",
                "write-budget-spent"
            ]
        );
        let text = &of(&status)[1].text;
        assert!(text.starts_with("12 KiB of acknowledged writes"), "{text}");
    }
}
