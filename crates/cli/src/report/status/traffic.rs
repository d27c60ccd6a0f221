//! Counters, as one table: it makes the engine's part of status and metrics.

use forebay_engine::{BypassReason, Bypassed, Bypasses, Stats};
use serde::{Deserialize, Serialize};

use super::{Bypass, BypassedRequest, Latency, Times};

/// A metric of counters.
pub(crate) struct Family {
    /// Without `forebay_` and `_total`.
    pub(crate) name: &'static str,
    pub(crate) help: &'static str,
    pub(crate) counters: &'static [Counter],
}

pub(crate) struct Counter {
    pub(crate) labels: &'static [(&'static str, &'static str)],
    /// As the metric counts it; the second argument is the size of a block.
    pub(crate) value: fn(&Traffic, u64) -> u64,
}

macro_rules! value {
    (Blocks $field:ident) => {
        |traffic, block_bytes| traffic.$field * block_bytes
    };
    (Count $field:ident) => {
        |traffic, _| traffic.$field
    };
}

macro_rules! counters {
    ($($family:ident, $unit:ident, $help:literal:
        $($field:ident = $stat:ident $({$($label:ident: $of:literal),+})?),+;)*) => {
        /// Counters since the daemon started.
        #[derive(Clone, Debug, Default, Serialize, Deserialize)]
        #[serde(default)]
        pub(crate) struct Traffic {
            $($(pub(crate) $field: u64,)+)*
            pub(crate) bypassed: Vec<Bypass>,
            pub(crate) read_latency: Latency,
            pub(crate) write_latency: Latency,
            pub(crate) flush_latency: Latency,
        }

        /// The sums over shards, without the rest.
        fn sums(shards: &[Stats]) -> Traffic {
            Traffic {
                $($($field: shards.iter().map(|shard| shard.$stat).sum(),)+)*
                ..Traffic::default()
            }
        }

        /// All metrics of counters.
        pub(crate) const FAMILIES: &[Family] = &[$(Family {
            name: stringify!($family),
            help: $help,
            counters: &[$(Counter {
                labels: &[$($((stringify!($label), $of)),+)?],
                value: value!($unit $field),
            }),+],
        }),*];
    };
}

// metric, what it counts, its help: key in the status = the engine's { labels }, ...;
counters! {
    requests, Count, "Requests that were taken.":
        read_requests = read_requests { kind: "read" },
        write_requests = write_requests { kind: "write" },
        flush_requests = flush_requests { kind: "flush" },
        discard_requests = discard_requests { kind: "discard" };
    straight_requests, Count, "Requests whose data was not copied on its way.":
        straight_requests = straight_requests;
    failed_requests, Count, "Requests answered with an error.":
        failed_requests = failed_requests;
    throttled_requests, Count, "Writes that were slowed down for dirty data.":
        throttled_requests = throttled_requests;
    buffered_writes, Count, "Writes that were acknowledged from the memory buffer.":
        buffered_writes = buffered_writes;
    buffered_write_errors, Count, "Tries to store a write from the memory buffer that failed.":
        buffered_write_errors = buffered_write_errors;
    buffer_read_bytes, Blocks, "Data read from the memory buffer.":
        buffer_blocks_read = buffer_blocks_read;
    cache_lookup_bytes, Blocks, "Data looked up in the cache, in whole blocks.":
        read_blocks_hit = read_blocks_hit { kind: "read", result: "hit" },
        read_blocks_missed = read_blocks_missed { kind: "read", result: "miss" },
        write_blocks_hit = write_blocks_hit { kind: "write", result: "hit" },
        write_blocks_missed = write_blocks_missed { kind: "write", result: "miss" };
    promoted_bytes, Blocks, "Missed data that entered the cache.":
        promoted_blocks = promoted_blocks;
    evicted_bytes, Blocks, "Clean data that left the cache.":
        evicted_blocks = evicted_blocks;
    victim_read_bytes, Blocks, "Hits that had been evicted and were still where they had been.":
        victim_blocks = victim_reads;
    hit_on_origin_bytes, Blocks, "Hits that were clean and came from the origin, which ended sooner.":
        blocks_hit_on_origin = blocks_hit_on_origin;
    read_ahead_bytes, Blocks, "Cached data that was read before anyone asked for it.":
        blocks_read_ahead = blocks_read_ahead;
    served_ahead_bytes, Blocks, "Hits that had been read before anyone asked for them.":
        blocks_served_ahead = blocks_served_ahead;
    retained_bytes, Blocks, "Data written again to the cache because it was used.":
        retained_blocks = retained_blocks;
    written_back_bytes, Blocks, "Dirty data written to the origins.":
        written_back_blocks = written_back_blocks;
    scrubbed_bytes, Blocks, "Cached data that was read and compared in the background.":
        scrubbed_blocks = scrubbed_blocks;
    scrub_passes, Count, "Times that all cached data was read and compared in the background, by each shard.":
        scrub_passes = scrub_passes;
    reclaimed_segments, Count, "Segments of the log that were emptied.":
        reclaimed_segments = reclaimed_segments;
    renewed_segments, Count, "Segments of the log that were moved to its head.":
        renewed_segments = renewed_segments;
    device_read_bytes, Count, "Data read from devices; all origins together.":
        cache_read_bytes = cache_data_read_bytes { device: "cache" },
        origin_read_bytes = origin_read_bytes { device: "origin" };
    device_written_bytes, Count, "What was written to devices: data, or the cache's own records.":
        cache_data_written_bytes = cache_data_written_bytes { device: "cache", content: "data" },
        cache_metadata_written_bytes = cache_metadata_written_bytes { device: "cache", content: "metadata" },
        origin_written_bytes = origin_written_bytes { device: "origin", content: "data" };
    device_flushes, Count, "Flushes sent to devices.":
        cache_flushes = cache_flushes { device: "cache" },
        origin_flushes = origin_flushes { device: "origin" };
    device_errors, Count, "Operations that failed, and data that did not match its checksum.":
        cache_read_errors = cache_read_errors { device: "cache", kind: "read" },
        cache_write_errors = cache_write_errors { device: "cache", kind: "write" },
        checksum_errors = checksum_errors { device: "cache", kind: "checksum" },
        origin_read_errors = origin_read_errors { device: "origin", kind: "read" },
        origin_write_errors = origin_write_errors { device: "origin", kind: "write" };
}

impl Traffic {
    /// The sum over shards.
    pub(crate) fn of(
        shards: &[Stats],
        times: &Times,
        describe: impl Fn(Bypassed) -> BypassedRequest,
    ) -> Traffic {
        let bypassed = BypassReason::NAMES.iter().map(|(reason, name)| {
            let blocks = |get: fn(&Bypasses, BypassReason) -> u64| {
                shards
                    .iter()
                    .map(|shard| get(&shard.bypasses, *reason))
                    .sum::<u64>()
            };
            let read_blocks = blocks(Bypasses::read_blocks);
            let last = shards
                .iter()
                .filter_map(|shard| shard.bypasses.last(*reason));
            Bypass {
                reason: (*name).to_owned(),
                blocks: read_blocks + blocks(Bypasses::written_blocks),
                read_blocks,
                last: last.max_by_key(|last| last.at.0).map(&describe),
            }
        });
        Traffic {
            bypassed: bypassed.collect(),
            read_latency: Latency::of(&times.read),
            write_latency: Latency::of(&times.write),
            flush_latency: Latency::of(&times.flush),
            ..sums(shards)
        }
    }
}
