//! Threads that must run as soon as something happens, as hardware does.

use std::process::{Command, Stdio};

/// Gives the calling thread a real-time priority. Without the right to, timings are only less
/// exact, so it says so and goes on.
pub fn raise_this_thread(priority: u8) {
    let id = rustix::thread::gettid().as_raw_nonzero().get();
    raise(id, priority);
}

/// Gives a thread a real-time priority, by its id.
pub fn raise(thread: i32, priority: u8) {
    let done = Command::new("chrt")
        .args(["-f", "-p", &priority.to_string(), &thread.to_string()])
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status();
    if !done.is_ok_and(|status| status.success()) {
        eprintln!("lab: thread {thread} gets no real-time priority; latencies will be less exact");
    }
}
