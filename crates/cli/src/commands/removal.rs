//! `forebay packaging may-remove`: whether anything would be missing without Forebay.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use forebay_engine::format::SuperblockError;
use forebay_frontend::ublk::device::State;
use forebay_io::OpenError;
use serde_json::json;

use super::check;
use crate::client::{Client, running_daemons, understood};
use crate::config;
use crate::daemon::ublk;
use crate::device::cache_storage;
use crate::device::inspection::inspect;
use crate::device::same_device::Identity;
use crate::failure::refuse;
use crate::report::status::Status;
use crate::units::size;

/// Refuses, with what to do, if a cache holds what its origin does not, or somebody uses a block
/// device. With `offline` only caches of the files are looked at.
pub(super) fn check(files: &[PathBuf], offline: bool) -> Result<()> {
    let files = config::files_or_installed(files)?;
    let mut reasons = Vec::new();
    let mut served = Vec::new();
    if !offline {
        for (control, _) in running_daemons()? {
            served.extend(check_daemon(&control, &mut reasons)?);
        }
        check_block_devices(&mut reasons)?;
    }
    for file in &files {
        let (plan, _) = config::examine_file(file)?;
        let Some(cache) = plan.cache else { continue };
        let is_served = |device: &PathBuf| served.contains(&Identity::of(device));
        if !cache.devices.iter().any(is_served) {
            check_idle(file, &cache.devices, &mut reasons)?;
        }
    }
    if !reasons.is_empty() {
        refuse!(
            "without Forebay this would be missing:\n  {}",
            reasons.join("\n  ")
        );
    }
    Ok(())
}

/// Notes what a daemon still has to write back; returns its cache devices.
fn check_daemon(control: &Path, reasons: &mut Vec<String>) -> Result<Vec<Identity>> {
    let answer = Client::connect(Some(control))?.ask("Status", &json!({}))?;
    let status: Status = understood(answer)
        .with_context(|| format!("cannot ask the daemon at {}", control.display()))?;
    for volume in status
        .volumes
        .iter()
        .filter(|volume| volume.dirty_bytes > 0)
    {
        reasons.push(format!(
            "volume {} has {} that are not on its disk: write them back with `forebay detach {} --control {}`",
            volume.name,
            size(volume.dirty_bytes),
            volume.name,
            control.display()
        ));
    }
    let devices = status.cache.into_iter().flat_map(|cache| cache.devices);
    // From a relative path somebody else's file of that name would be found here, and not be looked at.
    Ok(devices
        .filter(|device| Path::new(&device.path).is_absolute())
        .map(|device| Identity::of(device.path.as_ref()))
        .collect())
}

fn check_block_devices(reasons: &mut Vec<String>) -> Result<()> {
    // Without the driver there are none.
    for device in ublk::export::list().unwrap_or_default() {
        let path = ublk::path(device.number);
        match device.state {
            State::Waiting => reasons.push(format!(
                "{path} waits for a daemon, and so do its users: start that (`systemctl start forebay@NAME`), \
                 take the device out of use and stop it in order"
            )),
            State::Live => {
                if let Some(user) = ublk::in_use::user_of(path.as_ref())
                    .with_context(|| format!("cannot examine {path}"))?
                {
                    reasons.push(format!("{path} is {user}: take it out of use first"));
                }
            }
            State::Dead | State::Other(_) => {}
        }
    }
    Ok(())
}

/// Notes what is in a cache that no daemon serves.
fn check_idle(file: &Path, cache: &[PathBuf], reasons: &mut Vec<String>) -> Result<()> {
    let names = cache_storage::joined(cache, " ");
    let opened = check::open_to_read(cache, forebay_io::DirectIo::IfPossible);
    let inspected = opened.and_then(|mut storage| inspect(&mut storage, &names));
    match inspected {
        Ok(found) => {
            for volume in found.volumes.iter().filter(|volume| volume.dirty_bytes > 0) {
                reasons.push(format!(
                    "{} holds {} of volume {} that are not on its disk: start it ({}) and write them back with \
                     `forebay detach {}`",
                    names,
                    size(volume.dirty_bytes),
                    volume.name,
                    file.display(),
                    volume.name
                ));
            }
            if !found.recovery.damage.is_empty() {
                reasons.push(format!(
                    "the cache on {} is damaged, and what it holds is not known: see `forebay check {}`",
                    names,
                    names
                ));
            }
        }
        // A device on which no cache was ever made holds nothing of ours.
        Err(error) if holds_no_cache(&error) => {}
        Err(error) => reasons.push(format!(
            "whether {} holds what is not on its disk is not known ({}): make it available, or remove {} if that \
             does not matter",
            names,
            crate::failure::describe(&error),
            file.display()
        )),
    }
    Ok(())
}

fn holds_no_cache(error: &anyhow::Error) -> bool {
    let blank = |cause: &(dyn std::error::Error + 'static)| {
        matches!(
            cause.downcast_ref::<SuperblockError>(),
            Some(SuperblockError::Blank | SuperblockError::NotACache { .. })
        )
    };
    let empty = |cause: &(dyn std::error::Error + 'static)| {
        matches!(
            cause.downcast_ref::<OpenError>(),
            Some(OpenError::Empty { .. })
        )
    };
    error.chain().any(|cause| blank(cause) || empty(cause))
}
