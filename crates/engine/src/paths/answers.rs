//! Requests in progress: how many parts are outstanding, and the answer when none is.

use crate::buffer::MemoryBuffer;
use crate::ids::RequestIndex;
use crate::interface::{Ack, Failure, Nanos, Request, RequestId, RequestKind};
use crate::parts::Engine;
use crate::requests::RequestState;
use crate::scrub;

impl Engine {
    /// Registers a request with one part outstanding, which keeps it from ending while it is
    /// being taken apart.
    pub(crate) fn begin_request(&mut self, now: Nanos, request: Request) -> RequestIndex {
        self.requests.insert(RequestState {
            request,
            outstanding: 1,
            failure: None,
            bypassed: false,
            started: now,
        })
    }

    pub(crate) fn request(&mut self, request: RequestIndex) -> Request {
        self.requests.at(request).request
    }

    /// Notes that some of a write bypassed the cache, or that the origin has a part in a read.
    pub(crate) fn note_bypass(&mut self, request: RequestIndex) {
        self.requests.at(request).bypassed = true;
    }

    /// When a request was submitted.
    pub(crate) fn submitted_at(&mut self, request: RequestIndex) -> Nanos {
        self.requests.at(request).started
    }

    pub(crate) fn add_part(&mut self, request: RequestIndex) {
        self.requests.at(request).outstanding += 1;
    }

    /// Answers a write that went well and has no request state. Returns how long it took.
    #[inline(always)]
    pub(super) fn answer_write(
        &mut self,
        now: Nanos,
        id: RequestId,
        started: Nanos,
        bypassed: bool,
    ) -> Nanos {
        self.acks.push_back(Ack {
            id,
            result: Ok(()),
            bypassed,
        });
        let took = now.since(started);
        self.store.stats.write_latency.record(took);
        took
    }

    /// Ends one part; with the last one the request is answered, with the first failure if any.
    pub(crate) fn finish_part(
        &mut self,
        now: Nanos,
        request: RequestIndex,
        result: Result<(), Failure>,
    ) {
        let state = self.requests.at(request);
        if let Err(failure) = result {
            state.failure.get_or_insert(failure);
        }
        state.outstanding -= 1;
        if state.outstanding > 0 {
            return;
        }
        let state = self.requests.remove(request).expect("in progress");
        let result = state.failure.map_or(Ok(()), Err);
        if state.request.id == scrub::REQUEST {
            return self.suspect_was_read(&state.request, result);
        }
        if let Some(part) = MemoryBuffer::part_of(state.request.id) {
            return self.buffer_request_ended(part, result);
        }
        let is_straight = state.request.buf.is_of_client() && result.is_ok();
        self.store.stats.straight_requests += u64::from(is_straight);
        self.acks.push_back(Ack {
            id: state.request.id,
            result,
            bypassed: state.bypassed,
        });
        let latency = now.since(state.started);
        match state.request.kind {
            RequestKind::Read => self.store.stats.read_latency.record(latency),
            RequestKind::Write { .. } => self.store.stats.write_latency.record(latency),
            RequestKind::Flush => self.store.stats.flush_latency.record(latency),
            _ => {}
        }
        if result.is_err_and(|failure| failure != Failure::NotStraight) {
            self.store.stats.failed_requests += 1;
        }
    }
}
