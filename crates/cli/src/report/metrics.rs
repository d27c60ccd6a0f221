//! Report of a daemon as OpenMetrics text. Every metric is described in docs/metrics.md.

use std::fmt::{Display, Write};

use crate::report::status::{CacheStatus, FAMILIES, Latency, Status, Traffic, VolumeStatus};

/// Name of the format in HTTP.
pub(crate) const CONTENT_TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// All metrics.
pub(crate) fn page(status: &Status) -> String {
    let mut page = Page::default();
    daemon(&mut page, status);
    if let Some(cache) = &status.cache {
        of_cache(&mut page, cache);
        dirty_marks(&mut page, status);
    }
    volumes(&mut page, &status.volumes);
    let block_bytes = status.block_bytes();
    counters(&mut page, &status.traffic, block_bytes);
    durations(&mut page, &status.traffic);
    bypassed(&mut page, &status.traffic, block_bytes);
    page.text.push_str("# EOF\n");
    page.text
}

#[derive(Default)]
struct Page {
    text: String,
}

type Labels<'a> = &'a [(&'a str, &'a str)];

impl Page {
    // Writing to a string does not fail.

    fn family(&mut self, name: &str, kind: &str, help: &str) {
        let _ = writeln!(self.text, "# TYPE forebay_{name} {kind}");
        for unit in ["bytes", "seconds", "ratio"] {
            if name.ends_with(&format!("_{unit}")) {
                let _ = writeln!(self.text, "# UNIT forebay_{name} {unit}");
            }
        }
        let _ = writeln!(self.text, "# HELP forebay_{name} {help}");
    }

    fn sample(&mut self, name: &str, labels: Labels<'_>, value: impl Display) {
        let _ = write!(self.text, "forebay_{name}");
        for (at, (label, value)) in labels.iter().enumerate() {
            let opening = if at == 0 { '{' } else { ',' };
            let _ = write!(self.text, "{opening}{label}=\"{}\"", escape(value));
        }
        if !labels.is_empty() {
            self.text.push('}');
        }
        let _ = writeln!(self.text, " {value}");
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
        "cache_failed",
        "1 if the cache was given up.",
        u8::from(cache.failure.is_some()),
    );
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
        "Data that went past the cache, in whole blocks.",
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
