//! A new cache of one shard, attached, with one volume.

use forebay_engine::{
    AttachOptions, BlockKey, CacheId, Commit, Engine, Geometry, Mode, Settings, VolumeConfig,
    VolumeSlot, attach, create,
};

use crate::blank::Blank;
use crate::memory::ZeroMemory;

const BOOT: [u8; 16] = [7; 16];

/// The shard's engine, its volume, and the memory it is to be driven with.
pub(crate) fn new_shard(
    geometry: Geometry,
    settings: Settings,
    origin_bytes: u64,
    mode: Mode,
) -> Result<(Engine, VolumeSlot, ZeroMemory), String> {
    settings.validate()?;
    let mut blank = Blank::new(geometry.device_bytes());
    create(&mut blank, CacheId([3; 16]), geometry).map_err(|error| error.to_string())?;
    let options = AttachOptions {
        boot_id: BOOT,
        accept_damage: false,
        without_missing: false,
        from_checkpoint: true,
    };
    let mut attached = attach(&mut blank, &mut [], &options).map_err(|error| error.to_string())?;
    let mut memory = ZeroMemory::with_buffer(match settings.commit {
        Commit::Memory => settings.memory_buffer_bytes as usize,
        _ => 0,
    });
    let shard = attached.shards.remove(0);
    let mut engine = Engine::new(settings, shard, BOOT, &mut memory);
    let volume = engine.add_volume(VolumeConfig {
        base: BlockKey(0),
        reserved_blocks: origin_bytes.div_ceil(u64::from(geometry.block_bytes)),
        size_bytes: origin_bytes,
        mode,
    });
    Ok((engine, volume, memory))
}
