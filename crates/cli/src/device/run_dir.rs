//! The directory of the control sockets of this user's daemons.
//!
//! Without a directory for the session it is in the one for temporary files, where any user can make
//! one of that name first, and have commands come to a daemon of his.

use std::fs::{self, DirBuilder, Permissions};
use std::io::ErrorKind;
use std::os::fd::AsFd;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

use crate::failure::refuse;

/// Its path.
pub(crate) fn run_dir() -> PathBuf {
    let user = own_user();
    if user == 0 {
        return "/run/forebay".into();
    }
    let named = std::env::var_os("XDG_RUNTIME_DIR").filter(|path| !path.is_empty());
    match named {
        Some(path) => PathBuf::from(path).join("forebay"),
        None => std::env::temp_dir().join(format!("forebay-{user}")),
    }
}

/// Makes it for a daemon. Other users have no business there; those of a group that may give
/// commands to root's daemon reach its sockets.
pub(crate) fn make(path: &Path) -> Result<()> {
    let failed = || {
        let path = path.display();
        format!("cannot make {path}; choose a place with --control")
    };
    let mode = if own_user() == 0 { 0o755 } else { 0o700 };
    let parent = path.parent().map_or(Ok(()), fs::create_dir_all);
    let made = parent.and_then(|()| DirBuilder::new().mode(mode).create(path));
    match made {
        Err(error) if error.kind() == ErrorKind::AlreadyExists => {}
        made => return made.with_context(failed),
    }
    check(path)?;
    if mode == 0o700 {
        // Earlier versions left it open.
        fs::set_permissions(path, Permissions::from_mode(mode)).with_context(failed)?;
    }
    Ok(())
}

/// Refuses a directory that others may put sockets into.
pub(crate) fn check(path: &Path) -> Result<()> {
    let found = match fs::symlink_metadata(path) {
        Ok(found) => found,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(()),
        Err(error) => {
            return Err(error).with_context(|| format!("cannot examine {}", path.display()));
        }
    };
    let fault = if !found.is_dir() {
        "is no directory".to_owned()
    } else if found.uid() != own_user() {
        format!("belongs to user {}", found.uid())
    } else if found.mode() & 0o022 != 0 {
        format!("may be written by others (mode {:o})", found.mode() & 0o777)
    } else {
        return Ok(());
    };
    refuse!(
        "{} {fault}, so control sockets there are not trusted; set XDG_RUNTIME_DIR, name a socket with --control, or \
         have that directory removed",
        path.display()
    );
}

/// Whether a process of this user, or of root, is at the other end of a socket.
pub(crate) fn is_trusted(socket: impl AsFd) -> bool {
    let peer = rustix::net::sockopt::socket_peercred(socket);
    peer.is_ok_and(|peer| {
        let user = peer.uid.as_raw();
        user == 0 || user == own_user()
    })
}

fn own_user() -> u32 {
    rustix::process::geteuid().as_raw()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_directory_that_others_may_write_is_refused() {
        let path = std::env::temp_dir().join(format!("forebay-run-{}", std::process::id()));
        check(&path).unwrap();
        make(&path).unwrap();
        check(&path).unwrap();
        fs::set_permissions(&path, Permissions::from_mode(0o777)).unwrap();
        assert!(check(&path).unwrap_err().to_string().contains("mode 777"));
        assert!(make(&path).is_err());
        fs::remove_dir(&path).unwrap();
        fs::write(&path, "").unwrap();
        assert!(
            check(&path)
                .unwrap_err()
                .to_string()
                .contains("no directory")
        );
        fs::remove_file(&path).unwrap();
    }
}
