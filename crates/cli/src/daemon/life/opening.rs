//! The devices of a plan, opened with every check that comes before serving.

use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context, Result};
use forebay_engine::{BlockKey, Storage, Superblock, VolumeConfig};
use forebay_io::{BlockingStorage, Emulation};

use super::lost_devices::{self, LostDevice, needs_two};
use crate::config::{CachePlan, Plan, VolumePlan};
use crate::daemon::data::served::TimedDevice;
use crate::device::attach::{self, Accepted, AttachedCache, Origin, Surroundings};
use crate::device::cache_storage::{self, CacheStorage};
use crate::device::present::{Decision, Present, path_of};
use crate::failure::{Usage, wrong_usage};
use crate::profiles;
use crate::units;

/// The origins of a plan, as far as they are there.
#[derive(Default)]
pub(super) struct Origins {
    /// Origins that are served, each with its plan.
    pub(super) there: Vec<(Origin, VolumePlan)>,
    /// Volumes that are left out. The others are served without them.
    pub(super) away: Vec<Missing>,
}

/// A volume that is left out.
pub(super) struct Missing {
    pub(super) name: String,
    /// The origin, if the plan names one.
    pub(super) origin: Option<PathBuf>,
    pub(super) why: anyhow::Error,
}

impl Missing {
    fn of(planned: &VolumePlan, why: anyhow::Error) -> Missing {
        Missing {
            name: planned.called(),
            origin: Some(planned.origin.clone()),
            why,
        }
    }
}

/// Opens the origins, in the order of the plan's volumes. One that cannot be served is left out if
/// the plan is of a file and has a cache.
pub(super) fn open_origins(plan: &Plan, surroundings: &Surroundings) -> Result<Origins> {
    let mut origins = Origins::default();
    for planned in &plan.volumes {
        let opened = Origin::open(planned, surroundings).with_context(|| {
            format!(
                "cannot serve the origin device {}",
                planned.origin.display()
            )
        });
        let origin = match opened {
            Ok(origin) => origin,
            Err(why) if leaves_out(plan) && !why.is::<Usage>() => {
                origins.away.push(Missing::of(planned, why));
                continue;
            }
            Err(why) => return Err(why),
        };
        let mut others = origins.there.iter();
        if others.any(|(other, _)| other.name == origin.name) {
            return Err(Usage(format!(
                "two volumes are called `{}`; give one another name (name = \"NAME\" in a configuration file)",
                origin.name
            ))
            .into());
        }
        origins.there.push((origin, planned.clone()));
    }
    Ok(origins)
}

/// Whether a plan is served without an origin that is not there: that of a file, with a cache. A
/// command line has an error for whoever typed it. A daemon under the root file system ends, and
/// is started again by who waits for it.
fn leaves_out(plan: &Plan) -> bool {
    let of_file = file_of(plan).is_some() && plan.root_storage().is_none();
    plan.cache.is_some() && (of_file || plan.volumes.len() > 1)
}

fn file_of(plan: &Plan) -> Option<&Path> {
    plan.source.as_ref()?.config.as_deref()
}

impl Origins {
    /// Refuses those that are new to a cache, or to a daemon without one, and cannot be served.
    fn check_new(&mut self, superblock: Option<&Superblock>) -> Result<()> {
        attach::check_new_origins(superblock, self.there.iter_mut().map(|(origin, _)| origin))
    }

    fn served(&self) -> impl Iterator<Item = &Origin> {
        self.there.iter().map(|(origin, _)| origin)
    }

    /// Refuses a cache that nothing is served of now, and nothing was before: no daemon waits for
    /// what may be a slip of the pen. `superblock` is none of a cache that is yet to be made.
    fn check_any(&mut self, superblock: Option<&Superblock>) -> Result<()> {
        let was_served = |missing: &Missing| {
            let mut known = superblock.into_iter().flat_map(attach::attached_volumes);
            known.any(|volume| volume.name == missing.name)
        };
        if !self.there.is_empty() || self.away.iter().any(was_served) || self.away.is_empty() {
            return Ok(());
        }
        Err(self.away.remove(0).why)
    }

    /// Compares the origins with what the cache knows of them. Those that do not fit are left out
    /// if others are served, and so are volumes that a file of several volumes does not name.
    /// `alone`: one volume of several may be served by itself.
    fn check(&mut self, superblock: &Superblock, plan: &Plan, alone: bool) -> Result<()> {
        let file = file_of(plan);
        for volume in attach::attached_volumes(superblock) {
            let mut there = self.there.iter();
            let at = there.position(|(origin, _)| origin.name == volume.name);
            if let Some(at) = at {
                let origin = &mut self.there[at].0;
                match attach::check_origin(superblock, volume, origin) {
                    Err(why) if leaves_out(plan) => {
                        let (_, planned) = self.there.remove(at);
                        self.away.push(Missing::of(&planned, why));
                    }
                    checked => checked?,
                }
                continue;
            }
            if self.away.iter().any(|away| away.name == volume.name) {
                continue;
            }
            let origins: Vec<&Origin> = self.served().collect();
            if let Some(origin) = attach::called_otherwise(superblock, volume, &origins) {
                return Err(attach::named_otherwise(volume, origin, file));
            }
            let why = attach::not_given(volume, &origins, file);
            // A file of one volume may call it by another name, on another path.
            if !(alone || (file.is_some() && plan.volumes.len() > 1)) {
                return Err(why);
            }
            self.away.push(Missing {
                name: volume.name.clone(),
                origin: None,
                why,
            });
        }
        self.check_any(Some(superblock))
    }

    /// Volumes that the cache holds data of and whose origins are away: their ids, and how they
    /// would be served.
    fn kept(&self, superblock: &Superblock) -> Vec<Option<(u32, VolumeConfig)>> {
        let known = |missing: &Missing| {
            let mut attached = attach::attached_volumes(superblock);
            let record = attached.find(|record| record.name == missing.name)?;
            Some((record.id, attach::config_of(record)))
        };
        self.away.iter().map(known).collect()
    }
}

/// The cache, if the plan has one. `saves` what is unsaved of one that was abandoned.
pub(super) fn open_cache(
    plan: &Plan,
    saves: bool,
    origins: &mut Origins,
    surroundings: &Surroundings,
) -> Result<Option<OpenCache>> {
    let Some(wanted) = &plan.cache else {
        origins.check_new(None)?;
        return Ok(None);
    };
    let (present, note) = if saves {
        attach::open_to_save(&wanted.devices, surroundings)?
    } else {
        let mut check = || {
            if let ([only], Some(2)) = (wanted.devices.as_slice(), wanted.copies) {
                wrong_usage!("{}", needs_two(&only.display().to_string()));
            }
            origins.check_any(None)?;
            origins.check_new(None)
        };
        let may_create = wanted.create.then_some(&mut check as &mut dyn FnMut() -> _);
        let decision = match wanted.without_missing {
            true => Decision::NothingWentOn,
            false => Decision::None,
        };
        let present = attach::open_present(&wanted.devices, may_create, surroundings, decision)?;
        (present, None)
    };
    let Present {
        storage,
        superblock,
        left_out,
        may_lack,
        witness,
    } = present;
    check_copies(wanted, &superblock, &storage)?;
    let unsaved = note
        .as_ref()
        .map(|note| attach::unsaved_blocks(&superblock, note))
        .transpose()?;
    origins.check(&superblock, plan, saves)?;
    origins.check_new(Some(&superblock))?;
    let accepted = Accepted {
        damage: false,
        lack: may_lack,
    };
    let mut attached = attach::attach(
        storage,
        &superblock,
        accepted,
        &plan.settings,
        note.as_ref(),
    )?;
    let was_in_use = |number: u8| superblock.has_device(number);
    let lost = attached.superblock.devices_out();
    let lost: Vec<LostDevice> = lost
        .map(|on| LostDevice {
            number: on.number,
            path: path_of(&left_out, witness.as_ref(), on).map(Path::to_owned),
            lately: was_in_use(on.number),
        })
        .collect();
    let report = &attached.report;
    let shards = report.shards.iter();
    let as_stopped = shards.filter(|shard| shard.from_checkpoint).count();
    tracing::info!(
        "cache {} attached: {} blocks cached, {} dirty, {} read to recover; {as_stopped} of {} shards as written down at \
         the last stop",
        attached.superblock.id,
        report.cached_blocks(),
        report.dirty_blocks(),
        units::size(report.bytes_read()),
        report.shards.len(),
    );
    let mut configs = Vec::new();
    let first_mode = profiles::first_mode(plan.profile);
    for (origin, _) in &origins.there {
        configs.push(attach::enter_volume(
            &mut attached.superblock,
            origin,
            first_mode,
        )?);
    }
    let kept = origins.kept(&attached.superblock);
    let names = cache_storage::names(&attached.storage);
    attached
        .superblock
        .write(&mut attached.storage)
        .with_context(|| format!("cannot write the superblock of the cache on {names}"))?;
    write_witness(&attached, &lost, surroundings)?;
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
        kept,
        devices,
        lost,
    }))
}

/// Refuses two copies of dirty data in a cache that has one device.
fn check_copies(wanted: &CachePlan, superblock: &Superblock, storage: &CacheStorage) -> Result<()> {
    let is_new = wanted.copies == Some(2) && superblock.copies < 2;
    if is_new && storage.device_numbers().len() < 2 {
        wrong_usage!("{}", needs_two(&cache_storage::names(storage)));
    }
    Ok(())
}

/// Puts on record, before anything is served, which devices the cache has now.
fn write_witness(
    attached: &AttachedCache,
    lost: &[LostDevice],
    surroundings: &Surroundings,
) -> Result<()> {
    let AttachedCache {
        superblock,
        storage,
        ..
    } = attached;
    let state = &surroundings.state;
    let Some(wanted) = lost_devices::witness_of(superblock, storage, lost) else {
        return Ok(());
    };
    let known = state.durable_witness(superblock.id)?;
    if !state.keeps_witness_at_start() && known.as_ref() == Some(&wanted) {
        // To look at where it is kept could need the volumes that are not served yet.
        return Ok(());
    }
    let is_known = |serial| known.as_ref().is_some_and(|known| known.is_out(serial));
    let mut out = superblock.devices_out();
    let knows_all = out.all(|on| is_known(on.serial));
    let written = state.write_witness(superblock.id, &wanted);
    // An older one is never wrong, but for the devices of which it does not know that they are out.
    if state.keeps_witness_at_start() || !knows_all {
        return written.context(
            "it cannot be put on record which devices the cache has, so that one that was left behind would be believed",
        );
    }
    Ok(())
}

/// The cache of a plan, recovered.
pub(super) struct OpenCache {
    pub(super) attached: AttachedCache,
    /// Of a cache that failed: the only blocks of it that count.
    pub(super) unsaved: Option<Vec<Range<BlockKey>>>,
    /// Of each volume its id and how it is served.
    pub(super) configs: Vec<(u32, VolumeConfig)>,
    /// Of each volume that is away the same, if the cache holds data of it.
    pub(super) kept: Vec<Option<(u32, VolumeConfig)>>,
    pub(super) devices: Vec<(u8, TimedDevice)>,
    /// Devices that the cache goes on without.
    pub(super) lost: Vec<LostDevice>,
}
