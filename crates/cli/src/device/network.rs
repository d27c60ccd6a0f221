//! Origins behind a server of the NBD protocol.
//!
//! A thread for each origin owns its connections. One has all changes, so that a flush covers the
//! writes of all threads, and one place knows what a server that returns may have forgotten. Reads
//! have more of them where the server offers that
//! (docs/decisions/0034-one-connection-for-a-network-origin.md).
//!
//! | module | subject |
//! |---|---|
//! | [`uri`] | the names of exports |
//! | [`stream`] | sockets, with and without TLS |
//! | [`mod@connect`] | from a name to an open export |
//! | [`call`] | one request at a time, for what comes before the first job |
//! | [`samples`] | places of an export that tell it from another |
//! | [`link`] | a connection, and the bytes that wait on its sides |
//! | [`jobs`] | operations cut into requests, and in order where they overlap |
//! | [`waits`] | how long these wait for a server |
//! | [`session`] | the thread |

use std::path::Path;

use forebay_io::OpenError;
use rustix::io::Errno;
use stream::Unreachable;

mod call;
mod connect;
mod jobs;
mod link;
mod samples;
mod session;
pub(crate) mod stream;
pub(crate) mod uri;
mod waits;

pub(crate) use connect::connect;
pub(crate) use session::open;

/// Whether an origin may be there, to be opened. A server is not asked for that: some end with
/// their first client.
pub(crate) fn may_be_there(path: &Path) -> bool {
    uri::as_uri(path).is_some() || path.exists()
}

/// Whether an origin that could not be opened is there, so that it was refused. What came after it
/// was looked for was not, and neither was a device that is not connected yet.
pub(crate) fn was_refused(path: &Path, why: &anyhow::Error) -> bool {
    match uri::as_uri(path) {
        Some(_) => !why.is::<Unreachable>(),
        None => path.exists() && !why.chain().any(is_absence),
    }
}

fn is_absence(cause: &(dyn std::error::Error + 'static)) -> bool {
    match cause.downcast_ref::<OpenError>() {
        Some(OpenError::Empty { .. }) => true,
        Some(OpenError::Io { source, .. }) => {
            let number = source.raw_os_error().map(Errno::from_raw_os_error);
            matches!(
                number,
                Some(Errno::NOENT | Errno::NXIO | Errno::NODEV | Errno::NOMEDIUM)
            )
        }
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use std::io;

    use super::*;

    /// A link of udev's comes a moment after its device, and the daemon looks just then.
    #[test]
    fn what_came_after_it_was_looked_for_was_not_refused() {
        let here = Path::new("/dev/null");
        let of = |number: Errno| {
            let why = OpenError::Io {
                doing: "find",
                path: here.to_owned(),
                source: io::Error::from_raw_os_error(number.raw_os_error()),
            };
            was_refused(here, &anyhow::Error::new(why).context("cannot serve it"))
        };
        assert!(!of(Errno::NOENT));
        assert!(!of(Errno::NXIO));
        assert!(of(Errno::ACCESS));
        let empty = OpenError::Empty {
            path: here.to_owned(),
        };
        assert!(!was_refused(here, &anyhow::Error::new(empty)));
        assert!(was_refused(here, &anyhow::anyhow!("it is another disk")));
    }
}
