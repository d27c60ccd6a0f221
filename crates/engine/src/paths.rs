//! The data path: a file for each kind of request, read from top to bottom.

mod answers;
pub(crate) mod buffered;
mod counts;
pub(crate) mod flush;
mod held;
pub(crate) mod hit_from_origin;
pub(crate) mod promote;
pub(crate) mod promote_one;
pub(crate) mod read;
pub(crate) mod read_again;
pub(crate) mod read_ahead;
pub(crate) mod read_one;
mod scrub;
mod straight;
mod turns;
pub(crate) mod victim;
pub(crate) mod write;
