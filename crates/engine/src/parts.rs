//! A shard put together: each part owns its fields, and `paths` takes a request through them.

use std::collections::VecDeque;

use crate::ahead::ReadAhead;
use crate::buffer::MemoryBuffer;
use crate::ids::RequestIndex;
use crate::interface::{Ack, Nanos, VolumeSlot};
use crate::jobs::Jobs;
use crate::origin::Origin;
use crate::policy::Policy;
use crate::requests::RequestState;
use crate::scrub::Scrub;
use crate::shm_journal::ShmIdentity;
use crate::slab::Slab;
use crate::space::Space;
use crate::spare::Spare;
use crate::store::Store;
use crate::store::op::HitRead;

/// A shard of a cache: every decision about it, and no I/O.
///
/// The driver calls [`Engine::submit`] and [`Engine::complete`] as things happen, then
/// [`Engine::advance`] once per batch, and carries out what [`Engine::next_action`] gives it.
#[derive(Debug)]
pub struct Engine {
    pub(crate) store: Store,
    pub(crate) policy: Policy,
    pub(crate) origin: Origin,
    pub(crate) space: Space,
    pub(crate) ahead: ReadAhead,
    pub(crate) buffer: MemoryBuffer,
    pub(crate) identity: ShmIdentity,
    pub(crate) requests: Slab<RequestIndex, RequestState>,
    pub(crate) jobs: Jobs,
    pub(crate) spare_buffered: Spare,
    pub(crate) stalled_reads: Vec<HitRead>,
    pub(crate) scrub: Scrub,
    pub(crate) looks: Looks,
    pub(crate) acks: VecDeque<Ack>,
    /// See [`Engine::next_unheard`].
    pub(crate) unheard: Vec<VolumeSlot>,
}

/// When everything has to be looked at.
#[derive(Debug, Default)]
pub(crate) struct Looks {
    /// Otherwise nothing becomes due before.
    pub(crate) quiet_until: Nanos,
    /// True if a logged block more or less makes no difference to the next [`Engine::advance`].
    pub(crate) steady: bool,
    /// An orderly stop is coming to its end.
    pub(crate) held: bool,
}
