//! Device operations: the purpose of each, and the facts that its end needs.

use crate::bypass::BypassReason;
use crate::format::{BlockKey, SegmentId, Sequence, Slot};
use crate::ids::{AheadId, JobId, RecordId, RequestIndex, RetainId, WritebackId};
use crate::interface::{Buf, Nanos, RequestId, VolumeSlot};
use crate::map::locks::Owner;
use crate::store::append::PlacedAppend;

/// The purpose of a device operation.
#[derive(Debug)]
pub(crate) enum Op {
    /// Boxed, so that the table of operations stays small.
    AppendData(Box<PlacedAppend>),
    FastWrite(FastWrite),
    PastWrite(PastWrite),
    Header(RecordId),
    Seal {
        segment: SegmentId,
        which: u8,
        buf: Buf,
    },
    CacheFlush,
    OriginFlush(VolumeSlot),
    HitRead(HitRead),
    /// Of clean blocks, which the origin answers sooner.
    HitFromOrigin(HitRead),
    WholeHit(WholeHit),
    MissRead(MissRead),
    /// A read whose answer does not count, with its former purpose.
    DoubtfulRead(Box<Op>),
    PromoteOneRead(PromoteOne, Reader),
    /// With the checksum of its block.
    PromoteOneWrite(PromoteOne, PlacedRun, u32),
    /// Boxed as above; it is rare.
    VictimRead(Box<VictimRead>),
    ReadAhead(AheadId),
    /// From this slot on.
    Scrub {
        slot: Slot,
        buf: Buf,
    },
    PromoteRead(JobId),
    FillFromCache {
        job: JobId,
        edge: u8,
        slot: Slot,
    },
    FillFromOrigin {
        job: JobId,
        edge: u8,
    },
    JobOrigin {
        job: JobId,
    },

    WritebackRead(ReadPart<WritebackId>),
    WritebackWrite {
        job: WritebackId,
    },
    RetainRead(ReadPart<RetainId>),
    Renewal(SegmentId),
    /// Of blocks that could not be read there.
    Mend {
        slot: Slot,
        buf: Buf,
    },
    SegmentDiscard(SegmentId),
}

/// A part of a job's read.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ReadPart<I> {
    pub(crate) job: I,
    /// The first block of the part, counted from the first of the job.
    pub(crate) first: u16,
    /// The number of blocks.
    pub(crate) count: u16,
}

/// A write of whole blocks on its way into the log, without a job. Flat, so that the table of
/// operations stays small.
#[derive(Debug)]
pub(crate) struct FastWrite {
    pub(crate) id: RequestId,
    pub(crate) volume: VolumeSlot,
    pub(crate) started: Nanos,
    pub(crate) buf: Buf,
    pub(crate) key: BlockKey,
    pub(crate) count: u16,
    pub(crate) record: RecordId,
    pub(crate) slot: Slot,
    /// Of the block, where there is one.
    pub(crate) checksum: u32,
    /// Of all blocks, where there are several; empty as long as those of a long write are to be made.
    pub(crate) checksums: Option<Box<Box<[u32]>>>,
}

impl FastWrite {
    /// Where its blocks are.
    #[inline]
    pub(crate) fn run(&self) -> PlacedRun {
        PlacedRun {
            key: self.key,
            count: self.count,
            record: self.record,
            slot: self.slot,
        }
    }

    /// The checksum of each block.
    #[inline]
    pub(crate) fn checksums(&self) -> &[u32] {
        match &self.checksums {
            None => std::slice::from_ref(&self.checksum),
            Some(checksums) => checksums,
        }
    }
}

/// A write past the cache, without a job. It owns its blocks, of which the cache has nothing.
#[derive(Debug)]
pub(crate) struct PastWrite {
    pub(crate) id: RequestId,
    pub(crate) volume: VolumeSlot,
    pub(crate) started: Nanos,
    pub(crate) offset_bytes: u64,
    pub(crate) buf: Buf,
    pub(crate) key: BlockKey,
    pub(crate) count: u16,
    pub(crate) reason: BypassReason,
}

/// Blocks in a row that have their slots in an open record.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PlacedRun {
    pub(crate) key: BlockKey,
    pub(crate) count: u16,
    pub(crate) record: RecordId,
    /// Of the first block.
    pub(crate) slot: Slot,
}

/// A read of one whole block in flight that is all of its request, which has no state besides. Not
/// `Copy`: it is moved out of the table of operations, and nothing is left to be dropped.
#[derive(Debug)]
pub(crate) struct WholeHit {
    pub(crate) id: RequestId,
    pub(crate) volume: VolumeSlot,
    pub(crate) started: Nanos,
    pub(crate) key: BlockKey,
    pub(crate) slot: Slot,
    /// Where the client wants the data.
    pub(crate) dest: Buf,
}

/// A read of consecutive slots in flight.
#[derive(Clone, Debug)]
pub(crate) struct HitRead {
    pub(crate) request: RequestIndex,
    pub(crate) volume: VolumeSlot,
    pub(crate) key: BlockKey,
    pub(crate) slot: Slot,
    pub(crate) count: u16,
    /// Where the client wants the data.
    pub(crate) dest: Buf,
    /// For a part of a block: the whole block, and where in it the part starts.
    pub(crate) bounce: Option<(Buf, usize)>,
    pub(crate) attempts: u8,
}

impl HitRead {
    /// Where the device puts the data.
    #[inline(always)]
    pub(crate) fn buf(&self) -> Buf {
        self.bounce.map_or(self.dest, |(buf, _)| buf)
    }
}

/// A read from the origin straight into the request's buffer.
#[derive(Clone, Copy, Debug)]
pub(crate) struct MissRead {
    pub(crate) volume: VolumeSlot,
    /// The first block.
    pub(crate) key: BlockKey,
    pub(crate) reader: Reader,
}

/// A request that waits for the read of a promotion.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Reader {
    pub(crate) request: RequestIndex,
    /// From where in the first block.
    pub(crate) skip_bytes: u32,
    /// Where the data goes; [`Buf::EMPTY`] for a prefetch.
    pub(crate) dest: Buf,
}

/// The promotion of a single block. It owns the block until that is indexed or a write takes it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PromoteOne {
    pub(crate) volume: VolumeSlot,
    pub(crate) key: BlockKey,
    pub(crate) buf: Buf,
    /// The bytes of the block that the origin has.
    pub(crate) valid_bytes: u32,
    pub(crate) owner: Owner,
}

/// A read of a slot that is not live.
#[derive(Clone, Copy, Debug)]
pub(crate) struct VictimRead {
    pub(crate) promotion: PromoteOne,
    pub(crate) reader: Reader,
    pub(crate) slot: Slot,
    /// Of the block that the slot held when the read began.
    pub(crate) checksum: u32,
    /// Of the segment then.
    pub(crate) generation: Sequence,
}
