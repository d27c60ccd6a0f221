//! Recognises sequential streams among many interleaved ones, by where each would go on.

use crate::format::BlockKey;
use crate::map::index;

/// Streams are found by where they go on, in sets of this many.
const WAYS: usize = 4;
/// The number of sets: 128 streams are followed at a time.
const SETS: usize = 32;

#[derive(Clone, Copy, Debug, Default)]
struct Stream {
    next_bytes: u64,
    length_bytes: u64,
}

/// Follows the last streams of a volume's reads or writes.
#[derive(Debug)]
pub(crate) struct SequentialDetector {
    /// The youngest of a set first.
    sets: Box<[[Stream; WAYS]; SETS]>,
}

impl Default for SequentialDetector {
    fn default() -> Self {
        SequentialDetector {
            sets: Box::new([[Stream::default(); WAYS]; SETS]),
        }
    }
}

impl SequentialDetector {
    /// Takes a request into account and returns how long its stream is with it, in bytes.
    pub(crate) fn request(&mut self, offset_bytes: u64, len_bytes: u64) -> u64 {
        let set = &mut self.sets[place(offset_bytes)];
        let mut length_bytes = len_bytes;
        if let Some(stream) = set
            .iter_mut()
            .find(|stream| stream.next_bytes == offset_bytes && stream.length_bytes > 0)
        {
            length_bytes += stream.length_bytes;
            stream.length_bytes = 0;
        }
        let next_bytes = offset_bytes + len_bytes;
        let set = &mut self.sets[place(next_bytes)];
        set.copy_within(..WAYS - 1, 1);
        set[0] = Stream {
            next_bytes,
            length_bytes,
        };
        length_bytes
    }
}

fn place(next_bytes: u64) -> usize {
    (index::hash(BlockKey(next_bytes)) % SETS as u64) as usize
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn interleaved_streams_are_told_apart_from_random_requests() {
        let mut detector = SequentialDetector::default();
        let mut lengths = [0; 16];
        for round in 0..10u64 {
            for (stream, length) in lengths.iter_mut().enumerate() {
                *length = detector.request(((stream as u64) << 30) + round * 4096, 4096);
            }
        }
        let followed = lengths.iter().filter(|length| **length == 40960).count();
        assert!(followed >= 14, "{lengths:?}");
        let random = (0..1000u64)
            .map(|i| detector.request((i * 7919 % 1000) << 20, 4096))
            .max();
        assert_eq!(random, Some(4096));
    }
}
