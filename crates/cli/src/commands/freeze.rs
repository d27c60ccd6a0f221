//! Commands for snapshots and moves: freeze, thaw, hand-over.

use anyhow::Result;
use serde_json::{Value, json};

use super::drain::words;
use super::openers::check_unopened;
use super::progress;
use crate::args::{ControlArgs, FreezeArgs, HandOverArgs, ThawArgs};
use crate::client::Client;
use crate::daemon::ublk::in_use;
use crate::quoting::in_shell;
use crate::units::{Age, duration};

pub(crate) fn freeze(args: &FreezeArgs) -> Result<()> {
    let seconds = (args.most.0 != Age::NEVER).then(|| args.most.0.0 as f64 / 1e9);
    let parameters = json!({ "name": args.name, "seconds": seconds });
    let client = serving(&args.control, args.name.as_deref())?;
    let answer = call(&args.control, client, "Freeze", &parameters)?;
    if !args.control.json {
        let name = answer["name"].as_str().unwrap_or("-");
        let by_itself = match answer["thaws_after_seconds"].as_f64() {
            Some(most) => format!(", or {} from now by itself", duration(most)),
            None => String::new(),
        };
        crate::output::line(format_args!(
            "volume {name} is frozen: all of it is on {}, and its writes wait\nuntil `forebay thaw {}`{by_itself}",
            answer["origin"].as_str().unwrap_or("-"),
            in_shell(name),
        ));
    }
    Ok(())
}

pub(crate) fn thaw(args: &ThawArgs) -> Result<()> {
    let client = serving(&args.control, args.name.as_deref())?;
    let answer = call(&args.control, client, "Thaw", &json!({ "name": args.name }))?;
    if !args.control.json {
        crate::output::line(format_args!(
            "volume {} is thawed: its writes waited {}",
            answer["name"].as_str().unwrap_or("-"),
            seconds(&answer, "frozen_seconds"),
        ));
    }
    Ok(())
}

pub(crate) fn hand_over(args: &HandOverArgs) -> Result<()> {
    let mut client = serving(&args.control, Some(&args.name))?;
    check_unopened(&mut client, Some(&args.name), in_use::TAKE_OUT_OF_USE)?;
    let parameters = json!({ "name": args.name });
    let answer = call(&args.control, client, "HandOver", &parameters)?;
    if !args.control.json {
        crate::output::line(format_args!(
            "volume {} is handed over after {} of waiting: {} is whole, and another host may serve it",
            args.name,
            seconds(&answer, "clients_waited_seconds"),
            answer["origin"].as_str().unwrap_or("-"),
        ));
    }
    Ok(())
}

fn serving(control: &ControlArgs, name: Option<&str>) -> Result<Client> {
    match name {
        Some(name) => Client::serving(control.control.as_deref(), &[name]),
        None => Client::connect(control.control.as_deref()),
    }
}

/// Calls a method, and prints its answer for programs.
fn call(control: &ControlArgs, client: Client, method: &str, parameters: &Value) -> Result<Value> {
    let goes_on = "the volume goes on as it was";
    let answer = progress::call(control, client, method, parameters, goes_on, &words)?;
    if control.json {
        crate::output::line(format_args!("{answer}"));
    }
    Ok(answer)
}

fn seconds(answer: &Value, key: &str) -> String {
    duration(answer[key].as_f64().unwrap_or(0.0))
}
