//! Addresses that a daemon listens on, as arguments and files give them.
//!
//! | module | subject |
//! |---|---|
//! | [`nbd`] | exports |
//! | [`http`] | dashboard and metrics |

pub(crate) mod http;
pub(crate) mod nbd;
