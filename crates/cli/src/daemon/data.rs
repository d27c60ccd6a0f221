//! The data path.
//!
//! | module | subject |
//! |---|---|
//! | [`worker`] | one thread of it |
//! | [`served`] | what a thread serves |
//! | [`client`] | an NBD client on that thread |
//! | [`in_flight`] | a request on its way through the cache |
//! | [`adaptive_polling`] | staying awake for a client's next request |
//! | [`link`] | messages between threads |
//! | [`entrance`] | new connections, until they open an export |
//! | [`admitted`] | a client on its way from there to its thread |
//! | [`exports`] | the exports that they find |
//! | [`seats`] | places for those that have opened one |
//! | [`listener`] | sockets of clients |
//! | [`held_back`] | requests that wait for a rate, or for a thaw |
//! | [`rate`] | rates of volumes |
//! | [`tap`] | watching a volume's requests |
//! | [`shortage`] | how long a request waits for memory |
//! | [`starving`] | requests that wait for memory |
//! | [`volume_times`] | durations of each volume's requests |
//! | [`ublk`] | volumes as block devices |

mod adaptive_polling;
mod admitted;
pub(super) mod client;
pub(super) mod entrance;
pub(super) mod exports;
mod held_back;
mod in_flight;
pub(super) mod link;
pub(super) mod listener;
mod rate;
pub(super) mod seats;
pub(super) mod served;
mod shortage;
mod starving;
pub(super) mod tap;
pub(crate) mod ublk;
mod volume_times;
pub(super) mod worker;
