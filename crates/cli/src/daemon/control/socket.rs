//! The control socket: Varlink's wire format, one JSON object and a NUL byte per message.
//!
//! `{"method":"org.forebay.Status","parameters":{}}` is answered by `{"parameters":{...}}` or
//! `{"error":"org.forebay.Refused","parameters":{"message":"..."}}`. With `"more":true` a drain or
//! resize answers several times, each but the last with `"continues":true`. A client that closes
//! its connection interrupts its command. `Record` wants `"upgrade":true`: a recording follows its
//! answer, to the end of the connection.

use std::io::{BufRead, BufReader, Read};
use std::os::unix::net::{UnixListener, UnixStream};
use std::sync::Arc;

use anyhow::Result;
use serde::Deserialize;
use serde_json::{Value, json};

use super::answer::{error_reply, send};
use super::methods::{Asked, Parameters};
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

fn answer(daemon: &Arc<Daemon>, stream: &UnixStream, call: &Call) -> bool {
    let result = parameters(call).and_then(|given| {
        let asked = Asked {
            daemon,
            stream,
            more: call.more,
            given: &given,
        };
        asked.carry_out(&call.method)
    });
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
