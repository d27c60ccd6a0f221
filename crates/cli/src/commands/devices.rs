//! `forebay devices`: block devices that daemons serve, or left behind.

use std::path::Path;

use anyhow::Result;
use forebay_frontend::ublk::device::{DeviceInfo, State};
use serde_json::{Value, json};

use crate::args::DevicesArgs;
use crate::daemon::ublk;
use crate::failure::{Usage, refuse};

/// The device of the driver by which block devices are made.
const CONTROL: &str = "/dev/ublk-control";

pub(crate) fn run(args: &DevicesArgs) -> Result<()> {
    // Without the driver there are none, which is no failure.
    let devices = match (&args.remove, Path::new(CONTROL).exists()) {
        (None, false) => Vec::new(),
        _ => ublk::export::list()?,
    };
    match &args.remove {
        Some(path) => remove(args, path, &devices),
        None => {
            list(args, &devices);
            Ok(())
        }
    }
}

fn list(args: &DevicesArgs, devices: &[DeviceInfo]) {
    if args.json {
        let devices: Vec<Value> = devices.iter().map(in_json).collect();
        return crate::output::line(format_args!("{}", json!({ "devices": devices })));
    }
    if devices.is_empty() {
        crate::output::line(format_args!("there are no block devices of Forebay"));
    }
    for device in devices {
        let path = ublk::path(device.number);
        crate::output::line(format_args!("{path}  {}", in_words(device)));
    }
}

fn in_words(device: &DeviceInfo) -> String {
    match device.state {
        State::Live => format!("served by process {}", device.server),
        State::Waiting => "waits for a daemon: start `forebay serve` with its volume".to_owned(),
        State::Dead => "never came to be; the next daemon clears it away".to_owned(),
        State::Other(number) => format!("in a state unknown to this version ({number})"),
    }
}

fn in_json(device: &DeviceInfo) -> Value {
    let state = match device.state {
        State::Live => "live",
        State::Waiting => "waiting",
        State::Dead => "dead",
        State::Other(_) => "unknown",
    };
    json!({
        "device": ublk::path(device.number),
        "state": state,
        "server_pid": device.server,
        "queues": device.queues,
        "queue_depth": device.depth,
    })
}

fn remove(args: &DevicesArgs, path: &Path, devices: &[DeviceInfo]) -> Result<()> {
    let resolved = std::fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
    let found = devices
        .iter()
        .find(|device| resolved == Path::new(&ublk::path(device.number)));
    let Some(device) = found else {
        let known: Vec<String> = devices
            .iter()
            .map(|device| ublk::path(device.number))
            .collect();
        return Err(Usage(format!(
            "{} is no block device of Forebay; there are: {}",
            path.display(),
            if known.is_empty() {
                "none".to_owned()
            } else {
                known.join(", ")
            }
        ))
        .into());
    };
    if device.state == State::Live {
        refuse!(
            "{} is served by process {}: `forebay stop` or `forebay detach` takes it away",
            path.display(),
            device.server
        );
    }
    if !args.force {
        refuse!(
            "whatever waits for {} would get errors, and a file system on it would lose what is not written yet; \
             start its daemon again to go on without loss, or give it up with --force",
            path.display()
        );
    }
    ublk::export::let_go(device.number)?;
    if args.json {
        crate::output::line(format_args!("{}", json!({ "removed": path })));
    } else {
        crate::output::line(format_args!("{} is given up", path.display()));
    }
    Ok(())
}
