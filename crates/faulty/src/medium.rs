//! Contents of a device: the durable part, and the part that a power cut may take back.

use std::ops::Range;

use forebay_random::SplitMix64;

/// Unit that a torn operation keeps or loses as a whole, in bytes.
const PAGE_BYTES: usize = 4096;

/// A write that no flush has made durable yet.
struct Volatile {
    number: u64,
    offset: usize,
    data: Vec<u8>,
    /// Whether it was answered, or will be at once: the next flush covers it.
    complete: bool,
}

impl Volatile {
    fn range(&self) -> Range<usize> {
        self.offset..self.offset + self.data.len()
    }
}

/// The contents of a device with a volatile write cache.
pub(crate) struct Medium {
    durable: Vec<u8>,
    current: Vec<u8>,
    /// In the order in which they took effect.
    volatile: Vec<Volatile>,
    next_number: u64,
}

/// The writes that a flush covers: those that were complete when it began.
pub(crate) struct Covered(Vec<u64>);

impl Medium {
    pub(crate) fn new(size_bytes: u64) -> Medium {
        Medium {
            durable: vec![0; size_bytes as usize],
            current: vec![0; size_bytes as usize],
            volatile: Vec::new(),
            next_number: 0,
        }
    }

    pub(crate) fn current(&self, range: Range<u64>) -> &[u8] {
        &self.current[range.start as usize..range.end as usize]
    }

    pub(crate) fn durable(&self, range: Range<u64>) -> &[u8] {
        &self.durable[range.start as usize..range.end as usize]
    }

    /// A write takes effect; no flush covers it before it is complete.
    pub(crate) fn begin_write(&mut self, offset: u64, data: &[u8]) -> u64 {
        let (number, offset) = (self.next_number, offset as usize);
        self.next_number += 1;
        self.current[offset..offset + data.len()].copy_from_slice(data);
        self.volatile.push(Volatile {
            number,
            offset,
            data: data.to_vec(),
            complete: false,
        });
        number
    }

    /// A write that fails takes effect in some of its pages, which this seed chooses.
    pub(crate) fn torn_write(&mut self, offset: u64, data: &[u8], seed: u64) {
        let mut random = SplitMix64::new(seed);
        for (page, data) in data.chunks(PAGE_BYTES).enumerate() {
            if random.below(2) == 0 {
                let number = self.begin_write(offset + (page * PAGE_BYTES) as u64, data);
                self.complete(number);
            }
        }
    }

    pub(crate) fn complete(&mut self, number: u64) {
        // A flush that failed meanwhile has dropped it, which its client does not hear.
        for write in &mut self.volatile {
            write.complete |= write.number == number;
        }
    }

    pub(crate) fn begin_flush(&self) -> Covered {
        let complete = self.volatile.iter().filter(|write| write.complete);
        Covered(complete.map(|write| write.number).collect())
    }

    /// Makes the writes that the flush covers durable.
    pub(crate) fn end_flush(&mut self, covered: &Covered) {
        let writes = std::mem::take(&mut self.volatile);
        for write in writes {
            if covered.0.binary_search(&write.number).is_err() {
                self.volatile.push(write);
                continue;
            }
            self.durable[write.range()].copy_from_slice(&write.data);
            // An older write that stays volatile must not come back over it.
            for older in &mut self.volatile {
                copy_common(&write, older);
            }
        }
    }

    /// Everything volatile is as if it had never been, but for the pages that the seed keeps.
    pub(crate) fn drop_volatile(&mut self, torn: Option<u64>) {
        if let Some(seed) = torn {
            self.settle(PAGE_BYTES, 50, &mut SplitMix64::new(seed));
        }
        for write in std::mem::take(&mut self.volatile) {
            let range = write.range();
            self.current[range.clone()].copy_from_slice(&self.durable[range]);
        }
    }

    /// Of what is volatile each unit becomes durable with this probability, in percent; the
    /// rest is dropped.
    pub(crate) fn cut_power(&mut self, unit: usize, survives: u64, random: &mut SplitMix64) {
        self.settle(unit, survives, random);
        self.drop_volatile(None);
    }

    /// Makes units of volatile writes durable at random.
    fn settle(&mut self, unit: usize, survives: u64, random: &mut SplitMix64) {
        for write in &self.volatile {
            for (number, part) in write.data.chunks(unit).enumerate() {
                if random.below(100) < survives {
                    let at = write.offset + number * unit;
                    self.durable[at..at + part.len()].copy_from_slice(part);
                }
            }
        }
    }

    /// The durable contents, to be put back later.
    pub(crate) fn snapshot(&self) -> Vec<u8> {
        self.durable.clone()
    }

    pub(crate) fn put_back(&mut self, contents: &[u8]) {
        self.volatile.clear();
        self.durable.copy_from_slice(contents);
        self.current.copy_from_slice(contents);
    }
}

/// Copies the newer write's bytes to the older where the two overlap.
fn copy_common(newer: &Volatile, older: &mut Volatile) {
    let (new, old) = (newer.range(), older.range());
    let (start, end) = (new.start.max(old.start), new.end.min(old.end));
    if start < end {
        older.data[start - old.start..end - old.start]
            .copy_from_slice(&newer.data[start - new.start..end - new.start]);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written(medium: &mut Medium, offset: u64, data: &[u8]) {
        let number = medium.begin_write(offset, data);
        medium.complete(number);
    }

    #[test]
    fn a_flush_covers_what_was_complete_when_it_began() {
        let mut medium = Medium::new(64);
        written(&mut medium, 0, &[1; 8]);
        let slow = medium.begin_write(8, &[2; 8]);
        let covered = medium.begin_flush();
        written(&mut medium, 16, &[3; 8]);
        medium.complete(slow);
        medium.end_flush(&covered);
        assert_eq!(medium.durable(0..24), [[1; 8], [0; 8], [0; 8]].concat());
        assert_eq!(medium.current(0..24), [[1; 8], [2; 8], [3; 8]].concat());
        let covered = medium.begin_flush();
        medium.end_flush(&covered);
        assert_eq!(medium.durable(0..24), medium.current(0..24));
    }

    #[test]
    fn what_is_dropped_is_as_it_was_durably() {
        let mut medium = Medium::new(64);
        written(&mut medium, 0, &[1; 16]);
        let covered = medium.begin_flush();
        medium.end_flush(&covered);
        written(&mut medium, 4, &[2; 8]);
        written(&mut medium, 8, &[3; 8]);
        medium.drop_volatile(None);
        assert_eq!(medium.current(0..16), [1; 16]);
        // Nothing of it comes back.
        let covered = medium.begin_flush();
        medium.end_flush(&covered);
        assert_eq!(medium.durable(0..16), [1; 16]);
    }

    #[test]
    fn an_older_write_does_not_come_back_over_a_durable_one() {
        let mut medium = Medium::new(64);
        let slow = medium.begin_write(0, &[1; 16]);
        written(&mut medium, 8, &[2; 16]);
        let covered = medium.begin_flush();
        medium.end_flush(&covered);
        medium.complete(slow);
        let covered = medium.begin_flush();
        medium.end_flush(&covered);
        let newest = [[1; 8], [2; 8], [2; 8]].concat();
        assert_eq!(medium.durable(0..24), newest);
        assert_eq!(medium.current(0..24), newest);
    }

    #[test]
    fn a_power_cut_keeps_units_whole() {
        const SECTOR_BYTES: usize = 512;
        let mut medium = Medium::new(64 << 10);
        let mut random = SplitMix64::new(1);
        written(&mut medium, 0, &vec![1; 64 << 10]);
        medium.cut_power(SECTOR_BYTES, 50, &mut random);
        let sectors: Vec<&[u8]> = medium.durable(0..64 << 10).chunks(SECTOR_BYTES).collect();
        let whole = |value: u8| {
            let same = sectors
                .iter()
                .filter(|sector| sector.iter().all(|byte| *byte == value));
            same.count()
        };
        assert!(
            whole(0) > 30 && whole(1) > 30,
            "{} and {}",
            whole(0),
            whole(1)
        );
        assert_eq!(whole(0) + whole(1), sectors.len());
        assert_eq!(medium.durable(0..64 << 10), medium.current(0..64 << 10));
        for (survives, value) in [(100, 2), (0, 2)] {
            written(&mut medium, 0, &vec![value + u8::from(survives == 0); 4096]);
            medium.cut_power(SECTOR_BYTES, survives, &mut random);
            assert_eq!(medium.current(0..4096), vec![value; 4096]);
        }
    }

    #[test]
    fn what_is_torn_keeps_some_pages() {
        let mut medium = Medium::new(64 << 10);
        medium.torn_write(0, &vec![1; 64 << 10], 3);
        let kept = |bytes: &[u8], value| {
            bytes
                .chunks(PAGE_BYTES)
                .filter(|page| page[0] == value)
                .count()
        };
        let torn = kept(medium.current(0..64 << 10), 1);
        assert!((1..16).contains(&torn), "{torn} pages");
        medium.drop_volatile(None);
        assert_eq!(kept(medium.current(0..64 << 10), 1), 0);
        written(&mut medium, 0, &vec![1; 64 << 10]);
        medium.drop_volatile(Some(3));
        let torn = kept(medium.current(0..64 << 10), 1);
        assert!((1..16).contains(&torn), "{torn} pages");
        assert_eq!(medium.durable(0..64 << 10), medium.current(0..64 << 10));
    }

    #[test]
    fn what_is_put_back_is_the_old() {
        let mut medium = Medium::new(16);
        written(&mut medium, 0, &[1; 16]);
        let covered = medium.begin_flush();
        medium.end_flush(&covered);
        let old = medium.snapshot();
        written(&mut medium, 0, &[2; 16]);
        let covered = medium.begin_flush();
        written(&mut medium, 0, &[3; 16]);
        medium.end_flush(&covered);
        medium.put_back(&old);
        assert_eq!(medium.current(0..16), [1; 16]);
        medium.drop_volatile(None);
        assert_eq!(medium.current(0..16), [1; 16]);
    }
}
