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
//! | [`room`] | room for one more connection where there is a limit |
//! | [`visitors`] | limits of connections that have a thread each |
//! | [`seldom`] | warnings that clients can cause, and their limit |

mod control;
mod data;
mod life;
mod notice;
mod observe;
mod room;
mod seldom;
mod state;
mod visitors;

pub(crate) use data::ublk;
pub(crate) use life::start::{drain_offline, serve};
pub(crate) use observe::events::Event;
