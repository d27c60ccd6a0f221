//! Addresses that a daemon listens on, as arguments and files give them, and who comes there.
//!
//! | module | subject |
//! |---|---|
//! | [`nbd`] | exports |
//! | [`access`] | who may connect to a unix socket |
//! | [`http`] | dashboard and metrics |
//! | [`hang_up`] | whether a client is still there |

pub(crate) mod access;
pub(crate) mod hang_up;
pub(crate) mod http;
pub(crate) mod nbd;
