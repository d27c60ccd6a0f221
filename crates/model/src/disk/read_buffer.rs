//! Recent reads and read-ahead that the drive's memory still holds.

#[derive(Clone, Copy, Debug, Default)]
struct BufferedRange {
    start: u64,
    end: u64,
    used_ns: u64,
}

#[derive(Debug)]
pub(super) struct ReadBuffer {
    pieces: Vec<BufferedRange>,
    piece_bytes: u64,
}

impl ReadBuffer {
    pub(super) fn new(pieces: usize, piece_bytes: u64) -> ReadBuffer {
        ReadBuffer {
            pieces: vec![BufferedRange::default(); pieces],
            piece_bytes,
        }
    }

    /// The end of the memory's contents without a gap from `start` on; `start` itself if it is not
    /// there.
    pub(super) fn held_from(&self, start: u64) -> u64 {
        let mut reach = start;
        // Each round uses up one piece, so the rounds are bounded by their number.
        while let Some(piece) = self
            .pieces
            .iter()
            .find(|piece| piece.start <= reach && reach < piece.end)
        {
            reach = piece.end;
        }
        reach
    }

    pub(super) fn keep(&mut self, start: u64, end: u64, now_ns: u64) {
        let piece_bytes = self.piece_bytes;
        let extends = |piece: &&mut BufferedRange| {
            piece.end > piece.start && start >= piece.start && start <= piece.end
        };
        if let Some(piece) = self.pieces.iter_mut().find(extends) {
            piece.end = piece.end.max(end);
            piece.start = piece.start.max(piece.end.saturating_sub(piece_bytes));
            piece.used_ns = now_ns;
            return;
        }
        if let Some(oldest) = self.pieces.iter_mut().min_by_key(|piece| piece.used_ns) {
            let start = start.max(end.saturating_sub(piece_bytes));
            *oldest = BufferedRange {
                start,
                end,
                used_ns: now_ns,
            };
        }
    }

    pub(super) fn forget(&mut self, start: u64, end: u64) {
        for piece in &mut self.pieces {
            if piece.start < end && start < piece.end {
                *piece = BufferedRange::default();
            }
        }
    }
}
