//! Recognises sequential streams among many interleaved ones, by where each would go on.

/// How many streams are followed at a time.
const STREAMS: usize = 64;

#[derive(Clone, Copy, Debug, Default)]
struct Stream {
    next_bytes: u64,
    length_bytes: u64,
    used: u64,
}

/// Follows the last 64 streams of a volume's reads or writes.
#[derive(Debug, Default)]
pub(crate) struct SequentialDetector {
    streams: Vec<Stream>,
    clock: u64,
}

impl SequentialDetector {
    /// Takes a request into account and returns how long its stream is with it, in bytes.
    pub(crate) fn request(&mut self, offset_bytes: u64, len_bytes: u64) -> u64 {
        self.clock += 1;
        let next_bytes = offset_bytes + len_bytes;
        if let Some(stream) = self
            .streams
            .iter_mut()
            .find(|stream| stream.next_bytes == offset_bytes)
        {
            stream.next_bytes = next_bytes;
            stream.length_bytes += len_bytes;
            stream.used = self.clock;
            return stream.length_bytes;
        }
        let stream = Stream {
            next_bytes,
            length_bytes: len_bytes,
            used: self.clock,
        };
        if self.streams.len() < STREAMS {
            self.streams.push(stream);
        } else if let Some(oldest) = self.streams.iter_mut().min_by_key(|stream| stream.used) {
            *oldest = stream;
        }
        len_bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn interleaved_streams_are_told_apart_from_random_requests() {
        let mut detector = SequentialDetector::default();
        let mut lengths = [0; 32];
        for round in 0..10u64 {
            for (stream, length) in lengths.iter_mut().enumerate() {
                *length = detector.request(((stream as u64) << 30) + round * 4096, 4096);
            }
        }
        assert_eq!(lengths, [40960; 32]);
        let random = (0..1000u64)
            .map(|i| detector.request((i * 7919 % 1000) << 20, 4096))
            .max();
        assert_eq!(random, Some(4096));
    }
}
