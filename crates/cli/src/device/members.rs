//! The members of an array, as the kernel tells them: the disks at the bottom of what md, the device
//! mapper and bcache stack.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use super::whole_disk::entry_of;

const SECTOR_BYTES: u64 = 512;
/// Stacks are not higher: a tree that is would be a loop.
const MOST_LAYERS: u32 = 8;
/// Members that are looked at; more is no array that anybody has.
const MOST_MEMBERS: usize = 256;

/// Counters of a member since the machine started.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct MemberCounters {
    /// The kernel's name, such as `sda`.
    pub(crate) name: String,
    pub(crate) read_bytes: u64,
    pub(crate) written_bytes: u64,
    pub(crate) in_flight: u64,
    /// Time in which any request was in flight, in milliseconds.
    pub(crate) busy_ms: u64,
}

/// The counters of each member of a block device, by name. Empty for a single disk, a file, and what
/// the kernel does not tell.
pub(crate) fn members_of(device: &Path) -> Vec<MemberCounters> {
    let entry = entry_of(device);
    entry.map_or_else(Vec::new, |entry| members_of_entry(&entry))
}

/// Likewise, from the directory of a disk or of a partition, which is inside its disk's.
fn members_of_entry(entry: &Path) -> Vec<MemberCounters> {
    let is_part = entry.join("partition").exists();
    let disk = if is_part { entry.parent() } else { Some(entry) };
    let mut leaves = BTreeSet::new();
    for below in disk.map(slaves).unwrap_or_default() {
        add_leaves(&below, MOST_LAYERS, &mut leaves);
    }
    leaves.iter().filter_map(|leaf| counters(leaf)).collect()
}

/// The directories of the devices that this one is made of.
fn slaves(entry: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(entry.join("slaves"))
        .into_iter()
        .flatten();
    let paths = entries.flatten().map(|entry| entry.path());
    paths.filter_map(|path| path.canonicalize().ok()).collect()
}

fn add_leaves(entry: &Path, layers: u32, leaves: &mut BTreeSet<PathBuf>) {
    if layers == 0 || leaves.len() >= MOST_MEMBERS {
        return;
    }
    let below = slaves(entry);
    if below.is_empty() {
        leaves.insert(entry.to_owned());
    }
    for entry in below {
        add_leaves(&entry, layers - 1, leaves);
    }
}

fn counters(entry: &Path) -> Option<MemberCounters> {
    let name = entry.file_name()?.to_string_lossy().into_owned();
    let text = std::fs::read_to_string(entry.join("stat")).ok()?;
    parse(name, &text)
}

/// The kernel's `Documentation/block/stat.rst` numbers the fields: sectors read are the third, sectors
/// written the seventh, requests in flight the ninth, the busy time the tenth.
fn parse(name: String, stat: &str) -> Option<MemberCounters> {
    let fields = stat.split_ascii_whitespace().map(str::parse::<u64>);
    let fields: Vec<u64> = fields.collect::<Result<_, _>>().ok()?;
    let [_, _, read, _, _, _, written, _, in_flight, busy_ms, ..] = fields[..] else {
        return None;
    };
    Some(MemberCounters {
        name,
        read_bytes: read.saturating_mul(SECTOR_BYTES),
        written_bytes: written.saturating_mul(SECTOR_BYTES),
        in_flight,
        busy_ms,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;

    const STAT: &str = "  10 0 64 5 20 1 128 9 3 1500 14 0 0 0 0 2 1\n";

    /// A mirror of a disk's partition and a mapping of two disks, with a partition on the mirror.
    fn made_up(root: &Path) {
        for leaf in ["sda/sda1", "sdb", "sdc"] {
            std::fs::create_dir_all(root.join(leaf)).unwrap();
            std::fs::write(root.join(leaf).join("stat"), STAT).unwrap();
        }
        std::fs::write(root.join("sda/sda1/partition"), "1\n").unwrap();
        for stacked in ["dm-0/slaves", "md0/slaves", "md0/md0p1"] {
            std::fs::create_dir_all(root.join(stacked)).unwrap();
        }
        std::fs::write(root.join("md0/md0p1/partition"), "1\n").unwrap();
        for (of, below) in [
            ("md0", "sda/sda1"),
            ("md0", "dm-0"),
            ("dm-0", "sdb"),
            ("dm-0", "sdc"),
        ] {
            let name = Path::new(below).file_name().unwrap();
            let at = root.join(of).join("slaves").join(name);
            symlink(root.join(below), at).unwrap();
        }
    }

    #[test]
    fn the_members_are_at_the_bottom_of_the_stack() {
        let root = std::env::temp_dir().join(format!("fb-members-{}", std::process::id()));
        made_up(&root);
        let names = |entry: &str| -> Vec<String> {
            let members = members_of_entry(&root.join(entry));
            members.into_iter().map(|member| member.name).collect()
        };
        assert_eq!(names("md0"), ["sda1", "sdb", "sdc"]);
        assert_eq!(names("md0/md0p1"), ["sda1", "sdb", "sdc"]);
        assert_eq!(names("dm-0"), ["sdb", "sdc"]);
        assert_eq!(names("sdb"), [""; 0]);
        std::fs::write(root.join("sdc/stat"), "10 0 64\n").unwrap();
        assert_eq!(names("dm-0"), ["sdb"], "a member that tells nothing");
        // A loop, which the kernel does not make.
        std::fs::create_dir_all(root.join("sdb/slaves")).unwrap();
        symlink(root.join("dm-0"), root.join("sdb/slaves/dm-0")).unwrap();
        assert_eq!(names("dm-0"), [""; 0]);
        std::fs::remove_dir_all(root).unwrap();
    }

    #[test]
    fn a_line_of_counters_is_read_or_refused() {
        let counters = parse("sda".to_owned(), STAT).unwrap();
        let wanted = MemberCounters {
            name: "sda".to_owned(),
            read_bytes: 64 * 512,
            written_bytes: 128 * 512,
            in_flight: 3,
            busy_ms: 1500,
        };
        assert_eq!(counters, wanted);
        for bad in ["", "1 2 3", "a b c d e f g h i j", "1 2 3 4 5 6 7 8 9 -1"] {
            assert_eq!(parse("sda".to_owned(), bad), None, "{bad}");
        }
    }

    #[test]
    fn a_file_has_no_members() {
        assert_eq!(members_of(Path::new("/proc/self/exe")), []);
        assert_eq!(members_of(Path::new("/nowhere")), []);
    }
}
