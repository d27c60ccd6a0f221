//! Devices of caches and origins before a daemon serves them.
//!
//! | module | subject |
//! |---|---|
//! | [`attach`] | opening a cache and its origins with every check that comes before serving |
//! | [`cache_storage`] | the devices of a cache, told apart |
//! | [`inspection`] | what a cache holds that nobody serves |
//! | [`whole_disk`] | the disk of a partition |
//! | [`looked`] | reading a device beside whoever uses it |
//! | [`lost`] | what would be lost with what is on a device |
//! | [`signature`] | what else may be on a device that is to be overwritten |
//! | [`fingerprint`] | telling an origin that changed behind the cache's back |
//! | [`same_device`] | which paths lead to the same device |
//! | [`image_format`] | refusing image files that grow |
//! | [`health`] | what a device says of its own life |
//! | [`members`] | the members of an array |
//! | [`holder`] | which daemon has a device that is in use |
//! | [`network`] | origins behind a server of the NBD protocol |
//! | [`shared_memory`] | crash journals and memory buffers, as files |
//! | [`run_dir`] | where control sockets are, and whether that can be trusted |
//! | [`state_dir`] | what must be remembered outside the cache device (I15) |
//! | [`witness`] | which devices a cache goes on without (I28) |
//! | [`present`] | which devices of a cache are there, and whether it may go on without the others (I28) |

pub(crate) mod attach;
pub(crate) mod cache_storage;
pub(crate) mod fingerprint;
pub(crate) mod health;
pub(crate) mod holder;
pub(crate) mod image_format;
pub(crate) mod inspection;
pub(crate) mod looked;
pub(crate) mod lost;
pub(crate) mod members;
pub(crate) mod network;
pub(crate) mod present;
pub(crate) mod run_dir;
pub(crate) mod same_device;
pub(crate) mod shared_memory;
pub(crate) mod signature;
pub(crate) mod state_dir;
pub(crate) mod whole_disk;
pub(crate) mod witness;
