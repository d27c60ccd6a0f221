//! A client's request on its way: cut into one request per shard, answered when all of those
//! are.

use forebay_engine::{
    Ack, Buf, Failure, MAX_REQUEST_BYTES, Memory, Request, RequestId, RequestKind, VolumeSlot,
};
use forebay_frontend::nbd::{
    BlockState, Command, ErrorCode, Extent, Lent, Parts, Request as NbdRequest, Ticket,
};

use super::link::{Message, Question};
use super::worker::Worker;

/// The longest discard or write-zeroes a shard takes at once.
const MAX_RANGE_BYTES: u32 = 64 << 20;
/// The longest range that one answer to block status covers.
const MAX_STATUS_BYTES: u64 = 32 << 20;
/// Buffer addresses and volume offsets agree modulo this, so that whole blocks move uncopied.
const PLACEMENT_BYTES: u64 = 4096;

/// One request and what it waits for.
#[derive(Debug)]
pub(super) struct Flight {
    pub(super) asker: Asker,
    volume: VolumeSlot,
    outstanding: u32,
    failure: Option<Failure>,
    /// A flush still follows (a trim with FUA).
    flush_after: bool,
    /// The data's buffers.
    parts: Parts,
}

impl Flight {
    /// A request that has no parts yet; it is outstanding by itself until they are submitted.
    fn new(asker: Asker, volume: VolumeSlot) -> Flight {
        Flight {
            asker,
            volume,
            outstanding: 1,
            failure: None,
            flush_after: false,
            parts: Parts::new(),
        }
    }
}

/// Who gets the answer.
#[derive(Debug)]
pub(super) enum Asker {
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
                self.give_up_spare_memory()
                    .then(|| self.alloc_parts_at_hand(volume, offset_bytes, len_bytes))?
            })
    }

    fn alloc_parts_at_hand(
        &mut self,
        volume: VolumeSlot,
        offset_bytes: u64,
        len_bytes: u32,
    ) -> Option<Parts> {
        let reserve_bytes = self.arena.view().len_bytes() / self.peers.len().max(1) / 4;
        if self.arena.free_bytes() < reserve_bytes + len_bytes as usize {
            return None;
        }
        let base = self
            .volumes
            .get(usize::from(volume.0))?
            .as_ref()?
            .0
            .config
            .base;
        let mut parts = Parts::new();
        let pieces =
            self.geometry
                .split(base, offset_bytes, u64::from(len_bytes), MAX_REQUEST_BYTES);
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
    pub(super) fn take_off(
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
        let asker = Asker::Client {
            client,
            ticket,
            reads: command == Command::Read,
        };
        if let Command::BlockStatus { .. } = command {
            return self.ask(asker, volume, offset_bytes, len_bytes);
        }
        let Some(kind) = command.engine_kind() else {
            return;
        };
        let flight = Flight {
            flush_after: command.needs_flush_after(),
            ..Flight::new(asker, volume)
        };
        self.launch_flight(flight, kind, (offset_bytes, len_bytes), parts);
    }

    /// Sends a request off that is one of the engine's; otherwise as [`Worker::take_off`].
    pub(super) fn launch(
        &mut self,
        asker: Asker,
        volume: VolumeSlot,
        kind: RequestKind,
        range: (u64, u32),
        parts: Parts,
    ) {
        self.launch_flight(Flight::new(asker, volume), kind, range, parts);
    }

    fn launch_flight(
        &mut self,
        flight: Flight,
        kind: RequestKind,
        range: (u64, u32),
        parts: Parts,
    ) {
        let volume = flight.volume;
        self.show(volume, kind, range);
        let flight = self.flights.insert(flight);
        if kind == RequestKind::Flush {
            self.flush_shards(flight, volume);
        } else {
            self.submit_pieces(flight, volume, kind, range, &parts);
        }
        if let Some(flight) = self.flights.get_mut(flight) {
            flight.parts = parts;
        }
        self.part_answered(flight, Ok(()));
    }

    fn submit_pieces(
        &mut self,
        flight: u32,
        volume: VolumeSlot,
        kind: RequestKind,
        (offset_bytes, len_bytes): (u64, u32),
        parts: &Parts,
    ) {
        let Some(Some((served, _))) = self.volumes.get(usize::from(volume.0)) else {
            return self.part_failed(flight, Failure::Detached);
        };
        let max_bytes = match kind {
            RequestKind::Discard | RequestKind::WriteZeroes { .. } => MAX_RANGE_BYTES,
            _ => MAX_REQUEST_BYTES,
        };
        let pieces = self.geometry.split(
            served.config.base,
            offset_bytes,
            u64::from(len_bytes),
            max_bytes,
        );
        let id = self.request_id(flight);
        let mut bufs = parts.iter();
        for (shard, offset_bytes, len_bytes) in pieces {
            let buf = bufs.next().map_or(Buf::EMPTY, |part| part.buf);
            self.part_begins(flight);
            self.submit(
                shard,
                Request {
                    id,
                    volume,
                    kind,
                    offset_bytes,
                    len_bytes,
                    buf,
                },
            );
        }
    }

    /// A flush is for all shards: any of them may hold what was written before it.
    fn flush_shards(&mut self, flight: u32, volume: VolumeSlot) {
        let id = self.request_id(flight);
        for shard in 0..self.owners.len() as u16 {
            self.part_begins(flight);
            let kind = RequestKind::Flush;
            self.submit(
                shard,
                Request {
                    id,
                    volume,
                    kind,
                    offset_bytes: 0,
                    len_bytes: 0,
                    buf: Buf::EMPTY,
                },
            );
        }
    }

    /// Makes everything written to a volume durable, for the daemon itself.
    pub(super) fn flush_volume(
        &mut self,
        volume: VolumeSlot,
        answer: std::sync::mpsc::Sender<Result<(), Failure>>,
    ) {
        let flight = self
            .flights
            .insert(Flight::new(Asker::Daemon(answer), volume));
        self.flush_shards(flight, volume);
        self.part_answered(flight, Ok(()));
    }

    fn request_id(&self, flight: u32) -> RequestId {
        RequestId((self.index as u64) << 32 | u64::from(flight))
    }

    fn part_begins(&mut self, flight: u32) {
        if let Some(flight) = self.flights.get_mut(flight) {
            flight.outstanding += 1;
        }
    }

    fn part_failed(&mut self, flight: u32, failure: Failure) {
        if let Some(flight) = self.flights.get_mut(flight) {
            flight.failure.get_or_insert(failure);
        }
    }

    /// A shard has answered, here or on another thread.
    pub(super) fn answered(&mut self, ack: Ack) {
        let asker = (ack.id.0 >> 32) as usize;
        if asker == self.index {
            self.part_answered(ack.id.0 as u32, ack.result);
        } else {
            self.peers[asker].send(Message::Answer(ack));
        }
    }

    fn part_answered(&mut self, name: u32, result: Result<(), Failure>) {
        let Some(flight) = self.flights.get_mut(name) else {
            return;
        };
        if let Err(failure) = result {
            flight.failure.get_or_insert(failure);
        }
        flight.outstanding -= 1;
        if flight.outstanding > 0 {
            return;
        }
        if flight.flush_after && flight.failure.is_none() {
            flight.flush_after = false;
            flight.outstanding = 1;
            let volume = flight.volume;
            self.flush_shards(name, volume);
            return self.part_answered(name, Ok(()));
        }
        let Some(flight) = self.flights.remove(name) else {
            return;
        };
        self.land(flight);
    }

    fn land(&mut self, flight: Flight) {
        self.landed = true;
        let result = flight.failure.map_or(Ok(()), Err);
        match flight.asker {
            Asker::Client {
                client,
                ticket,
                reads,
            } => self.reply(client, ticket, reads, result, flight.parts),
            Asker::Queue {
                place,
                tag,
                kind,
                len_bytes,
            } => {
                let mut result = result.map(|()| match kind {
                    RequestKind::Read | RequestKind::Write { .. } => len_bytes,
                    _ => 0,
                });
                if kind == RequestKind::Read
                    && result.is_ok()
                    && !self.copy_out(place, tag, &flight.parts)
                {
                    result = Err(Failure::Io);
                }
                self.free_parts(&flight.parts);
                self.answer(place, tag, result);
            }
            Asker::Daemon(answer) => {
                // Whoever asked may have stopped waiting.
                let _ = answer.send(result);
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
    fn ask(&mut self, asker: Asker, volume: VolumeSlot, offset_bytes: u64, len_bytes: u32) {
        let flight = self.flights.insert(Flight::new(asker, volume));
        let served = self
            .volumes
            .get(usize::from(volume.0))
            .and_then(Option::as_ref);
        let Some((served, _)) = served else {
            return self.part_answered(flight, Err(Failure::Detached));
        };
        let len_bytes = u64::from(len_bytes).min(MAX_STATUS_BYTES);
        let first = self
            .geometry
            .split(served.config.base, offset_bytes, len_bytes, u32::MAX)
            .next();
        let Some((shard, offset_bytes, len_bytes)) = first else {
            return self.part_answered(flight, Err(Failure::Invalid));
        };
        let question = Question {
            shard,
            volume,
            offset_bytes,
            len_bytes,
            asker: self.index,
            flight,
        };
        let owner = self.owners[usize::from(shard)];
        if owner == self.index {
            self.asked(question);
        } else {
            self.peers[owner].send(Message::Ask(question));
        }
    }

    pub(super) fn asked(&mut self, question: Question) {
        let block_bytes = u64::from(self.geometry.block_bytes);
        let (start, end) = (
            question.offset_bytes,
            question.offset_bytes + u64::from(question.len_bytes),
        );
        let mut extents: Vec<Extent> = Vec::new();
        let mut at = start;
        while at < end {
            let next = ((at / block_bytes + 1) * block_bytes).min(end);
            let (cached, dirty) = match self
                .shard(question.shard)
                .and_then(super::shard::Shard::engine)
            {
                Some(engine) => engine.block_state(question.volume, at),
                None => (false, false),
            };
            let state = BlockState {
                cached,
                dirty,
                ..BlockState::default()
            };
            match extents.last_mut() {
                Some(last) if last.state == state => last.len_bytes += next - at,
                _ => extents.push(Extent {
                    len_bytes: next - at,
                    state,
                }),
            }
            at = next;
        }
        if question.asker == self.index {
            self.told(question.flight, &extents);
        } else {
            self.peers[question.asker].send(Message::Told(question.flight, extents));
        }
    }

    pub(super) fn told(&mut self, flight: u32, extents: &[Extent]) {
        let Some(Flight {
            asker: Asker::Client { client, ticket, .. },
            ..
        }) = self.flights.remove(flight)
        else {
            return;
        };
        if let Some(client) = self.clients.get_mut(client) {
            client.nbd.reply_status(ticket, extents);
            client.queue(&mut self.busy);
        }
    }
}
