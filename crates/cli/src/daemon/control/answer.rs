//! Answers on their way to a client of the control socket, in JSON.

use std::io::Write;
use std::os::unix::net::UnixStream;

use serde_json::{Value, json};

use super::resize::{Emptying, Resized};
use super::volumes::Progress;
use crate::failure;

/// Sends a message; says whether the client is still there.
pub(in crate::daemon) fn send(mut stream: &UnixStream, message: &Value) -> bool {
    let mut bytes = message.to_string().into_bytes();
    bytes.push(0);
    stream.write_all(&bytes).is_ok()
}

/// A method that failed.
pub(super) fn error_reply(error: &anyhow::Error) -> Value {
    let name = match failure::exit_code(error) {
        failure::USAGE => "org.forebay.Usage",
        failure::REFUSED => "org.forebay.Refused",
        failure::INTERRUPTED => "org.forebay.Interrupted",
        failure::DAMAGE => "org.forebay.Damage",
        _ => "org.forebay.Failure",
    };
    json!({ "error": name, "parameters": { "message": failure::describe(error) } })
}

/// Progress of a drain, in a message that others follow.
pub(super) fn progress_message(progress: Progress) -> Value {
    json!({ "continues": true, "parameters": progress_parameters(progress) })
}

/// Progress of a drain, in JSON.
pub(in crate::daemon) fn progress_parameters(progress: Progress) -> Value {
    let done = progress.drained_bytes();
    let to_do = (progress.began_with_bytes).saturating_sub(progress.may_leave_bytes);
    let left = to_do.saturating_sub(done);
    let rate = done as f64 / progress.seconds.max(0.001);
    let seconds_left = if done == 0 {
        Value::Null
    } else {
        json!(left as f64 / rate)
    };
    json!({
        "dirty_bytes": progress.backlog.dirty_bytes,
        "drained_bytes": done,
        "bytes_per_second": rate as u64,
        "seconds_left": seconds_left,
    })
}

/// Progress of an emptying, in a message that others follow.
pub(super) fn emptying_message(emptying: Emptying) -> Value {
    let Emptying {
        left_bytes,
        all_bytes,
        seconds,
    } = emptying;
    let done = all_bytes.saturating_sub(left_bytes);
    let seconds_left = (done > 0).then(|| seconds * left_bytes as f64 / done as f64);
    let parameters = json!({
        "left_bytes": left_bytes,
        "all_bytes": all_bytes,
        "seconds_left": seconds_left,
    });
    json!({ "continues": true, "parameters": parameters })
}

/// The cache's new size, in JSON.
pub(super) fn resized(resized: &Resized) -> Value {
    json!({
        "before_bytes": resized.before_bytes,
        "after_bytes": resized.after_bytes,
        "device_end_bytes": resized.end_bytes,
        "seconds": resized.seconds,
        "configuration": resized.configuration,
    })
}

/// The end of a drain, in JSON.
pub(in crate::daemon) fn drained(name: &str, progress: Progress) -> Value {
    json!({
        "name": name,
        "dirty_bytes": progress.backlog.dirty_bytes,
        "drained_bytes": progress.drained_bytes(),
        "seconds": progress.seconds,
    })
}
