//! From a plan to running threads, and to an orderly stop.
//!
//! | module | subject |
//! |---|---|
//! | [`start`] | from a plan to a daemon |
//! | [`opening`] | the devices of a plan |
//! | [`threads`] | the threads of the data path |
//! | [`abandonment`] | what is to be on record of a cache that failed |
//! | [`failed_cache`] | putting it there |
//! | [`lost_devices`] | devices that the cache goes on without, and putting that on record |
//! | [`shutdown`] | the orderly stop |
//! | [`checkpoint`] | what it writes down for the next start |
//! | [`watchdog`] | telling the service manager that the daemon lives |

pub(super) mod abandonment;
mod checkpoint;
mod failed_cache;
pub(super) mod lost_devices;
mod opening;
mod shutdown;
pub(super) mod start;
mod threads;
mod watchdog;
