//! `forebay packaging udev`: what udev is to know of a block device. A cache is named, and the
//! origin of a volume is hidden from whoever looks for file systems.

use std::path::{Path, PathBuf};

use anyhow::Result;
use forebay_engine::Superblock;

use crate::config;
use crate::device::looked::Looked;
use crate::device::same_device::Identity;
use crate::device::whole_disk::whole_disk;

/// Directories of links by what is inside a device. An origin has the label and UUID of its volume,
/// and lacks what is not written back yet.
const BY_CONTENTS: [&str; 4] = [
    "disk/by-uuid/",
    "disk/by-label/",
    "disk/by-partuuid/",
    "disk/by-partlabel/",
];

/// Prints properties of a device for udev, a line for each. `links` are the names that udev is about
/// to give it, below /dev.
///
/// # Errors
/// If the device cannot be read. Configuration files that are wrong name no origins.
pub(super) fn describe(device: &Path, links: &[String], files: &[PathBuf]) -> Result<()> {
    if let Some(superblock) = cache_on(device)? {
        let id = superblock.id;
        for line in [
            "ID_FS_TYPE=forebay".to_owned(),
            "ID_FS_USAGE=other".to_owned(),
            format!("ID_FS_UUID={id}"),
            format!("ID_FS_UUID_ENC={id}"),
        ] {
            crate::output::line(line);
        }
        return Ok(());
    }
    let Some(volume) = volume_on(device, links, files) else {
        return Ok(());
    };
    if is_used_by_others(device) {
        // To lose a name would have systemd unmount it.
        return Ok(());
    }
    let is_hidden = |link: &&String| BY_CONTENTS.iter().any(|by| link.starts_with(by));
    let kept: Vec<&str> = links
        .iter()
        .filter(|link| !is_hidden(link))
        .map(String::as_str)
        .collect();
    crate::output::line(format_args!("FOREBAY_ORIGIN_OF={}", in_property(&volume)));
    crate::output::line(format_args!("FOREBAY_LINKS={}", kept.join(" ")));
    Ok(())
}

/// The superblock of a cache, or of one of its devices.
fn cache_on(device: &Path) -> Result<Option<Superblock>> {
    let mut looked = Looked::open(device)?;
    Ok(Superblock::of_device(&mut looked, 0)
        .ok()
        .map(|found| found.0))
}

/// The volume that a configuration has on this device, or on the disk that it is a partition of.
fn volume_on(device: &Path, links: &[String], files: &[PathBuf]) -> Option<String> {
    let own = Identity::of(device);
    let disk = whole_disk(device).and_then(|disk| Identity::of_existing(&disk));
    let is_named = |origin: &Path| {
        let named = Identity::of(origin);
        let by_link = origin
            .strip_prefix("/dev")
            .is_ok_and(|name| links.iter().any(|link| Path::new(link) == name));
        named == own || disk.as_ref() == Some(&named) || by_link
    };
    let files = config::files_or_installed(files).unwrap_or_default();
    let plans = files
        .iter()
        .filter_map(|file| config::examine_file(file).ok());
    let mut volumes = plans.flat_map(|(plan, _)| plan.volumes);
    volumes
        .find(|volume| is_named(&volume.origin))
        .map(|volume| volume.called())
}

/// Whether it, or a partition of it, is mounted or part of something. A daemon's claim does not show
/// there.
fn is_used_by_others(device: &Path) -> bool {
    matches!(forebay_io::block_device_user(device), Ok(Some(_)))
}

/// A value that udev takes as it is.
fn in_property(name: &str) -> String {
    let plain = |letter: char| letter.is_ascii_alphanumeric() || "-_.:+@".contains(letter);
    name.chars()
        .map(|letter| if plain(letter) { letter } else { '_' })
        .collect()
}
