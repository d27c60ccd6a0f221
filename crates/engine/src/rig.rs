//! For unit tests of the rooms: a store over an empty cache, with memory, and a cache device that
//! does every operation at once.

use crate::format::Stream;
use crate::format::extents::place_of;
use crate::format::{BlockKey, CacheId, Geometry, PAGE_BYTES, SegmentId, Superblock};
use crate::ids::JobId;
use crate::interface::{
    Action, Buf, Bufs, Device, Memory, Nanos, OpId, Operation, Request, RequestId, RequestKind,
    SECTOR_BYTES, VolumeSlot, one_buf,
};
use crate::map::index::Index;
use crate::map::locks::Owner;
use crate::settings::{Mode, Settings};
use crate::shm_journal::{self, JOURNAL_BYTES, ShmIdentity};
use crate::slab::SlabId;
use crate::store::Store;
use crate::store::append::{AppendRun, Keys};
use crate::store::log::Log;
use crate::store::op::Op;
use crate::store::volumes::{Volume, VolumeConfig};

pub(crate) const BLOCK_BYTES: usize = 4096;
pub(crate) const VOLUME: VolumeSlot = VolumeSlot(0);
const DEVICE_BYTES: u64 = 64 << 20;
const VOLUME_BLOCKS: u64 = 1 << 20;

/// Memory that grows and frees nothing.
pub(crate) struct Ram {
    bytes: Vec<u8>,
    journal: Vec<u8>,
    pub(crate) buffer: Vec<u8>,
    /// Nothing more is given.
    pub(crate) is_empty: bool,
}

impl Memory for Ram {
    fn alloc(&mut self, len_bytes: usize) -> Option<Buf> {
        if self.is_empty {
            return None;
        }
        let start = self.bytes.len();
        let end = start + len_bytes.next_multiple_of(PAGE_BYTES);
        self.bytes.resize(end, 0);
        Some(Buf {
            start_sector: (start / SECTOR_BYTES) as u32,
            len_bytes: len_bytes as u32,
        })
    }

    fn free(&mut self, _buf: Buf) {}

    fn bytes(&self, buf: Buf) -> &[u8] {
        &self.bytes[buf.bytes()]
    }

    fn bytes_mut(&mut self, buf: Buf) -> &mut [u8] {
        &mut self.bytes[buf.bytes()]
    }

    fn journal_mut(&mut self, _shard: u16) -> &mut [u8] {
        &mut self.journal
    }

    fn buffer_mut(&mut self, _shard: u16) -> &mut [u8] {
        &mut self.buffer
    }
}

/// A store with one volume.
pub(crate) struct Rig {
    pub(crate) store: Store,
    pub(crate) ram: Ram,
    pub(crate) now: Nanos,
    disks: Vec<Vec<u8>>,
}

/// A buffer for a long transfer.
pub(crate) fn mebibyte() -> Bufs {
    one_buf(Buf {
        start_sector: 0,
        len_bytes: 1 << 20,
    })
}

impl Rig {
    pub(crate) fn new(mode: Mode, settings: Settings) -> Rig {
        Rig::over(&one_device(), mode, settings)
    }

    /// A store over an empty cache on two devices, with dirty data on both.
    pub(crate) fn on_two_devices(mode: Mode, settings: Settings) -> Rig {
        let mut superblock = one_device();
        let added = superblock.add_device(DEVICE_BYTES).expect("a number");
        superblock.grow(added, DEVICE_BYTES).expect("room");
        superblock.set_copies(2);
        Rig::over(&superblock, mode, settings)
    }

    fn over(superblock: &Superblock, mode: Mode, settings: Settings) -> Rig {
        let mut ram = Ram {
            bytes: Vec::new(),
            journal: vec![0; JOURNAL_BYTES],
            buffer: Vec::new(),
            is_empty: false,
        };
        let log = Log::new(superblock, 0);
        let identity = ShmIdentity {
            cache: log.id,
            shard: 0,
            epoch: log.epoch,
            boot_id: [1; 16],
        };
        shm_journal::initialise(ram.journal_mut(0), identity);
        let index = Index::new(superblock.geometry.slots());
        let mut store = Store::new(settings, with_free_segments(log), index, &mut ram);
        store.keep_spare_pages(&mut ram);
        store.volumes.push(Some(Volume::new(VolumeConfig {
            base: BlockKey(0),
            reserved_blocks: VOLUME_BLOCKS,
            size_bytes: VOLUME_BLOCKS * BLOCK_BYTES as u64,
            mode,
        })));
        Rig {
            store,
            ram,
            now: Nanos::SECOND,
            disks: vec![vec![0; DEVICE_BYTES as usize]; superblock.devices.len()],
        }
    }

    /// A request of these blocks, without a buffer.
    pub(crate) fn request(kind: RequestKind, first: u64, blocks: u32) -> Request {
        Request {
            id: RequestId(1),
            volume: VOLUME,
            kind,
            offset_bytes: first * BLOCK_BYTES as u64,
            len_bytes: blocks * BLOCK_BYTES as u32,
            buf: Buf::EMPTY,
        }
    }

    /// Starts to append blocks: dirty ones to the write stream, clean ones to another.
    pub(crate) fn begin_append(&mut self, stream: Stream, first: u64, count: u16) {
        let owner = Owner::Job(JobId::new(first as u32));
        let key = BlockKey(first);
        for i in 0..u64::from(count) {
            assert!(self.store.locks.try_lock(key.plus(i), owner));
        }
        let buf = self
            .ram
            .alloc(usize::from(count) * BLOCK_BYTES)
            .expect("memory");
        self.ram.bytes_mut(buf).fill(first as u8);
        let run = AppendRun {
            stream,
            keys: Keys::Run(key, count),
            buf,
            dirty: stream == Stream::Write,
            zero: false,
            owner,
            reclaim: false,
            copies: None,
            places: 0,
        };
        self.store.append(self.now, run, &mut self.ram);
    }

    /// Appends blocks. Returns whether all of them are in the log.
    pub(crate) fn append(&mut self, stream: Stream, first: u64, count: u16) -> bool {
        self.begin_append(stream, first, count);
        self.run();
        let mut logged = 0;
        while let Some(ended) = self.store.next_appended() {
            logged += u16::from(ended.result.is_ok()) * ended.blocks;
        }
        for i in 0..u64::from(count) {
            let owner = Owner::Job(JobId::new(first as u32));
            self.store.locks.unlock(BlockKey(first + i), owner);
        }
        logged == count
    }

    /// Times so many operations on a device, one after the other, each of which takes so long.
    pub(crate) fn time(&mut self, device: Device, operation: &Operation, count: u32, each: Nanos) {
        let times = &mut self.store.operations.times;
        for _ in 0..count {
            let op = times.begins(OpId(0), device, operation);
            times.now = times.now.after(each);
            times.ends(op, true);
        }
    }

    /// The cache device is known to read 524 MB a second.
    pub(crate) fn has_read_long(&mut self) {
        let read = Operation::Read {
            offset_bytes: 0,
            bufs: mebibyte(),
        };
        self.time(Device::Cache(0), &read, 64, Nanos(2_000_000));
    }

    /// Makes all that was appended durable.
    pub(crate) fn flush(&mut self) {
        self.store.want_durable(self.store.last_number());
        self.store.advance_durability(self.now, &mut self.ram);
        self.run();
    }

    /// Carries out every operation of the store, until none is left.
    pub(crate) fn run(&mut self) {
        while let Some(action) = self.store.operations.next() {
            let other = self.carry_out(action);
            assert!(other.is_none(), "an operation of the store, not {other:?}");
        }
    }

    fn transfer(&mut self, operation: &Operation) {
        match operation {
            Operation::Read { offset_bytes, bufs } => self.move_data(*offset_bytes, bufs, false),
            Operation::Write { offset_bytes, bufs } => self.move_data(*offset_bytes, bufs, true),
            Operation::ReadEither {
                offsets_bytes: [first, _],
                buf,
            } => self.move_data(*first, &one_buf(*buf), false),
            Operation::WriteBoth(both) => {
                for address in both.offsets_bytes {
                    self.move_data(address, &both.bufs, true);
                }
            }
            _ => {}
        }
    }

    fn move_data(&mut self, address: u64, bufs: &Bufs, is_write: bool) {
        let (device, offset_bytes) = place_of(address);
        let mut at = offset_bytes as usize;
        for buf in bufs {
            let place = &mut self.disks[usize::from(device)][at..at + buf.len_bytes as usize];
            if is_write {
                place.copy_from_slice(self.ram.bytes(*buf));
            } else {
                self.ram.bytes_mut(*buf).copy_from_slice(place);
            }
            at += buf.len_bytes as usize;
        }
    }

    /// Carries out an operation. Returns it if it is not one of the store's own.
    pub(crate) fn carry_out(&mut self, action: Action) -> Option<Op> {
        if let Device::Cache(_) = action.device {
            self.transfer(&action.operation);
        }
        let op = self
            .store
            .operations
            .end(action.op, true)
            .expect("in flight");
        let (now, ram) = (self.now, &mut self.ram);
        match op {
            Op::AppendData(placed) => self.store.append_data_done(now, *placed, Ok(()), ram),
            Op::Header(record) => self.store.header_done(now, record, Ok(()), ram),
            Op::Seal {
                segment,
                which,
                buf,
            } => self.store.seal_done(segment, which, buf, Ok(()), ram),
            Op::CacheFlush => {
                self.store.cache_flush_done(now, Ok(()));
            }
            Op::OriginFlush(volume) => {
                self.store.origin_flush_ended(volume);
                self.store.origin_flushed(now, volume, ram);
            }
            other => return Some(other),
        }
        None
    }
}

fn one_device() -> Superblock {
    let geometry = Geometry::for_device(DEVICE_BYTES, BLOCK_BYTES as u32, Some(1), 1);
    Superblock::new(
        CacheId([7; 16]),
        geometry.expect("a small cache"),
        DEVICE_BYTES,
    )
}

fn with_free_segments(mut log: Log) -> Log {
    for id in (0..log.geometry.segments_per_shard).map(SegmentId) {
        if log.map.has(id) {
            log.free.push_back(id);
        }
    }
    log
}

/// The kind of the operation, and whether it is of the cache device.
pub(crate) fn shape(action: &Action) -> (&'static str, bool) {
    let kind = match action.operation {
        Operation::Read { .. } | Operation::ReadEither { .. } => "read",
        Operation::Write { .. } | Operation::WriteBoth(_) => "write",
        Operation::Flush => "flush",
        Operation::Discard { .. } | Operation::WriteZeroes { .. } => "range",
    };
    (kind, matches!(action.device, Device::Cache(_)))
}
