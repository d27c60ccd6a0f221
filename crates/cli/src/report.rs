//! Reports of a daemon.
//!
//! | module | subject |
//! |---|---|
//! | [`copies`] | which device of a cache may die now |
//! | [`dirty_page`] | where dirty blocks are, for `forebay rescue` |
//! | [`status`] | all of it, as JSON and for people |
//! | [`health`] | the health of a cache device |
//! | [`members`] | the load of the members of an array |
//! | [`metrics`] | the same for Prometheus |
//! | [`grafana`] | a dashboard over those |
//! | [`trouble`] | what is wrong, in plain words |

pub(crate) mod copies;
pub(crate) mod device_speed;
pub(crate) mod dirty_page;
pub(crate) mod grafana;
pub(crate) mod health;
pub(crate) mod members;
pub(crate) mod metrics;
pub(crate) mod status;
pub(crate) mod trouble;
