//! A driver that answers every operation at once, with the engine's calls in functions of their
//! own, so that callgrind counts the engine and not the driver.

use forebay_engine::format::PAGE_BYTES;
use forebay_engine::shm_journal::JOURNAL_BYTES;
use forebay_engine::{
    AttachOptions, BlockKey, Buf, CacheId, Device, Engine, Geometry, Memory, Mode, Nanos, OpId,
    Operation, Recovered, Request, RequestId, RequestKind, SECTOR_BYTES, Settings, Storage,
    VolumeConfig, VolumeSlot, attach, create,
};
use forebay_virtual::Blank;

pub(crate) const BOOT: [u8; 16] = [7; 16];

/// Pages of memory, handed out from a stack; longer buffers come from a second one.
pub(crate) struct Ram {
    bytes: Vec<u8>,
    pages: Vec<u32>,
    runs: Vec<u32>,
    journal: Vec<u8>,
}

/// Bytes of a long buffer.
const RUN_BYTES: usize = 1 << 20;

impl Ram {
    pub(crate) fn new(pages: u32, runs: u32) -> Ram {
        let run_start = pages * PAGE_BYTES as u32;
        Ram {
            bytes: vec![0; run_start as usize + runs as usize * RUN_BYTES],
            pages: (0..pages)
                .map(|page| page * (PAGE_BYTES / SECTOR_BYTES) as u32)
                .collect(),
            runs: (0..runs)
                .map(|run| (run_start + run * RUN_BYTES as u32) / SECTOR_BYTES as u32)
                .collect(),
            journal: vec![0; JOURNAL_BYTES],
        }
    }
}

impl Memory for Ram {
    fn alloc(&mut self, len_bytes: usize) -> Option<Buf> {
        let stack = if len_bytes <= PAGE_BYTES {
            &mut self.pages
        } else {
            &mut self.runs
        };
        Some(Buf {
            start_sector: stack.pop()?,
            len_bytes: len_bytes as u32,
        })
    }

    fn free(&mut self, buf: Buf) {
        let stack = if buf.len_bytes as usize <= PAGE_BYTES {
            &mut self.pages
        } else {
            &mut self.runs
        };
        stack.push(buf.start_sector);
    }

    fn bytes(&self, buf: Buf) -> &[u8] {
        &self.bytes[buf.bytes()]
    }

    fn bytes_mut(&mut self, buf: Buf) -> &mut [u8] {
        &mut self.bytes[buf.bytes()]
    }

    fn copy(&mut self, from: Buf, to: Buf) {
        self.bytes.copy_within(from.bytes(), to.bytes().start);
    }

    fn journal_mut(&mut self, _shard: u16) -> &mut [u8] {
        &mut self.journal
    }
}

/// The shards of a new cache.
pub(crate) fn recovered(device: &mut dyn Storage) -> Vec<Recovered> {
    let options = AttachOptions {
        boot_id: BOOT,
        accept_damage: false,
        without_missing: false,
        from_checkpoint: true,
    };
    let attached = attach(device, &mut [], &options).expect("just created");
    attached.shards
}

/// The only volume, from the first block on.
pub(crate) fn volume_of(size_bytes: u64, mode: Mode) -> VolumeConfig {
    VolumeConfig {
        base: BlockKey(0),
        reserved_blocks: size_bytes / 4096,
        size_bytes,
        mode,
    }
}

/// An engine and its instant driver.
pub(crate) struct Rig {
    pub(crate) engine: Engine,
    pub(crate) ram: Ram,
    volume: VolumeSlot,
    pub(crate) now: Nanos,
    buf: Buf,
    /// Operations on the cache device since the last look.
    pub(crate) cache_operations: u64,
}

impl Rig {
    pub(crate) fn new(cache_bytes: u64, origin_bytes: u64, settings: Settings) -> Rig {
        Rig::new_in(Mode::Writeback, cache_bytes, origin_bytes, settings)
    }

    pub(crate) fn new_in(
        mode: Mode,
        cache_bytes: u64,
        origin_bytes: u64,
        settings: Settings,
    ) -> Rig {
        let mut device = Blank::new(cache_bytes);
        let geometry = Geometry::for_device(cache_bytes, 4096, Some(1), 1).expect("large enough");
        create(&mut device, CacheId([3; 16]), geometry).expect("a blank device");
        let mut ram = Ram::new(4096, 48);
        let shard = recovered(&mut device).remove(0);
        let mut engine = Engine::new(settings, shard, BOOT, &mut ram);
        let volume = engine.add_volume(volume_of(origin_bytes, mode));
        let buf = ram.alloc(RUN_BYTES).expect("memory for one request");
        Rig {
            engine,
            ram,
            volume,
            now: Nanos(1_000_000),
            buf,
            cache_operations: 0,
        }
    }

    /// Serves a request from its submission to its answer, and the work that follows at once.
    pub(crate) fn request(&mut self, kind: RequestKind, offset_bytes: u64, len_bytes: u32) {
        let buf = match kind {
            RequestKind::Read | RequestKind::Write { .. } => self.buf.slice(0, len_bytes as usize),
            _ => Buf::EMPTY,
        };
        self.submit(kind, offset_bytes, len_bytes, buf);
        self.now.0 += 20_000;
        self.turn();
    }

    /// As [`Rig::request`] for several at a time, as a queue of that depth brings them.
    pub(crate) fn batch(
        &mut self,
        kind: RequestKind,
        offsets_bytes: impl Iterator<Item = u64>,
        len_bytes: u32,
    ) {
        for (i, offset_bytes) in offsets_bytes.enumerate() {
            let buf = self.buf.slice(i * len_bytes as usize, len_bytes as usize);
            self.submit(kind, offset_bytes, len_bytes, buf);
            self.now.0 += 5_000;
        }
        self.turn();
    }

    fn submit(&mut self, kind: RequestKind, offset_bytes: u64, len_bytes: u32, buf: Buf) {
        let (id, volume) = (RequestId(1), self.volume);
        let request = Request {
            id,
            volume,
            kind,
            offset_bytes,
            len_bytes,
            buf,
        };
        engine_call_submit(&mut self.engine, self.now, request, &mut self.ram);
    }

    /// Carries out operations until there are none.
    pub(crate) fn turn(&mut self) {
        loop {
            engine_call_advance(&mut self.engine, self.now, &mut self.ram);
            let mut did = false;
            while let Some((op, device)) = engine_call_next(&mut self.engine) {
                did = true;
                self.cache_operations += u64::from(matches!(device, Device::Cache(_)));
                engine_call_complete(&mut self.engine, self.now, op, &mut self.ram);
            }
            while engine_call_ack(&mut self.engine) {}
            if !did {
                return;
            }
        }
    }
}

// The work of a driver and a device is left out: only these five are counted.

#[inline(never)]
fn engine_call_submit(engine: &mut Engine, now: Nanos, request: Request, memory: &mut Ram) {
    engine.submit(now, request, memory);
}

#[inline(never)]
fn engine_call_advance(engine: &mut Engine, now: Nanos, memory: &mut Ram) {
    engine.advance(now, memory);
}

#[inline(never)]
fn engine_call_next(engine: &mut Engine) -> Option<(OpId, Device)> {
    let action = engine.next_action()?;
    debug_assert!(!matches!(action.operation, Operation::Discard { .. }));
    Some((action.op, action.device))
}

#[inline(never)]
fn engine_call_complete(engine: &mut Engine, now: Nanos, op: OpId, memory: &mut Ram) {
    engine.complete(now, op, Ok(()), memory);
}

#[inline(never)]
fn engine_call_ack(engine: &mut Engine) -> bool {
    engine.next_ack().is_some()
}
