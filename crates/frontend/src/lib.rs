//! The frontends of Forebay: the ways of clients to a volume.
//!
//! Each frontend is a state machine between a wire format and the requests of
//! [`forebay_engine`]: bytes in, requests out, answers in, bytes out. None of them owns a socket,
//! a clock or a thread; the daemon's loop does, which is why all of this can be fuzzed.
//!
//! - [`nbd`]: the Network Block Device protocol, over unix sockets and TCP with TLS.
//! - [`ublk`]: block devices of the kernel's, `/dev/ublkbN`.
#![forbid(unsafe_code)]

pub mod nbd;
pub mod ublk;
