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
use crate::device::cache_storage::joined;
use crate::device::lost::what_is_lost;
use crate::device::same_device::Identity;
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
            args.devices_of_cache[0].display()
        );
    }
    let paths = &args.devices_of_cache;
    if args.copies > 1 && paths.len() < 2 {
        wrong_usage!(
            "--copies {}: dirty data cannot be on two devices if {} is the only one; name another behind it",
            args.copies,
            paths[0].display()
        );
    }
    for (at, path) in paths.iter().enumerate() {
        let is_same = |other: &&std::path::PathBuf| Identity::of(other) == Identity::of(path);
        if let Some(other) = paths[..at].iter().find(is_same) {
            wrong_usage!(
                "{} and {} are the same device: name each device of the cache once",
                other.display(),
                path.display()
            );
        }
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
        .with_context(|| format!("--size {} for {}", size(bytes), paths[0].display()))?;
    let mut made = Vec::new();
    let result = paths
        .iter()
        .try_for_each(|path| make_file(path, bytes).map(|()| made.push(path)))
        .and_then(|()| make(args, &shape));
    result.inspect_err(|_| {
        // New files go; half a cache is of no use to anybody.
        for path in made {
            let _ = std::fs::remove_file(path);
        }
    })
}

fn make(args: &CreateArgs, shape: &NewCache) -> Result<()> {
    let direct = crate::config::direct(args.devices.direct);
    let open = |path| Opened::new(path, direct, false);
    let paths = args.devices_of_cache.iter();
    let mut opened: Vec<Opened> = paths.map(|path| open(path)).collect::<Result<_>>()?;
    // Before anything is asked or written.
    shape
        .on(opened[0].device.size_bytes())
        .with_context(|| attach::cannot_make_on(&opened[0]))?;
    consent(args, &mut opened)?;
    let old: Vec<_> = opened
        .iter_mut()
        .filter_map(|each| Superblock::read(&mut each.storage).ok())
        .map(|superblock| superblock.id)
        .collect();
    let superblock = attach::make_cache(&mut opened, shape, args.copies)?;
    for old in old {
        StateDir::open(args.devices.state_dir.as_deref())?.forget(old)?;
    }
    say_made(args, &opened, &superblock);
    Ok(())
}

fn say_made(args: &CreateArgs, opened: &[Opened], superblock: &Superblock) {
    let geometry = superblock.geometry;
    let paths = &args.devices_of_cache;
    let size_bytes: u64 = opened.iter().map(|each| each.device.size_bytes()).sum();
    if args.json {
        crate::output::line(format_args!(
            "{}",
            json!({
                "device": paths[0],
                "devices": paths,
                "id": superblock.id.to_string(),
                "size_bytes": size_bytes,
                "block_bytes": geometry.block_bytes,
                "segment_bytes": geometry.segment_bytes,
                "shards": geometry.shards,
                "copies": superblock.copies,
            })
        ));
        return;
    }
    let copies = match superblock.copies {
        1 => "",
        _ => ", dirty data on two of them",
    };
    crate::output::line(format_args!(
        "cache {} made on {}: {}, blocks of {}, {} shard(s){copies}",
        superblock.id,
        joined(paths, " and "),
        size(size_bytes),
        size(geometry.block_bytes.into()),
        geometry.shards
    ));
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

/// All that the devices hold and would lose: the device, and the words for it.
fn all_that_is_lost(opened: &mut [Opened]) -> Result<Vec<(String, String)>> {
    let mut all = Vec::new();
    for each in opened {
        if let Some(lost) = what_is_lost(each)? {
            all.push((each.device.path().display().to_string(), lost));
        }
    }
    Ok(all)
}

fn consent(args: &CreateArgs, opened: &mut [Opened]) -> Result<()> {
    let all = all_that_is_lost(opened)?;
    let (held, lost) = match all.as_slice() {
        [] => return Ok(()),
        [(device, lost)] => (format!("{device} holds {lost}"), lost.clone()),
        several => {
            let each = |(device, lost): &(String, String)| format!("{device} holds {lost}");
            let held: Vec<String> = several.iter().map(each).collect();
            let lost: Vec<&str> = several.iter().map(|(_, lost)| lost.as_str()).collect();
            (held.join(", "), lost.join(" and "))
        }
    };
    if !args.force {
        refuse!("{held}; to overwrite it, add --force");
    }
    if let Some(words) = &args.yes_lose {
        if *words == lost {
            return Ok(());
        }
        refuse!("{held}, which is not `{words}`; nothing was changed");
    }
    if !std::io::stdin().is_terminal() {
        refuse!("{held}; to lose that, add --yes-lose \"{lost}\"");
    }
    eprintln!("{held}. Type these words to lose it:\n{lost}");
    let mut typed = String::new();
    std::io::stdin()
        .read_line(&mut typed)
        .context("cannot read the answer")?;
    if typed.trim() != lost {
        refuse!("that was not it; nothing was changed");
    }
    Ok(())
}
