//! Charges for the daemon's processor time.
//!
//! A single thread does everything, as in the daemon with one shard: while it works, other work
//! waits. The client's costs are in the device models already, which were calibrated to
//! measurements of a whole machine.

/// Processor time, in nanoseconds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct CpuCost {
    /// The charges, in words.
    pub name: &'static str,
    /// For each time the thread had nothing to do and is woken.
    pub wake_ns: u64,
    /// For each request, from the bytes on the socket to the answer on it, with the engine's work
    /// and the device operation that it takes.
    pub request_ns: u64,
    /// For each KiB of a read request: checked and sent.
    pub read_kib_ns: u64,
    /// For each KiB of a write request: received and given its checksum.
    pub write_kib_ns: u64,
    /// For each device operation that no request waits for in this moment: write-back,
    /// promotion, reclaim, headers, flushes.
    pub operation_ns: u64,
    /// For each block of such an operation.
    pub block_ns: u64,
}

impl CpuCost {
    /// The engine by itself, as inside a kernel or behind a front end that costs nothing: the
    /// instructions that `make budgets` counts for depth 1 (read hit 1,267, write hit 4,238) and
    /// for a block's checksum (2,018, in a quarter of the time: it is vector code), at 2 for each
    /// nanosecond.
    pub const ENGINE: CpuCost = CpuCost {
        name: "engine alone",
        wake_ns: 0,
        request_ns: 2_100,
        read_kib_ns: 60,
        write_kib_ns: 60,
        operation_ns: 500,
        block_ns: 700,
    };

    /// The daemon behind an NBD socket on a shared machine of 2 cores: the lowest of two series
    /// of `bench/measure.py request_cpu` (4 KiB reads at depth 1 33.3 µs and at depth 32 8.5 µs,
    /// 128 KiB reads 93 µs; writes 44, 11.7 and 153 µs), less what tmpfs copied where a device
    /// would (0.19 µs for each KiB read, 0.22 written). The rest is as for [`CpuCost::ENGINE`].
    pub const NBD: CpuCost = CpuCost {
        name: "NBD",
        wake_ns: 25_000,
        request_ns: 7_500,
        read_kib_ns: 300,
        write_kib_ns: 650,
        operation_ns: 500,
        block_ns: 700,
    };
}
