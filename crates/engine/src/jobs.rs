//! Operations of several steps: the state of each.

pub(crate) mod promote;
pub(crate) mod write;

use std::collections::VecDeque;

use crate::ids::JobId;
use crate::jobs::promote::PromoteJob;
use crate::jobs::write::WriteJob;
use crate::slab::Slab;

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

/// Operations of several steps in progress, and whose turn it is.
#[derive(Debug, Default)]
pub(crate) struct Jobs {
    pub(crate) table: Slab<JobId, Job>,
    /// Reads of one block in progress that have no request state.
    pub(crate) hits_alone: usize,
    pub(crate) runnable: VecDeque<Turn>,
    pub(crate) ended_promotions: Vec<JobId>,
    /// Write jobs that wait for a free segment, for memory or for the abandonment to be durable.
    pub(crate) stalled: Vec<JobId>,
}
