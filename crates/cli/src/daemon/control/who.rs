//! The user who gives a command, at the other end of the control socket.

use std::fmt;
use std::os::unix::net::UnixStream;

use crate::accounts;

/// The user of a process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Who {
    /// None if the kernel does not say.
    uid: Option<u32>,
    name: Option<String>,
}

impl Who {
    /// This daemon, which gives a command itself.
    pub(super) fn daemon() -> Who {
        Who {
            uid: Some(rustix::process::getuid().as_raw()),
            name: Some("the daemon itself".to_owned()),
        }
    }

    /// The user at the other end of a connection. `users` is the text of /etc/passwd.
    pub(super) fn at(stream: &UnixStream, users: &str) -> Who {
        let peer = rustix::net::sockopt::socket_peercred(stream).ok();
        let uid = peer.map(|peer| peer.uid.as_raw());
        Who {
            uid,
            name: uid.and_then(|uid| Some(accounts::name_of(uid, users)?.to_owned())),
        }
    }
}

impl fmt::Display for Who {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.uid, &self.name) {
            (Some(uid), Some(name)) => write!(f, "{name} (uid {uid})"),
            (Some(uid), None) => write!(f, "uid {uid}"),
            (None, _) => write!(f, "an unknown user"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_user_is_named_if_the_machine_knows_the_name() {
        let users = "root:x:0:0:root:/root:/bin/sh\nbroken\nann:x:1000:1000::/home/ann:/bin/sh\n";
        let named = |uid| {
            let name = accounts::name_of(uid, users).map(str::to_owned);
            let who = Who {
                uid: Some(uid),
                name,
            };
            who.to_string()
        };
        assert_eq!(named(0), "root (uid 0)");
        assert_eq!(named(1000), "ann (uid 1000)");
        assert_eq!(named(7), "uid 7");
    }

    #[test]
    fn the_kernel_says_who_is_there() {
        let (one, _other) = UnixStream::pair().unwrap();
        let own = rustix::process::getuid().as_raw();
        assert_eq!(Who::at(&one, "").uid, Some(own));
    }
}
