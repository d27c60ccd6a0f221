//! Which requests are part of a sequential run, over several streams at once.

use crate::request::Request;
use crate::shards::RUNS;

/// Streams that are followed at once; the one that moved longest ago gives way.
const STREAMS: usize = 64;

#[derive(Clone, Copy, Debug, Default)]
struct Stream {
    volume: u32,
    next: u64,
    blocks: u64,
    moved: u64,
}

/// The streams of a trace.
#[derive(Debug, Default)]
pub(crate) struct Runs {
    streams: Vec<Stream>,
    now: u64,
}

impl Runs {
    /// The length of the run that a request continues, itself included, as a power of two of blocks.
    pub(crate) fn class(&mut self, request: &Request) -> usize {
        self.now += 1;
        let next = request.first_block + u64::from(request.blocks);
        let follows = |stream: &&mut Stream| {
            // A request may begin in the block in which the one before ended.
            stream.volume == request.volume
                && (stream.next == request.first_block || stream.next == request.first_block + 1)
        };
        let blocks = u64::from(request.blocks);
        if let Some(stream) = self.streams.iter_mut().find(follows) {
            stream.blocks += blocks;
            (stream.next, stream.moved) = (next, self.now);
            return class(stream.blocks);
        }
        let stream = Stream {
            volume: request.volume,
            next,
            blocks,
            moved: self.now,
        };
        if self.streams.len() < STREAMS {
            self.streams.push(stream);
        } else if let Some(oldest) = self.streams.iter_mut().min_by_key(|stream| stream.moved) {
            *oldest = stream;
        }
        class(blocks)
    }
}

fn class(blocks: u64) -> usize {
    (blocks.max(1).ilog2() as usize).min(RUNS - 1)
}
