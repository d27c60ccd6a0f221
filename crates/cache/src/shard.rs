//! Shards as a host drives them: the engine of a shard, or the stand-in of an origin without a
//! cache.

use forebay_engine::{
    Ack, Action, Device, DeviceError, Engine, Memory, Nanos, OpId, Request, Stats, VolumeSlot,
};

use crate::plain::Plain;

/// A part of the data path that decides.
#[derive(Debug)]
pub enum Shard {
    /// A shard of a cache.
    Cached(Box<Engine>),
    /// No cache.
    Plain(Box<Plain>),
}

impl Shard {
    pub(crate) fn submit(&mut self, now: Nanos, request: Request, memory: &mut dyn Memory) {
        match self {
            Shard::Cached(engine) => engine.submit(now, request, memory),
            Shard::Plain(plain) => plain.submit(now, request),
        }
    }

    pub(crate) fn complete(
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

    pub(crate) fn advance(&mut self, now: Nanos, memory: &mut dyn Memory) {
        match self {
            Shard::Cached(engine) => engine.advance(now, memory),
            Shard::Plain(_) => {}
        }
    }

    /// When it is to be advanced, if nothing happens before; in the past if it has something to do.
    #[inline]
    pub(crate) fn due(&self) -> Nanos {
        match self {
            Shard::Cached(engine) => engine.due(),
            Shard::Plain(_) => Nanos::NEVER,
        }
    }

    /// Gives back memory that serves no request yet; says whether there was any.
    pub fn release_spare_memory(&mut self, memory: &mut dyn Memory) -> bool {
        match self {
            Shard::Cached(engine) => engine.drop_read_ahead(memory),
            Shard::Plain(_) => false,
        }
    }

    pub(crate) fn next_action(&mut self) -> Option<Action> {
        match self {
            Shard::Cached(engine) => engine.next_action(),
            Shard::Plain(plain) => plain.next_action(),
        }
    }

    pub(crate) fn next_ack(&mut self) -> Option<Ack> {
        match self {
            Shard::Cached(engine) => engine.next_ack(),
            Shard::Plain(plain) => plain.next_ack(),
        }
    }

    pub(crate) fn next_unheard(&mut self) -> Option<VolumeSlot> {
        match self {
            Shard::Cached(engine) => engine.next_unheard(),
            Shard::Plain(plain) => plain.next_unheard(),
        }
    }

    pub(crate) fn next_deadline(&self) -> Option<Nanos> {
        match self {
            Shard::Cached(engine) => engine.next_deadline(),
            Shard::Plain(_) => None,
        }
    }

    /// Whether nothing is on its way and everything published is durable.
    #[must_use]
    pub fn is_settled(&self) -> bool {
        match self {
            Shard::Cached(engine) => engine.is_settled(),
            Shard::Plain(plain) => plain.is_settled(),
        }
    }

    /// The counters.
    #[must_use]
    pub fn stats(&self) -> &Stats {
        match self {
            Shard::Cached(engine) => engine.stats(),
            Shard::Plain(plain) => &plain.stats,
        }
    }

    /// The engine, if there is a cache.
    pub fn engine(&mut self) -> Option<&mut Engine> {
        match self {
            Shard::Cached(engine) => Some(engine),
            Shard::Plain(_) => None,
        }
    }

    /// A flush of a device failed that this shard did not ask for itself.
    pub(crate) fn flush_failed(&mut self, now: Nanos, device: Device, memory: &mut dyn Memory) {
        match (self, device) {
            (Shard::Cached(engine), Device::Cache(_)) => engine.cache_flush_failed(),
            (Shard::Cached(engine), Device::Origin(volume)) => {
                engine.origin_flush_failed(now, volume, memory);
            }
            (Shard::Plain(plain), Device::Origin(volume)) => plain.flush_failed(volume),
            (Shard::Plain(_), Device::Cache(_)) => {}
        }
    }

    /// Why the shard failed, if it did.
    pub(crate) fn failure(&self) -> Option<&'static str> {
        match self {
            Shard::Cached(engine) => engine.failure(),
            Shard::Plain(_) => None,
        }
    }
}
