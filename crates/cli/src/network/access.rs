//! Access to a unix socket: its owner, its group and its mode.

use std::fs::Permissions;
use std::os::unix::fs::{PermissionsExt, chown};
use std::path::Path;
use std::str::FromStr;

use anyhow::{Context, Result};

use crate::accounts;

/// Bits of a mode that mean something for a socket.
const MODE_BITS: u32 = 0o777;

/// A user of this machine, by number or by a name of /etc/passwd.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct User(pub(crate) u32);

/// A group of this machine, by number or by a name of /etc/group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Group(pub(crate) u32);

/// A mode in octal digits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SocketMode(pub(crate) u32);

impl FromStr for User {
    type Err = String;

    fn from_str(text: &str) -> Result<User, String> {
        number_of(text, accounts::USERS).map(User)
    }
}

impl FromStr for Group {
    type Err = String;

    fn from_str(text: &str) -> Result<Group, String> {
        number_of(text, accounts::GROUPS).map(Group)
    }
}

impl FromStr for SocketMode {
    type Err = String;

    fn from_str(text: &str) -> Result<SocketMode, String> {
        let digits = text.strip_prefix("0o").unwrap_or(text);
        match u32::from_str_radix(digits, 8) {
            Ok(mode) if mode <= MODE_BITS => Ok(SocketMode(mode)),
            _ => Err(format!("`{text}` is not a mode from 000 to 777, as 660")),
        }
    }
}

fn number_of(text: &str, file: &str) -> Result<u32, String> {
    if let Ok(number) = text.parse() {
        return Ok(number);
    }
    let known = std::fs::read_to_string(file).map_err(|error| format!("{file}: {error}"))?;
    accounts::number_of(text, &known).ok_or_else(|| {
        format!("{file} has no `{text}`; one of a directory service is given by its number")
    })
}

/// Access to a socket. Without any of these the umask of the process decides.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct SocketAccess {
    pub(crate) owner: Option<User>,
    pub(crate) group: Option<Group>,
    pub(crate) mode: Option<SocketMode>,
}

impl SocketAccess {
    /// For the owner alone, and for a group if there is one.
    pub(crate) fn of_group(group: Option<Group>) -> SocketAccess {
        let mode = if group.is_some() { 0o660 } else { 0o600 };
        SocketAccess {
            owner: None,
            group,
            mode: Some(SocketMode(mode)),
        }
    }

    /// Makes a socket with `bind`, which is nobody's until it has its owner, group and mode.
    pub(crate) fn given_to<T>(
        &self,
        path: &Path,
        bind: impl FnOnce() -> std::io::Result<T>,
    ) -> Result<T> {
        let cannot = || format!("cannot make the socket {}", path.display());
        if *self == SocketAccess::default() {
            return bind().with_context(cannot);
        }
        let before = rustix::process::umask(rustix::fs::Mode::from_raw_mode(MODE_BITS));
        let bound = bind();
        rustix::process::umask(before);
        let bound = bound.with_context(cannot)?;
        let cannot = || {
            format!(
                "cannot give the socket {} its group, mode and owner",
                path.display()
            )
        };
        // The owner is last: of a socket of somebody else neither of the others can be changed.
        if let Some(group) = self.group {
            chown(path, None, Some(group.0)).with_context(cannot)?;
        }
        let usual = if self.group.is_some() { 0o660 } else { 0o600 };
        let mode = self.mode.map_or(usual, |mode| mode.0);
        std::fs::set_permissions(path, Permissions::from_mode(mode)).with_context(cannot)?;
        if let Some(owner) = self.owner {
            chown(path, Some(owner.0), None).with_context(cannot)?;
        }
        Ok(bound)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_and_modes_are_read() {
        assert_eq!("660".parse(), Ok(SocketMode(0o660)));
        assert!("0o1777".parse::<SocketMode>().is_err());
        assert!("rw".parse::<SocketMode>().is_err());
        assert_eq!("64055".parse(), Ok(Group(64055)));
    }
}
