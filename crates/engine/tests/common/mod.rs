//! The plainest driver there is: memory for devices, every operation done at once.
#![allow(dead_code, unreachable_pub, reason = "each test uses its part")]

use forebay_engine::format::PAGE_BYTES;
use forebay_engine::shm_journal::JOURNAL_BYTES;
use forebay_engine::*;

pub struct Ram {
    bytes: Vec<u8>,
    free: Vec<(usize, usize)>,
    next: usize,
    journals: Vec<Vec<u8>>,
    /// Of the first shard.
    buffer: Vec<u8>,
    /// The first client's own.
    pub client: Vec<u8>,
}

impl Ram {
    pub fn new(len_bytes: usize) -> Ram {
        Ram {
            bytes: vec![0; len_bytes],
            free: Vec::new(),
            next: 0,
            journals: vec![vec![0; JOURNAL_BYTES]; 8],
            buffer: vec![0; BUFFER_BYTES],
            client: Vec::new(),
        }
    }
}

impl Ram {
    /// Memory that a device writes from.
    fn leaving(&self, buf: Buf) -> &[u8] {
        match buf.in_client() {
            None => &self.bytes[buf.bytes()],
            Some((_, at)) => &self.client[at as usize..][..buf.len_bytes as usize],
        }
    }

    /// Memory that a device reads into.
    fn landing(&mut self, buf: Buf) -> &mut [u8] {
        match buf.in_client() {
            None => &mut self.bytes[buf.bytes()],
            Some((_, at)) => &mut self.client[at as usize..][..buf.len_bytes as usize],
        }
    }

    pub fn free_bytes(&self) -> usize {
        let lent = self.next - self.free.iter().map(|(_, pages)| pages).sum::<usize>();
        self.bytes.len() - lent * PAGE_BYTES
    }
}

impl Memory for Ram {
    fn alloc(&mut self, len_bytes: usize) -> Option<Buf> {
        let pages = len_bytes.div_ceil(PAGE_BYTES);
        let start = match self.free.iter().position(|(_, free)| *free == pages) {
            Some(at) => self.free.swap_remove(at).0,
            None => {
                let start = self.next;
                self.next += pages;
                assert!(self.next * PAGE_BYTES <= self.bytes.len(), "test memory");
                start
            }
        };
        Some(Buf {
            start_sector: (start * PAGE_BYTES / SECTOR_BYTES) as u32,
            len_bytes: len_bytes as u32,
        })
    }

    fn free(&mut self, buf: Buf) {
        let pages = (buf.len_bytes as usize).div_ceil(PAGE_BYTES);
        self.free
            .push((buf.start_sector as usize * SECTOR_BYTES / PAGE_BYTES, pages));
    }

    fn bytes(&self, buf: Buf) -> &[u8] {
        &self.bytes[buf.bytes()]
    }

    fn bytes_mut(&mut self, buf: Buf) -> &mut [u8] {
        &mut self.bytes[buf.bytes()]
    }

    fn journal_mut(&mut self, shard: u16) -> &mut [u8] {
        &mut self.journals[usize::from(shard)]
    }

    fn buffer_mut(&mut self, shard: u16) -> &mut [u8] {
        match shard {
            0 => &mut self.buffer,
            _ => &mut [],
        }
    }
}

#[derive(Clone)]
pub struct Disk(pub Vec<u8>);

impl Disk {
    /// Pages that begin with these letters.
    pub fn pages(&self, magic: &[u8]) -> Vec<usize> {
        let pages = (0..self.0.len()).step_by(PAGE_BYTES);
        let begins = |at: &usize| self.0[*at..].starts_with(magic);
        pages.filter(begins).collect()
    }
}

impl Storage for Disk {
    fn size_bytes(&self) -> u64 {
        self.0.len() as u64
    }

    fn read(&mut self, offset_bytes: u64, into: &mut [u8]) -> Result<(), DeviceError> {
        let start = offset_bytes as usize;
        into.copy_from_slice(
            self.0
                .get(start..start + into.len())
                .ok_or(DeviceError::Io)?,
        );
        Ok(())
    }

    fn write(&mut self, offset_bytes: u64, from: &[u8]) -> Result<(), DeviceError> {
        let start = offset_bytes as usize;
        self.0
            .get_mut(start..start + from.len())
            .ok_or(DeviceError::Io)?
            .copy_from_slice(from);
        Ok(())
    }

    fn flush(&mut self) -> Result<(), DeviceError> {
        Ok(())
    }
}

/// The way in which a device ends an operation.
#[derive(Clone, Copy, PartialEq)]
pub enum Fate {
    Done,
    Fails,
    /// Nothing, until [`Rig::release`].
    Held,
}

pub struct Rig<C = Disk> {
    pub cache: C,
    pub origin: Disk,
    pub ram: Ram,
    pub engine: Engine,
    pub volume: VolumeSlot,
    pub now: Nanos,
    /// The most that was read from the cache device at the same time, in bytes.
    pub most_read_bytes: u32,
    /// The fate of an operation.
    pub fate: fn(&Action) -> Fate,
    held: Vec<Action>,
    next_id: u64,
}

pub const BOOT: [u8; 16] = [5; 16];
const RAM_BYTES: usize = 64 << 20;
const BUFFER_BYTES: usize = 1 << 20;

/// A cache on one device with these volumes.
fn cache_with(
    names: &[&str],
    cache_bytes: usize,
    origin_bytes: usize,
    mode: Mode,
) -> (Disk, Superblock) {
    let mut cache = Disk(vec![0; cache_bytes]);
    let geometry = Geometry::for_device(cache_bytes as u64, 4096, Some(1), 1).unwrap();
    let mut superblock = create(&mut cache, CacheId([1; 16]), geometry).unwrap();
    for name in names {
        (superblock.add_volume(name, origin_bytes as u64, mode as u8)).unwrap();
    }
    superblock.write(&mut cache).unwrap();
    (cache, superblock)
}

impl Rig {
    pub fn new(cache_bytes: usize, origin_bytes: usize, settings: Settings, mode: Mode) -> Rig {
        let (cache, _) = cache_with(&["test"], cache_bytes, origin_bytes, mode);
        let ram = Ram::new(RAM_BYTES);
        Rig::attach(cache, Disk(vec![0; origin_bytes]), ram, settings, mode)
    }

    /// In write-back, with a second volume before the same origin. It has the next number.
    pub fn with_two_volumes(
        cache_bytes: usize,
        origin_bytes: usize,
        ram: Ram,
        settings: Settings,
    ) -> Rig {
        let mode = Mode::Writeback;
        let names = ["first", "second"];
        let (cache, superblock) = cache_with(&names, cache_bytes, origin_bytes, mode);
        let second = superblock.volumes[1].clone();
        let mut rig = Rig::attach(cache, Disk(vec![0; origin_bytes]), ram, settings, mode);
        rig.engine.add_volume(VolumeConfig {
            base: second.base,
            reserved_blocks: second.reserved_blocks,
            size_bytes: second.size_bytes,
            mode,
        });
        rig
    }
}

impl<C: Storage> Rig<C> {
    pub fn attach(
        mut cache: C,
        origin: Disk,
        mut ram: Ram,
        settings: Settings,
        mode: Mode,
    ) -> Rig<C> {
        let options = AttachOptions {
            boot_id: BOOT,
            accept_damage: false,
            without_missing: false,
            from_checkpoint: true,
        };
        let surviving = Surviving {
            journal: Some(&ram.journals[0]),
            buffer: Some(&mut ram.buffer),
        };
        let mut attached = attach(&mut cache, &mut [surviving], &options).unwrap();
        let record = attached.superblock.volumes[0].clone();
        let mut engine = Engine::new(settings, attached.shards.remove(0), BOOT, &mut ram);
        let volume = engine.add_volume(VolumeConfig {
            base: record.base,
            reserved_blocks: record.reserved_blocks,
            size_bytes: record.size_bytes,
            mode,
        });
        Rig {
            cache,
            origin,
            ram,
            engine,
            volume,
            now: Nanos(1),
            most_read_bytes: 0,
            fate: |_| Fate::Done,
            held: Vec::new(),
            next_id: 1,
        }
    }

    /// The daemon dies and a new one attaches.
    pub fn kill(self, settings: Settings, mode: Mode) -> Rig<C> {
        let mut ram = Ram::new(RAM_BYTES);
        (ram.journals, ram.buffer) = (self.ram.journals, self.ram.buffer);
        Rig::attach(self.cache, self.origin, ram, settings, mode)
    }

    pub fn start(
        &mut self,
        kind: RequestKind,
        offset_bytes: u64,
        len_bytes: u32,
        buf: Buf,
    ) -> RequestId {
        let id = RequestId(self.next_id);
        self.start_as(id, kind, offset_bytes, len_bytes, buf)
    }

    /// Likewise, by a name of the test's own.
    pub fn start_as(
        &mut self,
        id: RequestId,
        kind: RequestKind,
        offset_bytes: u64,
        len_bytes: u32,
        buf: Buf,
    ) -> RequestId {
        self.next_id += 1;
        let request = Request {
            id,
            volume: self.volume,
            kind,
            offset_bytes,
            len_bytes,
            buf,
        };
        self.engine.submit(self.now, request, &mut self.ram);
        id
    }

    /// Carries out one round of device operations; false if there was nothing to do.
    pub fn turn(&mut self) -> bool {
        self.engine.advance(self.now, &mut self.ram);
        let mut did = false;
        while self.carry_out() {
            did = true;
        }
        did
    }

    /// Carries out what is to be done at the same time; false if that is nothing.
    fn carry_out(&mut self) -> bool {
        let actions: Vec<_> = std::iter::from_fn(|| self.engine.next_action()).collect();
        let read_bytes = actions.iter().map(|action| match &action.operation {
            Operation::Read { bufs, .. } if matches!(action.device, Device::Cache(_)) => {
                bufs.iter().map(|buf| buf.len_bytes).sum()
            }
            _ => 0,
        });
        self.most_read_bytes = self.most_read_bytes.max(read_bytes.sum());
        let mut did = false;
        for action in actions {
            match (self.fate)(&action) {
                Fate::Held => self.held.push(action),
                fate => {
                    did = true;
                    self.end(action, fate);
                }
            }
        }
        did
    }

    /// Carries out what was held.
    pub fn release(&mut self) {
        for action in std::mem::take(&mut self.held) {
            self.end(action, Fate::Done);
        }
    }

    fn end(&mut self, action: Action, fate: Fate) {
        let result = match fate {
            Fate::Fails => Err(DeviceError::Io),
            _ => self.result(&action),
        };
        self.engine
            .complete(self.now, action.op, result, &mut self.ram);
    }

    fn result(&mut self, action: &Action) -> Result<(), DeviceError> {
        let disk: &mut dyn Storage = if matches!(action.device, Device::Cache(_)) {
            &mut self.cache
        } else {
            &mut self.origin
        };
        match &action.operation {
            Operation::Read { offset_bytes, bufs } => {
                let mut offset_bytes = *offset_bytes;
                bufs.iter().try_for_each(|buf| {
                    let result = disk.read(offset_bytes, self.ram.landing(*buf));
                    offset_bytes += u64::from(buf.len_bytes);
                    result
                })
            }
            Operation::Write { offset_bytes, bufs } => {
                let mut offset_bytes = *offset_bytes;
                bufs.iter().try_for_each(|buf| {
                    let result = disk.write(offset_bytes, self.ram.leaving(*buf));
                    offset_bytes += u64::from(buf.len_bytes);
                    result
                })
            }
            Operation::Flush => Ok(()),
            Operation::ReadEither {
                offsets_bytes: [first, _],
                buf,
            } => disk.read(*first, self.ram.bytes_mut(*buf)),
            Operation::WriteBoth(both) => {
                (both.offsets_bytes.into_iter()).try_for_each(|start_bytes| {
                    let mut offset_bytes = start_bytes;
                    both.bufs.iter().try_for_each(|buf| {
                        let result = disk.write(offset_bytes, self.ram.bytes(*buf));
                        offset_bytes += u64::from(buf.len_bytes);
                        result
                    })
                })
            }
            Operation::Discard {
                offset_bytes,
                len_bytes,
            }
            | Operation::WriteZeroes {
                offset_bytes,
                len_bytes,
            } => disk.write(*offset_bytes, &vec![0; *len_bytes as usize]),
        }
    }

    pub fn finish(&mut self, id: RequestId) -> Result<(), Failure> {
        for _ in 0..100_000 {
            while let Some(ack) = self.engine.next_ack() {
                if ack.id == id {
                    return ack.result;
                }
            }
            if !self.turn() {
                self.now = self
                    .engine
                    .next_deadline()
                    .unwrap_or(self.now)
                    .max(self.now.after(Nanos(1_000_000)));
            }
        }
        panic!("request {id:?} does not finish: {:?}", self.engine);
    }

    pub fn read(&mut self, offset_bytes: u64, len_bytes: u32) -> Vec<u8> {
        let buf = self.ram.alloc(len_bytes as usize).unwrap();
        let id = self.start(RequestKind::Read, offset_bytes, len_bytes, buf);
        self.finish(id).unwrap();
        let data = self.ram.bytes(buf).to_vec();
        self.ram.free(buf);
        data
    }

    /// Reads into the client's own memory; an error says that copies are needed.
    pub fn read_straight(&mut self, offset_bytes: u64, len_bytes: u32) -> Result<Vec<u8>, Failure> {
        self.ram.client = vec![0xdd; len_bytes as usize];
        let buf = Buf::of_client(0, len_bytes);
        let id = self.start(RequestKind::Read, offset_bytes, len_bytes, buf);
        self.finish(id).map(|()| self.ram.client.clone())
    }

    /// Writes from the client's own memory; an error says that copies are needed.
    pub fn write_straight(&mut self, offset_bytes: u64, data: &[u8]) -> Result<(), Failure> {
        self.ram.client = data.to_vec();
        let buf = Buf::of_client(0, data.len() as u32);
        let kind = RequestKind::Write { fua: false };
        let id = self.start(kind, offset_bytes, data.len() as u32, buf);
        self.finish(id)
    }

    pub fn write(&mut self, offset_bytes: u64, data: &[u8], fua: bool) {
        self.end_of_write(offset_bytes, data, fua).unwrap();
    }

    /// Writes, and says how that ended.
    pub fn end_of_write(
        &mut self,
        offset_bytes: u64,
        data: &[u8],
        fua: bool,
    ) -> Result<(), Failure> {
        let buf = self.ram.alloc(data.len()).unwrap();
        self.ram.bytes_mut(buf).copy_from_slice(data);
        let id = self.start(
            RequestKind::Write { fua },
            offset_bytes,
            data.len() as u32,
            buf,
        );
        let ended = self.finish(id);
        self.ram.free(buf);
        ended
    }

    pub fn simple(&mut self, kind: RequestKind, offset_bytes: u64, len_bytes: u32) {
        let id = self.start(kind, offset_bytes, len_bytes, Buf::EMPTY);
        self.finish(id).unwrap();
    }

    /// Lets time pass as a driver does that sleeps until the next deadline.
    pub fn pass(&mut self, time: Nanos) {
        let end = self.now.after(time);
        loop {
            while self.turn() {}
            match self.engine.next_deadline() {
                Some(deadline) if deadline < end => {
                    self.now = deadline.max(self.now.after(Nanos(1)));
                }
                _ => break,
            }
        }
        self.now = end;
        while self.turn() {}
    }

    /// Lets time pass until nothing is left to do.
    pub fn settle(&mut self) {
        for _ in 0..100_000 {
            if !self.turn() {
                match self.engine.next_deadline() {
                    Some(deadline)
                        if !self.engine.is_settled()
                            || deadline.since(self.now).0 < 1_000_000_000 =>
                    {
                        self.now = deadline.max(self.now.after(Nanos(1_000_000)));
                    }
                    _ => return,
                }
            }
        }
        panic!("does not settle");
    }

    pub fn drain(&mut self) {
        self.engine.set_draining(self.volume, true);
        for _ in 0..100_000 {
            if self.engine.volume_blocks(self.volume).unwrap().0 == 0 {
                self.engine.set_draining(self.volume, false);
                return;
            }
            if !self.turn() {
                self.now = self.now.after(Nanos(1_000_000));
            }
        }
        panic!("does not drain");
    }
}

/// A small generator of repeatable numbers (xorshift64*; Vigna 2016).
pub struct Rng(pub u64);

impl Rng {
    pub fn below(&mut self, end: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 33) % end
    }
}
