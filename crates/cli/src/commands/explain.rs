//! `forebay explain`: why requests bypassed the cache, in plain words, and what would change it.

use std::fmt::Write as _;

use anyhow::Result;
use forebay_engine::BypassReason;
use serde_json::json;

use crate::args::ControlArgs;
use crate::client::Client;
use crate::report::status::{Bypass, Status};
use crate::report::{device_speed, members};
use crate::units;

pub(crate) fn run(args: &ControlArgs) -> Result<()> {
    let mut client = Client::connect(args.control.as_deref())?;
    let status = client.status_in_time()?;
    if args.json {
        let reasons: Vec<_> = reasons(&status)
            .map(|(bypass, reason)| {
                let (why, remedy) = words(reason);
                json!({
                    "reason": bypass.reason,
                    "read_blocks": bypass.read_blocks,
                    "written_blocks": bypass.blocks - bypass.read_blocks,
                    "why": why,
                    "remedy": remedy,
                    "last": bypass.last,
                })
            })
            .collect();
        let traffic = &status.traffic;
        crate::output::line(format_args!(
            "{}",
            json!({
                "read_blocks_hit": traffic.read_blocks_hit,
                "read_blocks_missed": traffic.read_blocks_missed,
                "promoted_blocks": traffic.promoted_blocks,
                "evicted_blocks": traffic.evicted_blocks,
                "bypassed": reasons,
            })
        ));
    } else {
        print!("{}", page(&status));
    }
    Ok(())
}

/// Returns the reasons that occurred, the most frequent first.
fn reasons(status: &Status) -> impl Iterator<Item = (&Bypass, BypassReason)> {
    let mut all: Vec<_> = status
        .traffic
        .bypassed
        .iter()
        .filter(|bypass| bypass.blocks > 0)
        .filter_map(|bypass| Some((bypass, bypass.reason.parse().ok()?)))
        .collect();
    all.sort_by_key(|(bypass, _)| std::cmp::Reverse(bypass.blocks));
    all.into_iter()
}

fn page(status: &Status) -> String {
    let mut page = String::new();
    // Writing to a string does not fail.
    let _ = write_page(&mut page, status);
    page
}

fn write_page(page: &mut String, status: &Status) -> std::fmt::Result {
    if status.cache.is_none() {
        return writeln!(page, "There is no cache: everything goes to the origin.");
    }
    let traffic = &status.traffic;
    let read = traffic.read_blocks_hit + traffic.read_blocks_missed;
    writeln!(
        page,
        "Of {read} blocks read, {} came from the cache. Of {} misses, {} were put into it for the next time.",
        units::share(traffic.read_blocks_hit, read),
        traffic.read_blocks_missed,
        traffic.promoted_blocks,
    )?;
    if let Some(cache) = &status.cache
        && traffic.evicted_blocks > 0
    {
        writeln!(
            page,
            "{} blocks had to make room for others: the cache of {} is smaller than what is used.",
            traffic.evicted_blocks,
            units::size(cache.capacity_bytes)
        )?;
    }
    for volume in &status.volumes {
        if let Some(stripe_bytes) = volume.stripe_bytes {
            writeln!(
                page,
                "The origin of {} has stripes of {}: write-back keeps them whole.",
                volume.name,
                units::size(stripe_bytes),
            )?;
        }
        let cache = status.cache.as_ref();
        let cache = cache.and_then(|cache| device_speed::long_writes(&cache.speed));
        if let (Some(cache), Some(origin)) =
            (cache, device_speed::long_writes(&volume.origin_speed))
        {
            writeln!(
                page,
                "The origin of {} takes {}/s of long writes, the cache {}/s.",
                volume.name,
                units::size(origin),
                units::size(cache),
            )?;
        }
    }
    write_slowest_members(page, status)?;
    let mut any = false;
    for (bypass, reason) in reasons(status) {
        any = true;
        let (why, remedy) = words(reason);
        writeln!(
            page,
            "\n{}: {} blocks read, {} written bypassing the cache\n  {why}\n  {remedy}",
            bypass.reason,
            bypass.read_blocks,
            bypass.blocks - bypass.read_blocks,
        )?;
        if let Some(last) = &bypass.last {
            writeln!(
                page,
                "  Last: a {} of {} at byte {} of {}, {} ago.",
                if last.write { "write" } else { "read" },
                units::size(last.len_bytes),
                last.offset_bytes,
                last.volume,
                units::duration(last.seconds_ago),
            )?;
        }
    }
    if !any {
        writeln!(page, "Nothing bypassed the cache.")?;
    }
    Ok(())
}

/// Names members that hold up the arrays that they are in.
fn write_slowest_members(page: &mut String, status: &Status) -> std::fmt::Result {
    let origins = status.volumes.iter().map(|volume| {
        let whole = format!("the origin of {}", volume.name);
        (whole, &volume.origin_members)
    });
    let devices = status.cache.iter().flat_map(|cache| &cache.devices);
    let devices = devices.map(|device| (device.path.clone(), &device.members));
    for (whole, members) in origins.chain(devices) {
        if let Some(slowest) = members::slowest(members) {
            writeln!(
                page,
                "The members of {whole} wait for {}: the others have time to spare.",
                slowest.in_words(),
            )?;
        }
    }
    Ok(())
}

/// Why, and what to do if that is not wanted.
fn words(reason: BypassReason) -> (&'static str, &'static str) {
    match reason {
        BypassReason::Sequential => (
            "Part of a long sequential stream, which the origin serves well by itself.",
            "To cache such streams too: forebay set sequential-cutoff off, or a larger size.",
        ),
        BypassReason::DirtyLimit => (
            "Writes of 1 MiB or more, in one request or in sequence, while dirty data is above dirty-high: the origin takes them faster than by way of the cache.",
            "More may be dirty with: forebay set dirty-high PERCENT, up to dirty-limit.",
        ),
        BypassReason::Mode => (
            "The volume's mode does not put these into the cache.",
            "To cache reads and writes: forebay mode VOLUME writethrough, or writeback.",
        ),
        BypassReason::Admission => (
            "Blocks that were not wanted often enough yet.",
            "To let them in at once: forebay set admission always; for writes: forebay set write-admission always.",
        ),
        BypassReason::Busy => (
            "Something else was just being done to the same block.",
            "Nothing need be done: the next miss of it is promoted.",
        ),
        BypassReason::Unflushed => (
            "The origin holds the block in its volatile cache only, so that it is not safe to call a copy clean.",
            "Nothing need be done: it passes with the origin's next flush, half a second later at most.",
        ),
        BypassReason::NoRoom => (
            "No segment of the cache was free at that moment: the cache is full, and reclaim was behind. Dirty data is not the cause.",
            "Nothing need be done for bursts. A larger cache takes longer ones: forebay cache resize SIZE, or forebay cache add DEVICE.",
        ),
        BypassReason::NoMemory => (
            "No buffer was free.",
            "Give the daemon more: --memory, or memory in the [daemon] section of its configuration.",
        ),
        BypassReason::Failed => (
            "The cache device failed; the volumes go on without it.",
            "Stop the daemon, write out what is dirty (forebay drain --offline), make a new cache with forebay create --force, and start it again.",
        ),
        BypassReason::Congested => (
            "The cache device took longer than the limit that is set.",
            "To use it however long it takes: forebay set congestion-read off, forebay set congestion-write off.",
        ),
        BypassReason::WriteBudget => (
            "As much was written to the cache device as one day's budget allows.",
            "To allow more: forebay set write-budget SIZE, or off.",
        ),
        BypassReason::Size => (
            "Zeroes of more than 1 MiB in one request, which the origin writes better by itself.",
            "Nothing need be done.",
        ),
        BypassReason::OriginSooner => (
            "Long writes that ended sooner on the origin than on the cache device, behind all that either had to do. forebay status shows the rates.",
            "Nothing need be done. A faster cache device takes them all.",
        ),
        BypassReason::Share => (
            "The volume has as much of the cache as its share-max allows.",
            "To let it have more: forebay set --volume VOLUME share-max PERCENT, or off.",
        ),
    }
}
