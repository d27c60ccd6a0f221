//! Where fields and checksums are in the structures of docs/FORMAT.md: by offsets, as somebody has
//! them who writes devices without the engine.
#![allow(dead_code, reason = "each harness uses its part")]

/// Where a structure has its checksum and the identity that the checksum begins with.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Signed {
    sum_at: usize,
    id_at: usize,
}

/// Of a copy of the superblock.
pub(crate) const SUPERBLOCK: Signed = Signed {
    sum_at: 12,
    id_at: 16,
};
/// Of a header of a record, and of a summary.
pub(crate) const RECORD: Signed = Signed {
    sum_at: 8,
    id_at: 12,
};

/// A number in a structure.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Field {
    pub(crate) at: usize,
    pub(crate) width: usize,
}

fn fields(places: impl IntoIterator<Item = (usize, usize)>) -> Vec<Field> {
    let field = |(at, width)| Field { at, width };
    places.into_iter().map(field).collect()
}

/// Makes the checksum right: a CRC32C, with its own bytes as zero, that begins with that of the
/// identity.
pub(crate) fn sign(bytes: &mut [u8], signed: Signed) {
    let Signed { sum_at, id_at } = signed;
    bytes[sum_at..sum_at + 4].fill(0);
    let seed = forebay_engine::checksum::crc32c(&bytes[id_at..id_at + 16]);
    let sum = forebay_engine::checksum::crc32c_append(seed, bytes);
    bytes[sum_at..sum_at + 4].copy_from_slice(&sum.to_le_bytes());
}

/// Fields of a shard's state, which headers and summaries have.
fn state(at: usize) -> Vec<(usize, usize)> {
    let mut places = Vec::new();
    for sequence in 0..4 {
        places.extend([(at + 12 * sequence, 4), (at + 12 * sequence + 4, 8)]);
    }
    for position in 0..3 {
        let at = at + 48 + 14 * position;
        places.extend([(at, 4), (at + 4, 8), (at + 12, 2)]);
    }
    let at = at + 90;
    places.extend([(at, 1), (at + 1, 4), (at + 5, 4), (at + 9, 8), (at + 17, 2)]);
    places
}

/// Bytes of a header before its entries.
pub(crate) const HEADER_ENTRIES: usize = 169;
/// Bytes of a summary before its entries.
pub(crate) const SUMMARY_ENTRIES: usize = 178;

/// Fields of a header: version, stream, kind, place, counts, generation, numbers, state.
pub(crate) fn fields_of_header() -> Vec<Field> {
    let own = [
        (4, 2),
        (6, 1),
        (7, 1),
        (28, 2),
        (30, 4),
        (34, 2),
        (36, 2),
        (38, 2),
    ];
    let numbers = [(40, 4), (44, 8), (52, 8)];
    fields(own.into_iter().chain(numbers).chain(state(60)))
}

/// Fields of a summary, likewise.
pub(crate) fn fields_of_summary() -> Vec<Field> {
    let own = [
        (4, 2),
        (6, 1),
        (7, 1),
        (28, 2),
        (30, 4),
        (34, 1),
        (35, 2),
        (37, 4),
    ];
    let numbers = [(41, 4), (45, 8), (53, 8), (61, 8)];
    fields(own.into_iter().chain(numbers).chain(state(69)))
}

/// Fields of a copy of a superblock, with those of its first volumes, devices and extents.
pub(crate) fn fields_of_superblock(copy: &[u8]) -> Vec<Field> {
    /// Where the volumes and the tables begin, and the bytes of a volume.
    const VOLUMES: usize = 88;
    const VOLUME: usize = 140;
    const TABLE: usize = 40 << 10;
    const COPIES: usize = 48 << 10;
    let half = |at: usize| usize::from(u16::from_le_bytes([copy[at], copy[at + 1]]));
    let mut places = vec![(8, 2), (32, 8), (40, 4), (44, 4), (48, 8), (56, 4), (60, 8)];
    places.extend([(68, 2), (70, 4), (74, 4), (78, 2), (80, 4), (84, 4)]);
    for volume in 0..half(68).min(3) {
        let at = VOLUMES + VOLUME * volume;
        places.extend([(at, 4), (at + 4, 2), (at + 6, 1), (at + 9, 1), (at + 69, 1)]);
        places.extend([(at + 70, 8), (at + 78, 8), (at + 86, 8), (at + 94, 1)]);
        places.extend([(at + 95, 1), (at + 128, 8), (at + 136, 4)]);
    }
    places.extend([
        (TABLE, 1),
        (TABLE + 1, 1),
        (TABLE + 2, 2),
        (TABLE + 4, 4),
        (TABLE + 8, 4),
    ]);
    let devices = usize::from(copy[TABLE + 1]);
    for device in 0..devices.min(3) {
        let at = TABLE + 12 + 16 * device;
        places.extend([(at, 1), (at + 1, 1), (at + 4, 4), (at + 8, 8)]);
    }
    for extent in 0..half(TABLE + 2).min(3) {
        let at = TABLE + 12 + 16 * devices + 24 * extent;
        places.extend([
            (at, 4),
            (at + 4, 1),
            (at + 5, 1),
            (at + 8, 8),
            (at + 16, 4),
            (at + 20, 4),
        ]);
    }
    places.extend([
        (COPIES, 1),
        (COPIES + 2, 2),
        (COPIES + 4, 4),
        (COPIES + 8, 8),
    ]);
    fields(places)
}
