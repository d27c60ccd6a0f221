//! Compares a start from a checkpoint with one from all summaries (I29).

use super::Recovered;
use super::attach::Attached;
use crate::map::index::SlotFlags;
use crate::store::log::{Log, Segment};

impl Attached {
    /// The first difference of a start from checkpoints to one from all summaries, in words; `None` if both
    /// would serve the same. These may differ:
    ///
    /// - hits, which only a checkpoint knows;
    /// - shadows: a start from summaries takes each older version that survives for one, also where a
    ///   `Drop` in its own stream outlives it;
    /// - which summary slot is taken of a segment of the last epoch: a start from summaries writes a
    ///   verdict on a seal that was durable without being known to be.
    #[must_use]
    pub fn difference(&self, scanned: &Attached) -> Option<String> {
        let shards = self.shards.iter().zip(&scanned.shards);
        shards
            .filter_map(|(shard, scanned)| {
                let what = of_shard(shard, scanned)?;
                Some(format!("shard {}: {what}", shard.log.shard))
            })
            .next()
    }
}

fn of_shard(shard: &Recovered, scanned: &Recovered) -> Option<String> {
    of_logs(&shard.log, &scanned.log).or_else(|| of_indexes(shard, scanned))
}

fn of_logs(log: &Log, scanned: &Log) -> Option<String> {
    let state = |log: &Log| {
        let orders: Vec<_> = log.streams.iter().map(|stream| &stream.order).collect();
        let free = log.free.in_order();
        format!(
            "tails {:?}, durable {:?}, next number {}, streams {orders:?}, free {free:?}",
            log.tails, log.durable, log.next_number
        )
    };
    if state(log) != state(scanned) {
        return Some(format!("{} and not {}", state(log), state(scanned)));
    }
    let segment = |of: &Segment| {
        let Segment {
            state,
            stream,
            generation,
            live,
            dirty,
            durable_slots,
            end_slot,
            ..
        } = of;
        let is_old = generation.epoch > 0 && generation.epoch + 1 < log.epoch;
        let summary = of.summary.filter(|_| is_old);
        format!(
            "{state:?}, {stream:?}, {generation:?}, {live} live, {dirty} dirty, durable to {durable_slots}, ends at \
             {end_slot}, summary {summary:?}"
        )
    };
    let mut segments = (0..).zip(log.segments.iter().zip(&scanned.segments));
    let differs = |(id, (of, scanned)): (u32, (&Segment, &Segment))| {
        let (of, scanned) = (segment(of), segment(scanned));
        (of != scanned).then(|| format!("segment {id}: {of} and not {scanned}"))
    };
    segments.find_map(differs)
}

fn of_indexes(shard: &Recovered, scanned: &Recovered) -> Option<String> {
    let (cached, expected) = (shard.index.cached(), scanned.index.cached());
    if cached.len() != expected.len() {
        return Some(format!(
            "{} blocks and not {}",
            cached.len(),
            expected.len()
        ));
    }
    let plain = |flags: SlotFlags| (flags.dirty(), flags.zero());
    for (key, (slot, checksum, flags)) in &expected {
        let Some((is_at, has, are)) = cached.get(key) else {
            return Some(format!("block {} is not there", key.0));
        };
        if (is_at, has, plain(*are)) != (slot, checksum, plain(*flags)) {
            return Some(format!(
                "block {}: {is_at:?} {has:#x} {are:?} and not {slot:?} {checksum:#x} {flags:?}",
                key.0
            ));
        }
        if shard.index.find(*key) != Some(*is_at) {
            return Some(format!("block {} is not found", key.0));
        }
    }
    None
}
