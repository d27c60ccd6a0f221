//! A cached volume whose devices take no time: only the engine's decisions remain, so a run costs
//! little more than they do. For questions of what is cached and what is written, not of how long
//! anything takes.

use forebay_engine::{
    Action, Buf, Device, Engine, Geometry, Memory, Mode, Nanos, Operation, Request, RequestId,
    RequestKind, Settings, Stats, VolumeSlot,
};

use crate::memory::ZeroMemory;
use crate::shard::new_shard;

/// Time between accesses: ten thousand a second.
const ACCESS: Nanos = Nanos(100_000);
/// Time without accesses in which the origin gets its turn: the number of steps, and their length.
const PAUSE: (u32, Nanos) = (4, Nanos(25_000_000));
/// Above this share of dirty blocks there is such a pause, in percent.
const PAUSE_PERCENT: u64 = 5;
/// After a pause there is none for this share of the cache in accesses, in percent.
const PAUSE_EVERY_PERCENT: u64 = 3;

/// A shard, driven access by access.
pub struct Timeless {
    engine: Engine,
    memory: ZeroMemory,
    volume: VolumeSlot,
    now: Nanos,
    sent: u64,
    /// No pause before this access.
    next_pause: u64,
    data: Buf,
    cache_written_bytes: u64,
}

impl Timeless {
    /// A new write-back cache of this shape, attached, in front of a volume of `origin_blocks`.
    ///
    /// # Errors
    /// If the engine refuses the shape or the settings.
    pub fn new(
        geometry: Geometry,
        settings: Settings,
        origin_blocks: u64,
    ) -> Result<Timeless, String> {
        let block_bytes = geometry.block_bytes as usize;
        let origin_bytes = origin_blocks * block_bytes as u64;
        let (engine, volume, mut memory) =
            new_shard(geometry, settings, origin_bytes, Mode::Writeback)?;
        let data = memory
            .alloc(block_bytes)
            .ok_or("no memory for a request's data")?;
        Ok(Timeless {
            engine,
            memory,
            volume,
            now: Nanos(0),
            sent: 0,
            next_pause: 0,
            data,
            cache_written_bytes: 0,
        })
    }

    /// Reads or writes one block and lets everything happen that comes of it. Returns whether it
    /// was a hit: a read that the cache served, a write of what was cached.
    ///
    /// # Panics
    /// If the engine does not answer.
    pub fn access(&mut self, block: u64, write: bool) -> bool {
        let block_bytes = u64::from(self.data.len_bytes);
        let (cached, _) = self.engine.block_state(self.volume, block * block_bytes);
        let hits = self.engine.stats().read_blocks_hit;
        self.now = self.now.after(ACCESS);
        let request = Request {
            id: RequestId(self.sent),
            volume: self.volume,
            kind: if write {
                RequestKind::Write { fua: false }
            } else {
                RequestKind::Read
            },
            offset_bytes: block * block_bytes,
            len_bytes: self.data.len_bytes,
            buf: self.data,
        };
        self.engine.submit(self.now, request, &mut self.memory);
        self.settle();
        let mut waits = 0;
        while self.engine.next_ack().is_none() {
            // A write that waits for room: its time passes.
            waits += 1;
            assert!(waits < 1_000_000, "the engine answers every request");
            self.now = self.now.after(Nanos(Nanos::MILLISECOND.0));
            self.settle();
        }
        self.sent += 1;
        self.pause_if_due();
        if write {
            cached
        } else {
            self.engine.stats().read_blocks_hit > hits
        }
    }

    /// Lets the origin have its turn where much is dirty, as any load does that is not at its
    /// limit: dirty data is written back ahead of reclaim.
    fn pause_if_due(&mut self) {
        let (_, capacity) = self.engine.occupancy();
        let dirty = self.engine.stats().dirty_blocks;
        if self.sent < self.next_pause || dirty * 100 < capacity * PAUSE_PERCENT {
            return;
        }
        for _ in 0..PAUSE.0 {
            self.now = self.now.after(PAUSE.1);
            self.settle();
        }
        self.next_pause = self.sent + capacity * PAUSE_EVERY_PERCENT / 100;
    }

    /// Does what the engine wants done, until it wants nothing more at this time.
    fn settle(&mut self) {
        self.engine.advance(self.now, &mut self.memory);
        loop {
            let mut any = false;
            while let Some(action) = self.engine.next_action() {
                any = true;
                self.count(&action);
                self.engine
                    .complete(self.now, action.op, Ok(()), &mut self.memory);
            }
            if !any {
                break;
            }
            self.engine.advance(self.now, &mut self.memory);
        }
    }

    fn count(&mut self, action: &Action) {
        if let (Device::Cache(_), Operation::Write { bufs, .. }) =
            (action.device, &action.operation)
        {
            let bytes: u64 = bufs.iter().map(|buf| u64::from(buf.len_bytes)).sum();
            self.cache_written_bytes += bytes;
        }
    }

    /// Bytes written to the cache device, headers and summaries included.
    #[must_use]
    pub fn cache_written_bytes(&self) -> u64 {
        self.cache_written_bytes
    }

    /// The number of blocks cached, and the number that fit.
    #[must_use]
    pub fn occupancy(&self) -> (u64, u64) {
        self.engine.occupancy()
    }

    /// The engine's counters.
    #[must_use]
    pub fn stats(&self) -> &Stats {
        self.engine.stats()
    }
}
