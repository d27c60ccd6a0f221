//! Threads of ours.

use std::thread::{Builder, JoinHandle};

use anyhow::{Context, Result};

/// Starts one by a name that tools show.
pub(crate) fn start<T: Send + 'static>(
    name: &str,
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<JoinHandle<T>> {
    let whose_log = tracing::Span::current();
    let started = Builder::new()
        .name(name.to_owned())
        .spawn(move || whose_log.in_scope(work));
    started.with_context(|| {
        format!(
            "cannot start the thread {name}; is a limit reached (`ulimit -u`, or TasksMax= of the service)?"
        )
    })
}
