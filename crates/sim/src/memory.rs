//! The driver's buffer memory, the crash journals and the memory buffers, simulated.

use std::collections::{BTreeMap, HashMap};

use forebay_engine::shm_journal::JOURNAL_BYTES;
use forebay_engine::{Buf, Memory, Surviving};

const SECTOR_BYTES: usize = 512;
const PAGE_SECTORS: u32 = 8;
/// Contents of freed memory, so that a use after the end shows as garbage.
const FREED: u8 = 0xdd;

/// See the module.
#[derive(Debug)]
pub struct SimMemory {
    bytes: Vec<u8>,
    /// Freed extents by length in sectors.
    free: BTreeMap<u32, Vec<u32>>,
    /// Allocated extents: start to length, in sectors.
    used: HashMap<u32, u32>,
    next_sector: u32,
    journals: Vec<Vec<u8>>,
    /// Clients' own, by number.
    clients: HashMap<u32, Vec<u8>>,
    next_client: u32,
    /// The shards' memory buffers.
    buffers: Vec<Vec<u8>>,
    /// Sectors the engine may have allocated at a time.
    limit_sectors: u32,
    used_sectors: u32,
    /// Buffers that the engine has.
    pub held: u64,
    /// Refusals of memory to the engine.
    pub refusals: u64,
}

impl SimMemory {
    /// Memory for this many shards, of which the engine may have `limit_bytes` at a time, and a
    /// memory buffer of `buffer_bytes` for each.
    #[must_use]
    pub fn new(shards: u16, limit_bytes: usize, buffer_bytes: usize) -> SimMemory {
        SimMemory {
            bytes: Vec::new(),
            free: BTreeMap::new(),
            used: HashMap::new(),
            next_sector: 0,
            clients: HashMap::new(),
            next_client: 0,
            journals: (0..shards).map(|_| vec![0; JOURNAL_BYTES]).collect(),
            buffers: (0..shards).map(|_| vec![0; buffer_bytes]).collect(),
            limit_sectors: (limit_bytes / SECTOR_BYTES) as u32,
            used_sectors: 0,
            held: 0,
            refusals: 0,
        }
    }

    /// A buffer whatever the limit, for the driver itself.
    pub fn take(&mut self, len_bytes: usize) -> Buf {
        let sectors = (len_bytes.div_ceil(SECTOR_BYTES) as u32).next_multiple_of(PAGE_SECTORS);
        let reused = self.free.get_mut(&sectors).and_then(Vec::pop);
        let start_sector = reused.unwrap_or_else(|| {
            let start = self.next_sector;
            self.next_sector += sectors;
            self.bytes
                .resize(self.next_sector as usize * SECTOR_BYTES, FREED);
            start
        });
        self.used.insert(start_sector, sectors);
        Buf {
            start_sector,
            len_bytes: len_bytes as u32,
        }
    }

    /// A client's memory, which devices can read into and the engine cannot look at.
    pub fn take_of_client(&mut self, len_bytes: u32) -> Buf {
        let number = self.next_client;
        self.next_client = (number + 1) % (1 << 20);
        let bytes = vec![FREED; len_bytes as usize];
        let earlier = self.clients.insert(number, bytes);
        assert!(earlier.is_none(), "fewer requests at a time than numbers");
        Buf::of_client(number, len_bytes)
    }

    /// Memory that a device reads into, or has read into.
    ///
    /// # Panics
    /// If a client's memory is not one that was given out.
    pub fn landing(&mut self, buf: Buf) -> &mut [u8] {
        let Some((number, at_bytes)) = buf.in_client() else {
            return self.bytes_mut(buf);
        };
        let client = self.clients.get_mut(&number).expect("given out");
        &mut client[at_bytes as usize..][..buf.len_bytes as usize]
    }

    /// As [`SimMemory::landing`], to look at.
    ///
    /// # Panics
    /// If a client's memory is not one that was given out.
    #[must_use]
    pub fn landed(&self, buf: Buf) -> &[u8] {
        let Some((number, at_bytes)) = buf.in_client() else {
            return self.bytes(buf);
        };
        let client = self.clients.get(&number).expect("given out");
        &client[at_bytes as usize..][..buf.len_bytes as usize]
    }

    /// Gives back what [`SimMemory::take`] or [`SimMemory::take_of_client`] gave.
    ///
    /// # Panics
    /// If the buffer is not one that was given out.
    pub fn give(&mut self, buf: Buf) {
        if let Some((number, _)) = buf.in_client() {
            self.clients.remove(&number).expect("freed once");
            return;
        }
        let sectors = self
            .used
            .remove(&buf.start_sector)
            .expect("freed once, and as it was allocated");
        assert_eq!(
            sectors,
            buf.len_bytes.div_ceil(512).next_multiple_of(PAGE_SECTORS),
            "freed whole"
        );
        self.bytes_mut(buf).fill(FREED);
        self.free.entry(sectors).or_default().push(buf.start_sector);
    }

    /// The allocations, for messages.
    #[must_use]
    pub fn state(&self) -> String {
        let mut used: Vec<_> = self.used.iter().collect();
        used.sort_unstable();
        format!(
            "{} of {} sectors, {} buffers of the engine; all: {used:?}",
            self.used_sectors, self.limit_sectors, self.held
        )
    }

    /// The number of buffers allocated.
    #[must_use]
    pub fn allocated(&self) -> usize {
        self.used.len() + self.clients.len()
    }

    /// The daemon died: its buffers are gone, the crash journals are not.
    pub fn reset_buffers(&mut self) {
        self.free.clear();
        self.used.clear();
        self.clients.clear();
        self.next_sector = 0;
        self.used_sectors = 0;
        self.held = 0;
        self.bytes.fill(FREED);
    }

    /// The machine lost power: crash journals and memory buffers are gone as well.
    pub fn reset_shared(&mut self) {
        for shared in self.journals.iter_mut().chain(&mut self.buffers) {
            shared.fill(0);
        }
    }

    /// Memory that outlived the daemon, by shard.
    pub fn surviving(&mut self) -> Vec<Surviving<'_>> {
        let shards = self.journals.iter().zip(&mut self.buffers);
        shards
            .map(|(journal, buffer)| Surviving {
                journal: Some(journal),
                buffer: Some(buffer),
            })
            .collect()
    }
}

impl Memory for SimMemory {
    fn alloc(&mut self, len_bytes: usize) -> Option<Buf> {
        let sectors = (len_bytes.div_ceil(SECTOR_BYTES) as u32).next_multiple_of(PAGE_SECTORS);
        // A buffer larger than all of the memory is granted when nothing else is: refusing it for
        // ever would be no simulation of a shortage.
        if self.used_sectors > 0 && self.used_sectors + sectors > self.limit_sectors {
            self.refusals += 1;
            return None;
        }
        self.used_sectors += sectors;
        self.held += 1;
        Some(self.take(len_bytes))
    }

    fn free(&mut self, buf: Buf) {
        self.held -= 1;
        self.used_sectors -= buf.len_bytes.div_ceil(512).next_multiple_of(PAGE_SECTORS);
        self.give(buf);
    }

    fn bytes(&self, buf: Buf) -> &[u8] {
        &self.bytes[buf.bytes()]
    }

    fn bytes_mut(&mut self, buf: Buf) -> &mut [u8] {
        &mut self.bytes[buf.bytes()]
    }

    fn copy(&mut self, from: Buf, to: Buf) {
        assert_eq!(from.len_bytes, to.len_bytes, "copied whole");
        let start = to.bytes().start;
        self.bytes.copy_within(from.bytes(), start);
    }

    fn journal_mut(&mut self, shard: u16) -> &mut [u8] {
        &mut self.journals[usize::from(shard)]
    }

    fn buffer_mut(&mut self, shard: u16) -> &mut [u8] {
        &mut self.buffers[usize::from(shard)]
    }
}
