//! The control socket: Varlink's wire format, one JSON object and a NUL byte per message.
//!
//! `{"method":"org.forebay.Status","parameters":{}}` is answered by `{"parameters":{...}}` or
//! `{"error":"org.forebay.Refused","parameters":{"message":"..."}}`. With `"more":true` a drain
//! or resize answers several times, each but the last with `"continues":true`. A client that closes its
//! connection interrupts what it asked for. `Record` wants `"upgrade":true`: what follows its answer
//! is a recording, to the end of the connection.

use std::io::{BufRead, BufReader, Read};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::sync::Arc;
use std::sync::mpsc::channel;

use anyhow::{Context, Result};
use forebay_engine::Mode;
use serde::Deserialize;
use serde_json::{Value, json};

use super::answer::{gone, send};
use super::resize::{Emptying, Resized};
use super::volumes::Progress;
use crate::config;
use crate::daemon::notice::{Devices, Notice};
use crate::daemon::state::Daemon;
use crate::failure::{self, Usage};
use crate::thread;

/// The one method after which the connection no longer carries messages.
const RECORD: &str = "org.forebay.Record";
/// The longest message a client may send.
const MAX_MESSAGE_BYTES: u64 = 1 << 20;

#[derive(Debug, Deserialize)]
struct Call {
    method: String,
    #[serde(default)]
    parameters: Value,
    #[serde(default)]
    more: bool,
    #[serde(default)]
    upgrade: bool,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct Parameters {
    name: Option<String>,
    new_name: Option<String>,
    mode: Option<String>,
    origin: Option<String>,
    emulate: Option<String>,
    key: Option<String>,
    size_bytes: Option<u64>,
    since_unix_seconds: Option<f64>,
    after: Option<u64>,
    value: Option<String>,
    device: Option<String>,
    force: bool,
    drain: bool,
    keep_devices: bool,
}

/// Serves the control socket from a thread of its own, each client from another.
pub(in crate::daemon) fn start(daemon: Arc<Daemon>, listener: UnixListener) -> Result<()> {
    let serve = move || {
        for stream in listener.incoming() {
            let Ok(stream) = stream else { continue };
            let daemon = Arc::clone(&daemon);
            let started = thread::start("forebay-command", move || converse(&daemon, &stream));
            if let Err(error) = started {
                let error = failure::describe(&error);
                tracing::warn!("a command was turned away: {error}");
            }
        }
    };
    thread::start("forebay-control", serve)?;
    Ok(())
}

fn converse(daemon: &Arc<Daemon>, stream: &UnixStream) {
    let mut input = BufReader::new(stream);
    loop {
        let mut message = Vec::new();
        let read = (&mut input)
            .take(MAX_MESSAGE_BYTES)
            .read_until(0, &mut message);
        if !matches!(read, Ok(1..)) || message.pop() != Some(0) {
            return;
        }
        let answered = match serde_json::from_slice::<Call>(&message) {
            Ok(call) if call.method == RECORD => {
                if let Err(error) = record(daemon, stream, &call) {
                    send(stream, &error_reply(&error));
                }
                return;
            }
            Ok(call) => answer(daemon, stream, &call),
            Err(error) => send(
                stream,
                &error_reply(&Usage(format!("the message is no call: {error}")).into()),
            ),
        };
        if !answered {
            return;
        }
    }
}

fn error_reply(error: &anyhow::Error) -> Value {
    let name = match failure::exit_code(error) {
        failure::USAGE => "org.forebay.Usage",
        failure::REFUSED => "org.forebay.Refused",
        failure::INTERRUPTED => "org.forebay.Interrupted",
        failure::DAMAGE => "org.forebay.Damage",
        _ => "org.forebay.Failure",
    };
    json!({ "error": name, "parameters": { "message": failure::describe(error) } })
}

fn answer(daemon: &Arc<Daemon>, stream: &UnixStream, call: &Call) -> bool {
    let result =
        parameters(call).and_then(|parameters| carry_out(daemon, stream, call, &parameters));
    match result {
        Ok(parameters) => send(stream, &json!({ "parameters": parameters })),
        Err(error) => send(stream, &error_reply(&error)),
    }
}

fn parameters(call: &Call) -> Result<Parameters> {
    let given = if call.parameters.is_null() {
        json!({})
    } else {
        call.parameters.clone()
    };
    serde_json::from_value(given)
        .map_err(|error| Usage(format!("wrong parameters: {error}")).into())
}

fn record(daemon: &Arc<Daemon>, stream: &UnixStream, call: &Call) -> Result<()> {
    if !call.upgrade {
        let told = "a recording follows its answer as bytes: call it with \"upgrade\":true";
        return Err(Usage(told.to_owned()).into());
    }
    let volume = daemon.find_volume(parameters(call)?.name.as_deref())?;
    daemon.record(&volume, stream)
}

fn carry_out(
    daemon: &Arc<Daemon>,
    stream: &UnixStream,
    call: &Call,
    given: &Parameters,
) -> Result<Value> {
    let need = |value: &Option<String>, what: &str| {
        value
            .clone()
            .ok_or_else(|| anyhow::Error::from(Usage(format!("the parameter `{what}` is missing"))))
    };
    let mode = |text: &String| {
        text.parse::<Mode>()
            .map_err(|error| anyhow::Error::from(Usage(error)))
    };
    let mut tell = |progress: Progress| {
        !gone(stream) && (!call.more || send(stream, &progress_message(progress)))
    };
    match call.method.as_str() {
        "org.forebay.Status" => Ok(serde_json::to_value(daemon.status()?)?),
        "org.forebay.History" => {
            let since = given.since_unix_seconds.unwrap_or(0.0);
            Ok(serde_json::to_value(daemon.history.after(since))?)
        }
        "org.forebay.Events" => {
            let events = daemon.events.after(given.after.unwrap_or(0));
            Ok(json!({ "events": events }))
        }
        "org.forebay.Mode" => {
            let (name, mode) = (
                need(&given.name, "name")?,
                mode(&need(&given.mode, "mode")?)?,
            );
            daemon.set_mode(&name, mode)?;
            Ok(json!({ "name": name, "mode": mode.name() }))
        }
        "org.forebay.Set" => {
            let (key, value) = (need(&given.key, "key")?, need(&given.value, "value")?);
            daemon.set(&key, &value)
        }
        "org.forebay.Get" => daemon.get(given.key.as_deref()),
        "org.forebay.Drain" => {
            let volume = daemon.find_volume(given.name.as_deref())?;
            let progress = daemon.drain(&volume, &mut tell)?;
            Ok(drained(&volume.name, progress))
        }
        "org.forebay.Advise" => {
            let volume = daemon.find_volume(given.name.as_deref())?;
            let advised = daemon.advise(&volume, given.size_bytes)?;
            Ok(json!({
                "name": volume.name,
                "block_size_bytes": advised.block_bytes,
                "missed_requests": advised.missed,
                "findings": advised.findings,
            }))
        }
        "org.forebay.Attach" => {
            daemon.check_may_leave_file()?;
            let origin = need(&given.origin, "origin")?;
            let mode = given.mode.as_ref().map(mode).transpose()?;
            let emulate = given.emulate.as_deref().map(config::model).transpose()?;
            let mut opened =
                daemon.open_new_origin(Path::new(&origin), given.name.clone(), mode)?;
            let exports = daemon.attach(&mut opened, emulate)?;
            Ok(json!({ "origin": origin, "exports": exports }))
        }
        "org.forebay.Detach" => {
            let volume = daemon.find_volume(given.name.as_deref())?;
            daemon.detach(&volume, &mut tell)?;
            Ok(json!({ "name": volume.name }))
        }
        "org.forebay.Rename" => {
            daemon.check_may_leave_file()?;
            let (name, new) = (
                need(&given.name, "name")?,
                need(&given.new_name, "new_name")?,
            );
            daemon.rename(&name, &new)
        }
        "org.forebay.Resize" => {
            let mut tell = |emptying: Emptying| {
                !gone(stream) && (!call.more || send(stream, &emptying_message(emptying)))
            };
            let device = given.device.as_deref().map(Path::new);
            Ok(resized(&daemon.resize(
                device,
                given.size_bytes,
                &mut tell,
            )?))
        }
        "org.forebay.AddCacheDevice" => {
            daemon.check_may_leave_file()?;
            let device = need(&given.device, "device")?;
            let added = daemon.add_cache_device(Path::new(&device), given.force)?;
            Ok(resized(&added))
        }
        "org.forebay.RemoveCacheDevice" => {
            daemon.check_may_leave_file()?;
            let device = need(&given.device, "device")?;
            let mut tell = |emptying: Emptying| {
                !gone(stream) && (!call.more || send(stream, &emptying_message(emptying)))
            };
            let removed = daemon.remove_cache_device(Path::new(&device), &mut tell)?;
            Ok(resized(&removed))
        }
        "org.forebay.Reload" => daemon.reload(),
        "org.forebay.Stop" => stop(daemon, stream, given, &mut tell),
        other => Err(Usage(format!("there is no method `{other}`")).into()),
    }
}

fn stop(
    daemon: &Arc<Daemon>,
    stream: &UnixStream,
    given: &Parameters,
    tell: &mut dyn FnMut(Progress) -> bool,
) -> Result<Value> {
    let volumes = daemon.admin().volumes.clone();
    if !given.keep_devices {
        let instead = "unmount it or take it out of use first, or have its users wait for the next daemon with --keep-devices";
        volumes
            .iter()
            .try_for_each(|volume| Daemon::check_unused(volume, instead))?;
    }
    if given.drain {
        for volume in volumes {
            daemon.drain(&volume, tell)?;
        }
    }
    let (done, result) = channel();
    let (telling, told) = channel();
    let notice = Notice::Stop {
        done,
        told,
        devices: if given.keep_devices {
            Devices::Keep
        } else {
            Devices::KeepUsed
        },
    };
    daemon.notify(notice)?;
    let result = result
        .recv()
        .context("the daemon has stopped without saying how")?;
    let message = match result {
        Ok(()) => json!({ "parameters": { "stopped": true } }),
        Err(message) => error_reply(&anyhow::Error::msg(message)),
    };
    send(stream, &message);
    drop(telling);
    // The process ends now; the client has its answer.
    Ok(Value::Null)
}

fn progress_message(progress: Progress) -> Value {
    json!({ "continues": true, "parameters": progress_parameters(progress) })
}

/// How far a drain is, in JSON.
pub(in crate::daemon) fn progress_parameters(progress: Progress) -> Value {
    let done = progress.drained_bytes();
    let left = progress.began_with_bytes.saturating_sub(done);
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

fn emptying_message(emptying: Emptying) -> Value {
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

fn resized(resized: &Resized) -> Value {
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
