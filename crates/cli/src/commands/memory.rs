//! `forebay memory`: shared memory of caches, in use or left behind.

use anyhow::Result;
use serde_json::{Value, json};

use crate::args::MemoryArgs;
use crate::device::shared_memory::left_over::{self, CacheMemory};
use crate::failure::refuse;
use crate::units::size;

pub(crate) fn run(args: &MemoryArgs) -> Result<()> {
    match &args.remove {
        Some(cache) => remove(args, cache),
        None => list(args),
    }
}

fn list(args: &MemoryArgs) -> Result<()> {
    let caches = left_over::list()?;
    if args.json {
        let memory: Vec<Value> = caches.iter().map(in_json).collect();
        crate::output::line(format_args!("{}", json!({ "memory": memory })));
        return Ok(());
    }
    if caches.is_empty() {
        crate::output::line(format_args!(
            "there is no shared memory of caches of this user"
        ));
    }
    for (cache, memory) in &caches {
        let state = if memory.in_use {
            "in use by the daemon that serves the cache"
        } else {
            "left by a daemon that did not stop in order: start it again, or `forebay memory --remove` this"
        };
        crate::output::line(format_args!("{cache}  {}  {state}", size(memory.bytes)));
    }
    Ok(())
}

fn in_json((cache, memory): (&String, &CacheMemory)) -> Value {
    json!({
        "cache": cache,
        "bytes": memory.bytes,
        "buffer_bytes": memory.buffer_bytes,
        "in_use": memory.in_use,
        "files": memory.files,
    })
}

fn remove(args: &MemoryArgs, cache: &str) -> Result<()> {
    let known = left_over::list()?;
    let is_idle = known.get(cache).is_some_and(|memory| !memory.in_use);
    if is_idle && !args.force {
        refuse!(
            "the shared memory of cache {cache} holds what it acknowledged and had not written to its devices when \
             its daemon ended: start that again to keep it, or give it up with --force"
        );
    }
    let bytes = left_over::remove(cache)?;
    if args.json {
        let removed = json!({ "removed": cache, "bytes": bytes });
        crate::output::line(format_args!("{removed}"));
    } else {
        crate::output::line(format_args!(
            "the shared memory of cache {cache} is removed, {}",
            size(bytes)
        ));
    }
    Ok(())
}
