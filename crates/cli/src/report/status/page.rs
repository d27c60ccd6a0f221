//! The page that `forebay status` shows to people.

use std::fmt::Write;

use super::{Latency, Status, Traffic};
use crate::report::members::MemberLoad;
use crate::report::{device_speed, health};
use crate::units::{duration, latency, share, size};

impl Status {
    /// A page for people; with the page before, rates are of the time between.
    pub(crate) fn page(&self, before: Option<&Status>) -> String {
        let mut page = String::new();
        // Writing to a string does not fail.
        let _ = self.write_page(&mut page, before);
        page
    }

    fn write_page(&self, out: &mut String, before: Option<&Status>) -> std::fmt::Result {
        writeln!(
            out,
            "forebay {}, pid {}, up {}, {} thread(s), {} client(s)",
            self.version,
            self.pid,
            duration(self.uptime_seconds),
            self.threads,
            self.clients
        )?;
        if let Some(cache) = &self.cache {
            writeln!(
                out,
                "cache {} ({}), epoch {}, {} shard(s)",
                cache.device, cache.id, cache.epoch, cache.shards
            )?;
            writeln!(out, "  {}", cache.occupancy())?;
            if let Some(may_die) = cache.may_die() {
                writeln!(out, "  {may_die}")?;
            }
            if let Some(lost) = cache.lost_in_words() {
                writeln!(out, "  LOST: {lost}")?;
            }
            if let Some(replacement) = cache.replacement() {
                writeln!(out, "  {replacement}")?;
            }
            for device in &cache.devices {
                let health = health::in_words(device.health.as_ref());
                if cache.devices.len() > 1 {
                    writeln!(
                        out,
                        "  {}: {} of {} used, health: {health}",
                        device.path,
                        size(device.used_bytes),
                        size(device.size_bytes)
                    )?;
                } else {
                    writeln!(out, "  health: {health}")?;
                }
                write_members(out, &device.members)?;
            }
            if let Some(speed) = device_speed::in_words(&cache.speed) {
                writeln!(out, "  speed: {speed}")?;
            }
            if let Some(failure) = &cache.failure {
                writeln!(out, "  FAILED: {failure}")?;
            }
        }
        for volume in &self.volumes {
            if volume.away.is_some() {
                writeln!(
                    out,
                    "volume {} is NOT SERVED: cached {}, dirty {}, both kept",
                    volume.name,
                    size(volume.cached_bytes),
                    size(volume.dirty_bytes),
                )?;
                continue;
            }
            writeln!(
                out,
                "volume {} on {}: {}, {}, cached {}, dirty {}",
                volume.name,
                volume.origin,
                volume.mode,
                size(volume.size_bytes),
                size(volume.cached_bytes),
                size(volume.dirty_bytes),
            )?;
            if let Some(seconds) = volume.frozen_seconds {
                writeln!(out, "  frozen for {}: its writes wait", duration(seconds))?;
            }
            if let Some(stripe_bytes) = volume.stripe_bytes {
                writeln!(out, "  stripe of the origin: {}", size(stripe_bytes))?;
            }
            if let Some(speed) = device_speed::in_words(&volume.origin_speed) {
                writeln!(out, "  speed of the origin: {speed}")?;
            }
            write_members(out, &volume.origin_members)?;
        }
        for export in &self.exports {
            writeln!(out, "  {export}")?;
        }
        if let Some(dashboard) = &self.dashboard {
            writeln!(out, "dashboard {dashboard}")?;
        }
        self.write_traffic(out, before)?;
        match self.trouble.as_slice() {
            [] => writeln!(out, "no trouble"),
            troubles => troubles
                .iter()
                .try_for_each(|trouble| writeln!(out, "TROUBLE: {}", trouble.text)),
        }
    }

    fn write_traffic(&self, out: &mut String, before: Option<&Status>) -> std::fmt::Result {
        let zero = Traffic::default();
        let (old, seconds) = match before {
            Some(before) => (&before.traffic, self.uptime_seconds - before.uptime_seconds),
            None => (&zero, self.uptime_seconds),
        };
        let now = &self.traffic;
        let since = |get: fn(&Traffic) -> u64| get(now).saturating_sub(get(old));
        let rate = |get: fn(&Traffic) -> u64| since(get) as f64 / seconds.max(0.001);
        let bytes = |get: fn(&Traffic) -> u64| format!("{}/s", size(rate(get) as u64));
        let hits = |hit: fn(&Traffic) -> u64, missed: fn(&Traffic) -> u64| {
            let ratio = share(since(hit), since(hit) + since(missed));
            format!("hit {ratio}, ")
        };
        let hit_reads = hits(
            |traffic| traffic.read_blocks_hit,
            |traffic| traffic.read_blocks_missed,
        );
        let hit_writes = hits(
            |traffic| traffic.write_blocks_hit,
            |traffic| traffic.write_blocks_missed,
        );
        let (reads, writes) = (
            rate(|traffic| traffic.read_requests),
            rate(|traffic| traffic.write_requests),
        );
        let window = match before {
            Some(_) => "in the last",
            None => "since the start,",
        };
        writeln!(out, "{window} {}:", duration(seconds))?;
        let mut requests = |kind: &str, rate: f64, hit: &str, times: &Latency| {
            writeln!(
                out,
                "{kind:<7} {rate:>9.0}/s, {hit}p50 {}, p99 {}",
                latency(times.p50_ns),
                latency(times.p99_ns),
            )
        };
        requests("reads", reads, &hit_reads, &now.read_latency)?;
        requests("writes", writes, &hit_writes, &now.write_latency)?;
        let flushes = rate(|traffic| traffic.flush_requests);
        requests("flushes", flushes, "", &now.flush_latency)?;
        if self.cache.is_some() {
            writeln!(out, "{}", self.lately.hit_ratios())?;
            writeln!(
                out,
                "cache device   read {}, written {} and metadata {}",
                bytes(|traffic| traffic.cache_read_bytes),
                bytes(|traffic| traffic.cache_data_written_bytes),
                bytes(|traffic| traffic.cache_metadata_written_bytes),
            )?;
        }
        writeln!(
            out,
            "origin devices read {}, written {}",
            bytes(|traffic| traffic.origin_read_bytes),
            bytes(|traffic| traffic.origin_written_bytes),
        )?;
        let past: Vec<String> = now
            .bypassed
            .iter()
            .filter(|bypass| bypass.blocks > 0)
            .map(|bypass| format!("{} {}", bypass.reason, bypass.blocks))
            .collect();
        if !past.is_empty() {
            writeln!(out, "bypassed blocks: {}", past.join(", "))?;
        }
        let errors = [
            ("failed requests", now.failed_requests),
            ("cache read errors", now.cache_read_errors),
            ("cache write errors", now.cache_write_errors),
            ("checksum errors", now.checksum_errors),
            (
                "failed tries to store buffered writes",
                now.buffered_write_errors,
            ),
            ("origin read errors", now.origin_read_errors),
            ("origin write errors", now.origin_write_errors),
        ];
        let errors: Vec<String> = errors
            .iter()
            .filter(|(_, count)| *count > 0)
            .map(|(name, count)| format!("{name} {count}"))
            .collect();
        if !errors.is_empty() {
            writeln!(out, "ERRORS: {}", errors.join(", "))?;
        }
        Ok(())
    }
}

fn write_members(out: &mut String, members: &[MemberLoad]) -> std::fmt::Result {
    members
        .iter()
        .try_for_each(|member| writeln!(out, "    {}", member.in_words()))
}

#[cfg(test)]
mod tests {
    use crate::report::members::MemberLoad;
    use crate::report::status::example;

    #[test]
    fn the_page_says_lately_and_trouble() {
        let mut status = example();
        let page = status.page(None);
        assert!(
            page.contains("hit ratio in the last 1 min 00 s: reads 99.0 %, writes -"),
            "{page}"
        );
        assert!(
            page.contains("replacement adaptive: steady in 1 shard(s)"),
            "{page}"
        );
        // Rates say of how long they are, as the ratio below them does.
        assert!(
            page.contains("since the start, 1 h 06 min:\nreads "),
            "{page}"
        );
        assert!(page.ends_with("no trouble\n"), "{page}");
        assert!(!page.contains("stripe"), "{page}");
        status.volumes[0].stripe_bytes = Some(1536 << 10);
        let page = status.page(None);
        assert!(
            page.contains("\n  stripe of the origin: 1.5 MiB\n"),
            "{page}"
        );
        status.volumes[0].origin_members = ["sda", "sdc"]
            .map(|name| MemberLoad {
                name: name.to_owned(),
                busy_percent: 40,
                ..MemberLoad::default()
            })
            .to_vec();
        let page = status.page(None);
        let members = "\n    sda 40 % busy, 0 in flight, reads 0 B/s, writes 0 B/s\n    sdc 40";
        assert!(page.contains(members), "{page}");
        status.lately.failed_requests = 7;
        status.trouble = crate::report::trouble::of(&status);
        let page = status.page(None);
        assert!(page.contains("TROUBLE: 7 requests were answered"), "{page}");
    }
}
