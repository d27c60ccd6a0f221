//! Reports of daemons as OpenMetrics text. Every metric is described in docs/metrics.md.

use std::fmt::{Display, Write};

use crate::report::device_speed::Speed;
use crate::report::health::DeviceHealth;
use crate::report::status::{
    CacheDeviceStatus, CacheStatus, FAMILIES, Latency, Status, Traffic, VolumeStatus,
};

/// Name of the format in HTTP.
pub(crate) const CONTENT_TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// A cache by its name among those of the machine.
pub(crate) struct Named {
    pub(crate) name: String,
    /// None if its daemon does not answer.
    pub(crate) status: Option<Status>,
}

impl Named {
    /// Caches by the names of their sockets, under their own names where these are known.
    pub(crate) fn told_apart(found: Vec<(String, Option<Status>)>) -> Vec<Named> {
        let own = |stem: &String, status: &Option<Status>| {
            let status = status.as_ref().filter(|status| !status.name.is_empty());
            status.map_or_else(|| stem.clone(), |status| status.name.clone())
        };
        let names: Vec<(String, String)> = found
            .iter()
            .map(|(stem, status)| (own(stem, status), stem.clone()))
            .collect();
        let named = told_apart(&names).into_iter().zip(found);
        named
            .map(|(name, (_, status))| Named { name, status })
            .collect()
    }
}

/// Names of caches, each with that of its socket. Where several have one name, all but that whose
/// socket has it too get the name of their socket added: no two may be one for Prometheus.
pub(crate) fn told_apart(names: &[(String, String)]) -> Vec<String> {
    let is_alone = |name: &String| names.iter().filter(|(other, _)| other == name).count() == 1;
    let told = names.iter().map(|(name, stem)| {
        if is_alone(name) || name == stem {
            name.clone()
        } else {
            format!("{name}-{stem}")
        }
    });
    told.collect()
}

/// All metrics of these caches.
pub(crate) fn page(caches: &[Named]) -> String {
    let mut page = Page::default();
    for Named { name, status } in caches {
        page.cache.clone_from(name);
        let up = u8::from(status.is_some());
        page.gauge("up", "1 if the daemon of the cache answers.", up);
        if let Some(status) = status {
            of_daemon(&mut page, status);
        }
    }
    let families = page.families.iter();
    let texts = families.map(|family| format!("{}{}", family.head, family.samples));
    texts.chain(["# EOF\n".to_owned()]).collect()
}

fn of_daemon(page: &mut Page, status: &Status) {
    daemon(page, status);
    hook(page, status);
    if let Some(cache) = &status.cache {
        of_cache(page, cache);
        dirty_marks(page, status);
        device_health(page, &cache.devices);
    }
    device_speed(page, status);
    volumes(page, &status.volumes);
    volume_durations(page, &status.volumes);
    let block_bytes = status.block_bytes();
    counters(page, &status.traffic, block_bytes);
    durations(page, &status.traffic);
    bypassed(page, &status.traffic, block_bytes);
}

/// Metrics of all caches, family by family.
#[derive(Default)]
struct Page {
    /// The cache whose samples come.
    cache: String,
    families: Vec<FamilyText>,
    /// The family whose samples come.
    at: usize,
}

struct FamilyText {
    name: String,
    head: String,
    samples: String,
}

type Labels<'a> = &'a [(&'a str, &'a str)];

impl Page {
    // Writing to a string does not fail.

    /// Begins a family, or goes on with it.
    fn family(&mut self, name: &str, kind: &str, help: &str) {
        let known = self.families.iter().position(|family| family.name == name);
        if let Some(at) = known {
            self.at = at;
            return;
        }
        let mut head = format!("# TYPE forebay_{name} {kind}\n");
        for unit in ["bytes", "seconds", "ratio"] {
            if name.ends_with(&format!("_{unit}")) {
                let _ = writeln!(head, "# UNIT forebay_{name} {unit}");
            }
        }
        let _ = writeln!(head, "# HELP forebay_{name} {help}");
        self.at = self.families.len();
        self.families.push(FamilyText {
            name: name.to_owned(),
            head,
            samples: String::new(),
        });
    }

    fn sample(&mut self, name: &str, labels: Labels<'_>, value: impl Display) {
        let samples = &mut self.families[self.at].samples;
        let _ = write!(samples, "forebay_{name}{{cache=\"{}\"", escape(&self.cache));
        for (label, value) in labels {
            let _ = write!(samples, ",{label}=\"{}\"", escape(value));
        }
        let _ = writeln!(samples, "}} {value}");
    }

    fn gauge(&mut self, name: &str, help: &str, value: impl Display) {
        self.family(name, "gauge", help);
        self.sample(name, &[], value);
    }

    fn histogram(&mut self, name: &str, labels: Labels<'_>, times: &Latency) {
        let bucket = format!("{name}_bucket");
        let mut below_limit = |limit: &str, count: u64| {
            let labels = [labels, &[("le", limit)]].concat();
            self.sample(&bucket, &labels, count);
        };
        for (limit_ns, count) in &times.cumulative {
            below_limit(&(*limit_ns as f64 / 1e9).to_string(), *count);
        }
        below_limit("+Inf", times.count);
        self.sample(&format!("{name}_count"), labels, times.count);
        let sum_seconds = times.sum_ns as f64 / 1e9;
        self.sample(&format!("{name}_sum"), labels, sum_seconds);
    }
}

fn daemon(page: &mut Page, status: &Status) {
    page.family("build", "info", "The version that runs.");
    page.sample("build_info", &[("version", &status.version)], 1);
    page.gauge(
        "uptime_seconds",
        "Time since the daemon started.",
        status.uptime_seconds,
    );
    page.gauge("clients", "Connected NBD clients.", status.clients);
}

fn hook(page: &mut Page, status: &Status) {
    let hook = &status.hook;
    page.family(
        "hook_calls",
        "counter",
        "Calls of the hook, and events left out.",
    );
    for (result, count) in [
        ("succeeded", hook.succeeded),
        ("failed", hook.failed),
        ("left-out", hook.left_out),
    ] {
        page.sample("hook_calls_total", &[("result", result)], count);
    }
}

fn of_cache(page: &mut Page, cache: &CacheStatus) {
    page.gauge(
        "cache_capacity_bytes",
        "Room for data on the cache.",
        cache.capacity_bytes,
    );
    page.gauge(
        "cache_cached_bytes",
        "Data on the cache.",
        cache.cached_bytes,
    );
    page.gauge(
        "cache_dirty_bytes",
        "Data that the origins lack.",
        cache.dirty_bytes,
    );
    page.gauge(
        "buffer_unstored_bytes",
        "Acknowledged data that is in memory alone because storing it failed.",
        cache.unstored_bytes,
    );
    page.gauge(
        "cache_copies",
        "Devices that each block of dirty data is to be on.",
        cache.copies,
    );
    page.gauge(
        "cache_exposed_bytes",
        "Dirty data that is on one device and is to be on two.",
        cache.exposed_bytes,
    );
    page.gauge(
        "cache_devices_lost",
        "Devices that the cache goes on without.",
        cache.lost.len() as u32,
    );
    page.gauge(
        "cache_failed",
        "1 if the cache failed.",
        u8::from(cache.failure.is_some()),
    );
}

/// Durations and rates of the cache's devices, and of each origin, as the engine has learnt them.
fn device_speed(page: &mut Page, status: &Status) {
    let cache = status.cache.iter().map(|cache| ("cache", "", &cache.speed));
    let origins = status.volumes.iter();
    let origins = origins.map(|volume| ("origin", volume.name.as_str(), &volume.origin_speed));
    let devices: Vec<_> = cache.chain(origins).collect();
    let mut gauge = |name: &str, help: &str, value: fn(&Speed) -> Option<f64>| {
        page.family(name, "gauge", help);
        for (device, volume, speed) in &devices {
            for (kind, speed) in *speed {
                if let Some(value) = value(speed) {
                    let labels = [("device", *device), ("volume", *volume), ("kind", kind)];
                    page.sample(name, &labels, value);
                }
            }
        }
    };
    gauge(
        "device_operation_seconds",
        "How long an operation takes now, on average.",
        |speed| Some(speed.mean_ns as f64 / 1e9),
    );
    gauge(
        "device_rate_bytes",
        "Bytes a second of long transfers, while any is in flight.",
        |speed| (speed.bytes_per_second > 0).then_some(speed.bytes_per_second as f64),
    );
}

/// Of devices whose health is known, as far as it is.
fn device_health(page: &mut Page, devices: &[CacheDeviceStatus]) {
    type Gauge = (&'static str, &'static str, fn(&DeviceHealth) -> Option<f64>);
    fn share(percent: Option<u64>) -> Option<f64> {
        percent.map(|percent| percent as f64 / 100.0)
    }
    let gauges: [Gauge; 7] = [
        (
            "device_critical_warning",
            "1 if the cache device warns of itself.",
            |health| Some(f64::from(u8::from(!health.warnings.is_empty()))),
        ),
        (
            "device_life_used_ratio",
            "Share of the device's rated life that is behind it.",
            |health| share(health.life_used_percent),
        ),
        (
            "device_spare_ratio",
            "Share of the device's spare space that is left.",
            |health| share(health.spare_percent),
        ),
        (
            "device_media_errors",
            "Data that the device could not read, over its life.",
            |health| health.media_errors.map(|errors| errors as f64),
        ),
        (
            "device_temperature_celsius",
            "The device's temperature.",
            |health| health.temperature_celsius.map(|degrees| degrees as f64),
        ),
        (
            "device_power_on_seconds",
            "Time that the device was on, over its life.",
            |health| health.power_on_hours.map(|hours| hours as f64 * 3600.0),
        ),
        (
            "device_written_lifetime_bytes",
            "Data written to the device over its life, by whomever.",
            |health| health.written_bytes.map(|bytes| bytes as f64),
        ),
    ];
    for (name, help, get) in gauges {
        page.family(name, "gauge", help);
        for device in devices {
            let value = device.health.as_ref().and_then(get);
            if let Some(value) = value {
                page.sample(name, &[("path", &device.path)], value);
            }
        }
    }
}

fn dirty_marks(page: &mut Page, status: &Status) {
    let settings = &status.settings;
    page.family(
        "cache_dirty_mark_ratio",
        "gauge",
        "Shares of dirty data at which write-back begins (low), writes slow down (high), no more is taken (limit).",
    );
    for (mark, percent) in [
        ("low", settings.percent("dirty_low_percent")),
        ("high", settings.percent("dirty_high_percent")),
        ("limit", settings.percent("dirty_limit_percent")),
    ] {
        let ratio = f64::from(percent) / 100.0;
        page.sample("cache_dirty_mark_ratio", &[("mark", mark)], ratio);
    }
    let Some(cache) = &status.cache else {
        return;
    };
    page.family(
        "cache_dirty_mark_bytes",
        "gauge",
        "Dirty data above which writes slow down (high), or less is taken than is written back (limit), just now.",
    );
    for (mark, bytes) in [
        ("high", cache.dirty_high_bytes),
        ("limit", cache.dirty_limit_bytes),
    ] {
        page.sample("cache_dirty_mark_bytes", &[("mark", mark)], bytes as f64);
    }
}

fn volumes(page: &mut Page, volumes: &[VolumeStatus]) {
    type Gauge = (&'static str, &'static str, fn(&VolumeStatus) -> u64);
    let gauges: [Gauge; 3] = [
        ("volume_size_bytes", "Size of a volume.", |volume| {
            volume.size_bytes
        }),
        (
            "volume_cached_bytes",
            "Data of a volume on the cache.",
            |volume| volume.cached_bytes,
        ),
        (
            "volume_dirty_bytes",
            "Data that a volume's origin lacks.",
            |volume| volume.dirty_bytes,
        ),
    ];
    for (name, help, get) in gauges {
        page.family(name, "gauge", help);
        for volume in volumes {
            page.sample(name, &[("volume", &volume.name)], get(volume));
        }
    }
    page.family("volume", "info", "Each volume's origin and mode.");
    for volume in volumes {
        let labels = [
            ("volume", volume.name.as_str()),
            ("origin", &volume.origin),
            ("mode", &volume.mode),
        ];
        page.sample("volume_info", &labels, 1);
    }
}

fn volume_durations(page: &mut Page, volumes: &[VolumeStatus]) {
    let name = "volume_request_duration_seconds";
    let help = "From taking a request to its answer, of each volume.";
    page.family(name, "histogram", help);
    for volume in volumes.iter().filter(|volume| volume.away.is_none()) {
        let read = ("kind", "read");
        let kinds: [(Labels<'_>, _); 4] = [
            (&[read, ("result", "hit")], &volume.read_hit_latency),
            (&[read, ("result", "miss")], &volume.read_miss_latency),
            (&[("kind", "write")], &volume.write_latency),
            (&[("kind", "flush")], &volume.flush_latency),
        ];
        for (labels, times) in kinds {
            let labels = [&[("volume", volume.name.as_str())], labels].concat();
            page.histogram(name, &labels, times);
        }
    }
}

fn counters(page: &mut Page, traffic: &Traffic, block_bytes: u64) {
    for family in FAMILIES {
        page.family(family.name, "counter", family.help);
        let name = format!("{}_total", family.name);
        for counter in family.counters {
            page.sample(&name, counter.labels, (counter.value)(traffic, block_bytes));
        }
    }
}

fn durations(page: &mut Page, traffic: &Traffic) {
    page.family(
        "request_duration_seconds",
        "histogram",
        "From taking a request to its answer.",
    );
    for (kind, times) in [
        ("read", &traffic.read_latency),
        ("write", &traffic.write_latency),
        ("flush", &traffic.flush_latency),
    ] {
        page.histogram("request_duration_seconds", &[("kind", kind)], times);
    }
}

fn bypassed(page: &mut Page, traffic: &Traffic, block_bytes: u64) {
    page.family(
        "bypassed_bytes",
        "counter",
        "Data that bypassed the cache, in whole blocks.",
    );
    for bypass in &traffic.bypassed {
        let written = bypass.blocks.saturating_sub(bypass.read_blocks);
        for (kind, blocks) in [("read", bypass.read_blocks), ("write", written)] {
            let labels = [("reason", bypass.reason.as_str()), ("kind", kind)];
            page.sample("bypassed_bytes_total", &labels, blocks * block_bytes);
        }
    }
}

fn escape(label: &str) -> String {
    label
        .replace('\\', "\\\\")
        .replace('"', "\\\"")
        .replace('\n', "\\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn caches_of_one_name_are_told_apart() {
        let names = [("ssd", "17"), ("ssd", "ssd"), ("ssd", "19"), ("nvme", "18")];
        let names = names.map(|(name, stem)| (name.to_owned(), stem.to_owned()));
        assert_eq!(told_apart(&names), ["ssd-17", "ssd", "ssd-19", "nvme"]);
    }

    #[test]
    fn each_family_is_once_with_all_caches_in_it() {
        let status = || Some(crate::report::status::example());
        let named = |name: &str, status| Named {
            name: name.to_owned(),
            status,
        };
        let caches = [
            named("a", status()),
            named("b\"", status()),
            named("c", None),
        ];
        let page = page(&caches);
        assert_eq!(page.matches("# TYPE forebay_cache_dirty_bytes ").count(), 1);
        for line in [
            "forebay_cache_dirty_bytes{cache=\"a\"} 8388608\nforebay_cache_dirty_bytes{cache=\"b\\\"\"} 8388608\n",
            "forebay_up{cache=\"c\"} 0\n",
            "forebay_volume_dirty_bytes{cache=\"a\",volume=\"sdb\"} 8388608\n",
        ] {
            assert!(page.contains(line), "{line} is not in {page}");
        }
    }
}
