//! Observation of the daemon and of its volumes.
//!
//! | module | subject |
//! |---|---|
//! | [`report`] | status, gathered from all threads |
//! | [`history`], [`events`] | the last hour, in memory |
//! | [`sampler`] | a sample for the history each second |
//! | [`health`] | what the cache's devices say of their life |
//! | [`members`] | what the members of arrays do |
//! | [`hook`] | an administrator's program that hears of each event |
//! | [`failing`], [`shortened`] | devices that fail, and files that are not what they were |
//! | [`taps`] | taps in all threads |
//! | [`followed`], [`heat`] | what is known of a volume by following its requests |
//! | [`advice`] | advice from that |
//! | [`record`], [`recordings`] | a volume's requests, recorded |
//! | [`http`] | dashboard and metrics for browsers and Prometheus |

pub(super) mod advice;
pub(super) mod events;
pub(super) mod failing;
pub(super) mod followed;
pub(super) mod health;
mod heat;
pub(super) mod history;
pub(super) mod hook;
pub(super) mod http;
pub(super) mod members;
mod record;
pub(super) mod recordings;
mod report;
pub(super) mod sampler;
mod shortened;
mod taps;
