//! A disk with a volatile write cache: a durable image and, for each page, the ordered versions
//! that are not durable yet.
//!
//! A flush makes durable what was written before it was submitted. At a power cut every atomic
//! unit independently keeps its durable value or takes any volatile version: torn, lost and
//! reordered writes are one rule.

use std::ops::Range;
use std::rc::Rc;

use crate::rng::Rng;

/// Bytes of a page: the largest atomic unit, and what versions are kept of.
pub const PAGE_BYTES: usize = 4096;

/// A page's content; `None` is zeroes.
type Content = Option<Rc<[u8]>>;

static ZEROES: [u8; PAGE_BYTES] = [0; PAGE_BYTES];

fn bytes(content: &Content) -> &[u8] {
    content.as_deref().unwrap_or(&ZEROES)
}

#[derive(Clone, Debug, Default)]
struct PageState {
    durable: Content,
    /// Each with its place in the order of writes.
    versions: Vec<(u64, Content)>,
}

impl PageState {
    fn current(&self) -> &Content {
        self.versions
            .last()
            .map_or(&self.durable, |(_, content)| content)
    }
}

/// The pages of a stretch of a disk, as they were at a moment.
#[derive(Clone, Debug)]
pub struct Pages(Vec<Content>);

fn is_same(one: &Content, other: &Content) -> bool {
    match (one, other) {
        (Some(one), Some(other)) => Rc::ptr_eq(one, other),
        (None, None) => true,
        _ => false,
    }
}

/// Share of volatile data that a power cut keeps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Survival {
    /// Nothing.
    Nothing,
    /// Everything.
    Everything,
    /// Each atomic unit takes any version.
    Any,
}

/// See the module.
#[derive(Clone, Debug)]
pub struct Disk {
    pages: Vec<PageState>,
    /// Pages with volatile versions.
    volatile: Vec<u32>,
    /// Counts writes.
    order: u64,
    unit_bytes: usize,
}

impl Disk {
    /// A disk of zeroes. `unit_bytes`, 512 or 4096, is what it writes atomically.
    #[must_use]
    pub fn new(size_bytes: u64, unit_bytes: usize) -> Disk {
        let pages = size_bytes.div_ceil(PAGE_BYTES as u64) as usize;
        Disk {
            pages: vec![PageState::default(); pages],
            volatile: Vec::new(),
            order: 0,
            unit_bytes,
        }
    }

    /// Its size, in bytes.
    #[must_use]
    pub fn size_bytes(&self) -> u64 {
        (self.pages.len() * PAGE_BYTES) as u64
    }

    /// Cuts its end off.
    pub fn truncate(&mut self, size_bytes: u64) {
        self.pages
            .truncate((size_bytes / PAGE_BYTES as u64) as usize);
        let pages = self.pages.len();
        self.volatile.retain(|page| (*page as usize) < pages);
    }

    /// Reads what was written last.
    pub fn read(&self, offset_bytes: u64, into: &mut [u8]) {
        self.for_pages(offset_bytes, into.len(), |page, within, from, len| {
            let content = bytes(self.pages[page].current());
            into[from..from + len].copy_from_slice(&content[within..within + len]);
        });
    }

    fn current(&self, part: &Range<u64>) -> impl Iterator<Item = &Content> {
        let pages = part.start as usize / PAGE_BYTES..part.end as usize / PAGE_BYTES;
        self.pages[pages].iter().map(PageState::current)
    }

    /// The pages of a stretch of whole pages, in bytes, as they were written last.
    #[must_use]
    pub fn pages(&self, part: &Range<u64>) -> Pages {
        Pages(self.current(part).cloned().collect())
    }

    /// Whether nobody has written to that stretch since: the same contents written anew are others.
    #[must_use]
    pub fn still_has(&self, part: &Range<u64>, pages: &Pages) -> bool {
        self.current(part)
            .zip(&pages.0)
            .all(|(now, then)| is_same(now, then))
    }

    /// The page at a place, as it was written last.
    #[must_use]
    pub fn page(&self, offset_bytes: u64) -> &[u8] {
        bytes(self.pages[offset_bytes as usize / PAGE_BYTES].current())
    }

    /// Reads the durable contents, or those before the last write, as a stale read does.
    pub fn read_stale(&self, offset_bytes: u64, into: &mut [u8]) {
        self.for_pages(offset_bytes, into.len(), |page, within, from, len| {
            let content = bytes(&self.pages[page].durable);
            into[from..from + len].copy_from_slice(&content[within..within + len]);
        });
    }

    fn for_pages(
        &self,
        offset_bytes: u64,
        len_bytes: usize,
        mut each: impl FnMut(usize, usize, usize, usize),
    ) {
        let mut done = 0;
        while done < len_bytes {
            let at = offset_bytes as usize + done;
            let within = at % PAGE_BYTES;
            let len = (PAGE_BYTES - within).min(len_bytes - done);
            each(at / PAGE_BYTES, within, done, len);
            done += len;
        }
    }

    /// Writes, volatile until a flush.
    pub fn write(&mut self, offset_bytes: u64, data: &[u8]) {
        let mut done = 0;
        while done < data.len() {
            let at = offset_bytes as usize + done;
            let within = at % PAGE_BYTES;
            let len = (PAGE_BYTES - within).min(data.len() - done);
            let part = &data[done..done + len];
            let page = at / PAGE_BYTES;
            let content = if len == PAGE_BYTES {
                Rc::from(part)
            } else {
                let mut whole = bytes(self.pages[page].current()).to_vec();
                whole[within..within + len].copy_from_slice(part);
                Rc::from(whole)
            };
            self.push(page, Some(content));
            done += len;
        }
    }

    /// Writes zeroes, volatile until a flush.
    pub fn zero(&mut self, offset_bytes: u64, len_bytes: u64) {
        let mut at = offset_bytes;
        let end = offset_bytes + len_bytes;
        while at < end {
            let within = at as usize % PAGE_BYTES;
            let len = ((PAGE_BYTES - within) as u64).min(end - at);
            if len == PAGE_BYTES as u64 {
                self.push(at as usize / PAGE_BYTES, None);
            } else {
                self.write(at, &ZEROES[..len as usize]);
            }
            at += len;
        }
    }

    /// A write of which each atomic unit lands or does not.
    pub fn write_torn(&mut self, offset_bytes: u64, data: &[u8], rng: &mut Rng) {
        let unit = self.unit_bytes;
        for (i, part) in data.chunks(unit).enumerate() {
            if rng.percent(50) {
                self.write(offset_bytes + (i * unit) as u64, part);
            }
        }
    }

    fn push(&mut self, page: usize, content: Content) {
        self.order += 1;
        let state = &mut self.pages[page];
        if state.versions.is_empty() {
            self.volatile.push(page as u32);
        }
        state.versions.push((self.order, content));
    }

    /// The writes that a flush submitted now covers.
    #[must_use]
    pub fn order(&self) -> u64 {
        self.order
    }

    /// Makes durable what was written up to `order`.
    pub fn flush(&mut self, order: u64) {
        self.flush_part(order, 0..u64::MAX);
    }

    /// Flushes a stretch of the disk, in bytes.
    pub fn flush_part(&mut self, order: u64, part: Range<u64>) {
        let pages = &mut self.pages;
        self.volatile.retain(|page| {
            if !part.contains(&(u64::from(*page) * PAGE_BYTES as u64)) {
                return true;
            }
            let state = &mut pages[*page as usize];
            let covered = state
                .versions
                .partition_point(|(written, _)| *written <= order);
            if let Some((_, content)) = state.versions.drain(..covered).next_back() {
                state.durable = content;
            }
            !state.versions.is_empty()
        });
    }

    /// Where what is volatile is, in bytes, of a stretch of the disk.
    #[must_use]
    pub fn volatile_pages(&self, part: &Range<u64>) -> Vec<u64> {
        let places = self
            .volatile
            .iter()
            .map(|page| u64::from(*page) * PAGE_BYTES as u64);
        places.filter(|place| part.contains(place)).collect()
    }

    /// A power cut, or a reset of the device: nothing is volatile any more.
    pub fn cut(&mut self, survival: Survival, rng: &mut Rng) {
        self.cut_part(survival, 0..u64::MAX, rng);
    }

    /// Cuts the power of a stretch of the disk, in bytes.
    pub fn cut_part(&mut self, survival: Survival, part: Range<u64>, rng: &mut Rng) {
        let unit = self.unit_bytes;
        let is_part = |page: &u32| part.contains(&(u64::from(*page) * PAGE_BYTES as u64));
        let (cut, kept) = self.volatile.iter().partition(|page| is_part(page));
        self.volatile = kept;
        let cut: Vec<u32> = cut;
        for page in cut {
            let state = &mut self.pages[page as usize];
            let versions = std::mem::take(&mut state.versions);
            let count = versions.len() as u64;
            match survival {
                Survival::Nothing => {}
                Survival::Everything => {
                    state.durable = versions.into_iter().next_back().expect("listed").1
                }
                Survival::Any if unit == PAGE_BYTES => {
                    let kept = rng.below(count + 1);
                    if kept > 0 {
                        state.durable = versions[kept as usize - 1].1.clone();
                    }
                }
                Survival::Any => {
                    let mut whole = bytes(&state.durable).to_vec();
                    for (at, out) in whole.chunks_exact_mut(unit).enumerate() {
                        let kept = rng.below(count + 1);
                        if kept > 0 {
                            let content = bytes(&versions[kept as usize - 1].1);
                            out.copy_from_slice(&content[at * unit..(at + 1) * unit]);
                        }
                    }
                    state.durable = Some(Rc::from(whole));
                }
            }
        }
    }

    /// Flips a bit in all that is stored at `offset_bytes`.
    pub fn rot(&mut self, offset_bytes: u64, bit: u8) {
        let (page, within) = (
            offset_bytes as usize / PAGE_BYTES,
            offset_bytes as usize % PAGE_BYTES,
        );
        let state = &mut self.pages[page];
        let flip = |content: &mut Content| {
            let mut whole = bytes(content).to_vec();
            whole[within] ^= 1 << (bit % 8);
            *content = Some(Rc::from(whole));
        };
        flip(&mut state.durable);
        for (_, content) in &mut state.versions {
            flip(content);
        }
    }

    /// Everything that could be at these bytes (of one page) after a power cut, the durable value
    /// first and the current one last.
    pub fn versions(&self, offset_bytes: u64, len_bytes: usize) -> impl Iterator<Item = &[u8]> {
        let (page, within) = (
            offset_bytes as usize / PAGE_BYTES,
            offset_bytes as usize % PAGE_BYTES,
        );
        let state = &self.pages[page];
        let all = std::iter::once(&state.durable)
            .chain(state.versions.iter().map(|(_, content)| content));
        all.map(move |content| &bytes(content)[within..within + len_bytes])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_flush_covers_what_was_written_before_it_was_submitted() {
        let mut disk = Disk::new(8192, 512);
        disk.write(0, &[1; 4096]);
        let submitted = disk.order();
        disk.write(512, &[2; 512]);
        disk.flush(submitted);
        disk.cut(Survival::Nothing, &mut Rng::new(1));
        let mut page = [0; 4096];
        disk.read(0, &mut page);
        assert_eq!(page, [1; 4096]);
    }

    #[test]
    fn a_cut_tears_between_units_and_never_within() {
        let mut mixed = 0;
        for seed in 0..50 {
            let mut disk = Disk::new(4096, 512);
            disk.write(0, &[1; 4096]);
            disk.write(0, &[2; 4096]);
            disk.cut(Survival::Any, &mut Rng::new(seed));
            let mut page = [0; 4096];
            disk.read(0, &mut page);
            for unit in page.chunks(512) {
                assert!(unit.iter().all(|byte| *byte == unit[0]));
            }
            mixed += u32::from(page.iter().any(|byte| *byte != page[0]));
        }
        assert!(mixed > 40, "{mixed}");
    }
}
