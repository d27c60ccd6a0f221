//! A dashboard for Grafana over the metrics of [`super::metrics`].

use serde_json::{Value, json};

/// A panel.
struct Panel {
    title: &'static str,
    about: &'static str,
    unit: &'static str,
    /// With their legends.
    queries: &'static [(&'static str, &'static str)],
}

// title, about, unit: query as legend, ...; In a query braces stand for the chosen instances and
// caches, and empty brackets for the interval.
macro_rules! panels {
    ($($title:literal, $about:literal, $unit:literal: $($query:literal as $legend:literal),+;)*) => {
        &[$(Panel {
            title: $title,
            about: $about,
            unit: $unit,
            queries: &[$(($query, $legend)),+],
        }),*]
    };
}

/// Single numbers, in a row.
const NUMBERS: &[Panel] = panels! {
    "Hit ratio", "Of the data that was read", "percentunit":
        "sum(rate(forebay_cache_lookup_bytes_total{kind='read',result='hit'}[])) / sum(rate(forebay_cache_lookup_bytes_total{kind='read'}[]))" as "reads";
    "Dirty", "Data that the origins lack", "bytes":
        "forebay_cache_dirty_bytes{}" as "{{cache}}";
    "Cached", "Of the room on the cache", "percentunit":
        "forebay_cache_cached_bytes{} / forebay_cache_capacity_bytes{}" as "{{cache}}";
    "Cache failed", "1: the cache device failed", "short":
        "forebay_cache_failed{}" as "{{cache}}";
};

/// Over time, in two columns.
const GRAPHS: &[Panel] = panels! {
    "Throughput", "", "Bps":
        "sum by (kind) (rate(forebay_cache_lookup_bytes_total{}[]))" as "{{kind}}";
    "Requests", "", "iops":
        "sum by (kind) (rate(forebay_requests_total{}[]))" as "{{kind}}";
    "Latency", "", "s":
        "histogram_quantile(0.5, sum by (le) (rate(forebay_request_duration_seconds_bucket{kind='read'}[])))" as "read p50",
        "histogram_quantile(0.99, sum by (le) (rate(forebay_request_duration_seconds_bucket{kind='read'}[])))" as "read p99",
        "histogram_quantile(0.5, sum by (le) (rate(forebay_request_duration_seconds_bucket{kind='write'}[])))" as "write p50",
        "histogram_quantile(0.99, sum by (le) (rate(forebay_request_duration_seconds_bucket{kind='write'}[])))" as "write p99";
    "Slow requests by volume, p99", "", "s":
        "histogram_quantile(0.99, sum by (le, cache, volume, kind) (rate(forebay_volume_request_duration_seconds_bucket{kind=~'read|write'}[])))" as "{{cache}} {{volume}} {{kind}}";
    "Hit ratio by kind", "", "percentunit":
        "sum(rate(forebay_cache_lookup_bytes_total{kind='read',result='hit'}[])) / sum(rate(forebay_cache_lookup_bytes_total{kind='read'}[]))" as "reads",
        "sum(rate(forebay_cache_lookup_bytes_total{kind='write',result='hit'}[])) / sum(rate(forebay_cache_lookup_bytes_total{kind='write'}[]))" as "writes";
    "Dirty data", "", "bytes":
        "forebay_cache_dirty_bytes{}" as "{{cache}}",
        "forebay_volume_dirty_bytes{}" as "{{cache}} {{volume}}";
    "Write-back and promotion", "", "Bps":
        "rate(forebay_written_back_bytes_total{}[])" as "{{cache}} written back",
        "rate(forebay_promoted_bytes_total{}[])" as "{{cache}} promoted",
        "rate(forebay_evicted_bytes_total{}[])" as "{{cache}} evicted";
    "Devices", "", "Bps":
        "rate(forebay_device_read_bytes_total{}[])" as "{{cache}} {{device}} read",
        "rate(forebay_device_written_bytes_total{}[])" as "{{cache}} {{device}} written, {{content}}";
    "Past the cache, by reason", "", "Bps":
        "sum by (reason) (rate(forebay_bypassed_bytes_total{}[]))" as "{{reason}}";
    "Errors", "", "short":
        "increase(forebay_device_errors_total{}[])" as "{{cache}} {{device}} {{kind}}",
        "increase(forebay_failed_requests_total{}[])" as "{{cache}} failed requests";
    "Life of the cache device used", "", "percentunit":
        "forebay_device_life_used_ratio{}" as "{{cache}} {{path}}";
    "Cached by volume", "", "bytes":
        "forebay_volume_cached_bytes{}" as "{{cache}} {{volume}}";
};

/// As Grafana imports it.
pub(crate) fn dashboard() -> Value {
    let numbers = NUMBERS.iter().enumerate().map(|(at, number)| {
        let place = json!({ "h": 4, "w": 6, "x": 6 * at, "y": 0 });
        panel("stat", number, place, json!({}))
    });
    let graphs = GRAPHS.iter().enumerate().map(|(at, graph)| {
        let place = json!({ "h": 8, "w": 12, "x": 12 * (at % 2), "y": 4 + 8 * (at / 2) });
        panel(
            "timeseries",
            graph,
            place,
            json!({ "tooltip": { "mode": "multi" } }),
        )
    });
    let mut panels: Vec<Value> = numbers.chain(graphs).collect();
    for (at, panel) in panels.iter_mut().enumerate() {
        panel["id"] = json!(at + 1);
    }
    json!({
        "title": "Forebay",
        "uid": "forebay",
        "tags": ["forebay"],
        "schemaVersion": 39,
        "version": 1,
        "editable": true,
        "refresh": "10s",
        "time": { "from": "now-1h", "to": "now" },
        "templating": { "list": [
            { "name": "datasource", "type": "datasource", "query": "prometheus", "label": "Data source" },
            variable("instance", "Instance", "label_values(forebay_up, instance)"),
            variable("cache", "Cache", "label_values(forebay_up{instance=~\"$instance\"}, cache)"),
        ] },
        "panels": panels,
    })
}

/// A choice of which series are shown.
fn variable(name: &str, label: &str, query: &str) -> Value {
    json!({
        "name": name,
        "type": "query",
        "label": label,
        "datasource": source(),
        "query": query,
        "refresh": 2,
        "includeAll": true,
        "multi": true,
        "current": { "text": "All", "value": "$__all" },
    })
}

fn panel(kind: &str, shown: &Panel, place: Value, options: Value) -> Value {
    let targets: Vec<Value> = ('A'..)
        .zip(shown.queries)
        .map(|(name, (query, legend))| {
            json!({ "refId": name, "expr": query_of(query), "legendFormat": legend })
        })
        .collect();
    let mut range = json!({ "unit": shown.unit, "min": 0 });
    if shown.unit == "percentunit" {
        range["max"] = json!(1);
    }
    json!({
        "type": kind,
        "title": shown.title,
        "description": shown.about,
        "datasource": source(),
        "gridPos": place,
        "fieldConfig": { "defaults": range, "overrides": [] },
        "options": options,
        "targets": targets,
    })
}

fn source() -> Value {
    json!({ "type": "prometheus", "uid": "${datasource}" })
}

fn query_of(short: &str) -> String {
    short
        .replace('{', "{instance=~'$instance',cache=~'$cache',")
        .replace(",}", "}")
        .replace('\'', "\"")
        .replace("[]", "[$__rate_interval]")
}
