//! Commands to a running daemon that are answered at once: attach, mode, set, reload.

use anyhow::{Context, Result};
use serde_json::{Value, json};

use crate::args::{AttachArgs, ControlArgs, ModeArgs, ReloadArgs, SetArgs};
use crate::client::Client;

pub(crate) fn attach(args: &AttachArgs) -> Result<()> {
    let origin = std::path::absolute(&args.origin).context("there is no working directory")?;
    let parameters = json!({
        "origin": origin,
        "name": args.name,
        "mode": args.mode.map(forebay_engine::Mode::name),
        "emulate": args.origin_emulate,
    });
    let answer = ask(&args.control, "Attach", &parameters)?;
    print(&args.control, &answer, || {
        let exports = answer["exports"]
            .as_array()
            .into_iter()
            .flatten()
            .filter_map(Value::as_str);
        exports.collect::<Vec<_>>().join("\n")
    });
    Ok(())
}

pub(crate) fn mode(args: &ModeArgs) -> Result<()> {
    let answer = ask(
        &args.control,
        "Mode",
        &json!({ "name": args.name, "mode": args.mode.name() }),
    )?;
    print(&args.control, &answer, || {
        format!("volume {} is in mode {}", args.name, args.mode.name())
    });
    Ok(())
}

pub(crate) fn set(args: &SetArgs) -> Result<()> {
    let answer = ask(
        &args.control,
        "Set",
        &json!({ "key": args.key, "value": args.value }),
    )?;
    let notes = answer["notes"].as_array().into_iter().flatten();
    for note in notes.filter_map(Value::as_str) {
        eprintln!("forebay: warning: {note}");
    }
    print(&args.control, &answer, || words_of_set(args, &answer));
    Ok(())
}

/// For a setting of another cache: what of ours it changed.
fn words_of_set(args: &SetArgs, answer: &Value) -> String {
    let Some(changed) = answer["changed"].as_object() else {
        return format!("{} is now {}", args.key, args.value);
    };
    let changed: Vec<String> = changed
        .iter()
        .filter_map(|(name, value)| Some(format!("{name} is now {}", value.as_str()?)))
        .collect();
    if changed.is_empty() {
        return format!("{} {}: nothing changed", args.key, args.value);
    }
    format!("{} {}: {}", args.key, args.value, changed.join(", "))
}

pub(crate) fn reload(args: &ReloadArgs) -> Result<()> {
    let answer = ask(&args.control, "Reload", &json!({}))?;
    print(&args.control, &answer, || {
        let words = |key: &str, end: &str| {
            let listed = answer[key].as_array().into_iter().flatten();
            let said = listed.filter_map(Value::as_str);
            said.map(|what| format!("{what}{end}")).collect::<Vec<_>>()
        };
        let lines = [
            words("changed", ": in force"),
            words("needs_restart", ": needs a restart"),
        ];
        match lines.concat() {
            lines if lines.is_empty() => "nothing has changed".to_owned(),
            lines => lines.join("\n"),
        }
    });
    Ok(())
}

fn ask(control: &ControlArgs, method: &str, parameters: &Value) -> Result<Value> {
    Client::connect(control.control.as_deref())?.ask(method, parameters)
}

fn print(control: &ControlArgs, answer: &Value, words: impl FnOnce() -> String) {
    if control.json {
        crate::output::line(format_args!("{answer}"));
    } else {
        crate::output::line(format_args!("{}", words()));
    }
}
