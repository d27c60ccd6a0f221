//! `forebay cache`: the space of a running cache.

use std::path::{Path, PathBuf};

use anyhow::Result;
use serde_json::{Value, json};

use super::absolute::absolute;
use super::progress;
use crate::args::{
    AddArgs, CacheCommand, ControlArgs, RemoveArgs, ReplaceArgs, ResizeArgs, WantedSize,
};
use crate::client::Client;
use crate::units::{duration, size};

pub(crate) fn run(command: &CacheCommand) -> Result<()> {
    match command {
        CacheCommand::Resize(args) => resize(args),
        CacheCommand::Add(args) => add(args),
        CacheCommand::Remove(args) => remove(args),
        CacheCommand::Replace(args) => replace(args),
    }
}

fn resize(args: &ResizeArgs) -> Result<()> {
    let size_bytes = match args.size {
        WantedSize::Bytes(bytes) => Some(bytes),
        WantedSize::Max => None,
    };
    let device = args.device.as_deref().map(device_path).transpose()?;
    let parameters = json!({ "device": device, "size_bytes": size_bytes });
    let answer = call(&args.control, "Resize", &parameters)?;
    if args.control.json {
        crate::output::line(format_args!("{answer}"));
        return Ok(());
    }
    let (before, after) = (
        bytes(&answer, "before_bytes"),
        bytes(&answer, "after_bytes"),
    );
    let device_end = progress::bytes(&answer, "device_end_bytes");
    if before == after {
        crate::output::line(format_args!(
            "the cache has {} already, as much as fits that size",
            size(after)
        ));
    } else if before < after {
        crate::output::line(format_args!(
            "the cache has {} now, {} before",
            size(after),
            size(before)
        ));
    } else {
        crate::output::line(format_args!(
            "the cache has {} now, {} before, emptied in {}; it uses the first {device_end} ({} bytes) of its device",
            size(after),
            size(before),
            duration(answer["seconds"].as_f64().unwrap_or(0.0)),
            bytes(&answer, "device_end_bytes"),
        ));
    }
    Ok(())
}

fn add(args: &AddArgs) -> Result<()> {
    let device = device_path(&args.device)?;
    let parameters = json!({ "device": device, "force": args.force });
    let answer = call(&args.control, "AddCacheDevice", &parameters)?;
    let what = format!("{} is in the cache", args.device.display());
    say_changed(&args.control, &answer, &what, "name it in");
    Ok(())
}

fn remove(args: &RemoveArgs) -> Result<()> {
    let device = device_path(&args.device)?;
    let answer = call(
        &args.control,
        "RemoveCacheDevice",
        &json!({ "device": device }),
    )?;
    let what = format!("{} is no longer in the cache", args.device.display());
    say_changed(&args.control, &answer, &what, "take it out of");
    Ok(())
}

fn replace(args: &ReplaceArgs) -> Result<()> {
    let (old, new) = (device_path(&args.old)?, device_path(&args.new)?);
    let parameters = json!({ "device": old, "new_device": new, "force": args.force });
    let answer = progress::call(
        &args.control,
        Client::connect(args.control.control.as_deref())?,
        "ReplaceCacheDevice",
        &parameters,
        "the cache has both devices, or the old one alone: see `forebay status`",
        &words,
    )?;
    let what = format!(
        "{} is in the cache in the place of {}",
        args.new.display(),
        args.old.display()
    );
    say_changed(&args.control, &answer, &what, "name it in its place in");
    Ok(())
}

fn device_path(device: &Path) -> Result<PathBuf> {
    absolute(device, "the device")
}

/// A daemon that is started with other devices than the cache has is refused.
fn say_changed(control: &ControlArgs, answer: &Value, what: &str, file_wants: &str) {
    if control.json {
        return crate::output::line(format_args!("{answer}"));
    }
    crate::output::line(format_args!(
        "{what}, which has {} now, {} before",
        progress::bytes(answer, "after_bytes"),
        progress::bytes(answer, "before_bytes"),
    ));
    let then = match answer["configuration"].as_str() {
        Some(file) => format!("{file_wants} `device` of [cache] in {file}"),
        None => "from now on start with all of its devices: --cache once for each".to_owned(),
    };
    crate::output::line(format_args!("{then}"));
}

/// Calls a method that may have to empty segments first, and shows how far that is.
fn call(control: &ControlArgs, method: &str, parameters: &Value) -> Result<Value> {
    progress::call(
        control,
        Client::connect(control.control.as_deref())?,
        method,
        parameters,
        "the cache stays as it was",
        &words,
    )
}

fn words(progress: &Value) -> String {
    format!(
        "{} of {} left to empty, {} left",
        progress::bytes(progress, "left_bytes"),
        progress::bytes(progress, "all_bytes"),
        progress::time_left(progress),
    )
}

fn bytes(value: &Value, key: &str) -> u64 {
    value[key].as_u64().unwrap_or(0)
}
