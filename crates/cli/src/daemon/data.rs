//! The data path.
//!
//! | module | subject |
//! |---|---|
//! | [`worker`] | one thread of it |
//! | [`served`] | what a thread serves |
//! | [`client`] | an NBD client on that thread |
//! | [`flight`] | a request on its way through the cache |
//! | [`adaptive_polling`] | staying awake for a client's next request |
//! | [`link`] | messages between threads |
//! | [`listener`] | sockets of clients |
//! | [`held_back`] | requests that wait for a rate |
//! | [`rate`] | rates of volumes |
//! | [`tap`] | watching a volume's requests |
//! | [`volume_times`] | durations of each volume's requests |
//! | [`ublk`] | volumes as block devices |

mod adaptive_polling;
pub(super) mod client;
mod flight;
mod held_back;
pub(super) mod link;
pub(super) mod listener;
mod rate;
pub(super) mod served;
pub(super) mod tap;
pub(crate) mod ublk;
mod volume_times;
pub(super) mod worker;
