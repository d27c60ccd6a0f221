//! `forebay create`.

use std::fs::OpenOptions;
use std::io::IsTerminal;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use anyhow::{Context, Result};
use forebay_engine::Superblock;
use serde_json::json;

use crate::args::CreateArgs;
use crate::device::attach::{self, NewCache, Opened};
use crate::device::lost::what_is_lost;
use crate::device::state_dir::StateDir;
use crate::failure::{Usage, refuse, wrong_usage};
use crate::units::size;

pub(crate) fn run(args: &CreateArgs) -> Result<()> {
    let block_bytes = u32::try_from(args.block_size).map_err(|_| {
        Usage(format!(
            "the block size {} is not from 4K to 64K",
            args.block_size
        ))
    })?;
    if !block_bytes.is_power_of_two() || !(4096..=65536).contains(&block_bytes) {
        let given = match block_bytes % 1024 {
            0 => size(block_bytes.into()),
            _ => format!("{block_bytes} B"),
        };
        wrong_usage!(
            "--block-size {given} for {}: a block has a power of two from 4K to 64K",
            args.device.display()
        );
    }
    let shape = NewCache {
        block_bytes,
        shards: args.shards,
    };
    let Some(wanted) = &args.size else {
        return make(args, &shape);
    };
    let bytes = wanted.bytes;
    if let Some(reading) = wanted.reading() {
        eprintln!("forebay: note: {reading}");
    }
    shape
        .on(bytes)
        .with_context(|| format!("--size {} for {}", size(bytes), args.device.display()))?;
    make_file(&args.device, bytes)?;
    make(args, &shape).inspect_err(|_| {
        // The new file goes; half a cache is of no use to anybody.
        let _ = std::fs::remove_file(&args.device);
    })
}

fn make(args: &CreateArgs, shape: &NewCache) -> Result<()> {
    let direct = crate::config::direct(args.devices.direct);
    let mut opened = Opened::new(&args.device, direct, false)?;
    // Before anything is asked or written.
    shape
        .on(opened.device.size_bytes())
        .with_context(|| format!("cannot make a cache on {}", args.device.display()))?;
    if let Some(lost) = what_is_lost(&mut opened)? {
        consent(args, &lost)?;
    }
    let old = Superblock::read(&mut opened.storage)
        .ok()
        .map(|superblock| superblock.id);
    let superblock = attach::make_cache(&mut opened, shape)
        .with_context(|| format!("cannot make a cache on {}", args.device.display()))?;
    if let Some(old) = old {
        StateDir::open(args.devices.state_dir.as_deref())?.forget(old)?;
    }
    let geometry = superblock.geometry;
    if args.json {
        crate::output::line(format_args!(
            "{}",
            json!({
                "device": args.device,
                "id": superblock.id.to_string(),
                "size_bytes": opened.device.size_bytes(),
                "block_bytes": geometry.block_bytes,
                "segment_bytes": geometry.segment_bytes,
                "shards": geometry.shards,
            })
        ));
    } else {
        crate::output::line(format_args!(
            "cache {} made on {}: {}, blocks of {}, {} shard(s)",
            superblock.id,
            args.device.display(),
            size(opened.device.size_bytes()),
            size(geometry.block_bytes.into()),
            geometry.shards
        ));
    }
    Ok(())
}

/// Makes a file whose space is allocated: a cache must not find its file system full later.
fn make_file(path: &Path, bytes: u64) -> Result<()> {
    if path.is_dir() {
        refuse!(
            "{} is a directory: name a file in it to make",
            path.display()
        );
    }
    // It will hold any data of the disk, whatever the umask.
    let file = OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(path);
    let file = match file {
        Ok(file) => file,
        Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => {
            refuse!(
                "{} exists already; leave --size out to use it as it is",
                path.display()
            )
        }
        Err(error) => {
            return Err(error).with_context(|| format!("cannot make the file {}", path.display()));
        }
    };
    let allocated = forebay_io::allocate(&file, bytes);
    if let Err(error) = allocated {
        drop(file);
        // Half a cache is of no use to anybody.
        let _ = std::fs::remove_file(path);
        return Err(error)
            .with_context(|| format!("cannot allocate {} for {}", size(bytes), path.display()));
    }
    Ok(())
}

fn consent(args: &CreateArgs, lost: &str) -> Result<()> {
    let device = args.device.display();
    if !args.force {
        refuse!("{device} holds {lost}; to overwrite it, add --force");
    }
    if let Some(words) = &args.yes_lose {
        if words == lost {
            return Ok(());
        }
        refuse!("{device} holds {lost}, which is not `{words}`; nothing was changed");
    }
    if !std::io::stdin().is_terminal() {
        refuse!("{device} holds {lost}; to lose that, add --yes-lose \"{lost}\"");
    }
    eprintln!("{device} holds {lost}. Type these words to lose it:\n{lost}");
    let mut typed = String::new();
    std::io::stdin()
        .read_line(&mut typed)
        .context("cannot read the answer")?;
    if typed.trim() != lost {
        refuse!("that was not it; nothing was changed");
    }
    Ok(())
}
