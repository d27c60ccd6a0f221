//! The devices of a plan, opened with every check that comes before serving.

use std::ops::Range;
use std::sync::Arc;

use anyhow::{Context, Result};
use forebay_engine::{BlockKey, VolumeConfig};
use forebay_io::{BlockingStorage, Emulation};

use crate::config::Plan;
use crate::daemon::data::served::TimedDevice;
use crate::device::attach::{self, AttachedCache, Origin, Surroundings};
use crate::device::cache_storage;
use crate::failure::Usage;
use crate::profiles;
use crate::units;

/// The origins, in the order of the plan's volumes.
pub(super) fn open_origins(plan: &Plan, surroundings: &Surroundings) -> Result<Vec<Origin>> {
    let mut origins: Vec<Origin> = Vec::new();
    for volume in &plan.volumes {
        let origin = Origin::open(
            &volume.origin,
            volume.name.clone(),
            volume.mode,
            surroundings,
        )
        .with_context(|| format!("cannot serve the origin device {}", volume.origin.display()))?;
        if origins.iter().any(|other| other.name == origin.name) {
            return Err(Usage(format!(
                "two volumes are called `{}`; give one another name (name = \"NAME\" in a configuration file)",
                origin.name
            ))
            .into());
        }
        origins.push(origin);
    }
    Ok(origins)
}

/// The cache, if the plan has one. `saves` what is unsaved of one that was given up.
pub(super) fn open_cache(
    plan: &Plan,
    saves: bool,
    origins: &mut [Origin],
    surroundings: &Surroundings,
) -> Result<Option<OpenCache>> {
    let Some(wanted) = &plan.cache else {
        attach::check_new_names(None, origins)?;
        return Ok(None);
    };
    let (storage, superblock, note) = if saves {
        attach::open_to_save(&wanted.devices, surroundings)?
    } else {
        let (storage, superblock) =
            attach::open_cache(&wanted.devices, wanted.create, surroundings)?;
        (storage, superblock, None)
    };
    let unsaved = note
        .as_ref()
        .map(|note| attach::unsaved_blocks(&superblock, note));
    let file = plan.source.as_ref().and_then(|args| args.config.as_deref());
    attach::check_origins(&superblock, origins, file)?;
    attach::check_new_names(Some(&superblock), origins)?;
    let mut attached = attach::attach(storage, &superblock, false, &plan.settings, note.as_ref())?;
    let report = &attached.report;
    tracing::info!(
        "cache {} attached: {} blocks cached, {} dirty, {} read to recover",
        attached.superblock.id,
        report.cached_blocks(),
        report.dirty_blocks(),
        units::size(report.bytes_read()),
    );
    let mut configs = Vec::new();
    let first_mode = profiles::first_mode(plan.profile);
    for origin in &*origins {
        configs.push(attach::enter_volume(
            &mut attached.superblock,
            origin,
            first_mode,
        )?);
    }
    let names = cache_storage::names(&attached.storage);
    attached
        .superblock
        .write(&mut attached.storage)
        .with_context(|| format!("cannot write the superblock of the cache on {names}"))?;
    let timed = |(number, storage): (u8, &BlockingStorage)| {
        let device = Arc::clone(storage.device());
        let emulate = wanted.emulate.as_ref();
        let emulation = emulate.map(|options| Emulation::new(options, device.size_bytes()));
        (number, TimedDevice { device, emulation })
    };
    let devices = attached.storage.devices().map(timed).collect();
    Ok(Some(OpenCache {
        attached,
        unsaved,
        configs,
        devices,
    }))
}

/// The cache of a plan, recovered.
pub(super) struct OpenCache {
    pub(super) attached: AttachedCache,
    /// Of a cache that was given up: the only blocks of it that count.
    pub(super) unsaved: Option<Vec<Range<BlockKey>>>,
    /// Of each volume its id and how it is served.
    pub(super) configs: Vec<(u32, VolumeConfig)>,
    pub(super) devices: Vec<(u8, TimedDevice)>,
}
