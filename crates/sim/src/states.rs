//! Rare states of the engine: how often a run reached each, from the engine's own counters.

use forebay_engine::{BypassReason, Engine};

use crate::outcome::Counts;

/// Adds what an engine counted in its life.
pub(crate) fn collect(counts: &mut Counts, engine: &Engine) {
    let stats = engine.stats();
    counts.add("engine lives", 1);
    counts.add("blocks hit", stats.read_blocks_hit);
    counts.add("blocks missed", stats.read_blocks_missed);
    counts.add("blocks promoted", stats.promoted_blocks);
    counts.add("blocks retained", stats.retained_blocks);
    counts.add("blocks evicted", stats.evicted_blocks);
    counts.add("blocks written back", stats.written_back_blocks);
    counts.add("segments renewed", stats.renewed_segments);
    counts.add("segments reclaimed", stats.reclaimed_segments);
    counts.add("cache flushes", stats.cache_flushes);
    counts.add("origin flushes", stats.origin_flushes);
    counts.add(
        "unreadable dirty blocks carried on",
        stats.unreadable_dirty_blocks,
    );
    counts.add("checksum errors", stats.checksum_errors);
    counts.add("blocks mended", stats.mended_blocks);
    counts.add("blocks scrubbed", stats.scrubbed_blocks);
    counts.add("passes of the scrub", stats.scrub_passes);
    counts.add("throttled requests", stats.throttled_requests);
    counts.add("promotions overtaken", stats.promotions_overtaken);
    counts.add("victim reads", stats.victim_reads);
    counts.add("blocks hit on the origin", stats.blocks_hit_on_origin);
    counts.add("blocks read ahead", stats.blocks_read_ahead);
    counts.add("blocks served ahead", stats.blocks_served_ahead);
    counts.add("fast writes requeued", stats.fast_writes_requeued);
    counts.add("writes past the cache without a job", stats.past_writes);
    counts.add("cache read errors", stats.cache_read_errors);
    counts.add("cache write errors", stats.cache_write_errors);
    counts.add("origin read errors", stats.origin_read_errors);
    counts.add("origin write errors", stats.origin_write_errors);
    counts.add("refused writes logged", stats.refused_writes_logged);
    for (reason, name) in BypassReason::NAMES {
        let bypasses = &stats.bypasses;
        counts.add(
            name,
            bypasses.read_blocks(reason) + bypasses.written_blocks(reason),
        );
    }
}
