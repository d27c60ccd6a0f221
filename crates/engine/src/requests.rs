//! The state of a request in progress.

use crate::interface::{Failure, Nanos, Request};

/// A request in progress.
#[derive(Debug)]
pub(crate) struct RequestState {
    pub(crate) request: Request,
    pub(crate) outstanding: u32,
    pub(crate) failure: Option<Failure>,
    /// Some of a write bypassed the cache, or the origin has a part in a read.
    pub(crate) bypassed: bool,
    pub(crate) started: Nanos,
}
