//! Operations of several steps: what is known of each.

pub(crate) mod promote;
pub(crate) mod write;

use crate::jobs::promote::PromoteJob;
use crate::jobs::write::WriteJob;

/// What the queue of jobs says when requests of the memory buffer's own have ended.
pub(crate) const BUFFER_ENDED: u32 = u32::MAX - 1;

/// An operation of several steps.
#[derive(Debug)]
pub(crate) enum Job {
    Write(Box<WriteJob>),
    Promote(Box<PromoteJob>),
}
