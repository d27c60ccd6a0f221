//! Commands to a running daemon that are answered at once: attach, mode, rename, set, get, config,
//! reload.

use anyhow::Result;
use serde_json::{Value, json};

use super::absolute::absolute;
use crate::args::{AttachArgs, ControlArgs, GetArgs, ModeArgs, RenameArgs, SetArgs};
use crate::client::Client;
use crate::device::image_format::OriginFormat;

pub(crate) fn attach(args: &AttachArgs) -> Result<()> {
    let origin = absolute(&args.origin, "the origin")?;
    let parameters = json!({
        "origin": origin,
        "name": args.name,
        "mode": args.mode.map(forebay_engine::Mode::name),
        "emulate": args.origin_emulate,
        "format": args.origin_format.map(OriginFormat::name),
    });
    let mut client = Client::connect(args.control.control.as_deref())?;
    let answer = client.ask("Attach", &parameters)?;
    print(&args.control, &answer, || {
        words(&answer["exports"]).collect::<Vec<_>>().join("\n")
    });
    Ok(())
}

pub(crate) fn mode(args: &ModeArgs) -> Result<()> {
    let mut client = Client::serving(args.control.control.as_deref(), &[&args.name])?;
    let wanted = args.mode.map(forebay_engine::Mode::name);
    let parameters = json!({ "name": args.name, "mode": wanted });
    let answer = client.ask("Mode", &parameters)?;
    print(&args.control, &answer, || match wanted {
        Some(mode) => format!("volume {} is in mode {mode}", args.name),
        None => answer["mode"].as_str().unwrap_or_default().to_owned(),
    });
    Ok(())
}

pub(crate) fn rename(args: &RenameArgs) -> Result<()> {
    let parameters = json!({ "name": args.name, "new_name": args.new_name });
    let names = [args.name.as_str(), &args.new_name];
    let mut client = Client::serving(args.control.control.as_deref(), &names)?;
    let answer = client.ask("Rename", &parameters)?;
    print(&args.control, &answer, || {
        let since = if answer["renamed"] == true {
            "now"
        } else {
            "already"
        };
        let said = format!("volume {} is called {} {since}", args.name, args.new_name);
        let to_do = words(&answer["to_do"]).map(|what| format!("to do: {what}"));
        std::iter::once(said)
            .chain(to_do)
            .collect::<Vec<_>>()
            .join("\n")
    });
    Ok(())
}

pub(crate) fn set(args: &SetArgs) -> Result<()> {
    let mut client = client_for(&args.control, args.volume.as_deref())?;
    let parameters = json!({ "key": args.key, "value": args.value, "name": args.volume });
    let answer = client.ask("Set", &parameters)?;
    for note in words(&answer["notes"]) {
        eprintln!("forebay: warning: {note}");
    }
    print(&args.control, &answer, || words_of_set(args, &answer));
    Ok(())
}

/// The daemon meant: that of the volume, if one is named.
fn client_for(control: &ControlArgs, volume: Option<&str>) -> Result<Client> {
    match volume {
        Some(volume) => Client::serving(control.control.as_deref(), &[volume]),
        None => Client::connect(control.control.as_deref()),
    }
}

/// For a setting of another cache: what of ours it changed.
fn words_of_set(args: &SetArgs, answer: &Value) -> String {
    let Some(changed) = answer["changed"].as_object() else {
        let in_force = answer["in_force"].as_str().unwrap_or(&args.value);
        let of = args.volume.as_ref();
        let of = of.map_or_else(String::new, |volume| format!(" of volume {volume}"));
        return format!("{}{of} is now {in_force}", args.key);
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

pub(crate) fn get(args: &GetArgs) -> Result<()> {
    let mut client = client_for(&args.control, args.volume.as_deref())?;
    let answer = client.ask("Get", &json!({ "key": args.key, "name": args.volume }))?;
    let shown = answer["settings"].as_object().into_iter().flatten();
    let shown = shown.filter_map(|(name, value)| Some((name, value.as_str()?)));
    print(&args.control, &answer, || match args.key {
        Some(_) => shown.map(|(_, value)| value.to_owned()).collect(),
        None => {
            let shown: Vec<_> = shown.collect();
            let longest = shown.iter().map(|(name, _)| name.len()).max();
            let width = longest.map_or(0, |longest| longest + 1);
            let lines: Vec<_> = shown
                .iter()
                .map(|(name, value)| format!("{name:<width$} {value}"))
                .collect();
            lines.join("\n")
        }
    });
    Ok(())
}

pub(crate) fn config(args: &ControlArgs) -> Result<()> {
    let mut client = Client::connect(args.control.as_deref())?;
    let answer = client.ask("Config", &json!({}))?;
    print(args, &answer, || {
        let text = answer["toml"].as_str().unwrap_or_default();
        text.trim_end().to_owned()
    });
    Ok(())
}

pub(crate) fn reload(args: &ControlArgs) -> Result<()> {
    let mut client = Client::connect(args.control.as_deref())?;
    let answer = client.ask("Reload", &json!({}))?;
    print(args, &answer, || words_of_reload(&answer).join("\n"));
    Ok(())
}

/// Puts the result of a reload into lines.
fn words_of_reload(answer: &Value) -> Vec<String> {
    let lines = |key: &str, end: &str| {
        let said = words(&answer[key]);
        said.map(|what| format!("{what}{end}")).collect::<Vec<_>>()
    };
    let mut lines = [
        lines("changed", ": in force"),
        lines("needs_restart", ": needs a restart"),
        lines("left_out", "; it is still not served"),
    ]
    .concat();
    if lines.is_empty() {
        lines.push("nothing has changed".to_owned());
    }
    lines
}

/// The texts of a list in an answer.
fn words(list: &Value) -> impl Iterator<Item = &str> {
    let listed = list.as_array().into_iter().flatten();
    listed.filter_map(Value::as_str)
}

fn print(control: &ControlArgs, answer: &Value, words: impl FnOnce() -> String) {
    if control.json {
        crate::output::line(format_args!("{answer}"));
    } else {
        crate::output::line(format_args!("{}", words()));
    }
}
