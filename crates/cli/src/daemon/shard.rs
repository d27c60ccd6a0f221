//! What a worker drives: the engine of a shard, or the stand-in of an origin without a cache.

use forebay_engine::{Ack, Action, DeviceError, Engine, Memory, Nanos, OpId, Request, Stats};

use super::plain::Plain;

/// One part of the data path that decides.
#[derive(Debug)]
pub(super) enum Shard {
    /// A shard of a cache.
    Cached(Box<Engine>),
    /// No cache.
    Plain(Box<Plain>),
}

impl Shard {
    pub(super) fn submit(&mut self, now: Nanos, request: Request, memory: &mut dyn Memory) {
        match self {
            Shard::Cached(engine) => engine.submit(now, request, memory),
            Shard::Plain(plain) => plain.submit(now, request),
        }
    }

    pub(super) fn complete(
        &mut self,
        now: Nanos,
        op: OpId,
        result: Result<(), DeviceError>,
        memory: &mut dyn Memory,
    ) {
        match self {
            Shard::Cached(engine) => engine.complete(now, op, result, memory),
            Shard::Plain(plain) => plain.complete(now, op, result),
        }
    }

    pub(super) fn advance(&mut self, now: Nanos, memory: &mut dyn Memory) {
        match self {
            Shard::Cached(engine) => engine.advance(now, memory),
            Shard::Plain(_) => {}
        }
    }

    /// Gives back memory that serves no request yet; says whether there was any.
    pub(super) fn give_up_spare_memory(&mut self, memory: &mut dyn Memory) -> bool {
        match self {
            Shard::Cached(engine) => engine.give_up_reading_ahead(memory),
            Shard::Plain(_) => false,
        }
    }

    pub(super) fn next_action(&mut self) -> Option<Action> {
        match self {
            Shard::Cached(engine) => engine.next_action(),
            Shard::Plain(plain) => plain.next_action(),
        }
    }

    pub(super) fn next_ack(&mut self) -> Option<Ack> {
        match self {
            Shard::Cached(engine) => engine.next_ack(),
            Shard::Plain(plain) => plain.next_ack(),
        }
    }

    pub(super) fn next_deadline(&self) -> Option<Nanos> {
        match self {
            Shard::Cached(engine) => engine.next_deadline(),
            Shard::Plain(_) => None,
        }
    }

    pub(super) fn is_settled(&self) -> bool {
        match self {
            Shard::Cached(engine) => engine.is_settled(),
            Shard::Plain(plain) => plain.is_settled(),
        }
    }

    pub(super) fn stats(&self) -> &Stats {
        match self {
            Shard::Cached(engine) => engine.stats(),
            Shard::Plain(plain) => &plain.stats,
        }
    }

    pub(super) fn engine(&mut self) -> Option<&mut Engine> {
        match self {
            Shard::Cached(engine) => Some(engine),
            Shard::Plain(_) => None,
        }
    }
}
