//! Numbers that several processes share: a file's first words, mapped.

use std::fs::File;
use std::io;
use std::sync::atomic::AtomicU64;

use crate::map::Map;

/// Words of a file, each read and written whole by whoever maps the file.
#[derive(Debug)]
pub struct SharedWords {
    map: Map,
    count: usize,
}

impl SharedWords {
    /// Maps the first `count` words of a file, which it makes long enough.
    ///
    /// # Errors
    /// If the file cannot be made longer or mapped.
    pub fn map(file: &File, count: usize) -> io::Result<SharedWords> {
        let len_bytes = count * size_of::<AtomicU64>();
        if file.metadata()?.len() < len_bytes as u64 {
            file.set_len(len_bytes as u64)?;
        }
        let map = Map::shared(file, len_bytes)?;
        Ok(SharedWords { map, count })
    }

    /// The words.
    #[must_use]
    pub fn words(&self) -> &[AtomicU64] {
        // SAFETY: the mapping is page-aligned, at least this long and lives as long as `self`;
        // all access to it, here and in other processes, is atomic.
        unsafe { std::slice::from_raw_parts(self.map.base().as_ptr().cast(), self.count) }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::Ordering;

    use super::*;

    #[test]
    fn two_mappings_of_a_file_see_the_same_words() {
        let path = std::env::temp_dir().join(format!("forebay-words-{}", std::process::id()));
        let file = File::options()
            .read(true)
            .write(true)
            .create(true)
            .truncate(true)
            .open(&path)
            .unwrap();
        let one = SharedWords::map(&file, 4).unwrap();
        let two = SharedWords::map(&file, 4).unwrap();
        one.words()[3].store(7, Ordering::Release);
        assert_eq!(two.words()[3].load(Ordering::Acquire), 7);
        std::fs::remove_file(&path).unwrap();
    }
}
