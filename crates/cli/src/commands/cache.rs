//! `forebay cache`: the space of a running cache.

use anyhow::Result;
use serde_json::{Value, json};

use super::progress;
use crate::args::{CacheCommand, ResizeArgs, WantedSize};
use crate::units::{duration, size};

pub(crate) fn run(command: &CacheCommand) -> Result<()> {
    match command {
        CacheCommand::Resize(args) => resize(args),
    }
}

fn resize(args: &ResizeArgs) -> Result<()> {
    let size_bytes = match args.size {
        WantedSize::Bytes(bytes) => Some(bytes),
        WantedSize::Max => None,
    };
    let parameters = json!({ "size_bytes": size_bytes });
    let answer = call(&args.control, "Resize", &parameters)?;
    if args.control.json {
        crate::output::line(format_args!("{answer}"));
        return Ok(());
    }
    let (before, after) = (
        bytes(&answer, "before_bytes"),
        bytes(&answer, "after_bytes"),
    );
    let device_end = size(bytes(&answer, "device_end_bytes"));
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

/// Calls a method that may have to empty segments first, and shows how far that is.
fn call(control: &crate::args::ControlArgs, method: &str, parameters: &Value) -> Result<Value> {
    progress::call(
        control,
        method,
        parameters,
        "the cache stays as it was",
        &words,
    )
}

fn words(progress: &Value) -> String {
    let left = progress["seconds_left"]
        .as_f64()
        .map_or("?".to_owned(), duration);
    format!(
        "{} of {} left to empty, {left} left",
        size(bytes(progress, "left_bytes")),
        size(bytes(progress, "all_bytes")),
    )
}

fn bytes(value: &Value, key: &str) -> u64 {
    value[key].as_u64().unwrap_or(0)
}
