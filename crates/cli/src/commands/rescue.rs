//! `forebay rescue`: the dirty data of a volume, written to a file. The cache is only read.

mod offline;
mod running;

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{File, OpenOptions};
use std::io::ErrorKind;
use std::ops::Range;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;

use anyhow::{Context, Result};
use forebay_engine::DirtyBlock;
use serde_json::json;

use crate::args::RescueArgs;
use crate::failure::{DamageFound, refuse};
use crate::quoting::in_shell;
use crate::units::size;

/// Dirty data of a volume, in offsets of it.
#[derive(Default)]
struct Found {
    written: Vec<Range<u64>>,
    /// Blocks with another checksum, or that cannot be read.
    unreadable: Vec<Range<u64>>,
}

/// Reads a block at its address on the cache devices; says whether that was possible.
type ReadBlock = dyn FnMut(u64, &mut [u8]) -> bool;

/// Dirty blocks of a volume, by their offsets, and where they are.
struct Dirty {
    size_bytes: u64,
    block_bytes: u64,
    blocks: BTreeMap<u64, DirtyBlock>,
    read: Box<ReadBlock>,
}

/// The looks at a cache in use, in which blocks move to other places while they are read.
const LOOKS: u32 = 5;

pub(crate) fn run(args: &RescueArgs) -> Result<()> {
    let in_use = args.cache.is_empty();
    let mut dirty = match in_use {
        true => running::dirty(args)?,
        false => offline::dirty(args)?,
    };
    let mut rescue = Rescue::begin(args, &dirty)?;
    rescue.write(&mut dirty)?;
    for _ in 1..LOOKS {
        if !in_use || rescue.unreadable.is_empty() {
            break;
        }
        rescue.write_again(running::dirty(args)?)?;
    }
    rescue.end(args)
}

/// A file in the making.
struct Rescue {
    file: File,
    path: String,
    volume_bytes: u64,
    block_bytes: u64,
    written: Vec<u64>,
    unreadable: Vec<u64>,
}

impl Rescue {
    fn begin(args: &RescueArgs, dirty: &Dirty) -> Result<Rescue> {
        let file = make(&args.to, args.force)?;
        let path = args.to.display().to_string();
        file.set_len(dirty.size_bytes)
            .with_context(|| format!("cannot write {path}"))?;
        Ok(Rescue {
            file,
            path,
            volume_bytes: dirty.size_bytes,
            block_bytes: dirty.block_bytes,
            written: Vec::new(),
            unreadable: Vec::new(),
        })
    }

    /// Writes blocks to their places. Those that are not what they should be are noted.
    fn write(&mut self, dirty: &mut Dirty) -> Result<()> {
        let mut contents = vec![0; dirty.block_bytes as usize];
        for (offset, block) in std::mem::take(&mut dirty.blocks) {
            match block.address {
                None => contents.fill(0),
                Some(address) => {
                    if !(dirty.read)(address, &mut contents) || !block.is(&contents) {
                        self.unreadable.push(offset);
                        continue;
                    }
                }
            }
            let range = self.range(offset);
            let len = (range.end - range.start) as usize;
            (self.file)
                .write_all_at(&contents[..len], offset)
                .with_context(|| format!("cannot write {}", self.path))?;
            self.written.push(offset);
        }
        Ok(())
    }

    /// Writes the blocks that could not be read where they were. One that is nowhere now stays so.
    fn write_again(&mut self, mut dirty: Dirty) -> Result<()> {
        let wanted: BTreeSet<u64> = std::mem::take(&mut self.unreadable).into_iter().collect();
        dirty.blocks.retain(|offset, _| wanted.contains(offset));
        let gone = wanted.into_iter();
        self.unreadable
            .extend(gone.filter(|offset| !dirty.blocks.contains_key(offset)));
        self.write(&mut dirty)
    }

    fn range(&self, offset: u64) -> Range<u64> {
        offset..(offset + self.block_bytes).min(self.volume_bytes)
    }

    fn end(mut self, args: &RescueArgs) -> Result<()> {
        let path = &self.path;
        (self.file.sync_all()).with_context(|| format!("cannot write {path}"))?;
        self.written.sort_unstable();
        self.unreadable.sort_unstable();
        let mut found = Found::default();
        (self.written.iter()).for_each(|offset| add(&mut found.written, self.range(*offset)));
        (self.unreadable.iter()).for_each(|offset| add(&mut found.unreadable, self.range(*offset)));
        tell(args, &found)
    }
}

/// The file, which must be a new one unless that is not wanted.
fn make(path: &Path, force: bool) -> Result<File> {
    let mut how = OpenOptions::new();
    how.write(true).mode(0o600);
    if force {
        how.create(true).truncate(true);
    } else {
        how.create_new(true);
    }
    match how.open(path) {
        Err(error) if error.kind() == ErrorKind::AlreadyExists => refuse!(
            "{} is there already: name a new file, or overwrite it with --force",
            path.display()
        ),
        made => made.with_context(|| format!("cannot make {}", path.display())),
    }
}

fn add(ranges: &mut Vec<Range<u64>>, range: Range<u64>) {
    match ranges.last_mut() {
        Some(last) if last.end == range.start => last.end = range.end,
        _ => ranges.push(range),
    }
}

fn bytes(ranges: &[Range<u64>]) -> u64 {
    ranges.iter().map(|range| range.end - range.start).sum()
}

fn tell(args: &RescueArgs, found: &Found) -> Result<()> {
    let list = |ranges: &[Range<u64>]| -> Vec<serde_json::Value> {
        let each = ranges.iter();
        each.map(
            |range| json!({ "offset_bytes": range.start, "len_bytes": range.end - range.start }),
        )
        .collect()
    };
    if args.json {
        crate::output::line(format_args!(
            "{}",
            json!({
                "name": args.name,
                "ranges": list(&found.written),
                "unreadable": list(&found.unreadable),
            })
        ));
    } else {
        for range in &found.written {
            crate::output::line(format_args!("{} {}", range.start, range.end - range.start));
        }
        crate::output::line(format_args!(
            "volume {}: {} in {} range(s) written to {}, each at its place (offset and length above, in bytes); \
             the cache is as it was",
            args.name,
            size(bytes(&found.written)),
            found.written.len(),
            in_shell(&args.to.display().to_string()),
        ));
    }
    if found.unreadable.is_empty() {
        return Ok(());
    }
    let places: Vec<String> = found
        .unreadable
        .iter()
        .map(|range| format!("{} at {}", size(range.end - range.start), range.start))
        .collect();
    Err(DamageFound(format!(
        "{} of volume {} cannot be read from the cache: {}",
        size(bytes(&found.unreadable)),
        args.name,
        places.join(", ")
    ))
    .into())
}
