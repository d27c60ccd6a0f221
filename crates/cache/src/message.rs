//! Messages between the hosts of a cache. The driver delivers them in any time. Messages from one
//! host to another keep their order; others come in any order.

use forebay_engine::{Ack, Device, Request};

/// From one host to another.
#[derive(Clone, Debug)]
pub enum Message {
    /// A piece of a request, for a shard of the receiver.
    Submit(u16, Request),
    /// The answer to such a piece.
    Answer(Ack),
    /// The receiver holds the gate of the device now, and is to flush it (I21).
    Flush(Device),
    /// A flush of another served the receiver too.
    Flushed {
        /// The device that was flushed.
        device: Device,
        /// It failed.
        failed: bool,
        /// Failures of the device's flushes up to this one.
        failures: u64,
    },
    /// A flush of a device failed: the shards of the receiver are told.
    FlushFailed {
        /// The device that was flushed.
        device: Device,
        /// Failures of the device's flushes up to this one.
        failures: u64,
    },
    /// The cache goes on without this device (I28), and which loss that is: a host that has heard of
    /// it hears nothing new, even if the device is another by then.
    DeviceLeaves(u8, u64),
    /// A shard failed for this reason: all do (I22).
    CacheFailed(&'static str),
}
