//! Threads of ours.

use std::thread::{Builder, JoinHandle};

use anyhow::{Context, Result};

/// Starts one by a name that tools show.
pub(crate) fn start<T: Send + 'static>(
    name: &str,
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<JoinHandle<T>> {
    let started = Builder::new().name(name.to_owned()).spawn(work);
    started.with_context(|| {
        format!(
            "cannot start the thread {name}; is a limit reached (`ulimit -u`, or TasksMax= of the service)?"
        )
    })
}
