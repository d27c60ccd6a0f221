//! In the guest: writers that sync and say so on the console, and the check that no data they were
//! promised is missing. Power cuts happen while they run.
//!
//! Each writer's data follows from its number alone, so the check needs no record of it but its
//! progress on the console.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::Write as _;
use std::os::unix::fs::{FileExt as _, OpenOptionsExt as _};
use std::path::Path;
use std::sync::Mutex;

use anyhow::Context as _;

/// Concurrent writers, each in its own region.
pub const WRITERS: usize = 4;

const BLOCK_BYTES: usize = 4096;
const BLOCKS: u64 = 8192;
const FIRST_BYTE: u64 = 1 << 30;
/// Blocks written between two syncs.
const BATCH: u64 = 4;
/// After so many syncs one is reported: the console is slow.
const REPORT_EVERY: u64 = 4;

/// Where a writer's `number`th write goes.
fn block_of(writer: usize, number: u64) -> u64 {
    let mut hash = number.wrapping_mul(0x9E37_79B9_7F4A_7C15) ^ (writer as u64 + 1);
    hash ^= hash >> 31;
    hash = hash.wrapping_mul(0xD6E8_FEB8_6659_FD93);
    hash ^= hash >> 29;
    hash % BLOCKS
}

fn offset_of(writer: usize, block: u64) -> u64 {
    FIRST_BYTE + (writer as u64 * BLOCKS + block) * BLOCK_BYTES as u64
}

fn fill(contents: &mut [u8], writer: usize, number: u64) {
    for (index, word) in contents.chunks_exact_mut(16).enumerate() {
        word[..8].copy_from_slice(&number.to_le_bytes());
        word[8..].copy_from_slice(&((writer as u64) << 32 | index as u64).to_le_bytes());
    }
}

/// Which write of this writer a block holds, if it is whole.
fn number_in(contents: &[u8], writer: usize) -> Option<u64> {
    let number = u64::from_le_bytes(contents[..8].try_into().ok()?);
    let mut expected = vec![0; contents.len()];
    fill(&mut expected, writer, number);
    (contents == expected).then_some(number)
}

/// Writes and syncs until the power goes.
///
/// # Errors
/// If the device cannot be opened, written or synced.
pub fn write(device: &Path, already: &[u64]) -> anyhow::Result<()> {
    let console = Mutex::new(());
    std::thread::scope(|scope| {
        let writers: Vec<_> = (0..WRITERS)
            .map(|writer| {
                let console = &console;
                let from = already.get(writer).copied().unwrap_or(0);
                scope.spawn(move || write_one(device, writer, from, console))
            })
            .collect();
        writers.into_iter().try_for_each(|writer| {
            writer
                .join()
                .unwrap_or_else(|_| anyhow::bail!("a writer panicked"))
        })
    })
}

fn write_one(device: &Path, writer: usize, from: u64, console: &Mutex<()>) -> anyhow::Result<()> {
    let file = File::options()
        .write(true)
        .custom_flags(rustix::fs::OFlags::DIRECT.bits() as i32)
        .open(device)
        .with_context(|| format!("cannot open {}", device.display()))?;
    let mut memory = vec![0; 2 * BLOCK_BYTES];
    let start = memory.as_ptr().align_offset(BLOCK_BYTES);
    let contents = &mut memory[start..start + BLOCK_BYTES];
    for number in from + 1.. {
        fill(contents, writer, number);
        file.write_all_at(contents, offset_of(writer, block_of(writer, number)))
            .with_context(|| format!("write {number} of writer {writer} failed"))?;
        if number % BATCH != 0 {
            continue;
        }
        file.sync_data()
            .with_context(|| format!("sync after write {number} of writer {writer} failed"))?;
        if number % (BATCH * REPORT_EVERY) == 0 {
            let _whole_lines = console.lock();
            println!("@lab synced {writer} {number}");
            std::io::stdout().flush()?;
        }
    }
    Ok(())
}

/// Compares the device with what the console said was synced, and reports on the console.
///
/// # Errors
/// If the device cannot be read.
pub fn check(device: &Path, synced: &[u64]) -> anyhow::Result<()> {
    let file = File::open(device).with_context(|| format!("cannot open {}", device.display()))?;
    let mut checked = 0;
    let mut missing = 0;
    for (writer, last) in synced.iter().enumerate() {
        let least = promised(writer, *last);
        for (block, number) in &least {
            let mut contents = [0; BLOCK_BYTES];
            file.read_exact_at(&mut contents, offset_of(writer, *block))
                .with_context(|| format!("cannot read block {block} of writer {writer}"))?;
            checked += 1;
            let found = number_in(&contents, writer);
            let fits =
                found.is_some_and(|found| found >= *number && block_of(writer, found) == *block);
            if fits {
                continue;
            }
            missing += 1;
            if missing <= 5 {
                let found = found.map_or("no whole block".to_owned(), |n| format!("write {n}"));
                println!(
                    "@lab failed block {block} of writer {writer} holds {found}; write {number} was synced"
                );
            }
        }
    }
    println!("@lab verified {checked} missing {missing}");
    Ok(())
}

/// For each block the newest write that is known to be durable.
fn promised(writer: usize, last: u64) -> BTreeMap<u64, u64> {
    (1..=last)
        .map(|number| (block_of(writer, number), number))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_block_tells_its_write_only_when_it_is_whole() {
        let mut contents = [0; BLOCK_BYTES];
        fill(&mut contents, 2, 77);
        assert_eq!(number_in(&contents, 2), Some(77));
        assert_eq!(number_in(&contents, 3), None);
        contents[BLOCK_BYTES - 9] ^= 1;
        assert_eq!(number_in(&contents, 2), None);
    }

    #[test]
    fn the_newest_promise_for_a_block_counts() {
        let promised = promised(1, 40_000);
        let (block, number) = promised.iter().next().unwrap();
        assert!((number + 1..=40_000).all(|later| block_of(1, later) != *block));
        assert!(promised.len() as u64 <= BLOCKS && promised.len() > 8000);
    }
}
