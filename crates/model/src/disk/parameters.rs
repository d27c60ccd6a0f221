//! Parameters of a disk.

/// Parameters of a disk.
#[derive(Clone, Debug, PartialEq)]
pub struct DiskParameters {
    /// Capacity, in bytes.
    pub size_bytes: u64,
    /// Time of one turn, in nanoseconds.
    pub rotation_ns: u64,
    /// Rate at the outer edge, where the addresses begin, in bytes per second.
    pub outer_bytes_per_second: f64,
    /// Rate at the inner edge, in bytes per second.
    pub inner_bytes_per_second: f64,
    /// In how many zones of one rate the platters are divided.
    pub zones: usize,
    /// Time of the shortest seek, in nanoseconds.
    pub seek_min_ns: u64,
    /// Time of a seek over the whole disk, in nanoseconds.
    pub seek_max_ns: u64,
    /// Time an arm needs beyond a seek before it may write, in nanoseconds.
    pub write_settle_ns: u64,
    /// Commands that the drive looks at to choose the nearest.
    pub queue_depth: usize,
    /// Age past which a command is done before nearer ones, in nanoseconds.
    pub age_limit_ns: u64,
    /// Size of the write cache, in bytes; zero for none.
    pub write_cache_bytes: u64,
    /// Separate pieces that the write cache can hold.
    pub write_cache_extents: usize,
    /// Time for which the drive waits for another read before it empties its write cache, in
    /// nanoseconds.
    pub idle_ns: u64,
    /// Pieces of recent reads and read-ahead that the buffer holds.
    pub read_ahead_segments: usize,
    /// Size of each such piece, in bytes.
    pub read_ahead_bytes: u64,
    /// Rate between host and drive, in bytes per second.
    pub interface_bytes_per_second: f64,
    /// Time of a command served from the drive's memory, in nanoseconds.
    pub command_ns: u64,
}

impl DiskParameters {
    /// A disk like the WD Re 4 TB of 7,200 rpm, on SATA, made `size_bytes` large: its arm crosses
    /// the smaller disk in the time it takes to cross the real one.
    #[must_use]
    pub fn sata_7200rpm(size_bytes: u64) -> DiskParameters {
        DiskParameters {
            size_bytes,
            rotation_ns: 60_000_000_000 / 7_200,
            outer_bytes_per_second: 178.2e6,
            inner_bytes_per_second: 85e6,
            zones: 32,
            seek_min_ns: 800_000,
            seek_max_ns: 15_200_000,
            write_settle_ns: 500_000,
            queue_depth: 32,
            age_limit_ns: 400_000_000,
            write_cache_bytes: 64 << 20,
            write_cache_extents: 256,
            idle_ns: 3_000_000,
            read_ahead_segments: 16,
            read_ahead_bytes: 4 << 20,
            interface_bytes_per_second: 500e6,
            command_ns: 50_000,
        }
    }
}
