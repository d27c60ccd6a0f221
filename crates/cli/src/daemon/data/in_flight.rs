//! A client's request on its way: with its buffers to the cache, and with the answer back.

use forebay_cache::{ClientRequest, Joined};
use forebay_engine::{Buf, Failure, MAX_REQUEST_BYTES, Memory, RequestKind, VolumeSlot};
use forebay_frontend::nbd::{
    BlockState, Command, ErrorCode, Lent, Parts, Request as NbdRequest, StatusExtent, Ticket,
};
use smallvec::SmallVec;

use super::link::{Message, StatusQuery};
use super::volume_times::Timed;
use super::worker::Worker;

/// The longest range that one answer to block status covers.
const MAX_STATUS_BYTES: u64 = 32 << 20;
/// Buffer addresses and volume offsets agree modulo this, so that whole blocks move uncopied.
const PLACEMENT_BYTES: u64 = 4096;

/// A request, as the cache gives it back with its answer.
#[derive(Debug)]
pub(in crate::daemon) struct InFlight {
    requester: Requester,
    /// The data's buffers.
    parts: Parts,
    /// Clients' requests are timed.
    timed: Option<Timed>,
}

/// Receiver of the answer.
#[derive(Debug)]
pub(super) enum Requester {
    /// A client, with its data if it reads.
    Client {
        client: u32,
        ticket: Ticket,
        reads: bool,
    },
    /// The user of a block device: the place of its queue, and the tag of the request.
    Queue {
        place: u32,
        tag: u16,
        kind: RequestKind,
        len_bytes: u32,
    },
    /// The daemon itself.
    Daemon(std::sync::mpsc::Sender<Result<(), Failure>>),
}

/// The whole buffer a part lies in, as the token that comes back when it is no longer needed.
fn token_of(whole: Buf) -> u64 {
    u64::from(whole.start_sector) << 32 | u64::from(whole.len_bytes)
}

fn buf_of(token: u64) -> Buf {
    Buf {
        start_sector: (token >> 32) as u32,
        len_bytes: token as u32,
    }
}

/// Whether the data went straight to its reader.
fn is_straight(parts: &Parts) -> bool {
    parts.first().is_some_and(|part| part.buf.is_of_client())
}

impl Worker {
    /// Gives back what [`Worker::alloc_parts`] gave.
    pub(super) fn free_parts(&mut self, parts: &Parts) {
        for part in parts {
            self.arena.free(buf_of(part.token));
        }
    }

    /// Gives back the buffer a token stands for.
    pub(super) fn free_token(&mut self, token: u64) {
        self.arena.free(buf_of(token));
    }

    /// Buffers for the data of a range, one for each piece it is cut into, or none if memory is
    /// short. A part of the arena is left to the engines, which must be able to go on for any
    /// memory to come back.
    pub(super) fn alloc_parts(
        &mut self,
        volume: VolumeSlot,
        offset_bytes: u64,
        len_bytes: u32,
    ) -> Option<Parts> {
        self.alloc_parts_at_hand(volume, offset_bytes, len_bytes)
            .or_else(|| {
                self.release_spare_memory()
                    .then(|| self.alloc_parts_at_hand(volume, offset_bytes, len_bytes))?
            })
    }

    /// This thread's part of the memory, in bytes.
    pub(super) fn arena_share_bytes(&self) -> usize {
        self.arena.view().len_bytes() / self.peers.len().max(1)
    }

    fn alloc_parts_at_hand(
        &mut self,
        volume: VolumeSlot,
        offset_bytes: u64,
        len_bytes: u32,
    ) -> Option<Parts> {
        let reserve_bytes = self.arena_share_bytes() / 4;
        if self.arena.free_bytes() < reserve_bytes + len_bytes as usize {
            return None;
        }
        let mut parts = Parts::new();
        let pieces = self
            .host
            .pieces(volume, offset_bytes, len_bytes, MAX_REQUEST_BYTES)?;
        for (_, offset_bytes, len_bytes) in pieces {
            let before = (offset_bytes % PLACEMENT_BYTES) as usize;
            let Some(whole) = self.arena.alloc(before + len_bytes as usize) else {
                self.free_parts(&parts);
                return None;
            };
            let buf = whole.slice(before, len_bytes as usize);
            parts.push(Lent {
                buf,
                token: token_of(whole),
            });
        }
        Some(parts)
    }

    /// Sends an NBD client's request off. Reads and writes bring buffers from
    /// [`Worker::alloc_parts`] for the same range.
    pub(super) fn submit_nbd(
        &mut self,
        client: u32,
        volume: VolumeSlot,
        request: NbdRequest,
        parts: Parts,
    ) {
        let NbdRequest {
            ticket,
            command,
            offset_bytes,
            len_bytes,
        } = request;
        let requester = Requester::Client {
            client,
            ticket,
            reads: command == Command::Read,
        };
        if let Command::BlockStatus { .. } = command {
            return self.query_status(requester, volume, offset_bytes, len_bytes);
        }
        let Some(kind) = command.engine_kind() else {
            return;
        };
        let request = ClientRequest {
            volume,
            kind,
            offset_bytes,
            len_bytes,
            flush_after: command.needs_flush_after(),
            is_of_daemon: false,
        };
        self.submit(requester, request, parts);
    }

    /// Sends a request off that is one of the cache's; otherwise as [`Worker::submit_nbd`].
    pub(super) fn submit(&mut self, requester: Requester, request: ClientRequest, parts: Parts) {
        self.taps.show(self.now, &request);
        self.charge(&request);
        self.submit_again(requester, request, parts);
    }

    fn charge(&mut self, request: &ClientRequest) {
        if let Some(Some((volume, _))) = self.volumes.get(usize::from(request.volume.0)) {
            let data = match request.kind {
                RequestKind::Read | RequestKind::Write { .. } => request.len_bytes,
                _ => 0,
            };
            volume.rate.charge(self.now, data.into());
        }
    }

    /// As [`Worker::submit`], for a request that was sent off before and did not get far.
    pub(super) fn submit_again(
        &mut self,
        requester: Requester,
        request: ClientRequest,
        parts: Parts,
    ) {
        let bufs: SmallVec<[Buf; 2]> = parts.iter().map(|part| part.buf).collect();
        let timed = Timed::new(self.now, request.volume, request.kind);
        let in_flight = InFlight {
            requester,
            parts,
            timed,
        };
        self.host
            .submit(self.now, in_flight, request, bufs, &mut self.arena);
    }

    /// Makes everything written to a volume durable, for the daemon itself.
    pub(in crate::daemon) fn flush_volume(
        &mut self,
        volume: VolumeSlot,
        answer: std::sync::mpsc::Sender<Result<(), Failure>>,
    ) {
        let in_flight = InFlight {
            requester: Requester::Daemon(answer),
            parts: Parts::new(),
            timed: None,
        };
        let (request, none) = (ClientRequest::flush_of_daemon(volume), []);
        self.host
            .submit(self.now, in_flight, request, none, &mut self.arena);
    }

    /// The answer to a request, for whoever request.
    pub(super) fn finish(&mut self, answer: Joined<InFlight>) {
        self.has_finished = true;
        let Joined {
            payload: in_flight,
            result,
            bypassed,
            unheard,
        } = answer;
        if let (Err(Failure::NotStraight), Requester::Queue { place, tag, .. }) =
            (result, &in_flight.requester)
        {
            return self.begin_with_copies(*place, *tag);
        }
        if let Some(timed) = in_flight.timed {
            self.times.record(self.now, timed, bypassed);
        }
        match in_flight.requester {
            Requester::Client {
                client,
                ticket,
                reads,
            } => {
                if let Some(unheard) = unheard {
                    self.will_hear(client, unheard);
                }
                self.reply(client, ticket, reads, result, in_flight.parts);
            }
            Requester::Queue {
                place,
                tag,
                kind,
                len_bytes,
            } => {
                let mut result = result.map(|()| match kind {
                    RequestKind::Read | RequestKind::Write { .. } => len_bytes,
                    _ => 0,
                });
                let is_read = kind == RequestKind::Read && result.is_ok();
                if is_straight(&in_flight.parts) {
                    self.went_straight(place);
                } else if is_read && !self.copy_out(place, tag, &in_flight.parts) {
                    result = Err(Failure::Io);
                }
                self.free_parts(&in_flight.parts);
                self.answer(place, tag, result);
                if let Some(unheard) = unheard {
                    self.host.heard(unheard);
                }
            }
            Requester::Daemon(answer) => {
                // The requester may have stopped waiting.
                let _ = answer.send(result);
                assert_eq!(unheard, None, "the daemon's flush is no client's");
            }
        }
    }

    fn reply(
        &mut self,
        client: u32,
        ticket: Ticket,
        reads: bool,
        result: Result<(), Failure>,
        parts: Parts,
    ) {
        let with_data = reads && result.is_ok();
        if !with_data {
            self.free_parts(&parts);
        }
        let Some(client) = self.clients.get_mut(client) else {
            return;
        };
        if with_data {
            client.nbd.reply_read(ticket, parts);
        } else {
            client
                .nbd
                .reply_done(ticket, result.map_err(ErrorCode::from));
        }
        client.queue(&mut self.busy);
    }

    /// Block status: the state of the first blocks, as far as they are in one shard. The client
    /// asks again for the rest.
    fn query_status(
        &mut self,
        requester: Requester,
        volume: VolumeSlot,
        offset_bytes: u64,
        len_bytes: u32,
    ) {
        let len_bytes = u64::from(len_bytes).min(MAX_STATUS_BYTES) as u32;
        let pieces = self.host.pieces(
            volume,
            offset_bytes,
            len_bytes,
            MAX_REQUEST_BYTES.max(len_bytes),
        );
        let Some(mut pieces) = pieces else {
            return self.refuse_status_query(requester, Failure::Detached);
        };
        let first = pieces.next();
        let Some((shard, offset_bytes, len_bytes)) = first else {
            return self.refuse_status_query(requester, Failure::Invalid);
        };
        let in_flight = self.status_queries.insert(requester);
        let query = StatusQuery {
            shard,
            volume,
            offset_bytes,
            len_bytes,
            requester: self.index,
            in_flight,
        };
        let owner = usize::from(self.host.owner_of(shard));
        if owner == self.index {
            self.answer_status_query(query);
        } else {
            self.peers[owner].send(Message::StatusQuery(query));
        }
    }

    pub(super) fn answer_status_query(&mut self, query: StatusQuery) {
        let block_bytes = u64::from(self.host.geometry().block_bytes);
        let (start, end) = (
            query.offset_bytes,
            query.offset_bytes + u64::from(query.len_bytes),
        );
        let mut extents: Vec<StatusExtent> = Vec::new();
        let mut at = start;
        while at < end {
            let next = ((at / block_bytes + 1) * block_bytes).min(end);
            let (cached, dirty) = match self.host.engine(query.shard) {
                Some(engine) => engine.block_state(query.volume, at),
                None => (false, false),
            };
            let state = BlockState {
                cached,
                dirty,
                ..BlockState::default()
            };
            match extents.last_mut() {
                Some(last) if last.state == state => last.len_bytes += next - at,
                _ => extents.push(StatusExtent {
                    len_bytes: next - at,
                    state,
                }),
            }
            at = next;
        }
        if query.requester == self.index {
            self.take_status_reply(query.in_flight, &extents);
        } else {
            self.peers[query.requester].send(Message::StatusReply(query.in_flight, extents));
        }
    }

    /// There is no answer to a query.
    fn refuse_status_query(&mut self, requester: Requester, failure: Failure) {
        let in_flight = InFlight {
            requester,
            parts: Parts::new(),
            timed: None,
        };
        self.finish(Joined::refused(in_flight, failure));
    }

    pub(in crate::daemon) fn take_status_reply(
        &mut self,
        in_flight: u32,
        extents: &[StatusExtent],
    ) {
        let Some(Requester::Client { client, ticket, .. }) = self.status_queries.remove(in_flight)
        else {
            return;
        };
        if let Some(client) = self.clients.get_mut(client) {
            client.nbd.reply_status(ticket, extents);
            client.queue(&mut self.busy);
        }
    }
}
