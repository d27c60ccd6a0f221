//! Addresses that a daemon listens on, as arguments and files give them.
//!
//! | module | subject |
//! |---|---|
//! | [`nbd`] | exports |
//! | [`access`] | who may connect to a unix socket |
//! | [`http`] | dashboard and metrics |

pub(crate) mod access;
pub(crate) mod http;
pub(crate) mod nbd;
