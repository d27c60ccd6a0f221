//! A cache of several shards and devices and one volume, in memory: made, crashed or stopped in
//! order, and attached again from images that somebody changed.

use std::collections::HashMap;

use forebay_engine::*;

use crate::common::{BOOT, Disk, Ram, Rng};

pub const BLOCK: usize = 4096;
/// Blocks of the volume that are used.
pub const BLOCKS: u64 = 192;
const RAM_BYTES: usize = 16 << 20;
/// Rounds after which a request that is not answered hangs.
const TIMEOUT: usize = 4000;

/// The result of a read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Seen {
    Data(Vec<u8>),
    Failed,
}

/// The contents of a version of a block; version 0 is zeroes.
pub fn contents(block: u64, version: u32) -> Vec<u8> {
    if version == 0 {
        return vec![0; BLOCK];
    }
    let mut bytes = Vec::with_capacity(BLOCK);
    while bytes.len() < BLOCK {
        bytes.extend_from_slice(&block.to_le_bytes());
        bytes.extend_from_slice(&u64::from(version).to_le_bytes());
    }
    bytes
}

/// An origin without an end, so that nothing forged lies beyond it.
#[derive(Clone, Default)]
pub struct Origin(HashMap<u64, Vec<u8>>);

impl Origin {
    fn read(&self, mut offset: u64, into: &mut [u8]) {
        for piece in into.chunks_mut(512) {
            let within = (offset % BLOCK as u64) as usize;
            match self.0.get(&(offset / BLOCK as u64)) {
                Some(block) => piece.copy_from_slice(&block[within..within + piece.len()]),
                None => piece.fill(0),
            }
            offset += piece.len() as u64;
        }
    }

    fn write(&mut self, mut offset: u64, from: &[u8]) {
        for piece in from.chunks(512) {
            let block = self
                .0
                .entry(offset / BLOCK as u64)
                .or_insert_with(|| vec![0; BLOCK]);
            let within = (offset % BLOCK as u64) as usize;
            block[within..within + piece.len()].copy_from_slice(piece);
            offset += piece.len() as u64;
        }
    }
}

/// A cache as a crash or a stop left it, and what its volume holds.
#[derive(Clone)]
pub struct Image {
    pub name: String,
    pub devices: Vec<Vec<u8>>,
    pub origin: Origin,
    pub journals: Option<Vec<Vec<u8>>>,
    /// The newest version of each block; all of it was flushed.
    pub versions: Vec<u32>,
}

pub struct Served {
    pub devices: Joined<Disk>,
    pub origin: Origin,
    pub ram: Ram,
    engines: Vec<Engine>,
    volume: VolumeSlot,
    geometry: Geometry,
    base: BlockKey,
    now: Nanos,
    next_id: u64,
}

fn joined(devices: Vec<Vec<u8>>, numbers: Vec<u8>) -> Joined<Disk> {
    Joined::new(
        numbers
            .into_iter()
            .zip(devices.into_iter().map(Disk))
            .collect(),
    )
}

/// A new cache of this many shards, segments of a shard and devices, with one volume.
fn blank(shards: u16, segments: u32, devices: usize) -> Joined<Disk> {
    let segments = segments / devices as u32;
    let geometry = Geometry {
        block_bytes: BLOCK as u32,
        segment_bytes: 16 * BLOCK as u32,
        shards,
        segments_per_shard: segments,
        region_bytes: 16 * BLOCK as u32,
    };
    let bytes = geometry.device_bytes();
    let mut joined = joined(
        vec![vec![0; bytes as usize]; devices],
        (0..devices as u8).collect(),
    );
    let mut superblock = Superblock::new(CacheId([7; 16]), geometry, bytes);
    for _ in 1..devices {
        let number = superblock.add_device(bytes).unwrap();
        superblock.grow(number, bytes).unwrap();
    }
    superblock
        .add_volume("volume", BLOCKS * BLOCK as u64, Mode::Writeback as u8)
        .unwrap();
    superblock.write(&mut joined).unwrap();
    joined
}

/// Why an image is not served.
#[derive(Debug)]
pub enum Refusal {
    Identify(#[expect(dead_code, reason = "is printed")] IdentifyError),
    Attach(AttachError),
    /// Its record of volumes leaves none to serve.
    NoVolume,
}

impl Served {
    /// Attaches devices as a daemon does.
    pub fn attach(
        devices: Vec<Vec<u8>>,
        origin: Origin,
        journals: Option<&[Vec<u8>]>,
        accept_damage: bool,
    ) -> Result<Served, Refusal> {
        let mut disks: Vec<Disk> = devices.into_iter().map(Disk).collect();
        let mut given: Vec<&mut dyn Storage> = disks.iter_mut().map(|disk| disk as _).collect();
        let numbers = identify(&mut given).map_err(Refusal::Identify)?;
        let devices = Joined::new(numbers.into_iter().zip(disks).collect());
        Served::of(devices, origin, journals, accept_damage)
    }

    fn of(
        mut devices: Joined<Disk>,
        origin: Origin,
        journals: Option<&[Vec<u8>]>,
        accept_damage: bool,
    ) -> Result<Served, Refusal> {
        let mut surviving: Vec<Surviving<'_>> = journals
            .unwrap_or(&[])
            .iter()
            .map(|journal| Surviving {
                journal: Some(journal),
                buffer: None,
            })
            .collect();
        let looked_at = inspect(&mut devices, &surviving, BOOT).map_err(Refusal::Attach)?;
        drop(looked_at);
        let options = AttachOptions {
            boot_id: BOOT,
            accept_damage,
            without_missing: false,
            from_checkpoint: true,
        };
        let attached = attach(&mut devices, &mut surviving, &options).map_err(Refusal::Attach)?;
        let mut volumes = attached.superblock.volumes.iter();
        let record = volumes
            .find(|volume| volume.state == VolumeState::Attached)
            .ok_or(Refusal::NoVolume)?;
        let mut ram = Ram::new(RAM_BYTES);
        let mut engines = Vec::new();
        let mut slot = VolumeSlot(0);
        for shard in attached.shards.into_iter().take(8) {
            let mut engine = Engine::new(Settings::default(), shard, BOOT, &mut ram);
            slot = engine.add_volume(VolumeConfig {
                base: record.base,
                reserved_blocks: record.reserved_blocks,
                size_bytes: BLOCKS * BLOCK as u64,
                mode: Mode::Writeback,
            });
            engines.push(engine);
        }
        Ok(Served {
            devices,
            origin,
            ram,
            engines,
            volume: slot,
            geometry: attached.superblock.geometry,
            base: record.base,
            now: Nanos(1),
            next_id: 1,
        })
    }

    fn shard_of(&self, block: u64) -> usize {
        usize::from(self.geometry.shard_of(self.base.plus(block)))
    }

    fn carry_out(&mut self, action: &Action) -> Result<(), DeviceError> {
        let on_cache = matches!(action.device, Device::Cache(_));
        match &action.operation {
            Operation::Read { offset_bytes, bufs } => {
                let mut at = *offset_bytes;
                for buf in bufs {
                    let into = self.ram.bytes_mut(*buf);
                    if on_cache {
                        self.devices.read(at, into)?;
                    } else {
                        self.origin.read(at, into);
                    }
                    at += u64::from(buf.len_bytes);
                }
            }
            Operation::Write { offset_bytes, bufs } => {
                let mut at = *offset_bytes;
                for buf in bufs {
                    let from = self.ram.bytes(*buf);
                    if on_cache {
                        self.devices.write(at, from)?;
                    } else {
                        self.origin.write(at, from);
                    }
                    at += u64::from(buf.len_bytes);
                }
            }
            Operation::Flush => {}
            Operation::ReadEither { .. } | Operation::WriteBoth(_) => {
                unreachable!("the cache keeps one copy")
            }
            Operation::Discard {
                offset_bytes,
                len_bytes,
            }
            | Operation::WriteZeroes {
                offset_bytes,
                len_bytes,
            } => {
                let zeroes = vec![0; *len_bytes as usize];
                if on_cache {
                    self.devices.write(*offset_bytes, &zeroes)?;
                } else {
                    self.origin.write(*offset_bytes, &zeroes);
                }
            }
        }
        Ok(())
    }

    /// Carries out a round of operations; false if there were none.
    fn turn(&mut self) -> bool {
        let mut did = false;
        for shard in 0..self.engines.len() {
            self.engines[shard].advance(self.now, &mut self.ram);
            while let Some(action) = self.engines[shard].next_action() {
                did = true;
                let result = self.carry_out(&action);
                self.engines[shard].complete(self.now, action.op, result, &mut self.ram);
                if self.engines[shard].wants_record().is_some() {
                    self.engines[shard].failure_recorded();
                }
            }
        }
        did
    }

    fn pass_time(&mut self) {
        let deadlines = self.engines.iter().filter_map(Engine::next_deadline);
        let soon = self.now.after(Nanos(1_000_000));
        self.now = deadlines.min().unwrap_or(soon).max(soon);
    }

    fn request(
        &mut self,
        shard: usize,
        kind: RequestKind,
        block: u64,
        buf: Buf,
    ) -> Result<(), Failure> {
        let id = RequestId(self.next_id);
        self.next_id += 1;
        let request = Request {
            id,
            volume: self.volume,
            kind,
            offset_bytes: block * BLOCK as u64,
            len_bytes: if kind == RequestKind::Flush {
                0
            } else {
                BLOCK as u32
            },
            buf,
        };
        self.engines[shard].submit(self.now, request, &mut self.ram);
        for _ in 0..TIMEOUT {
            while let Some(ack) = self.engines[shard].next_ack() {
                if ack.id == id {
                    return ack.result;
                }
            }
            if !self.turn() {
                self.pass_time();
            }
        }
        panic!("{kind:?} of block {block} hangs");
    }

    pub fn read(&mut self, block: u64) -> Seen {
        let shard = self.shard_of(block);
        let buf = self.ram.alloc(BLOCK).unwrap();
        let result = self.request(shard, RequestKind::Read, block, buf);
        let seen = match result {
            Ok(()) => Seen::Data(self.ram.bytes(buf).to_vec()),
            Err(_) => Seen::Failed,
        };
        self.ram.free(buf);
        seen
    }

    pub fn write(&mut self, block: u64, version: u32) -> Result<(), Failure> {
        let shard = self.shard_of(block);
        if version == 0 {
            return self.request(
                shard,
                RequestKind::WriteZeroes { fua: false },
                block,
                Buf::EMPTY,
            );
        }
        let buf = self.ram.alloc(BLOCK).unwrap();
        self.ram
            .bytes_mut(buf)
            .copy_from_slice(&contents(block, version));
        let result = self.request(shard, RequestKind::Write { fua: false }, block, buf);
        self.ram.free(buf);
        result
    }

    pub fn flush(&mut self) {
        for shard in 0..self.engines.len() {
            let _ = self.request(shard, RequestKind::Flush, 0, Buf::EMPTY);
        }
    }

    /// Writes back for a while, whether or not all of it can be.
    pub fn drain(&mut self) {
        for engine in &mut self.engines {
            engine.set_draining(self.volume, true);
        }
        self.run(400);
        for engine in &mut self.engines {
            engine.set_draining(self.volume, false);
        }
    }

    /// Lets time pass.
    pub fn run(&mut self, rounds: usize) {
        for _ in 0..rounds {
            if !self.turn() {
                self.pass_time();
            }
        }
    }

    /// Stops in order, as far as it can.
    pub fn stop(&mut self) {
        self.flush();
        for engine in &mut self.engines {
            engine.settle();
        }
        for _ in 0..400 {
            if !self.turn() {
                if self.engines.iter().all(Engine::is_settled) {
                    return;
                }
                self.pass_time();
            }
        }
    }

    pub fn into_parts(self) -> (Vec<Vec<u8>>, Origin) {
        let mut joined = self.devices;
        let numbers: Vec<u8> = joined.device_numbers();
        let devices = numbers
            .into_iter()
            .filter_map(|number| joined.remove(number));
        (devices.map(|disk| disk.0).collect(), self.origin)
    }

    fn journals(&mut self) -> Vec<Vec<u8>> {
        (0..self.engines.len() as u16)
            .map(|shard| self.ram.journal_mut(shard).to_vec())
            .collect()
    }
}

/// A cache with two lives behind it: full enough that segments are reclaimed and renewed, with
/// everything flushed at the end.
pub fn image(shards: u16, segments: u32, devices: usize, stopped: bool) -> Image {
    let mut random = Rng(u64::from(shards) * 4 + devices as u64 * 2 + u64::from(stopped) + 1);
    let mut served = Served::of(
        blank(shards, segments, devices),
        Origin::default(),
        None,
        false,
    )
    .unwrap_or_else(|refusal| panic!("{refusal:?}"));
    let mut versions = vec![0; BLOCKS as usize];
    for life in 0..3 {
        for step in 0..700 {
            // Some blocks are hot.
            let block = match random.below(3) {
                0 => random.below(16),
                _ => random.below(BLOCKS),
            };
            match random.below(20) {
                0..9 => {
                    let version = life * 1000 + step + 1;
                    served.write(block, version).unwrap();
                    versions[block as usize] = version;
                }
                9 => {
                    served.write(block, 0).unwrap();
                    versions[block as usize] = 0;
                }
                10 => served.flush(),
                11 if step % 3 == 0 => served.run(20),
                _ => {
                    let wanted = Seen::Data(contents(block, versions[block as usize]));
                    assert_eq!(served.read(block), wanted, "block {block}");
                }
            }
        }
        served.flush();
        if life < 2 {
            let journals = served.journals();
            let (devices, origin) = served.into_parts();
            served = Served::attach(devices, origin, Some(&journals), false)
                .unwrap_or_else(|refusal| panic!("{refusal:?}"));
        }
    }
    if stopped {
        served.stop();
    } else {
        // Long enough for headers that say how far everything is durable.
        let end = served.now.after(Nanos(300_000_000));
        while served.now < end {
            if !served.turn() {
                served.pass_time();
            }
        }
    }
    let journals = served.journals();
    let (images, origin) = served.into_parts();
    Image {
        name: format!(
            "{shards} shards on {devices} devices, {}",
            if stopped { "stopped" } else { "killed" }
        ),
        devices: images,
        origin,
        journals: (!stopped).then_some(journals),
        versions,
    }
}
