//! Commands while clients use the cache.
//!
//! | module | subject |
//! |---|---|
//! | [`socket`] | the control socket |
//! | [`call`] | messages and calls, before anything is done |
//! | [`methods`] | what its methods do |
//! | [`answer`] | its answers |
//! | [`commands`] | commands carried out, step by step |
//! | [`volumes`] | attach, detach, mode, drain |
//! | [`away`] | volumes whose origins are not there |
//! | [`block_devices`] | which block device a volume is |
//! | [`growth`] | origins that grew, and their volumes |
//! | [`dirty`] | where dirty blocks of a volume are that is away |
//! | [`rename`] | another name for a volume |
//! | [`settings`] | settings changed live |
//! | [`copies`] | dirty data on one device or on two |
//! | [`replace`] | another device in the place of one |
//! | [`volume_settings`] | settings of one volume, changed live |
//! | [`who`] | who gives a command |
//! | [`resize`] | the cache's space, changed live |
//! | [`running_config`] | the present state as a configuration file |
//! | [`reload`] | a changed configuration, applied as far as that is possible live |
//! | [`served_storage`] | superblocks written while the cache is served |
//! | [`shut_out`] | commands of a volume whose server has shut this host out |

pub(super) mod answer;
pub(super) mod away;
pub(super) mod block_devices;
mod call;
pub(super) mod commands;
pub(super) mod copies;
mod dirty;
mod freeze;
#[cfg(test)]
mod fuzz;
mod growth;
mod methods;
mod reload;
mod rename;
mod replace;
mod resize;
mod running_config;
pub(super) mod served_storage;
mod settings;
mod shut_out;
pub(super) mod socket;
mod volume_settings;
mod volumes;
mod who;
