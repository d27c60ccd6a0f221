//! Bugs planted on purpose, so that the simulator can be seen to find their like: at least one for
//! each invariant. Compiled in only with the feature `planted`; then one can be chosen by name at
//! run time. Without the feature every question is answered with a constant "no".

/// A way to break an invariant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Bug {
    /// I1: recovery takes the oldest version.
    OldestWins = 1,
    /// I2: recovery looks below the tails.
    TailsIgnored,
    /// I3: an evicted block leaves no `Drop` where older entries survive.
    DropForgotten,
    /// I4: versions are written back before their entry is durable.
    WriteBackEarly,
    /// I4: a bypass does not wait for its `Drop`.
    BypassEarly,
    /// I5: a bypass takes no notice of dirty blocks.
    DirtyBypassed,
    /// I6: a flush also makes blocks clean that were written to the origin while it ran.
    CleanEarly,
    /// I6: any version of a block becomes clean.
    AnyVersionClean,
    /// I7: a flush leaves the origin's cache out.
    OriginNotFlushed,
    /// I8: a segment is used again before its tail is durable.
    ReusedEarly,
    /// I9: write-through is acknowledged without the origin.
    ThroughEarly,
    /// I9: write-through writes the origin beside its entry although an older one survives.
    BesideEarly,
    /// I10: a failed flush of the origin is believed.
    FailedFlushBelieved,
    /// I11: a promotion overwrites a block that was written meanwhile.
    PromotionOverwrites,
    /// I12: recovery does not write its decisions down.
    NoVerdict,
    /// I13: records count although earlier ones are not complete.
    GapsIgnored,
    /// I14: missing records count as never written.
    DamageIsAbsence,
    /// I14: the promises of headers behind a missing header are not looked at.
    HoleEndsLog,
    /// I14: nothing says how far a flush made entries durable if nothing is written after it.
    DurableUnsaid,
    /// I15, I22: the origin is written, and clients are answered, before the abandonment is on
    /// record. Either wait hides that the other is missing.
    AbandonedSilently,
    /// I16: the crash journal of another life is replayed.
    AnyRing,
    /// I17: dirty blocks are retained in main.
    DirtyInMain,
    /// I18: nothing is kept for reclaim.
    NoReserve,
    /// I19: of two summaries the older counts.
    OlderSummaryCounts,
    /// I7: a flush does not wait for the memory buffer.
    BufferNotFlushed,
    /// I16: writes that an earlier life left in the memory buffer are not logged.
    BufferForgotten,
    /// I1: the memory buffer serves copies of versions that the index no longer names.
    StaleCopyServed,
    /// I8: a segment that is to leave is opened again.
    RetiredOpened,
    /// I8: segments leave that are empty, before a tail above them is durable.
    RetiredEarly,
    /// I8: a tail moves before the entries that supersede the segment's own are durable.
    BuriedEarly,
    /// I1: an evicted block is read where it was although the origin was written since.
    EvictedServedStale,
    /// I8: blocks evicted from a segment that is used again are not forgotten.
    EvictedRemembered,
    /// I1: a block read ahead is served although it was written since.
    AheadServedStale,
    /// I21: a flush that succeeds is believed by a shard that has not heard of a failure before it.
    LaterFlushBelieved,
    /// I22: other shards go on with a cache in which one has failed.
    ShardGoesOn,
    /// I15: origins are written where the record still says that the cache is newer.
    ListIgnored,
    /// I15: of a cache that failed everything dirty counts.
    ListNotAsked,
    /// I10: a write that failed is answered while the next start may find it.
    LandedAnswered,
    /// I10: a write that bypassed the cache is answered although a flush lost it meanwhile.
    LossUnheard,
    /// I15: a volume is on record as detached while requests of it are on their way.
    DetachedEarly,
    /// I22: a record that waited for an earlier one counts after the cache failed.
    LateRecordCounts,
    /// I10: reads of the origin count although it may have gone back while they ran.
    DoubtsForgotten,
    /// I10: clients hear of a failed flush of what write-back alone wrote.
    HarmlessTold,
    /// I12: a link to a segment that was decided to be absent is left as it is.
    LinkLeft,
    /// I8: evicted blocks are looked for in a segment that is used again.
    LateAnyway,
    /// I19: a flush counts that covers too little of the blocks that a renewal leaves out.
    RenewalUncovered,
    /// I12: a torn write can make an older header whole again.
    HeadersUnstamped,
    /// I8: tails that recovery knows of a rejected header alone are said by nothing that stays.
    TailsUnsaid,
    /// I14: headers of a segment that is decided and has no summary any more are believed.
    TakenBackHeard,
    /// I25: dirty blocks of a volume that is away are written back.
    AwayWritten,
    /// I27: a volume is frozen while changes of it are on their way.
    FrozenEarly,
    /// I26: an origin that returned is believed to have kept what was written to it.
    ReconnectBelieved,
    /// I28: a write of dirty data goes to one device alone.
    SecondForgotten,
    /// I28: shards are told of writes and flushes before the loss of a device is on record.
    LossUnrecorded,
    /// I28: after the loss of a device its cache's clean data counts as before.
    LostDropsBelieved,
    /// I28: recovery leaves two copies as different as a crash left them.
    CopiesDiffer,
    /// I28: the tail of the write stream counts although one device alone says it.
    TailOnOne,
    /// I28: a flush does not wait for the second device.
    FlushOfOne,
    /// I28: a place that holds a second copy is used again while that counts.
    LentReused,
    /// I28: a device that is out is believed when it comes back.
    OutBelieved,
    /// I28: the cache goes on with devices that it was attached without.
    LeftBehindBelieved,
    /// I28: a start goes on without a device that dirty data may be on alone.
    AloneBelieved,
    /// I28: dirty data counts as copied before the tail above its emptied segments is durable.
    MirroredEarly,
    /// I28: what a device holds that was lost and is back counts, as a second copy.
    LentBeforeBelieved,
    /// I1: what the origin brings for a hit counts, whether or not it has the cached blocks.
    OriginBelieved,
    /// I1: a read goes straight past what is in the memory buffer alone.
    BufferPassedBy,
    /// I23: a hit goes straight although its checksum is to be compared.
    StraightUnverified,
    /// A checkpoint counts in every attach, and not only in the one after it was written.
    OldCheckpoint,
}

impl Bug {
    /// Whether runs of several threads find it, and those of one only late or never.
    #[must_use]
    pub fn is_between_threads(self) -> bool {
        matches!(
            self,
            Bug::LaterFlushBelieved
                | Bug::ShardGoesOn
                | Bug::ListIgnored
                | Bug::ListNotAsked
                | Bug::LossUnheard
                | Bug::DetachedEarly
        )
    }

    /// Whether it is about dirty data on two devices, which runs from 21,000,001 on have.
    #[must_use]
    pub fn is_of_two_copies(self) -> bool {
        matches!(
            self,
            Bug::SecondForgotten
                | Bug::LossUnrecorded
                | Bug::LostDropsBelieved
                | Bug::CopiesDiffer
                | Bug::TailOnOne
                | Bug::FlushOfOne
                | Bug::LentReused
                | Bug::OutBelieved
                | Bug::LeftBehindBelieved
                | Bug::AloneBelieved
                | Bug::MirroredEarly
                | Bug::LentBeforeBelieved
        )
    }

    /// Whether it breaks a promise about reporting alone: a run forgives what it loses to rot.
    #[must_use]
    pub fn is_about_damage(self) -> bool {
        matches!(
            self,
            Bug::DamageIsAbsence | Bug::HoleEndsLog | Bug::DurableUnsaid
        )
    }

    /// All of them: the invariant each breaks, and its name.
    pub const ALL: [(Bug, &'static str, &'static str); 68] = [
        (Bug::OldestWins, "I1", "oldest-wins"),
        (Bug::TailsIgnored, "I2", "tails-ignored"),
        (Bug::DropForgotten, "I3", "drop-forgotten"),
        (Bug::WriteBackEarly, "I4", "write-back-early"),
        (Bug::BypassEarly, "I4", "bypass-early"),
        (Bug::DirtyBypassed, "I5", "dirty-bypassed"),
        (Bug::CleanEarly, "I6", "clean-early"),
        (Bug::AnyVersionClean, "I6", "any-version-clean"),
        (Bug::OriginNotFlushed, "I7", "origin-not-flushed"),
        (Bug::ReusedEarly, "I8", "reused-early"),
        (Bug::ThroughEarly, "I9", "through-early"),
        (Bug::BesideEarly, "I9", "beside-early"),
        (Bug::FailedFlushBelieved, "I10", "failed-flush-believed"),
        (Bug::PromotionOverwrites, "I11", "promotion-overwrites"),
        (Bug::NoVerdict, "I12", "no-verdict"),
        (Bug::GapsIgnored, "I13", "gaps-ignored"),
        (Bug::DamageIsAbsence, "I14", "damage-is-absence"),
        (Bug::HoleEndsLog, "I14", "damage-behind-a-hole"),
        (Bug::DurableUnsaid, "I14", "durable-unsaid"),
        (Bug::AbandonedSilently, "I15", "abandoned-silently"),
        (Bug::AnyRing, "I16", "any-ring"),
        (Bug::DirtyInMain, "I17", "dirty-in-main"),
        (Bug::NoReserve, "I18", "no-reserve"),
        (Bug::OlderSummaryCounts, "I19", "older-summary-counts"),
        (Bug::BufferNotFlushed, "I7", "buffer-not-flushed"),
        (Bug::BufferForgotten, "I16", "buffer-forgotten"),
        (Bug::StaleCopyServed, "I1", "stale-copy-served"),
        (Bug::RetiredOpened, "I8", "retired-opened"),
        (Bug::RetiredEarly, "I8", "retired-early"),
        (Bug::BuriedEarly, "I8", "buried-early"),
        (Bug::EvictedServedStale, "I1", "evicted-served-stale"),
        (Bug::EvictedRemembered, "I8", "evicted-remembered"),
        (Bug::AheadServedStale, "I1", "ahead-served-stale"),
        (Bug::LaterFlushBelieved, "I21", "later-flush-believed"),
        (Bug::ShardGoesOn, "I22", "shard-goes-on"),
        (Bug::ListIgnored, "I15", "list-ignored"),
        (Bug::ListNotAsked, "I15", "list-not-asked"),
        (Bug::LandedAnswered, "I10", "landed-answered"),
        (Bug::LossUnheard, "I10", "loss-unheard"),
        (Bug::DetachedEarly, "I15", "detached-early"),
        (Bug::LateRecordCounts, "I22", "late-record-counts"),
        (Bug::DoubtsForgotten, "I10", "doubts-forgotten"),
        (Bug::HarmlessTold, "I10", "harmless-told"),
        (Bug::LinkLeft, "I12", "link-left"),
        (Bug::LateAnyway, "I8", "late-anyway"),
        (Bug::RenewalUncovered, "I19", "renewal-uncovered"),
        (Bug::HeadersUnstamped, "I12", "headers-unstamped"),
        (Bug::TailsUnsaid, "I8", "tails-unsaid"),
        (Bug::TakenBackHeard, "I14", "taken-back-heard"),
        (Bug::AwayWritten, "I25", "away-written"),
        (Bug::FrozenEarly, "I27", "frozen-early"),
        (Bug::ReconnectBelieved, "I26", "reconnect-believed"),
        (Bug::OriginBelieved, "I1", "origin-believed"),
        (Bug::SecondForgotten, "I28", "second-forgotten"),
        (Bug::LossUnrecorded, "I28", "loss-unrecorded"),
        (Bug::LostDropsBelieved, "I28", "lost-drops-believed"),
        (Bug::CopiesDiffer, "I28", "copies-differ"),
        (Bug::TailOnOne, "I28", "tail-on-one"),
        (Bug::FlushOfOne, "I28", "flush-of-one"),
        (Bug::LentReused, "I28", "lent-reused"),
        (Bug::OutBelieved, "I28", "out-believed"),
        (Bug::LeftBehindBelieved, "I28", "left-behind-believed"),
        (Bug::AloneBelieved, "I28", "alone-believed"),
        (Bug::MirroredEarly, "I28", "mirrored-early"),
        (Bug::LentBeforeBelieved, "I28", "lent-before-believed"),
        (Bug::BufferPassedBy, "I1", "buffer-passed-by"),
        (Bug::StraightUnverified, "I23", "straight-unverified"),
        (Bug::OldCheckpoint, "I29", "old-checkpoint"),
    ];
}

#[cfg(feature = "planted")]
static PLANTED: std::sync::atomic::AtomicU8 = std::sync::atomic::AtomicU8::new(0);

/// Plants a bug in this process, or removes it.
#[cfg(feature = "planted")]
pub fn plant(bug: Option<Bug>) {
    let number = bug.map_or(0, |bug| bug as u8);
    PLANTED.store(number, std::sync::atomic::Ordering::SeqCst);
}

/// Whether this bug is planted.
#[cfg(feature = "planted")]
#[inline]
#[must_use]
pub fn is(bug: Bug) -> bool {
    PLANTED.load(std::sync::atomic::Ordering::Relaxed) == bug as u8
}

/// Whether this bug is planted: never.
#[cfg(not(feature = "planted"))]
#[inline(always)]
#[must_use]
pub fn is(_bug: Bug) -> bool {
    false
}
