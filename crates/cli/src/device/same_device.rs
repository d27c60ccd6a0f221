//! Which device or file a path leads to, whatever the path.

use std::fs;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

use crate::device::network::uri;

/// Identity of a device or file: equal for all paths to it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Identity {
    /// A block device, by its number: it may have several nodes.
    BlockDevice(u64),
    /// Another file, by its file system and its number there.
    File(u64, u64),
    /// An export of a server, by its place.
    Export(String),
    /// Nothing that is there now, by its path.
    Missing(PathBuf),
}

impl Identity {
    /// The identity of what a path leads to. A missing path equals only itself.
    pub(crate) fn of(path: &Path) -> Identity {
        Identity::of_existing(path).unwrap_or_else(|| {
            Identity::Missing(std::path::absolute(path).unwrap_or_else(|_| path.to_owned()))
        })
    }

    /// Where a path leads, if it leads anywhere.
    pub(crate) fn of_existing(path: &Path) -> Option<Identity> {
        if let Some(place) = uri::place(path) {
            return Some(Identity::Export(place));
        }
        let found = fs::metadata(path).ok()?;
        Some(if found.file_type().is_block_device() {
            Identity::BlockDevice(found.rdev())
        } else {
            Identity::File(found.dev(), found.ino())
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_link_is_what_it_leads_to_and_what_is_not_there_is_itself() {
        let directory = std::env::temp_dir().join(format!("forebay-same-{}", std::process::id()));
        fs::create_dir(&directory).unwrap();
        let [file, other, link, gone] =
            ["file", "other", "link", "gone"].map(|n| directory.join(n));
        fs::write(&file, "same").unwrap();
        fs::write(&other, "same").unwrap();
        std::os::unix::fs::symlink(&file, &link).unwrap();
        let [of_file, of_other, of_link, of_gone] =
            [&file, &other, &link, &gone].map(|path| Identity::of(path));
        let existing = Identity::of_existing(&gone);
        fs::remove_dir_all(&directory).unwrap();
        assert_eq!(of_file, of_link);
        assert_ne!(of_file, of_other);
        assert_eq!(of_gone, Identity::Missing(gone));
        assert_eq!(existing, None);
    }
}
