//! The tables of docs/experiments.md.

use std::fmt::Write as _;

use super::Everything;
use crate::after::AfterResult;
use crate::burst::BurstResult;
use crate::jobs::{JobResult, published_ratio};
use crate::load::Outcome;
use crate::memory::MemoryResult;
use crate::published::{self, JobRow, MailRow};
use crate::through::ThroughResult;

const BEGIN: &str = "<!-- tables: begin, written by `make experiments` -->";
const END: &str = "<!-- tables: end -->";
const SYSTEMS: [&str; 4] = ["bcache", "dm-cache", "flashcache", "gflash"];

/// Puts the tables in the place of those of a document.
///
/// # Errors
/// If the document has no marks that say where.
pub fn between_marks(document: &str, tables: &str) -> Result<String, String> {
    let (before, rest) = document
        .split_once(BEGIN)
        .ok_or(format!("no line `{BEGIN}`"))?;
    let (_, after) = rest.split_once(END).ok_or(format!("no line `{END}`"))?;
    Ok(format!("{before}{BEGIN}\n\n{tables}\n{END}{after}"))
}

/// All tables.
///
/// # Errors
/// If the published figures cannot be read.
pub fn markdown(all: &Everything) -> Result<String, String> {
    let mut text = String::new();
    if !all.jobs.is_empty() {
        let table = published::jobs().map_err(|error| error.to_string())?;
        ratios(&mut text, all, &table);
        for (cpu, results) in &all.jobs {
            figures(&mut text, cpu.name, results, &table);
        }
        published_figures(&mut text, &table);
    }
    if let Some(result) = &all.limit {
        line(&mut text, "### Random writes past the dirty limit\n");
        line(
            &mut text,
            "| 4 KiB random writes, depth 32, 32 GiB behind a cache of 2 GiB | KiB/s | ratio |\n|---|---|---|",
        );
        let kibps = |outcome: &Outcome| outcome.write.kibps;
        line(
            &mut text,
            &format!(
                "| bare SSD | {:.0} | |\n| bare disk | {:.0} | |\n| Forebay, first quarter of the cache | {:.0} | {:.3} of the SSD |\n| Forebay, at the limit ({:.0} % dirty) | {:.0} | {:.2} times the disk |\n",
                kibps(&result.ssd),
                kibps(&result.disk),
                kibps(&result.before),
                kibps(&result.before) / kibps(&result.ssd),
                result.dirty_percent,
                kibps(&result.after),
                kibps(&result.after) / kibps(&result.disk),
            ),
        );
    }
    burst(&mut text, &all.burst);
    super::reads::table(&mut text, &all.reads);
    after(&mut text, all.after.as_ref());
    super::invisible::table(&mut text, &all.invisible);
    through(&mut text, &all.through);
    memory(&mut text, &all.memory);
    if !all.mail.is_empty() {
        mail(&mut text, all)?;
    }
    if !all.raid.is_empty() {
        raid(&mut text, all)?;
    }
    super::arrays::table(&mut text, &all.arrays);
    super::pauses::table(&mut text, &all.pauses);
    if !all.writeback.is_empty() {
        super::writeback::tables(&mut text, &all.writeback);
    }
    if let Some(result) = &all.day {
        super::day::tables(&mut text, result);
    }
    Ok(text)
}

fn burst(text: &mut String, results: &[BurstResult]) {
    if results.is_empty() {
        return;
    }
    line(text, "### Bursts into a cache full of clean blocks\n");
    line(
        text,
        "| burst of 40 % of the cache | cache, MiB | disk, KiB/s | SSD, KiB/s | Forebay, KiB/s | of the SSD | written past the cache, % |\n|---|---|---|---|---|---|---|",
    );
    for result in results {
        line(
            text,
            &format!(
                "| {} | {} | {:.0} | {:.0} | {:.0} | {:.3} | {:.1} |",
                result.load,
                result.cache_bytes >> 20,
                result.disk.write.kibps,
                result.ssd.write.kibps,
                result.cached.write.kibps,
                result.ratio(),
                result.past_percent,
            ),
        );
    }
    line(text, "");
}

fn through(text: &mut String, results: &[ThroughResult]) {
    if results.is_empty() {
        return;
    }
    line(text, "### Write-through\n");
    line(
        text,
        "| writes | disk, KiB/s | Forebay, KiB/s | of the disk |\n|---|---|---|---|",
    );
    for result in results {
        line(
            text,
            &format!(
                "| {} | {:.0} | {:.0} | {:.3} |",
                result.writes.name,
                result.disk_kibps,
                result.cached_kibps,
                result.ratio(),
            ),
        );
    }
    line(text, "");
}

fn after(text: &mut String, result: Option<&AfterResult>) {
    let Some(result) = result else {
        return;
    };
    line(text, "### A long write after random ones\n");
    line(
        text,
        &format!(
            "1.5 GiB in sequence with {} MiB dirty: {:.3} of the bare disk's speed, and {:.3} where the disk came nearest. By parts of 128 MiB, in MiB/s:\n",
            result.dirty_bytes >> 20,
            result.ratio(),
            result.least(),
        ),
    );
    line(text, "| part | disk | Forebay |\n|---|---|---|");
    for (at, (cached, disk)) in result.parts.iter().enumerate() {
        let mib = |outcome: &Outcome| outcome.write.kibps / 1024.0;
        line(
            text,
            &format!("| {} | {:.0} | {:.0} |", at + 1, mib(disk), mib(cached)),
        );
    }
    line(text, "");
}

pub(super) fn line(text: &mut String, line: &str) {
    writeln!(text, "{line}").expect("a string takes everything");
}

fn ratios(text: &mut String, all: &Everything, table: &[JobRow]) {
    line(
        text,
        "### The 22 jobs: throughput as a ratio to the raw device\n",
    );
    let names: Vec<String> = all
        .jobs
        .iter()
        .map(|(cpu, _)| format!("Forebay, {}", cpu.name))
        .collect();
    line(
        text,
        &format!(
            "| job | | raw | {} | {} | behind |",
            names.join(" | "),
            SYSTEMS.join(" | ")
        ),
    );
    line(
        text,
        &format!("|{}", "---|".repeat(4 + names.len() + SYSTEMS.len())),
    );
    for at in 0..all.jobs[0].1.len() {
        let spec = &all.jobs[0].1[at].spec;
        let ours: Vec<f64> = all
            .jobs
            .iter()
            .map(|(_, results)| results[at].ratio())
            .collect();
        let theirs: Vec<Option<f64>> = SYSTEMS
            .iter()
            .map(|system| published_ratio(table, spec.job, system))
            .collect();
        // Ratios that are printed alike are alike.
        let rounded = |ratio: f64| (ratio * 1000.0).round();
        let behind = |own: f64| {
            let ahead = SYSTEMS.iter().zip(&theirs);
            let ahead =
                ahead.filter(|(_, ratio)| ratio.is_some_and(|ratio| rounded(ratio) > rounded(own)));
            ahead
                .map(|(system, _)| *system)
                .collect::<Vec<_>>()
                .join(", ")
        };
        let behinds: Vec<String> = all
            .jobs
            .iter()
            .zip(&ours)
            .filter(|(_, own)| !behind(**own).is_empty())
            .map(|((cpu, _), own)| format!("{}: {}", cpu.name, behind(*own)))
            .collect();
        let cells = |ratios: &mut dyn Iterator<Item = Option<f64>>| {
            ratios
                .map(|ratio| ratio.map_or("-".to_owned(), |ratio| format!("{ratio:.3}")))
                .collect::<Vec<_>>()
                .join(" | ")
        };
        let raw = match crate::jobs::raw_device(spec.job) {
            crate::jobs::Raw::Disk => "disk",
            crate::jobs::Raw::Ssd => "SSD",
        };
        line(
            text,
            &format!(
                "| {} | {} {} KiB, depth {} | {raw} | {} | {} | {} |",
                spec.job,
                spec.rw,
                spec.request_kib,
                spec.depth,
                cells(&mut ours.iter().copied().map(Some)),
                cells(&mut theirs.iter().copied()),
                behinds.join("; "),
            ),
        );
    }
    line(text, "");
}

fn figures(text: &mut String, cpu: &str, results: &[JobResult], table: &[JobRow]) {
    line(text, &format!("### The 22 jobs: Forebay, {cpu}\n"));
    line(
        text,
        "| job | KiB/s | IOPS | worst second, KiB/s | raw model, KiB/s | raw published, KiB/s | cache read, MiB | cache written, MiB | metadata, % | origin read, MiB | origin written, MiB | dirty, MiB |\n|---|---|---|---|---|---|---|---|---|---|---|---|",
    );
    for result in results {
        let (outcome, traffic) = (&result.outcome, &result.traffic);
        let job = result.spec.job;
        let raw = ["hdd", "ssd_linux", "ssd_linux_clean"]
            .iter()
            .find_map(|system| {
                let mut rows = table.iter();
                rows.find(|row| row.spec.job == job && row.system == *system)
            })
            .map_or("-".to_owned(), |row| format!("{:.0}", row.kibps()));
        let data = traffic.cache_write_bytes - traffic.metadata_bytes;
        // A few headers in a job of reads are no share of anything.
        let metadata = if data >> 20 == 0 {
            "-".to_owned()
        } else {
            format!("{:.2}", traffic.metadata_bytes as f64 * 100.0 / data as f64)
        };
        line(
            text,
            &format!(
                "| {job} | {} | {} | {} | {:.0} | {raw} | {} | {} | {metadata} | {} | {} | {} |",
                both(outcome.read.kibps, outcome.write.kibps),
                both(outcome.read.iops, outcome.write.iops),
                both(outcome.read.worst_kibps, outcome.write.worst_kibps),
                result.raw.read.kibps + result.raw.write.kibps,
                traffic.cache_read_bytes >> 20,
                traffic.cache_write_bytes >> 20,
                traffic.origin_read_bytes >> 20,
                traffic.origin_write_bytes >> 20,
                result.dirty_bytes >> 20,
            ),
        );
    }
    line(text, "");
}

/// Reads and writes of a mix, or the one there is.
fn both(read: f64, write: f64) -> String {
    match (read > 0.0, write > 0.0) {
        (true, true) => format!("{read:.0} + {write:.0}"),
        (true, false) => format!("{read:.0}"),
        _ => format!("{write:.0}"),
    }
}

fn published_figures(text: &mut String, table: &[JobRow]) {
    line(text, "### The 22 jobs: what was published\n");
    line(
        text,
        "| job | system | KiB/s | IOPS | cache read, MiB | cache written, MiB | origin read, MiB | origin written, MiB | dirty, MiB |\n|---|---|---|---|---|---|---|---|---|",
    );
    let mib = |kib: Option<f64>| kib.map_or("-".to_owned(), |kib| format!("{:.0}", kib / 1024.0));
    for row in table
        .iter()
        .filter(|row| SYSTEMS.contains(&row.system.as_str()))
    {
        line(
            text,
            &format!(
                "| {} | {} | {} | {} | {} | {} | {} | {} | {} |",
                row.spec.job,
                row.system,
                both(
                    row.read_kibps.unwrap_or(0.0),
                    row.write_kibps.unwrap_or(0.0)
                ),
                both(row.read_iops.unwrap_or(0.0), row.write_iops.unwrap_or(0.0)),
                mib(row.cache_read_kib),
                mib(row.cache_write_kib),
                mib(row.origin_read_kib),
                mib(row.origin_write_kib),
                row.dirty_mib
                    .map_or("-".to_owned(), |mib| format!("{mib:.0}")),
            ),
        );
    }
    line(text, "");
}

fn mail(text: &mut String, all: &Everything) -> Result<(), String> {
    let table = published::mail().map_err(|error| error.to_string())?;
    line(text, "### The EnhanceIO mail's test\n");
    line(
        text,
        "| mode | system | read, MB/s | write, MB/s | read, ms | write, ms | ratio to its own disk | ratio to its own SSD |\n|---|---|---|---|---|---|---|---|",
    );
    let mb_s = |kibps: f64| kibps * 1024.0 / 1e6;
    let total = |outcome: &Outcome| mb_s(outcome.read.kibps + outcome.write.kibps);
    let ours = |name: &str| {
        let found = all.mail.iter().find(|result| result.system == name);
        found.map_or(f64::NAN, |result| total(&result.outcome))
    };
    let theirs = |name: &str| {
        let found = table.iter().find(|row| row.system == name);
        found.map_or(f64::NAN, |row: &MailRow| row.read_mb_s + row.write_mb_s)
    };
    let row = |mode: &str, system: &str, figures: [f64; 4], disk: f64, ssd: f64| {
        let [read, write, read_ms, write_ms] = figures;
        let sum = read + write;
        format!(
            "| {mode} | {system} | {read:.2} | {write:.2} | {read_ms:.2} | {write_ms:.2} | {:.2} | {:.3} |",
            sum / disk,
            sum / ssd
        )
    };
    for result in &all.mail {
        let outcome = &result.outcome;
        let figures = [
            mb_s(outcome.read.kibps),
            mb_s(outcome.write.kibps),
            outcome.read.mean_ms,
            outcome.write.mean_ms,
        ];
        let system = match result.mode {
            "baseline" => format!("model of the {}", result.system),
            _ => result.system.to_owned(),
        };
        line(
            text,
            &row(result.mode, &system, figures, ours("HDD"), ours("SSD")),
        );
    }
    for published in &table {
        let figures = [
            published.read_mb_s,
            published.write_mb_s,
            published.read_ms,
            published.write_ms,
        ];
        let system = format!("{}, published", published.system);
        line(
            text,
            &row(
                &published.mode,
                &system,
                figures,
                theirs("HDD"),
                theirs("SSD"),
            ),
        );
    }
    line(text, "");
    Ok(())
}

fn raid(text: &mut String, all: &Everything) -> Result<(), String> {
    let table = published::raid().map_err(|error| error.to_string())?;
    line(text, "### The RAID table: one SSD and one disk\n");
    line(
        text,
        "| request | disk, KiB/s | SSD, KiB/s | Forebay, KiB/s | hits, % | SSD to disk | Forebay to disk | published: SSD to disk | dm-cache to disk | bcache to disk |\n|---|---|---|---|---|---|---|---|---|---|",
    );
    let kibps = |outcome: &Outcome| outcome.read.kibps + outcome.write.kibps;
    let cell = |ratio: Option<f64>| ratio.map_or("-".to_owned(), |ratio| format!("{ratio:.2}"));
    for result in &all.raid {
        let row = table
            .iter()
            .find(|row| !result.write && row.request_kib == result.request_kib);
        // Requests no longer than a chunk gain nothing from RAID0: four disks are one.
        let dm_cache = row.and_then(|row| row.dm_cache_over_hdd_raid0);
        let bcache =
            row.and_then(|row| Some(row.dm_cache_over_hdd_raid0? / row.dm_cache_over_bcache));
        let (disk, ssd, cached) = (
            kibps(&result.disk),
            kibps(&result.ssd),
            kibps(&result.cached),
        );
        let hits = if result.write {
            "-".to_owned()
        } else {
            format!("{:.1}", result.hit_percent)
        };
        line(
            text,
            &format!(
                "| {} {} KiB | {disk:.0} | {ssd:.0} | {cached:.0} | {hits} | {:.2} | {:.2} | {} | {} | {} |",
                if result.write { "write" } else { "read" },
                result.request_kib,
                ssd / disk,
                cached / disk,
                cell(row.map(|row| row.ssd_over_hdd)),
                cell(dm_cache),
                cell(bcache),
            ),
        );
    }
    line(text, "");
    Ok(())
}

fn memory(text: &mut String, results: &[MemoryResult]) {
    if results.is_empty() {
        return;
    }
    line(text, "### Writes acknowledged from memory\n");
    line(
        text,
        "| load, cache with room | depth | bare SSD, KiB/s | `commit = flush` | `commit = memory` | of the SSD |\n|---|---|---|---|---|---|",
    );
    let kibps = |outcome: &Outcome| outcome.read.kibps + outcome.write.kibps;
    for result in results {
        let ssd = kibps(&result.ssd);
        line(
            text,
            &format!(
                "| {} | {} | {ssd:.0} | {:.0} | {:.0} | {:.3}, {:.3} |",
                result.load,
                result.depth,
                kibps(&result.flush),
                kibps(&result.memory),
                kibps(&result.flush) / ssd,
                kibps(&result.memory) / ssd,
            ),
        );
    }
    line(text, "");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tables_are_put_between_the_marks() {
        let document = format!("before\n{BEGIN}\nold\n{END}\nafter\n");
        let new = between_marks(&document, "new").expect("marked");
        assert!(new.starts_with("before\n") && new.ends_with("\nafter\n"));
        assert!(new.contains("new") && !new.contains("old"));
        assert!(between_marks("nothing", "new").is_err());
    }
}
