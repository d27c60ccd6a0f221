//! From a plan to running threads, and to an orderly stop.
//!
//! | module | subject |
//! |---|---|
//! | [`start`] | from a plan to a daemon |
//! | [`opening`] | the devices of a plan |
//! | [`threads`] | the threads of the data path |
//! | [`abandonment`] | what is to be on record of a cache that is given up |
//! | [`given_up`] | putting it there |
//! | [`shutdown`] | the orderly stop |
//! | [`watchdog`] | telling the service manager that the daemon lives |

pub(super) mod abandonment;
mod given_up;
mod opening;
mod shutdown;
pub(super) mod start;
mod threads;
mod watchdog;
