//! What can be done to the space of a running cache.

use std::str::FromStr;

use clap::Subcommand;

use super::ControlArgs;
use crate::units::parse_size;

#[derive(Debug, Subcommand)]
pub(crate) enum CacheCommand {
    /// Give a running cache more of its device, or less.
    Resize(ResizeArgs),
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
        parse_size(text)
            .map(WantedSize::Bytes)
            .map_err(|error| format!("{error}; or `max` for all of the device"))
    }
}

#[derive(Debug, clap::Args)]
#[command(
    after_help = "Example: lvextend -L +100G /dev/vg/cache && forebay cache resize max\n         \
forebay cache resize 200G && lvreduce -L 200G /dev/vg/cache\n\nVolumes stay in use. What is to leave is \
emptied first: hot blocks move to what stays, and so does unwritten data, or it is written back. \
Ctrl-C leaves the cache as it was."
)]
pub(crate) struct ResizeArgs {
    /// How much of the device the cache may use: a size from the device's start, or `max`.
    #[arg(value_name = "SIZE")]
    pub(crate) size: WantedSize,
    #[command(flatten)]
    pub(crate) control: ControlArgs,
}
