//! Operations of several steps: what is known of each.

pub(crate) mod promote;
pub(crate) mod write;

use crate::ids::JobId;
use crate::jobs::promote::PromoteJob;
use crate::jobs::write::WriteJob;

/// Whose turn it is to go on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Turn {
    Job(JobId),
    /// Requests of the memory buffer have ended.
    Buffer,
}

/// An operation of several steps.
#[derive(Debug)]
pub(crate) enum Job {
    Write(Box<WriteJob>),
    Promote(Box<PromoteJob>),
}
