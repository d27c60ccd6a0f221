//! The figures as JSON, by hand: numbers, names and nothing that needs escaping.

use std::fmt::Write as _;

use super::Everything;
use crate::jobs::JobResult;
use crate::load::{Outcome, Side};
use crate::writeback::{BUCKET_SECONDS, Bucket};

/// All figures, one result a line.
#[must_use]
pub fn json(all: &Everything) -> String {
    let jobs = all.jobs.iter().flat_map(|(cpu, results)| {
        results
            .iter()
            .map(|result| job(cpu.name, result))
            .collect::<Vec<_>>()
    });
    let mail = all.mail.iter().map(|result| {
        format!(
            "{{\"mode\":\"{}\",\"system\":\"{}\",{}}}",
            result.mode,
            result.system,
            outcome(&result.outcome)
        )
    });
    let raid = all.raid.iter().map(|result| {
        format!(
            "{{\"request_kib\":{},\"write\":{},\"hit_percent\":{:.3},\"disk\":{{{}}},\"ssd\":{{{}}},\"forebay\":{{{}}}}}",
            result.request_kib,
            result.write,
            result.hit_percent,
            outcome(&result.disk),
            outcome(&result.ssd),
            outcome(&result.cached)
        )
    });
    let limit = all.limit.iter().map(|result| {
        format!(
            "{{\"dirty_percent\":{:.3},\"before\":{{{}}},\"after\":{{{}}},\"disk\":{{{}}},\"ssd\":{{{}}}}}",
            result.dirty_percent,
            outcome(&result.before),
            outcome(&result.after),
            outcome(&result.disk),
            outcome(&result.ssd)
        )
    });
    let memory = all.memory.iter().map(|result| {
        format!(
            "{{\"load\":\"{}\",\"depth\":{},\"ssd\":{{{}}},\"flush\":{{{}}},\"memory\":{{{}}}}}",
            result.load,
            result.depth,
            outcome(&result.ssd),
            outcome(&result.flush),
            outcome(&result.memory)
        )
    });
    let writeback = all.writeback.iter().map(|result| {
        let buckets: Vec<String> = result.buckets.iter().map(bucket).collect();
        format!(
            "{{\"policy\":\"{}\",\"bucket_seconds\":{BUCKET_SECONDS},\"buckets\":[{}]}}",
            result.policy,
            buckets.join(",")
        )
    });
    let mut text = String::from("{\n");
    list(&mut text, "jobs", jobs);
    text.push_str(",\n");
    list(&mut text, "limit", limit);
    text.push_str(",\n");
    list(&mut text, "memory", memory);
    text.push_str(",\n");
    list(&mut text, "mail", mail);
    text.push_str(",\n");
    list(&mut text, "raid", raid);
    text.push_str(",\n");
    list(&mut text, "writeback", writeback);
    text.push_str("\n}\n");
    text
}

fn bucket(bucket: &Bucket) -> String {
    format!(
        "{{\"dirty_percent\":{:.3},\"written_mib_s\":{:.3},\"read_p99_ms\":{:.3},\"write_p99_ms\":{:.3}}}",
        bucket.dirty_percent, bucket.written_mib_s, bucket.read_p99_ms, bucket.write_p99_ms
    )
}

fn list(text: &mut String, name: &str, items: impl Iterator<Item = String>) {
    let items: Vec<String> = items.collect();
    write!(text, "\"{name}\":[\n{}\n]", items.join(",\n")).expect("a string takes everything");
}

fn job(cpu: &str, result: &JobResult) -> String {
    let traffic = &result.traffic;
    format!(
        "{{\"cpu\":\"{cpu}\",\"job\":{},\"ratio\":{:.6},{},\"cache_read_kib\":{},\"cache_write_kib\":{},\"origin_read_kib\":{},\"origin_write_kib\":{},\"metadata_kib\":{},\"dirty_kib\":{},\"raw\":{{{}}}}}",
        result.spec.job,
        result.ratio(),
        outcome(&result.outcome),
        traffic.cache_read_bytes >> 10,
        traffic.cache_write_bytes >> 10,
        traffic.origin_read_bytes >> 10,
        traffic.origin_write_bytes >> 10,
        traffic.metadata_bytes >> 10,
        result.dirty_bytes >> 10,
        outcome(&result.raw)
    )
}

fn outcome(outcome: &Outcome) -> String {
    let side = |side: &Side| {
        format!(
            "{{\"requests\":{},\"kib_s\":{:.3},\"iops\":{:.3},\"mean_ms\":{:.6},\"worst_kib_s\":{:.3}}}",
            side.requests, side.kibps, side.iops, side.mean_ms, side.worst_kibps
        )
    };
    format!(
        "\"seconds\":{:.6},\"read\":{},\"write\":{}",
        outcome.took_ns as f64 / 1e9,
        side(&outcome.read),
        side(&outcome.write)
    )
}
