//! Block devices `/dev/ublkbN`, by the kernel's ublk driver (Linux 6.0, `linux/ublk_cmd.h`).
//!
//! The driver gives each device queues of numbered tags. For every tag the server keeps one
//! command on its io_uring; it completes when a request of that tag has come, which a descriptor
//! in shared memory then describes, and the next command brings the answer and waits for the next
//! request. Data is copied by reading and writing the character device `/dev/ublkcN` (user copy),
//! so that buffers are taken when a request is there and no sooner.
//!
//! Here is what goes over that interface, as plain values: [`commands`] the numbers of commands,
//! [`device`] what a device is, [`parameters`] what its users are told, [`request`] what they
//! ask. The system calls are in `forebay-io`, and the loop is the daemon's.

pub mod commands;
pub mod device;
pub mod parameters;
pub mod request;

/// The bytes of one of the kernel's structures, in the processor's order.
fn field<const N: usize>(bytes: &[u8], at: usize) -> [u8; N] {
    let mut field = [0; N];
    field.copy_from_slice(&bytes[at..at + N]);
    field
}
