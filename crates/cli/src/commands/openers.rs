//! Programs that have a volume's block device open, as a command sees them before a daemon takes the
//! device away.
//!
//! The daemon looks for them too. As a service it sees the files of few programs, and before Linux 7.0
//! the driver tells of no others. An administrator's command sees those of all processes.

use std::path::Path;

use anyhow::Result;

use crate::client::Client;
use crate::daemon::ublk::in_use::{in_use_by, opener_of};
use crate::failure::refuse;

/// Refuses if a program has the block device of this volume open, or of any where none is named.
/// `instead` says what to do.
pub(super) fn check_unopened(
    client: &mut Client,
    volume: Option<&str>,
    instead: &str,
) -> Result<()> {
    // A daemon that cannot tell is asked all the same: it looks too.
    let Ok(status) = client.status() else {
        return Ok(());
    };
    let is_meant = |name: &str| volume.is_none_or(|volume| volume == name);
    let meant = status.volumes.iter().filter(|known| is_meant(&known.name));
    for known in meant {
        if let Some(device) = &known.block_device
            && let Some(user) = opener_of(Path::new(device))
        {
            refuse!("{}: {instead}", in_use_by(&user, device, &known.name));
        }
    }
    Ok(())
}
