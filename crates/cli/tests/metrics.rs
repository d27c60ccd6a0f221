//! Metrics: exported metrics are documented, documented metrics that are asked for are exported,
//! and they say the truth.

mod support;

use std::collections::BTreeSet;
use std::path::Path;

use support::nbd::Client;
use support::{MIB, Scratch, forebay_ok, openmetrics, smartctl, until};

fn file(name: &str) -> String {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    std::fs::read_to_string(root.join(name)).unwrap()
}

/// Every name in a text that begins as ours do.
fn names(text: &str) -> BTreeSet<&str> {
    let word = |c: char| c.is_ascii_alphanumeric() || c == '_';
    text.split(|c| !word(c))
        .filter(|name| name.starts_with("forebay_"))
        .collect()
}

/// The value of one series.
fn value(metrics: &str, series: &str) -> f64 {
    let line = metrics
        .lines()
        .find_map(|line| line.strip_prefix(series)?.strip_prefix(' '));
    line.unwrap_or_else(|| panic!("no {series} in {metrics}"))
        .parse()
        .unwrap()
}

#[test]
fn metrics_say_what_clients_did() {
    let scratch = Scratch::new();
    scratch.pattern("origin", 16 * MIB);
    scratch.file("cache", 24 * MIB);
    smartctl::printing(&scratch, smartctl::NVME, 0);
    let daemon = smartctl::daemon(&scratch, &["--age", "3600", "--origin-emulate", "hdd"]);
    until("its health", || {
        !daemon.status(&scratch)["cache"]["devices"][0]["health"].is_null()
    });
    let mut client = Client::connect(&scratch.path("nbd")).unwrap();
    client.read(0, 65536);
    client.read(0, 65536);
    client.write(MIB, &[1; 8192]);
    let metrics = daemon.command(&scratch, &["status", "--prometheus"]);
    let value = |series: &str| value(&metrics, series);
    let read = |result| {
        value(&format!(
            "forebay_cache_lookup_bytes_total{{cache=\"control\",kind=\"read\",result=\"{result}\"}}"
        ))
    };
    fn of(series: &str) -> String {
        format!("forebay_request_duration_seconds_{series}")
    }
    assert_eq!(read("hit") + read("miss"), 131072.0, "{metrics}");
    assert_eq!(read("miss"), 65536.0);
    assert_eq!(
        value("forebay_requests_total{cache=\"control\",kind=\"write\"}"),
        1.0
    );
    assert_eq!(
        value("forebay_cache_dirty_bytes{cache=\"control\"}"),
        8192.0
    );
    // The emulated disk took its time for the read of 64 KiB that missed.
    let origin = "cache=\"control\",device=\"origin\",volume=\"origin\",kind=\"long-read\"";
    let seconds = value(&format!("forebay_device_operation_seconds{{{origin}}}"));
    assert!((0.0001..1.0).contains(&seconds), "{metrics}");
    let rate = value(&format!("forebay_device_rate_bytes{{{origin}}}"));
    assert!((rate * seconds / 65536.0 - 1.0).abs() < 0.1, "{metrics}");
    let page = daemon.command(&scratch, &["status"]);
    assert!(page.contains("speed of the origin: long reads "), "{page}");
    assert_eq!(
        value("forebay_volume_dirty_bytes{cache=\"control\",volume=\"origin\"}"),
        8192.0
    );
    let all = value(&of("bucket{cache=\"control\",kind=\"read\",le=\"+Inf\"}"));
    assert_eq!(all, 2.0);
    assert_eq!(value(&of("count{cache=\"control\",kind=\"read\"}")), all);
    assert!(value(&of("sum{cache=\"control\",kind=\"read\"}")) > 0.0);
    let buckets: Vec<f64> = metrics
        .lines()
        .filter(|line| line.starts_with(&of("bucket{cache=\"control\",kind=\"read\"")))
        .map(|line| line.rsplit(' ').next().unwrap().parse().unwrap())
        .collect();
    assert!(buckets.len() > 20 && buckets.is_sorted(), "{buckets:?}");
    openmetrics::check(&metrics);
    // The volume's requests are the cache's, from another place: of the daemon and not of the engine.
    let volume = |series: &str| value(&format!("forebay_volume_request_duration_seconds_{series}"));
    let of_volume = |labels: &str| format!("{{cache=\"control\",volume=\"origin\",{labels}");
    let (hit, miss) = (
        "kind=\"read\",result=\"hit\"",
        "kind=\"read\",result=\"miss\"",
    );
    let (write, flush) = ("kind=\"write\"", "kind=\"flush\"");
    for (labels, count) in [(hit, 1.0), (miss, 1.0), (write, 1.0), (flush, 0.0)] {
        let counted = volume(&format!("count{}}}", of_volume(labels)));
        assert_eq!(counted, count, "{labels}: {metrics}");
    }
    // A disk takes 50 µs for the command alone, and hardly more where the sector comes by just then.
    let quick = volume(&format!("bucket{},le=\"0.000032768\"}}", of_volume(miss)));
    assert_eq!(quick, 0.0, "{metrics}");
    let sum = volume(&format!("sum{}}}", of_volume(miss)));
    assert!((0.00005..60.0).contains(&sum), "{sum}");

    let exported: BTreeSet<String> = metrics
        .lines()
        .filter(|line| !line.starts_with('#'))
        .map(|line| line.split([' ', '{']).next().unwrap().to_owned())
        .collect();
    let histogram = |name: &str| {
        let family = ["_bucket", "_count", "_sum"]
            .iter()
            .find_map(|end| name.strip_suffix(end));
        family.unwrap_or(name).to_owned()
    };
    let families: BTreeSet<String> = exported.iter().map(|name| histogram(name)).collect();
    let documented = file("docs/metrics.md");
    for name in &families {
        let row = format!("| `{name}` |");
        assert!(documented.contains(&row), "docs/metrics.md lacks {name}");
    }
    let dashboard = forebay_ok(&scratch, &["packaging", "grafana"]);
    for (source, text) in [
        ("docs/metrics.md", documented),
        ("the dashboard for Grafana", dashboard.clone()),
        (
            "packaging/prometheus/forebay.rules.yml",
            file("packaging/prometheus/forebay.rules.yml"),
        ),
    ] {
        assert!(names(&text).len() > 5, "{source}");
        for name in names(&text) {
            let known = exported.contains(name) || families.contains(name);
            assert!(known, "{source} names {name}, which is not exported");
        }
    }
    // The marks in force are lower than the settings say, so that no alert may go by those.
    let alerts = file("packaging/prometheus/forebay.rules.yml");
    assert!(!alerts.contains("forebay_cache_dirty_mark_ratio"));
    let grafana: serde_json::Value = serde_json::from_str(&dashboard).unwrap();
    assert!(grafana["panels"].as_array().unwrap().len() > 10);
    daemon.stop();
}
