//! The running cache.
//!
//! | module | subject |
//! |---|---|
//! | [`data`] | the data path: threads, their clients, block devices |
//! | [`control`] | commands while clients use the cache |
//! | [`observe`] | what the daemon tells of itself and of its volumes |
//! | [`life`] | from a plan to running threads, and to an orderly stop |
//! | [`state`] | what commands change, and what all of the above share |
//! | [`notice`] | what the main thread is told |

mod control;
mod data;
mod life;
mod notice;
mod observe;
mod state;

pub(crate) use data::ublk;
pub(crate) use life::start::{drain_offline, serve};
pub(crate) use observe::events::Event;
