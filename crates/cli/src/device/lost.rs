//! Losses if a device is overwritten.

use anyhow::{Context, Result};
use forebay_engine::{Superblock, SuperblockError};

use crate::device::attach::Opened;
use crate::device::inspection::{Inspection, inspect};
use crate::device::signature::{self, Contents};
use crate::units::size;

/// The words for what a device holds that would be lost; none if it is blank.
pub(crate) fn what_is_lost(opened: &mut Opened) -> Result<Option<String>> {
    let name = opened.device.path().display().to_string();
    let words = match Superblock::read(&mut opened.storage) {
        Err(SuperblockError::Blank) => match signature::examine(&mut opened.storage)? {
            Contents::Blank => return Ok(None),
            Contents::Known(what) => what.to_owned(),
            Contents::Unknown => "data of an unknown kind".to_owned(),
        },
        Err(SuperblockError::NotACache { .. }) => match signature::examine(&mut opened.storage)? {
            Contents::Known(what) => what.to_owned(),
            _ => "data of an unknown kind".to_owned(),
        },
        Err(SuperblockError::Device(error)) => {
            return Err(error)
                .with_context(|| format!("cannot read {}", opened.device.path().display()));
        }
        Err(SuperblockError::Incomplete { count, .. }) => {
            format!("one of the {count} devices of a Forebay cache")
        }
        Err(SuperblockError::Newer { .. }) => "a Forebay cache of a newer version".to_owned(),
        Err(_) => "a damaged Forebay cache".to_owned(),
        Ok(superblock) => match inspect(&mut opened.storage, &name) {
            Ok(inspection) => words_for(&inspection),
            Err(_) => format!("the damaged Forebay cache {}", superblock.id),
        },
    };
    Ok(Some(words))
}

fn words_for(inspection: &Inspection) -> String {
    let dirty: Vec<String> = inspection
        .volumes
        .iter()
        .filter(|volume| volume.dirty_bytes > 0)
        .map(|volume| {
            format!(
                "{} of unwritten data of volume {}",
                size(volume.dirty_bytes),
                volume.name
            )
        })
        .collect();
    if dirty.is_empty() {
        format!("the Forebay cache {} without unwritten data", inspection.id)
    } else {
        dirty.join(" and ")
    }
}
