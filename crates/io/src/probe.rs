//! Facts in /proc and /sys about a block device: its abilities, its identity, its users.

mod stripe;

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use forebay_engine::Stripe;

/// A block device's numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Numbers {
    pub(crate) major: u32,
    pub(crate) minor: u32,
}

impl Numbers {
    pub(crate) fn of(device: u64) -> Numbers {
        Numbers {
            major: libc::major(device),
            minor: libc::minor(device),
        }
    }

    fn sysfs(self) -> PathBuf {
        PathBuf::from(format!("/sys/dev/block/{}:{}", self.major, self.minor))
    }

    fn text(self) -> String {
        format!("{}:{}", self.major, self.minor)
    }
}

fn read_line(path: &Path) -> Option<String> {
    let text = fs::read_to_string(path).ok()?;
    let line = text.trim();
    (!line.is_empty()).then(|| line.to_owned())
}

/// The directory of the whole disk: a partition's queue and identity are its disk's.
fn disk_directory(numbers: Numbers) -> PathBuf {
    let own = numbers.sysfs();
    if own.join("partition").exists() {
        own.join("..")
    } else {
        own
    }
}

/// A line of the device's queue, such as `write_cache`.
fn queue(numbers: Numbers, name: &str) -> Option<String> {
    read_line(&disk_directory(numbers).join("queue").join(name))
}

/// Whether the device may lose completed writes at a power cut. A device that does not say may.
pub(crate) fn has_volatile_cache(numbers: Numbers) -> bool {
    queue(numbers, "write_cache").is_none_or(|mode| mode != "write through")
}

pub(crate) fn can_discard(numbers: Numbers) -> bool {
    queue(numbers, "discard_max_bytes").is_some_and(|bytes| bytes != "0")
}

/// The length of requests that is best for the device, if it says: a stripe of a RAID.
pub(crate) fn optimal_bytes(numbers: Numbers) -> Option<u32> {
    let bytes: u32 = queue(numbers, "optimal_io_size")?.parse().ok()?;
    (bytes > 0).then_some(bytes)
}

/// The stripe of a RAID with parity, if the device is one or a part of one.
pub(crate) fn stripe(numbers: Numbers) -> Option<Stripe> {
    stripe::find(&numbers.sysfs(), &disk_directory(numbers))
}

/// The most lasting name the kernel knows for the device.
pub(crate) fn identity(numbers: Numbers) -> String {
    let own = numbers.sysfs();
    let disk = disk_directory(numbers);
    let part = read_line(&own.join("partition")).map(|number| format!("-part{number}"));
    let named = [
        ("wwid", "wwid"),
        ("device/wwid", "wwid"),
        ("serial", "serial"),
        ("device/serial", "serial"),
        ("dm/uuid", "dm"),
        ("md/uuid", "md"),
        ("loop/backing_file", "loop"),
    ];
    let name = named.iter().find_map(|(file, kind)| {
        read_line(&disk.join(file)).map(|value| format!("{kind}:{value}"))
    });
    let name = name.unwrap_or_else(|| format!("dev:{}", numbers.text()));
    name + &part.unwrap_or_default()
}

/// The user of a block device, in words for an error message: `mounted on /mnt`, `used by dm-0`.
///
/// # Errors
/// If it cannot be examined.
pub fn block_device_user(path: &Path) -> std::io::Result<Option<String>> {
    let metadata = fs::metadata(path)?;
    let numbers = Numbers::of(std::os::unix::fs::MetadataExt::rdev(&metadata));
    Ok(user(numbers).map(|user| user.trim_start_matches("is ").to_owned()))
}

/// The user of a block device, in words for an error message.
pub(crate) fn user(numbers: Numbers) -> Option<String> {
    let partitions = fs::read_dir(numbers.sysfs())
        .into_iter()
        .flatten()
        .flatten()
        .filter(|entry| entry.path().join("partition").exists())
        .filter_map(|entry| {
            let name = entry.file_name().to_string_lossy().into_owned();
            Some((
                read_line(&entry.path().join("dev"))?,
                format!("its partition {name} "),
            ))
        });
    let own = (numbers.text(), String::new());
    std::iter::once(own)
        .chain(partitions)
        .find_map(|(text, whose)| {
            let directory = PathBuf::from(format!("/sys/dev/block/{text}"));
            let use_of_it = mount_of(&text).map(|at| format!("mounted on {at}"));
            let use_of_it =
                use_of_it.or_else(|| holder(&directory).map(|by| format!("used by {by}")));
            use_of_it.map(|what| format!("{whose}is {what}").trim_start().to_owned())
        })
}

/// The loop device whose file this is, if it is one's.
pub(crate) fn loop_device_of(metadata: &fs::Metadata) -> Option<String> {
    let devices = fs::read_dir("/sys/block").ok()?.flatten();
    let mut loops =
        devices.filter(|entry| entry.file_name().as_encoded_bytes().starts_with(b"loop"));
    let is_it = |entry: &fs::DirEntry| {
        let file = read_line(&entry.path().join("loop/backing_file"));
        let file = file.and_then(|path| fs::metadata(path).ok());
        file.is_some_and(|file| (file.dev(), file.ino()) == (metadata.dev(), metadata.ino()))
    };
    let found = loops.find(is_it)?;
    Some(format!("/dev/{}", found.file_name().to_string_lossy()))
}

/// Where a device is mounted. Fields of mountinfo: id, parent, major:minor, root, mount point.
fn mount_of(numbers: &str) -> Option<String> {
    let text = fs::read_to_string("/proc/self/mountinfo").ok()?;
    text.lines().find_map(|line| {
        let mut fields = line.split(' ');
        (fields.nth(2)? == numbers).then(|| fields.nth(1).map(str::to_owned))?
    })
}

/// A device stacked on this one, such as a dm or md device.
fn holder(directory: &Path) -> Option<String> {
    let mut entries = fs::read_dir(directory.join("holders")).ok()?.flatten();
    entries
        .next()
        .map(|entry| entry.file_name().to_string_lossy().into_owned())
}
