//! The data path's I/O: buffer memory, an io_uring per thread, real devices and the driver that
//! carries out the engine's actions on them. All `unsafe` of the data path is in this crate.
//!
//! A thread owns one [`Uring`], one [`Arena`] of the buffer [`Pool`] and one [`Driver`]. Sockets
//! and devices share the ring. The submitter names the operation with a [`Token`], and a completion
//! goes to the owner of its token ([`Driver::complete`] says whether it was its own).

mod blocking;
#[cfg(feature = "counting")]
mod counting;
mod device;
mod discarder;
mod driver;
mod emulated;
mod event;
mod file_lock;
mod map;
mod memory_lock;
mod pool;
mod probe;
mod recording;
mod remote;
mod retry;
mod shared_memory;
mod shared_words;
pub mod ublk;
mod uring;

/// For entries of kinds that [`Uring::push`] alone can submit, such as ublk's commands.
pub use io_uring;

pub use blocking::BlockingStorage;
#[cfg(feature = "counting")]
pub use counting::Counting;
pub use device::{DeviceKind, DirectIo, OpenError, OpenHow, RealDevice};
pub use driver::{
    Carried, Done, Driver, DriverCounters, DriverDevice, DriverError, FailedOperation,
};
pub use emulated::Emulation;
pub use event::Event;
pub use memory_lock::lock_all_memory;
pub use pool::{Arena, Pool, PoolError, PoolView};
pub use probe::block_device_user;
pub use recording::Recording;
pub use remote::{Remote, RemoteFacts, RemoteJob, RemoteKind};
pub use retry::{DAEMON_END_TIMEOUT, retry_for};
pub use shared_memory::{SharedMemory, SharedMemoryError, allocate};
pub use shared_words::SharedWords;
pub use uring::{
    CLIENT_BUFFERS, Completion, FileTarget, SendPart, Token, Uring, UringError, Waker,
};
