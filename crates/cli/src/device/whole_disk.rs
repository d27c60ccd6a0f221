//! The disk of a partition.

use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

/// The disk that a block device is or is a part of, by the node that the kernel gives it.
pub(crate) fn whole_disk(device: &Path) -> Option<PathBuf> {
    disk_of_entry(&entry_of(device)?)
}

/// The directory in which the kernel describes a block device.
pub(super) fn entry_of(device: &Path) -> Option<PathBuf> {
    let found = std::fs::metadata(device).ok()?;
    if !found.file_type().is_block_device() {
        return None;
    }
    let (major, minor) = (
        rustix::fs::major(found.rdev()),
        rustix::fs::minor(found.rdev()),
    );
    std::fs::canonicalize(format!("/sys/dev/block/{major}:{minor}")).ok()
}

/// From the directory of a disk or of a partition, which is inside its disk's.
fn disk_of_entry(entry: &Path) -> Option<PathBuf> {
    let is_part = entry.join("partition").exists();
    let disk = if is_part { entry.parent()? } else { entry };
    Some(Path::new("/dev").join(disk.file_name()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernel_has_partitions_inside_their_disks() {
        let root = std::env::temp_dir().join(format!("fb-whole-disk-{}", std::process::id()));
        let disk = root.join("nvme0n1");
        std::fs::create_dir_all(disk.join("nvme0n1p3")).unwrap();
        std::fs::write(disk.join("nvme0n1p3/partition"), "3\n").unwrap();
        let node = Some(PathBuf::from("/dev/nvme0n1"));
        assert_eq!(disk_of_entry(&disk), node);
        assert_eq!(disk_of_entry(&disk.join("nvme0n1p3")), node);
        std::fs::remove_dir_all(root).unwrap();
    }
}
