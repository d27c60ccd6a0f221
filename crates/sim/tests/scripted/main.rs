//! A script for each bug that was found and can be told in a dozen lines: named after what must
//! hold, with what went wrong in its comment. `found.rs` keeps the seeds of the others, and of
//! those whose script tells the story but need not hit the moment.

mod failing_devices;
mod power_and_kills;
mod room;
mod write_back;
