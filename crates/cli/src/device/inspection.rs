//! Contents of a cache that nobody serves, read without changing anything.

use std::collections::BTreeMap;

use anyhow::{Context, Result};
use forebay_engine::format::VolumeState;
use forebay_engine::shm_journal::JOURNAL_BYTES;
use forebay_engine::{
    Attached, Engine, Mode, NoMemory, Recovered, Settings, Storage, Superblock, VolumeConfig,
    VolumeSlot,
};
use serde::Serialize;

use crate::device::attach;
use crate::device::shared_memory::{self, Left};
use crate::report::status::Recovery;
use crate::units::hex;

/// A cache as found.
#[derive(Debug, Serialize)]
pub(crate) struct Inspection {
    pub(crate) device: String,
    pub(crate) id: String,
    pub(crate) epoch: u32,
    /// Its volumes went on without it.
    #[serde(rename = "given_up")]
    pub(crate) abandoned: bool,
    pub(crate) device_bytes: u64,
    pub(crate) block_bytes: u32,
    pub(crate) segment_bytes: u32,
    pub(crate) shards: u16,
    pub(crate) segments_per_shard: u32,
    /// On how many devices each dirty block is to be.
    pub(crate) copies: u8,
    /// Numbers of the devices that it goes on without.
    pub(crate) devices_out: Vec<u8>,
    pub(crate) recovery: Recovery,
    pub(crate) volumes: Vec<InspectedVolume>,
}

/// A volume as the cache knows it.
#[derive(Debug, Serialize)]
pub(crate) struct InspectedVolume {
    pub(crate) id: u32,
    pub(crate) name: String,
    pub(crate) state: &'static str,
    pub(crate) mode: &'static str,
    pub(crate) size_bytes: u64,
    pub(crate) first_block: u64,
    pub(crate) reserved_blocks: u64,
    pub(crate) cached_bytes: u64,
    pub(crate) dirty_bytes: u64,
    pub(crate) stopped_in_order: bool,
    pub(crate) fingerprint: String,
}

/// The log of a cache, as a start would find it, and the boot that it is read in.
pub(crate) fn read_through(storage: &mut dyn Storage, names: &str) -> Result<(Attached, [u8; 16])> {
    let superblock = Superblock::read(storage)
        .with_context(|| format!("cannot use the cache device {names}"))?;
    let boot_id = attach::boot_id()?;
    let mut left = shared_memory::open(&superblock)?;
    let surviving: Vec<_> = left.iter_mut().map(Left::surviving).collect();
    let attached = forebay_engine::inspect(storage, &surviving, boot_id)
        .with_context(|| format!("cannot read the cache on {names}"))?;
    let attached = Attached {
        superblock,
        ..attached
    };
    Ok((attached, boot_id))
}

/// Engines that know what each shard holds of the attached volumes, which they number in order.
/// They have no memory to do anything with.
pub(crate) fn engines(
    shards: Vec<Recovered>,
    boot_id: [u8; 16],
    superblock: &Superblock,
) -> Vec<Engine> {
    let engines = shards.into_iter().map(|recovered| {
        let mut memory = NoMemory(vec![0; JOURNAL_BYTES]);
        let mut engine = Engine::new(Settings::default(), recovered, boot_id, &mut memory);
        for volume in attach::attached_volumes(superblock) {
            engine.add_volume(VolumeConfig {
                mode: Mode::Passthrough,
                ..attach::config_of(volume)
            });
        }
        engine
    });
    engines.collect()
}

/// Reads a cache through, changing nothing.
pub(crate) fn inspect(storage: &mut dyn Storage, names: &str) -> Result<Inspection> {
    let (attached, boot_id) = read_through(storage, names)?;
    let superblock = attached.superblock.clone();
    let recovery = Recovery::of(&attached.report);
    let mut blocks: BTreeMap<u32, (u64, u64)> = BTreeMap::new();
    for engine in engines(attached.shards, boot_id, &superblock) {
        for (volume, slot) in attach::attached_volumes(&superblock).zip((0..).map(VolumeSlot)) {
            let (dirty, cached) = engine.volume_blocks(slot).unwrap_or_default();
            let sum = blocks.entry(volume.id).or_default();
            *sum = (sum.0 + dirty, sum.1 + cached);
        }
    }
    let geometry = superblock.geometry;
    let block_bytes = u64::from(geometry.block_bytes);
    let volumes = superblock.volumes.iter().map(|volume| {
        let (dirty, cached) = blocks.get(&volume.id).copied().unwrap_or_default();
        InspectedVolume {
            id: volume.id,
            name: volume.name.clone(),
            state: if volume.state == VolumeState::Attached {
                "attached"
            } else {
                "detached"
            },
            mode: Mode::from_number(volume.mode).map_or("unknown", Mode::name),
            size_bytes: volume.size_bytes,
            first_block: volume.base.0,
            reserved_blocks: volume.reserved_blocks,
            cached_bytes: cached * block_bytes,
            dirty_bytes: dirty * block_bytes,
            stopped_in_order: volume.fingerprint_at != 0,
            fingerprint: hex(&volume.fingerprint),
        }
    });
    Ok(Inspection {
        device: names.to_owned(),
        id: superblock.id.to_string(),
        abandoned: superblock.abandoned,
        epoch: superblock.epoch,
        device_bytes: storage.size_bytes(),
        block_bytes: geometry.block_bytes,
        segment_bytes: geometry.segment_bytes,
        shards: geometry.shards,
        segments_per_shard: superblock.extents.segments(),
        copies: superblock.copies,
        devices_out: superblock.devices_out().map(|on| on.number).collect(),
        recovery,
        volumes: volumes.collect(),
    })
}
