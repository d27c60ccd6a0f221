//! Commands that write dirty data back: drain, detach, stop.

use std::path::{Path, PathBuf};

use anyhow::Result;
use serde_json::{Value, json};

use super::openers::check_unopened;
use super::progress::{self, Show};
use crate::args::{ControlArgs, DetachArgs, DrainArgs, StopArgs};
use crate::client::Client;
use crate::config::{CachePlan, Plan, VolumePlan};
use crate::daemon::ublk::in_use;
use crate::network::access::SocketAccess;
use crate::network::http::HttpPlan;
use crate::network::nbd::Tls;
use crate::units::{duration, size};

pub(crate) fn run(args: &DrainArgs) -> Result<()> {
    if let (true, Some(origin)) = (args.offline, &args.origin) {
        return offline(args, origin, &args.cache);
    }
    let control = &args.control;
    let client = match &args.name {
        Some(name) => Client::serving(control.control.as_deref(), &[name])?,
        None => Client::connect(control.control.as_deref())?,
    };
    let mut parameters = json!({ "name": args.name });
    if let Some(left) = &args.left {
        if let Some(reading) = left.reading() {
            eprintln!("forebay: note: {reading}");
        }
        parameters["left_bytes"] = json!(left.bytes);
    }
    let answer = call(control, client, "Drain", &parameters)?;
    print_drained(args.control.json, &answer);
    Ok(())
}

pub(crate) fn detach(args: &DetachArgs) -> Result<()> {
    if args.offline {
        return super::detach_offline::run(args);
    }
    let mut client = Client::serving(args.control.control.as_deref(), &[&args.name])?;
    check_unopened(&mut client, Some(&args.name), in_use::TAKE_OUT_OF_USE)?;
    let answer = call(
        &args.control,
        client,
        "Detach",
        &json!({ "name": args.name, "force": args.force }),
    )?;
    if args.control.json {
        crate::output::line(format_args!("{answer}"));
    } else if let Some(lost) = answer["lost_bytes"].as_u64() {
        crate::output::line(format_args!(
            "volume {} is given up; {} of dirty data are lost",
            args.name,
            size(lost)
        ));
    } else {
        crate::output::line(format_args!(
            "volume {} is detached: its origin is whole by itself",
            args.name
        ));
    }
    Ok(())
}

pub(crate) fn stop(args: &StopArgs) -> Result<()> {
    let parameters = json!({ "drain": args.drain, "keep_devices": args.keep_devices });
    let mut client = Client::connect(args.control.control.as_deref())?;
    if !args.keep_devices {
        check_unopened(&mut client, None, in_use::TAKE_OUT_OF_USE_OR_KEEP)?;
    }
    let answer = call(&args.control, client, "Stop", &parameters)?;
    if args.control.json {
        crate::output::line(format_args!("{answer}"));
    } else {
        crate::output::line(format_args!("stopped"));
    }
    Ok(())
}

/// Calls a method that drains.
fn call(control: &ControlArgs, client: Client, method: &str, parameters: &Value) -> Result<Value> {
    let goes_on = if method == "Stop" {
        "the daemon goes on"
    } else {
        "the volume goes on as it was"
    };
    progress::call(control, client, method, parameters, goes_on, &words)
}

pub(super) fn words(progress: &Value) -> String {
    format!(
        "{} dirty, {} written back, {}/s, {} left",
        progress::bytes(progress, "dirty_bytes"),
        progress::bytes(progress, "drained_bytes"),
        progress::bytes(progress, "bytes_per_second"),
        progress::time_left(progress),
    )
}

fn print_drained(json: bool, answer: &Value) {
    if json {
        crate::output::line(format_args!("{answer}"));
        return;
    }
    let still_dirty = match answer["dirty_bytes"].as_u64() {
        None | Some(0) => String::new(),
        Some(bytes) => format!(" to {}", size(bytes)),
    };
    crate::output::line(format_args!(
        "volume {} is drained{still_dirty}: {} written back in {}",
        answer["name"].as_str().unwrap_or("-"),
        size(answer["drained_bytes"].as_u64().unwrap_or(0)),
        duration(answer["seconds"].as_f64().unwrap_or(0.0)),
    ));
}

/// Serves the cache to nobody but a drain of our own, then stops.
fn offline(args: &DrainArgs, origin: &Path, cache: &[PathBuf]) -> Result<()> {
    let volume =
        crate::commands::check::volume_to_drain(cache, &args.devices, args.name.as_deref())?;
    let plan = Plan {
        cache: Some(CachePlan {
            devices: cache.to_owned(),
            create: false,
            emulate: None,
            copies: None,
            on_degraded: crate::settings::OnDegraded::default(),
            without_missing: false,
        }),
        volumes: vec![VolumePlan {
            origin: origin.to_owned(),
            name: Some(volume),
            mode: None,
            own: crate::settings::OwnSettings::default(),
            format: None,
            emulate: None,
        }],
        nbd: Vec::new(),
        socket: SocketAccess::default(),
        control_group: None,
        ublk: false,
        tls: Tls::default(),
        http: HttpPlan::Off,
        http_token: None,
        hook: None,
        settings: forebay_engine::Settings::default(),
        profile: None,
        notes: Vec::new(),
        memory_bytes: 256 << 20,
        threads: None,
        direct: crate::config::direct(args.devices.direct),
        state_dir: args.devices.state_dir.clone(),
        control: args.control.control.clone(),
        record: None,
        initramfs: false,
        source: None,
    };
    let show = Show::new(args.control.json);
    let answer =
        crate::daemon::drain_offline(plan, &mut |progress| show.progress(progress, &words));
    show.end();
    print_drained(args.control.json, &answer?);
    Ok(())
}
