//! A day in tables: by phase, by stream, by minute.

use std::fmt::Write as _;

use crate::day::{Both, DayResult, LEAST_RATIO, Minute, Waits};

const BARS: [char; 8] = ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];
/// The minutes below the disk that are listed.
const LISTED: usize = 12;
/// A row of the chart of minutes.
const ROW_MINUTES: usize = 60;
/// A column of the chart of dirty data.
const COLUMN_MINUTES: usize = 15;

/// A phase in one line.
#[must_use]
pub fn day_line(name: &str, minutes: &[Minute]) -> String {
    let below = minutes.iter().filter(|minute| minute.is_below()).count();
    let longest = |side: fn(&Both<f64>) -> f64| {
        let waits = minutes.iter().map(|minute| side(&minute.longest_ms));
        waits.fold(0.0, f64::max)
    };
    format!(
        "day: {name}, {} min: {:.3} of the disk, worst minute {:.3}, {below} below {LEAST_RATIO}, longest wait {:.0} ms, disk {:.0} ms, dirty {} MiB",
        minutes.len(),
        Minute::sum(minutes).ratio(),
        worst(minutes),
        longest(|both| both.cached),
        longest(|both| both.disk),
        minutes
            .last()
            .map_or(0, |minute| minute.inside.dirty_bytes >> 20),
    )
}

/// The minutes as comma-separated values, sizes in MiB.
#[must_use]
pub fn day_minutes(result: &DayResult) -> String {
    let mut text = "minute,phase,forebay,disk,ratio,forebay_longest_ms,disk_longest_ms,dirty,written_back,promoted,retained,cache_read,cache_written,origin_read,origin_written,origin_flushes,throttled_requests,read_past,written_past,streams\n".to_owned();
    for minute in &result.minutes {
        let (inside, traffic) = (&minute.inside, &minute.inside.traffic);
        let names = result.phases[minute.phase].streams.iter();
        let streams = names.zip(&minute.streams).map(|(stream, bytes)| {
            format!(
                "{} {:.1}/{:.1}",
                stream.name.replace(',', ""),
                mib(bytes.cached),
                mib(bytes.disk)
            )
        });
        let cells = [
            minute.number.to_string(),
            result.phases[minute.phase].name.replace(',', ""),
            format!("{:.2}", mib(minute.bytes.cached)),
            format!("{:.2}", mib(minute.bytes.disk)),
            format!("{:.4}", minute.bytes.ratio()),
            format!("{:.2}", minute.longest_ms.cached),
            format!("{:.2}", minute.longest_ms.disk),
            format!("{:.1}", mib(inside.dirty_bytes)),
            format!("{:.1}", mib(inside.written_back_bytes)),
            format!("{:.1}", mib(inside.promoted_bytes)),
            format!("{:.1}", mib(inside.retained_bytes)),
            format!("{:.1}", mib(traffic.cache_read_bytes)),
            format!("{:.1}", mib(traffic.cache_write_bytes)),
            format!("{:.1}", mib(traffic.origin_read_bytes)),
            format!("{:.1}", mib(traffic.origin_write_bytes)),
            inside.origin_flushes.to_string(),
            inside.throttled_requests.to_string(),
            past(&inside.read_past_bytes, ";"),
            past(&inside.written_past_bytes, ";"),
            streams.collect::<Vec<_>>().join(";"),
        ];
        text.push_str(&cells.join(","));
        text.push('\n');
    }
    text
}

pub(super) fn tables(text: &mut String, result: &DayResult) {
    // Writing to a string does not fail.
    let _ = write_tables(text, result);
}

fn write_tables(text: &mut String, result: &DayResult) -> std::fmt::Result {
    writeln!(text, "### A day\n")?;
    let below = result.below();
    let (cached, disk) = (
        result.longest(|both| both.cached),
        result.longest(|both| both.disk),
    );
    writeln!(
        text,
        "A cache of {} MiB for {} minutes: {} of them below {LEAST_RATIO} of the disk alone. The longest wait was {:.0} ms ({}), on the disk alone {:.0} ms ({}).\n",
        result.cache_bytes >> 20,
        result.minutes.len(),
        below.len(),
        cached.0,
        cached.1,
        disk.0,
        disk.1,
    )?;
    phases(text, result)?;
    streams(text, result)?;
    chart(text, result)?;
    worst_minutes(text, result, &below)
}

fn phases(text: &mut String, result: &DayResult) -> std::fmt::Result {
    writeln!(
        text,
        "| phase | from | minutes | disk, MiB/s | Forebay, MiB/s | of the disk | worst minute | minutes below {LEAST_RATIO} | dirty at its end, % |\n|---|---|---|---|---|---|---|---|---|"
    )?;
    for (number, phase) in result.phases.iter().enumerate() {
        let minutes = result.minutes_of(number);
        let (Some(first), Some(last)) = (minutes.first(), minutes.last()) else {
            continue;
        };
        let bytes = Minute::sum(minutes.iter().copied());
        let per_second = |bytes: u64| mib(bytes) / (minutes.len() * 60) as f64;
        writeln!(
            text,
            "| {} | {} | {} | {:.2} | {:.2} | {:.3} | {:.3} | {} | {:.0} |",
            phase.name,
            clock(first.number),
            minutes.len(),
            per_second(bytes.disk),
            per_second(bytes.cached),
            bytes.ratio(),
            worst(minutes.iter().copied()),
            minutes.iter().filter(|minute| minute.is_below()).count(),
            last.inside.dirty_bytes as f64 * 100.0 / result.cache_bytes as f64,
        )?;
    }
    writeln!(text)
}

fn streams(text: &mut String, result: &DayResult) -> std::fmt::Result {
    writeln!(
        text,
        "Waits in ms, Forebay / disk:\n\n| phase | requests | thousands | of the disk | p50 | p99 | p99.99 | longest |\n|---|---|---|---|---|---|---|---|"
    )?;
    for phase in &result.phases {
        for stream in &phase.streams {
            waits(text, phase.name, stream.name, &stream.transfers)?;
            if stream.flushes.disk.requests > 0 {
                let name = format!("{}: flushes", stream.name);
                waits(text, phase.name, &name, &stream.flushes)?;
            }
        }
    }
    writeln!(text)
}

fn waits(text: &mut String, phase: &str, name: &str, both: &Both<Waits>) -> std::fmt::Result {
    let (cached, disk) = (&both.cached, &both.disk);
    let pair = |get: fn(&Waits) -> f64| format!("{} / {}", ms(get(cached)), ms(get(disk)));
    let requests = Both {
        cached: cached.requests,
        disk: disk.requests,
    };
    writeln!(
        text,
        "| {phase} | {name} | {:.1} / {:.1} | {:.2} | {} | {} | {} | {} |",
        cached.requests as f64 / 1e3,
        disk.requests as f64 / 1e3,
        requests.ratio(),
        pair(|waits| waits.p50_ms),
        pair(|waits| waits.p99_ms),
        pair(|waits| waits.p9999_ms),
        pair(|waits| waits.longest_ms),
    )
}

/// Each minute as a sign, and dirty data.
fn chart(text: &mut String, result: &DayResult) -> std::fmt::Result {
    writeln!(
        text,
        "Each minute beside the disk alone: `-` below {LEAST_RATIO} of it, `=` up to 1.03, `+` up to 2, `#` beyond, `.` for minutes in which nothing was asked. A row is an hour.\n\n```"
    )?;
    for row in result.minutes.chunks(ROW_MINUTES) {
        let signs: String = row.iter().map(sign).collect();
        writeln!(text, "{} {signs}", clock(row[0].number))?;
    }
    let columns = result.minutes.chunks(COLUMN_MINUTES).map(|minutes| {
        let levels = minutes.iter().map(|minute| minute.inside.dirty_bytes);
        levels.max().unwrap_or(0) as f64 / result.cache_bytes as f64
    });
    let bars: String = columns
        .map(|share| BARS[(share * 7.0).round() as usize])
        .collect();
    writeln!(
        text,
        "```\n\nDirty data, a column for the most of {COLUMN_MINUTES} minutes (a full bar is the cache):\n\n```\n{bars}\n```\n"
    )
}

fn sign(minute: &Minute) -> char {
    match minute.bytes.ratio() {
        _ if minute.bytes.disk == 0 => '.',
        ratio if ratio < LEAST_RATIO => '-',
        ratio if ratio <= 1.03 => '=',
        ratio if ratio <= 2.0 => '+',
        _ => '#',
    }
}

fn worst_minutes(text: &mut String, result: &DayResult, below: &[&Minute]) -> std::fmt::Result {
    if below.is_empty() {
        return Ok(());
    }
    writeln!(
        text,
        "The worst minutes, in MiB:\n\n| minute | phase | disk | Forebay | ratio | origin read | origin written | of that written back | origin flushes | cache read | cache written | promoted | dirty | bypassed, read | bypassed, written |\n|{}",
        "---|".repeat(15)
    )?;
    for minute in &below[..below.len().min(LISTED)] {
        let (inside, traffic) = (&minute.inside, &minute.inside.traffic);
        writeln!(
            text,
            "| {} | {} | {:.0} | {:.0} | {:.3} | {:.0} | {:.0} | {:.0} | {} | {:.0} | {:.0} | {:.0} | {:.0} | {} | {} |",
            clock(minute.number),
            result.phases[minute.phase].name,
            mib(minute.bytes.disk),
            mib(minute.bytes.cached),
            minute.bytes.ratio(),
            mib(traffic.origin_read_bytes),
            mib(traffic.origin_write_bytes),
            mib(inside.written_back_bytes),
            inside.origin_flushes,
            mib(traffic.cache_read_bytes),
            mib(traffic.cache_write_bytes),
            mib(inside.promoted_bytes),
            mib(inside.dirty_bytes),
            past(&inside.read_past_bytes, ", "),
            past(&inside.written_past_bytes, ", "),
        )?;
    }
    writeln!(text)
}

fn past(reasons: &[(&'static str, u64)], between: &str) -> String {
    let reasons = reasons.iter();
    let words = reasons.map(|(reason, bytes)| format!("{reason} {:.1}", mib(*bytes)));
    words.collect::<Vec<_>>().join(between)
}

fn worst<'a>(minutes: impl IntoIterator<Item = &'a Minute>) -> f64 {
    let ratios = minutes.into_iter().map(|minute| minute.bytes.ratio());
    ratios.fold(f64::MAX, f64::min)
}

fn mib(bytes: u64) -> f64 {
    bytes as f64 / f64::from(1 << 20)
}

/// A time that can be a few microseconds or minutes.
fn ms(time_ms: f64) -> String {
    let decimals = if time_ms < 10.0 { 2 } else { 0 };
    format!("{time_ms:.decimals$}")
}

fn clock(minute: u64) -> String {
    format!("{:02}:{:02}", minute / 60, minute % 60)
}
