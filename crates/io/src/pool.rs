//! The buffer pool: one region of page-aligned memory, divided into an arena for each thread.
//!
//! # Who may touch a buffer
//!
//! A [`Buf`] is a name that anyone can copy, so the compiler cannot hold it to one owner; the
//! design does. The part that allocated a buffer owns its bytes. Handing the name to another thread
//! in a message hands over the bytes with it. From submission to completion the kernel owns the
//! bytes of a device or socket operation. Each byte thus has one owner at any time, which is what
//! the slices of [`Memory::bytes`] and [`Memory::bytes_mut`] rely on. Frees go back to the arena
//! that allocated.

use std::io;
use std::ptr::NonNull;
use std::sync::Arc;

use forebay_engine::{Buf, Memory, SECTOR_BYTES};

use crate::map::{Map, PAGE_BYTES};
use crate::shared_memory::SharedMemory;

/// Sizes are powers of two of pages, up to 2^20 pages (4 GiB).
const ORDERS: usize = 21;
/// Single pages that an arena keeps at hand without merging them with their neighbours.
const PAGES_AT_HAND: usize = 256;
/// The most memory of a pool, in bytes: what a [`Buf`] of the driver's own can name.
pub(crate) const MAX_BYTES: usize = Buf::CLIENTS as usize * SECTOR_BYTES;
/// No page: the end of a list.
const NONE: u32 = u32::MAX;

/// Why a pool cannot be made.
#[derive(Debug, thiserror::Error)]
pub enum PoolError {
    /// A size that leaves an arena without a page, or beyond what a [`Buf`] can name (1 TiB).
    #[error(
        "{len_bytes} bytes of memory cannot be shared out to {arenas} threads; choose another size with --memory, or fewer --threads"
    )]
    Size {
        /// Size asked for, in bytes.
        len_bytes: usize,
        /// For how many threads.
        arenas: usize,
    },
    /// The kernel gave no memory.
    #[error("the kernel gave no {len_bytes} bytes of memory; ask for less with --memory")]
    Map {
        /// Size asked for, in bytes.
        len_bytes: usize,
        /// The kernel's error.
        source: io::Error,
    },
}

/// Buffer memory not yet divided among threads.
#[derive(Debug)]
pub struct Pool {
    map: Map,
}

impl Pool {
    /// Reserves `len_bytes`, rounded up to whole pages. The memory is touched as it is used.
    ///
    /// # Errors
    /// If the size is zero or beyond 1 TiB, or the kernel refuses.
    pub fn new(len_bytes: usize) -> Result<Pool, PoolError> {
        let rounded = len_bytes
            .checked_next_multiple_of(PAGE_BYTES)
            .unwrap_or(usize::MAX);
        if rounded == 0 || rounded > MAX_BYTES {
            return Err(PoolError::Size {
                len_bytes,
                arenas: 1,
            });
        }
        let map = Map::anonymous(rounded).map_err(|source| PoolError::Map { len_bytes, source })?;
        Ok(Pool { map })
    }

    /// Divides the pool into equal arenas, one for each thread.
    ///
    /// # Errors
    /// If there is not a page for each.
    pub fn split(self, arenas: usize) -> Result<Vec<Arena>, PoolError> {
        let pages = self.map.len_bytes() / PAGE_BYTES;
        if arenas == 0 || pages < arenas {
            return Err(PoolError::Size {
                len_bytes: self.map.len_bytes(),
                arenas,
            });
        }
        let view = PoolView {
            map: Arc::new(self.map),
        };
        let share = pages / arenas;
        let mut parts = Vec::with_capacity(arenas);
        for index in 0..arenas {
            let first = index * share;
            let last = if index + 1 == arenas {
                pages
            } else {
                first + share
            };
            parts.push(Arena::new(
                view.clone(),
                first as u32,
                (last - first) as u32,
            ));
        }
        Ok(parts)
    }
}

impl Arena {
    /// Takes `len_bytes` (whole pages, fewer than it has) off the end of an arena of which nothing
    /// is allocated, as an arena of its own. Either may then be read while the other is written.
    ///
    /// # Errors
    /// If the arena has not that much.
    pub fn divide(self, len_bytes: usize) -> Result<(Arena, Arena), PoolError> {
        let (pages, taken) = (self.pages.len(), len_bytes.div_ceil(PAGE_BYTES));
        if taken == 0 || taken >= pages || self.free_pages != pages {
            return Err(PoolError::Size {
                len_bytes,
                arenas: 2,
            });
        }
        let kept = pages - taken;
        let second = Arena::new(
            self.view.clone(),
            self.first_page + kept as u32,
            taken as u32,
        );
        let first = Arena::new(self.view, self.first_page, kept as u32);
        Ok((first, second))
    }
}

/// The whole pool's memory, to turn names of buffers into addresses. Keeps the memory alive.
#[derive(Clone, Debug)]
pub struct PoolView {
    map: Arc<Map>,
}

impl PoolView {
    /// Where the pool's memory starts.
    #[must_use]
    pub fn base(&self) -> NonNull<u8> {
        self.map.base()
    }

    /// The pool's size, in bytes.
    #[must_use]
    pub fn len_bytes(&self) -> usize {
        self.map.len_bytes()
    }

    /// The address of a buffer's first byte. See the module's rule on who may touch it.
    ///
    /// # Panics
    /// If the buffer is not of this pool.
    #[must_use]
    pub fn pointer(&self, buf: Buf) -> NonNull<u8> {
        self.map.part(
            buf.start_sector as usize * SECTOR_BYTES,
            buf.len_bytes as usize,
        )
    }

    /// The offset of an address in the pool, in bytes.
    pub(crate) fn offset_of(&self, pointer: NonNull<u8>) -> usize {
        pointer.as_ptr() as usize - self.map.base().as_ptr() as usize
    }
}

/// State of a page in the allocator.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Page {
    /// Inside a run whose first page says what it is.
    Inner,
    /// First page of a free run of this order.
    Free(u8),
    /// A single free page at hand.
    AtHand,
    /// First page of an allocated run of this order.
    Used(u8),
}

/// Shared memory that shards have lent, by shard.
#[derive(Debug, Default)]
struct ByShard(Vec<Option<SharedMemory>>);

impl ByShard {
    fn attach(&mut self, shard: u16, memory: SharedMemory) {
        let index = usize::from(shard);
        if self.0.len() <= index {
            self.0.resize_with(index + 1, || None);
        }
        self.0[index] = Some(memory);
    }

    fn detach(&mut self, shard: u16) -> Option<SharedMemory> {
        self.0.get_mut(usize::from(shard))?.take()
    }

    fn has(&self, shard: u16) -> bool {
        self.0.get(usize::from(shard)).is_some_and(Option::is_some)
    }

    fn bytes_mut(&mut self, shard: u16) -> Option<&mut [u8]> {
        let memory = self.0.get_mut(usize::from(shard))?;
        memory.as_mut().map(SharedMemory::bytes_mut)
    }
}

/// A thread's part of the pool.
///
/// A buddy allocator whose lists live in arrays made once: neither `alloc` nor `free` allocates,
/// and single pages, the common size, come from a stack.
#[derive(Debug)]
pub struct Arena {
    view: PoolView,
    first_page: u32,
    pages: Vec<Page>,
    next: Vec<u32>,
    previous: Vec<u32>,
    heads: [u32; ORDERS],
    at_hand: Vec<u32>,
    free_pages: usize,
    journals: ByShard,
    buffers: ByShard,
}

impl Arena {
    fn new(view: PoolView, first_page: u32, count: u32) -> Arena {
        let mut arena = Arena {
            view,
            first_page,
            pages: vec![Page::Inner; count as usize],
            next: vec![NONE; count as usize],
            previous: vec![NONE; count as usize],
            heads: [NONE; ORDERS],
            at_hand: Vec::with_capacity(PAGES_AT_HAND),
            free_pages: count as usize,
            journals: ByShard::default(),
            buffers: ByShard::default(),
        };
        let mut page = 0;
        while page < count {
            let aligned = if page == 0 {
                ORDERS as u32 - 1
            } else {
                page.trailing_zeros()
            };
            let fitting = (count - page).ilog2();
            let order = aligned.min(fitting).min(ORDERS as u32 - 1);
            arena.link(page, order as u8);
            page += 1 << order;
        }
        arena
    }

    /// The whole pool this arena is a part of.
    #[must_use]
    pub fn view(&self) -> &PoolView {
        &self.view
    }

    /// Bytes that can still be allocated, if asked for in single pages.
    #[must_use]
    pub fn free_bytes(&self) -> usize {
        self.free_pages * PAGE_BYTES
    }

    /// Lends a shard's crash journal to the engine through [`Memory::journal_mut`].
    pub fn attach_journal(&mut self, shard: u16, journal: SharedMemory) {
        self.journals.attach(shard, journal);
    }

    /// Takes a shard's crash journal back.
    pub fn detach_journal(&mut self, shard: u16) -> Option<SharedMemory> {
        self.journals.detach(shard)
    }

    /// Lends a shard's memory buffer to the engine through [`Memory::buffer_mut`].
    pub fn attach_buffer(&mut self, shard: u16, buffer: SharedMemory) {
        self.buffers.attach(shard, buffer);
    }

    /// Takes a shard's memory buffer back.
    pub fn detach_buffer(&mut self, shard: u16) -> Option<SharedMemory> {
        self.buffers.detach(shard)
    }

    /// Whether a shard has a memory buffer.
    #[must_use]
    pub fn has_buffer(&self, shard: u16) -> bool {
        self.buffers.has(shard)
    }

    fn link(&mut self, page: u32, order: u8) {
        let head = self.heads[usize::from(order)];
        self.pages[page as usize] = Page::Free(order);
        self.next[page as usize] = head;
        self.previous[page as usize] = NONE;
        if head != NONE {
            self.previous[head as usize] = page;
        }
        self.heads[usize::from(order)] = page;
    }

    fn unlink(&mut self, page: u32, order: u8) {
        let (next, previous) = (self.next[page as usize], self.previous[page as usize]);
        if previous == NONE {
            self.heads[usize::from(order)] = next;
        } else {
            self.next[previous as usize] = next;
        }
        if next != NONE {
            self.previous[next as usize] = previous;
        }
        self.pages[page as usize] = Page::Inner;
    }

    fn take_run(&mut self, order: u8) -> Option<u32> {
        let found = (order..ORDERS as u8).find(|at| self.heads[usize::from(*at)] != NONE)?;
        let page = self.heads[usize::from(found)];
        self.unlink(page, found);
        for smaller in (order..found).rev() {
            self.link(page + (1 << smaller), smaller);
        }
        Some(page)
    }

    fn merge_run(&mut self, mut page: u32, mut order: u8) {
        while usize::from(order) + 1 < ORDERS {
            let buddy = page ^ (1 << order);
            let whole = self.pages.get(buddy as usize) == Some(&Page::Free(order));
            if !whole {
                break;
            }
            self.unlink(buddy, order);
            self.pages[page as usize] = Page::Inner;
            page = page.min(buddy);
            order += 1;
        }
        self.link(page, order);
    }

    fn merge_pages_at_hand(&mut self) {
        while let Some(page) = self.at_hand.pop() {
            self.merge_run(page, 0);
        }
    }

    fn take(&mut self, order: u8) -> Option<u32> {
        if order == 0
            && let Some(page) = self.at_hand.pop()
        {
            return Some(page);
        }
        if let Some(page) = self.take_run(order) {
            return Some(page);
        }
        self.merge_pages_at_hand();
        self.take_run(order)
    }
}

/// The order whose runs hold `len_bytes`.
fn order_of(len_bytes: usize) -> Option<u8> {
    let pages = len_bytes.div_ceil(PAGE_BYTES).checked_next_power_of_two()?;
    let order = pages.trailing_zeros() as usize;
    (order < ORDERS).then_some(order as u8)
}

const SECTORS_PER_PAGE: u32 = (PAGE_BYTES / SECTOR_BYTES) as u32;

impl Memory for Arena {
    fn alloc(&mut self, len_bytes: usize) -> Option<Buf> {
        if len_bytes == 0 {
            return Some(Buf::EMPTY);
        }
        let named_bytes = u32::try_from(len_bytes).ok()?;
        let order = order_of(len_bytes)?;
        let page = self.take(order)?;
        self.pages[page as usize] = Page::Used(order);
        self.free_pages -= 1 << order;
        let start_sector = (self.first_page + page) * SECTORS_PER_PAGE;
        Some(Buf {
            start_sector,
            len_bytes: named_bytes,
        })
    }

    /// # Panics
    /// If the buffer was not allocated from this arena with this length, or was freed before.
    fn free(&mut self, buf: Buf) {
        if buf.len_bytes == 0 {
            return;
        }
        let order = order_of(buf.len_bytes as usize).expect("an allocated buffer has an order");
        let page = (buf.start_sector / SECTORS_PER_PAGE)
            .checked_sub(self.first_page)
            .expect("a buffer is freed in its own arena");
        let whole = buf.start_sector.is_multiple_of(SECTORS_PER_PAGE);
        let used = self.pages.get(page as usize) == Some(&Page::Used(order));
        assert!(
            whole && used,
            "a buffer is freed once, whole, in its own arena"
        );
        self.free_pages += 1 << order;
        if order == 0 && self.at_hand.len() < PAGES_AT_HAND {
            self.pages[page as usize] = Page::AtHand;
            self.at_hand.push(page);
        } else {
            self.merge_run(page, order);
        }
    }

    fn bytes(&self, buf: Buf) -> &[u8] {
        let pointer = self.view.pointer(buf);
        // SAFETY: the address range is inside the mapping, which is initialised and outlives
        // `self`; that nobody else has these bytes now is the module's rule on owners.
        unsafe { std::slice::from_raw_parts(pointer.as_ptr(), buf.len_bytes as usize) }
    }

    fn bytes_mut(&mut self, buf: Buf) -> &mut [u8] {
        let pointer = self.view.pointer(buf);
        // SAFETY: as in `bytes`, and `&mut self` keeps other slices of this arena away.
        unsafe { std::slice::from_raw_parts_mut(pointer.as_ptr(), buf.len_bytes as usize) }
    }

    /// # Panics
    /// If no ring was attached for the shard.
    fn journal_mut(&mut self, shard: u16) -> &mut [u8] {
        let journal = self.journals.bytes_mut(shard);
        journal.expect("a shard's journal is attached before its engine runs")
    }

    fn buffer_mut(&mut self, shard: u16) -> &mut [u8] {
        self.buffers.bytes_mut(shard).unwrap_or_default()
    }

    fn copy_to_buffer(&mut self, shard: u16, at_bytes: usize, from: Buf) {
        let len = from.len_bytes as usize;
        let pointer = self.view.pointer(from);
        // SAFETY: as in `bytes`; a memory buffer is a mapping of its own, so that the two do not
        // overlap.
        let from = unsafe { std::slice::from_raw_parts(pointer.as_ptr(), len) };
        self.buffer_mut(shard)[at_bytes..at_bytes + len].copy_from_slice(from);
    }

    fn copy_from_buffer(&mut self, shard: u16, at_bytes: usize, to: Buf) {
        let len = to.len_bytes as usize;
        let pointer = self.view.pointer(to);
        // SAFETY: as in `bytes_mut`; a memory buffer is a mapping of its own, so that the two do
        // not overlap.
        let to = unsafe { std::slice::from_raw_parts_mut(pointer.as_ptr(), len) };
        to.copy_from_slice(&self.buffer_mut(shard)[at_bytes..at_bytes + len]);
    }
}
