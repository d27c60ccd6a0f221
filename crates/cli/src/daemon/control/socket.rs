//! The control socket: Varlink's wire format, one JSON object and a NUL byte per message.
//!
//! `{"method":"org.forebay.Status","parameters":{}}` is answered by `{"parameters":{...}}` or
//! `{"error":"org.forebay.Refused","parameters":{"message":"..."}}`. With `"more":true` a drain or
//! resize answers several times, each but the last with `"continues":true`. A client that closes
//! its connection interrupts its command. `Record` wants `"upgrade":true`: a recording follows its
//! answer, to the end of the connection.

use std::io::BufReader;
use std::os::unix::net::{UnixListener, UnixStream};
use std::sync::Arc;
use std::time::Duration;

use anyhow::Result;
use serde_json::json;

use super::answer::{error_reply, send};
use super::call::{Call, next_message};
use super::methods::MethodCall;
use crate::daemon::seldom;
use crate::daemon::state::Daemon;
use crate::daemon::visitors::{PAUSE, Visit, Visitors};
use crate::failure::{self, Refused, Usage};
use crate::thread;

/// The one method after which the connection no longer carries messages.
const RECORD: &str = "org.forebay.Record";
/// The most connections at a time.
const CONNECTIONS: usize = 64;

/// For so long a client may take nothing of an answer.
const SLOWEST_ANSWER: Duration = Duration::from_secs(10);

/// Serves the control socket from a thread of its own, each client from another.
pub(in crate::daemon) fn start(daemon: Arc<Daemon>, listener: UnixListener) -> Result<()> {
    let serve = move || {
        let visitors = Visitors::new(CONNECTIONS);
        for stream in listener.incoming() {
            match stream {
                Ok(stream) => begin(&daemon, &visitors, stream),
                Err(error) => {
                    seldom::COMMANDS.warn(format_args!(
                        "a command could not be accepted: {}",
                        failure::in_words(&error)
                    ));
                    std::thread::sleep(PAUSE);
                }
            }
        }
    };
    thread::start("forebay-control", serve)?;
    Ok(())
}

/// Serves a client from a thread of its own.
fn begin(daemon: &Arc<Daemon>, visitors: &Arc<Visitors<UnixStream>>, stream: UnixStream) {
    // A client that takes nothing any more, as one that is stopped, is gone: its command stands still
    // meanwhile, and a stop waits for that.
    if let Err(error) = stream.set_write_timeout(Some(SLOWEST_ANSWER)) {
        return seldom::COMMANDS.warn(format_args!(
            "a command was turned away: {}",
            failure::in_words(&error)
        ));
    }
    let stream = Arc::new(stream);
    let Some((visit, took)) = visitors.let_in(&stream) else {
        let busy =
            format!("{CONNECTIONS} commands are being carried out; wait until one has ended");
        send(&stream, &error_reply(&Refused(busy).into()));
        return;
    };
    if took {
        seldom::COMMANDS.warn(format_args!(
            "a connection to the control socket that carried no command was closed to let another in: {CONNECTIONS} \
             at a time"
        ));
    }
    let daemon = Arc::clone(daemon);
    let started = thread::start("forebay-command", move || {
        converse(&daemon, &visit, &stream)
    });
    if let Err(error) = started {
        let error = failure::describe(&error);
        seldom::COMMANDS.warn(format_args!("a command was turned away: {error}"));
    }
}

fn converse(daemon: &Arc<Daemon>, visit: &Visit<UnixStream>, stream: &UnixStream) {
    let mut input = BufReader::new(stream);
    while let Some(message) = next_message(&mut input) {
        if !visit.work(|| carry_out(daemon, stream, &message)) {
            return;
        }
    }
}

/// Does what a message asks; says whether another may follow.
fn carry_out(daemon: &Arc<Daemon>, stream: &UnixStream, message: &[u8]) -> bool {
    match Call::parse(message) {
        Ok(call) if call.method == RECORD => {
            if let Err(error) = record(daemon, stream, &call) {
                send(stream, &error_reply(&error));
            }
            false
        }
        Ok(call) => answer(daemon, stream, &call),
        Err(error) => send(stream, &error_reply(&error)),
    }
}

fn answer(daemon: &Arc<Daemon>, stream: &UnixStream, call: &Call) -> bool {
    let result = call.given().and_then(|given| {
        let called = MethodCall {
            daemon,
            stream,
            more: call.more,
            given: &given,
        };
        called.carry_out(&call.method)
    });
    match result {
        Ok(parameters) => send(stream, &json!({ "parameters": parameters })),
        Err(error) => send(stream, &error_reply(&error)),
    }
}

fn record(daemon: &Arc<Daemon>, stream: &UnixStream, call: &Call) -> Result<()> {
    if !call.upgrade {
        let told = "a recording follows its answer as bytes: call it with \"upgrade\":true";
        return Err(Usage(told.to_owned()).into());
    }
    let volume = daemon.find_volume(call.given()?.name.as_deref())?;
    // A recording waits for its reader, and counts what it leaves out meanwhile.
    stream.set_write_timeout(None)?;
    daemon.record(&volume, stream)
}
