//! Origins behind a server of the NBD protocol.
//!
//! A thread for each origin owns its one connection. So servers need not offer several at a time,
//! a flush covers the writes of all threads, and one place knows what a server that returns may
//! have forgotten (docs/decisions/0034-one-connection-for-a-network-origin.md).
//!
//! | module | subject |
//! |---|---|
//! | [`uri`] | the names of exports |
//! | [`stream`] | sockets, with and without TLS |
//! | [`mod@connect`] | from a name to an open export |
//! | [`call`] | one request at a time, for what comes before the first job |
//! | [`samples`] | places of an export that tell it from another |
//! | [`jobs`] | operations cut into requests, and in order where they overlap |
//! | [`session`] | the thread |

use std::path::Path;

use stream::Unreachable;

mod call;
mod connect;
mod jobs;
mod samples;
mod session;
pub(crate) mod stream;
pub(crate) mod uri;

pub(crate) use connect::connect;
pub(crate) use session::open;

/// Whether an origin may be there, to be opened. A server is not asked for that: some end with
/// their first client.
pub(crate) fn may_be_there(path: &Path) -> bool {
    uri::as_uri(path).is_some() || path.exists()
}

/// Whether an origin that could not be opened is there, so that it was refused.
pub(crate) fn was_refused(path: &Path, why: &anyhow::Error) -> bool {
    match uri::as_uri(path) {
        Some(_) => !why.is::<Unreachable>(),
        None => path.exists(),
    }
}
