//! A request from its client to the shards and back.

use forebay_engine::planted::{self, Bug};
use forebay_engine::{
    Ack, BlockKey, Buf, Engine, Failure, MAX_RANGE_BYTES, MAX_REQUEST_BYTES, Memory, Nanos,
    Request, RequestId, RequestKind, VolumeSlot,
};

use crate::host::Host;
use crate::join::{Join, Joined, Unheard};
use crate::message::Message;

/// A client's request.
#[derive(Clone, Copy, Debug)]
pub struct ClientRequest {
    /// The volume.
    pub volume: VolumeSlot,
    /// Read, write, flush or another kind.
    pub kind: RequestKind,
    /// Offset, in bytes.
    pub offset_bytes: u64,
    /// Length, in bytes.
    pub len_bytes: u32,
    /// The answer waits for a flush as well.
    pub flush_after: bool,
    /// No client asks, but the daemon: of a flush that fails the next client is told too (I10).
    pub is_of_daemon: bool,
}

impl ClientRequest {
    /// A flush of a volume.
    #[must_use]
    pub fn flush(volume: VolumeSlot) -> ClientRequest {
        ClientRequest {
            volume,
            kind: RequestKind::Flush,
            offset_bytes: 0,
            len_bytes: 0,
            flush_after: false,
            is_of_daemon: false,
        }
    }

    /// A flush of a volume for the daemon itself.
    #[must_use]
    pub fn flush_of_daemon(volume: VolumeSlot) -> ClientRequest {
        ClientRequest {
            is_of_daemon: true,
            ..ClientRequest::flush(volume)
        }
    }
}

impl<T> Host<T> {
    /// Where a volume begins among the blocks of the cache, if it is served.
    #[must_use]
    pub fn base_of(&self, volume: VolumeSlot) -> Option<BlockKey> {
        *self.bases.get(usize::from(volume.0))?
    }

    /// The pieces a range of a volume is cut into: the shard, the offset and the length in bytes
    /// of each. Reads and writes bring a buffer for each.
    pub fn pieces(
        &self,
        volume: VolumeSlot,
        offset_bytes: u64,
        len_bytes: u32,
        max_bytes: u32,
    ) -> Option<impl Iterator<Item = (u16, u64, u32)> + use<T>> {
        let base = self.base_of(volume)?;
        let len_bytes = u64::from(len_bytes);
        Some(
            self.geometry
                .split(base, offset_bytes, len_bytes, max_bytes),
        )
    }

    /// An engine here: all have the same settings and modes.
    fn any_engine(&self) -> Option<&Engine> {
        self.own.first().and_then(|shard| self.engine(*shard))
    }

    /// Whether any read of a volume may go straight into a client's memory, as things are.
    pub fn may_read_straight(&self, volume: VolumeSlot) -> bool {
        self.any_engine()
            .is_some_and(|engine| engine.may_read_straight(volume))
    }

    /// Whether reads of a volume pass the cache by.
    pub fn passes_by(&self, volume: VolumeSlot) -> bool {
        self.any_engine()
            .is_some_and(|engine| engine.passes_by(volume))
    }

    /// Whether any write of a volume may go straight from a client's memory, as things are.
    pub fn may_write_straight(&self, volume: VolumeSlot) -> bool {
        self.any_engine()
            .is_some_and(|engine| engine.may_write_straight(volume))
    }

    /// Whether a range is for one shard, which is here: then a request for it may bring a client's memory.
    /// What turns out to need copies is answered with [`Failure::NotStraight`].
    pub fn is_for_one_shard_here(
        &self,
        volume: VolumeSlot,
        offset_bytes: u64,
        len_bytes: u32,
    ) -> bool {
        if let [owner] = self.owners.as_slice() {
            return *owner == self.index && len_bytes <= MAX_REQUEST_BYTES;
        }
        let pieces = self.pieces(volume, offset_bytes, len_bytes, MAX_REQUEST_BYTES);
        pieces.is_some_and(|mut pieces| {
            let first = pieces.next();
            pieces.next().is_none()
                && first.is_some_and(|(shard, ..)| self.owner_of(shard) == self.index)
        })
    }

    /// Sends a request off; `payload` comes back with the answer. Reads and writes bring a buffer
    /// for each of their [`Host::pieces`].
    pub fn submit(
        &mut self,
        now: Nanos,
        payload: T,
        request: ClientRequest,
        bufs: impl IntoIterator<Item = Buf>,
        memory: &mut dyn Memory,
    ) {
        if self.frozen.holds(&request) {
            return self
                .frozen
                .wait(payload, request, bufs.into_iter().collect());
        }
        let ClientRequest {
            volume,
            kind,
            flush_after,
            is_of_daemon,
            ..
        } = request;
        let is_flush = kind == RequestKind::Flush;
        let join = self.joins.insert(Join {
            payload,
            volume,
            // It is outstanding by itself until its pieces are submitted.
            outstanding: 1,
            failure: None,
            flush_after,
            bypassed: false,
            origin_mark: self.shared.origin_mark(volume),
            is_flush,
            hears: is_flush && !is_of_daemon,
            promises: !matches!(kind, RequestKind::Read | RequestKind::Prefetch),
            unheard: None,
        });
        if is_flush {
            self.submit_flush(now, join, volume, memory);
        } else {
            self.submit_pieces(now, join, request, bufs, memory);
        }
        self.part_answered(now, join, Ok(()), memory);
    }

    fn submit_pieces(
        &mut self,
        now: Nanos,
        join: u32,
        request: ClientRequest,
        bufs: impl IntoIterator<Item = Buf>,
        memory: &mut dyn Memory,
    ) {
        let ClientRequest {
            volume,
            kind,
            offset_bytes,
            len_bytes,
            ..
        } = request;
        let max_bytes = match kind {
            RequestKind::Discard | RequestKind::WriteZeroes { .. } => MAX_RANGE_BYTES,
            _ => MAX_REQUEST_BYTES,
        };
        let Some(pieces) = self.pieces(volume, offset_bytes, len_bytes, max_bytes) else {
            if let Some(join) = self.joins.get_mut(join) {
                join.failure = Some(Failure::Detached);
            }
            return;
        };
        let id = self.request_id(join);
        let mut bufs = bufs.into_iter();
        for (shard, offset_bytes, len_bytes) in pieces {
            let buf = bufs.next().unwrap_or(Buf::EMPTY);
            self.part_begins(join);
            let request = Request {
                id,
                volume,
                kind,
                offset_bytes,
                len_bytes,
                buf,
            };
            self.submit_to_shard(now, shard, request, memory);
        }
    }

    /// A flush is for all shards: any of them may hold what was written before it (I7).
    fn submit_flush(&mut self, now: Nanos, join: u32, volume: VolumeSlot, memory: &mut dyn Memory) {
        let hears = self.joins.get_mut(join).is_some_and(|join| join.hears);
        let id = self.request_id(join);
        let id = if hears { id } else { id.unheard() };
        for shard in 0..self.owners.len() as u16 {
            self.part_begins(join);
            let request = Request {
                id,
                volume,
                kind: RequestKind::Flush,
                offset_bytes: 0,
                len_bytes: 0,
                buf: Buf::EMPTY,
            };
            self.submit_to_shard(now, shard, request, memory);
        }
    }

    fn request_id(&self, join: u32) -> RequestId {
        RequestId(u64::from(self.index) << 32 | u64::from(join))
    }

    fn part_begins(&mut self, join: u32) {
        if let Some(join) = self.joins.get_mut(join) {
            join.outstanding += 1;
        }
    }

    /// A shard has answered, here or on another host.
    pub(crate) fn answered(&mut self, now: Nanos, ack: Ack, memory: &mut dyn Memory) {
        let asker = (ack.id.0 >> 32) as u16;
        if asker == self.index {
            if ack.bypassed
                && let Some(join) = self.joins.get_mut(ack.id.0 as u32)
            {
                join.bypassed = true;
            }
            self.part_answered(now, ack.id.0 as u32, ack.result, memory);
        } else {
            self.send(asker, Message::Answer(ack));
        }
    }

    fn part_answered(
        &mut self,
        now: Nanos,
        id: u32,
        result: Result<(), Failure>,
        memory: &mut dyn Memory,
    ) {
        let join = self.joins.get_mut(id);
        let join = join.expect("a part of a request that has not been answered");
        if let Err(failure) = result {
            join.failure.get_or_insert(failure);
        }
        join.outstanding -= 1;
        if join.outstanding > 0 {
            return;
        }
        if join.bypassed
            && join.promises
            && !planted::is(Bug::LossUnheard)
            && self.shared.origin_mark(join.volume) != join.origin_mark
        {
            join.failure.get_or_insert(Failure::Io);
        }
        // Another client may never hear of its failure: a crash may come first (I10).
        if join.is_flush
            && let Some(last) = self.shared.unheard().last(join.volume)
        {
            let volume = join.volume;
            join.unheard = join.hears.then_some(Unheard { volume, last });
            join.failure.get_or_insert(Failure::Io);
        }
        if std::mem::take(&mut join.flush_after) && join.failure.is_none() {
            join.outstanding = 1;
            let volume = join.volume;
            self.submit_flush(now, id, volume, memory);
            return self.part_answered(now, id, Ok(()), memory);
        }
        let join = self.joins.remove(id).expect("just seen");
        let joined = Joined {
            payload: join.payload,
            result: join.failure.map_or(Ok(()), Err),
            bypassed: join.bypassed,
            unheard: join.unheard,
        };
        if join.promises {
            self.failure.promises.push_back(joined);
        } else {
            self.answers.push_back(joined);
        }
    }

    /// Returns the next request that is answered. An answer that promises durability waits while
    /// the cache is failing (I22).
    pub fn next_answer(&mut self) -> Option<Joined<T>> {
        if let Some(answer) = self.answers.pop_front() {
            return Some(answer);
        }
        if self.failure.promises.is_empty() || self.may_not_promise() {
            return None;
        }
        self.failure.promises.pop_front()
    }

    /// A client has heard of these failures, as far as anybody can know: the answer has gone out.
    pub fn heard(&mut self, unheard: Unheard) {
        self.shared.unheard().heard(unheard.volume, unheard.last);
    }
}
