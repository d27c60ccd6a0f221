//! Places of an array's data on its members, as md lays it out.

/// Arrangement of an array's data.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Level {
    /// RAID0: chunks go round all members.
    Striped,
    /// RAID1: each member has everything.
    Mirrored,
    /// RAID5: as striped, with the parity of each stripe on a member that moves ("left-symmetric").
    Parity,
    /// RAID10: as striped, over pairs of mirrors ("near 2").
    StripedMirrors,
}

/// A stretch on a member.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Stretch {
    pub(super) member: usize,
    pub(super) start: u64,
    pub(super) len_bytes: u64,
}

/// A stretch in one chunk of a stripe.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct InStripe {
    pub(super) stripe: u64,
    /// Which of the stripe's chunks with data.
    pub(super) column: usize,
    /// First byte in the chunk, and the one after the last.
    pub(super) from: u64,
    pub(super) to: u64,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Layout {
    pub(super) level: Level,
    pub(super) members: usize,
    pub(super) chunk_bytes: u64,
}

impl Layout {
    /// Chunks of a stripe that hold data.
    pub(super) fn columns(&self) -> usize {
        match self.level {
            Level::Striped => self.members,
            Level::Mirrored => 1,
            Level::Parity => self.members - 1,
            Level::StripedMirrors => self.members / 2,
        }
    }

    /// Members with the same data.
    pub(super) fn copies(&self) -> usize {
        match self.level {
            Level::Striped | Level::Parity => 1,
            Level::Mirrored => self.members,
            Level::StripedMirrors => 2,
        }
    }

    /// The member that holds a column of a stripe; of copies the first.
    pub(super) fn member(&self, stripe: u64, column: usize) -> usize {
        match self.level {
            Level::Parity => (self.parity(stripe) + 1 + column) % self.members,
            _ => column * self.copies(),
        }
    }

    /// The member that holds the parity of a stripe.
    pub(super) fn parity(&self, stripe: u64) -> usize {
        self.members - 1 - (stripe % self.members as u64) as usize
    }

    /// A range of the array, cut at the borders of chunks.
    pub(super) fn cut(&self, start: u64, len_bytes: u64) -> Vec<InStripe> {
        let mut pieces = Vec::new();
        let mut at = start;
        while at < start + len_bytes {
            let chunk = at / self.chunk_bytes;
            let end = ((chunk + 1) * self.chunk_bytes).min(start + len_bytes);
            let from = at % self.chunk_bytes;
            pieces.push(InStripe {
                stripe: chunk / self.columns() as u64,
                column: (chunk % self.columns() as u64) as usize,
                from,
                to: from + (end - at),
            });
            at = end;
        }
        pieces
    }

    /// A range of the array on the first of its copies; what is in a row on a member is one stretch,
    /// as a disk's scheduler makes it.
    pub(super) fn stretches(&self, start: u64, len_bytes: u64) -> Vec<Stretch> {
        let mut stretches: Vec<Stretch> = Vec::new();
        for piece in self.cut(start, len_bytes) {
            add_stretch(&mut stretches, self.on_member(piece));
        }
        stretches
    }

    fn on_member(&self, piece: InStripe) -> Stretch {
        Stretch {
            member: self.member(piece.stripe, piece.column),
            start: piece.stripe * self.chunk_bytes + piece.from,
            len_bytes: piece.to - piece.from,
        }
    }
}

/// Adds a stretch, to one that it goes on from if there is such.
pub(super) fn add_stretch(stretches: &mut Vec<Stretch>, new: Stretch) {
    let goes_on =
        |old: &&mut Stretch| old.member == new.member && old.start + old.len_bytes == new.start;
    match stretches.iter_mut().find(goes_on) {
        Some(old) => old.len_bytes += new.len_bytes,
        None => stretches.push(new),
    }
}
