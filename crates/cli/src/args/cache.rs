//! Commands on the space of a running cache.

use std::path::PathBuf;
use std::str::FromStr;

use clap::Subcommand;

use super::ControlArgs;
use crate::units::parse_size_with_unit;

#[derive(Debug, Subcommand)]
pub(crate) enum CacheCommand {
    /// Give a running cache more of its device, or less.
    Resize(ResizeArgs),
    /// Add a device to a running cache.
    Add(AddArgs),
    /// Empty a device of a running cache and let it go.
    Remove(RemoveArgs),
    /// Put another device in the place of one, sound or lost.
    Replace(ReplaceArgs),
}

/// Where the cache is to end on its device.
#[derive(Clone, Copy, Debug)]
pub(crate) enum WantedSize {
    Bytes(u64),
    /// At the device's end.
    Max,
}

impl FromStr for WantedSize {
    type Err = String;

    fn from_str(text: &str) -> Result<WantedSize, String> {
        if text == "max" {
            return Ok(WantedSize::Max);
        }
        parse_size_with_unit(text)
            .map(WantedSize::Bytes)
            .map_err(|error| format!("{error}; or `max` for all of the device"))
    }
}

#[derive(Debug, clap::Args)]
#[command(after_help = "Example: forebay cache resize max\n         \
forebay cache resize 200G\n\nVolumes stay in use. Make the device larger before \
(lvextend, a partition), or smaller afterwards. What is to leave is emptied first: hot blocks move to what \
stays, and so does unwritten data, or it is written back. Ctrl-C leaves the cache as it was.")]
pub(crate) struct ResizeArgs {
    /// Space of the device the cache may use: a size from the device's start, or `max`.
    #[arg(value_name = "SIZE")]
    pub(crate) size: WantedSize,
    /// Which device, if the cache has several.
    #[arg(long, value_name = "DEVICE")]
    pub(crate) device: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) control: ControlArgs,
}

#[derive(Debug, clap::Args)]
#[command(
    after_help = "Example: forebay cache add /dev/nvme1n1\n\nThe whole device is used, at once. From then on \
the cache needs it: name it in the configuration file too."
)]
pub(crate) struct AddArgs {
    /// The block device or file.
    #[arg(value_name = "DEVICE")]
    pub(crate) device: PathBuf,
    /// Overwrite what is on it.
    #[arg(long)]
    pub(crate) force: bool,
    #[command(flatten)]
    pub(crate) control: ControlArgs,
}

#[derive(Debug, clap::Args)]
#[command(
    after_help = "Example: forebay cache remove /dev/nvme0n1p3\n\nVolumes stay in use. Hot blocks move to the \
other devices, and so does unwritten data, or it is written back. Ctrl-C leaves the cache as it was."
)]
pub(crate) struct RemoveArgs {
    /// The device.
    #[arg(value_name = "DEVICE")]
    pub(crate) device: PathBuf,
    #[command(flatten)]
    pub(crate) control: ControlArgs,
}

#[derive(Debug, clap::Args)]
#[command(
    after_help = "Example: forebay cache replace /dev/nvme1n1 /dev/nvme2n1\n\nThe new device is added, \
unwritten data is copied until it is on two devices if `copies` is 2, and the old one leaves. An old one that is \
lost is not needed for that. Volumes stay in use. Ctrl-C leaves both in the cache."
)]
pub(crate) struct ReplaceArgs {
    /// The device that leaves.
    #[arg(value_name = "OLD")]
    pub(crate) old: PathBuf,
    /// The device that takes its place.
    #[arg(value_name = "NEW")]
    pub(crate) new: PathBuf,
    /// Overwrite what is on the new device.
    #[arg(long)]
    pub(crate) force: bool,
    #[command(flatten)]
    pub(crate) control: ControlArgs,
}
