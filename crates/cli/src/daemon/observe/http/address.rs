//! The address of the dashboard. Daemons whose control sockets are in one directory share it: the
//! holder of a lock there listens and shows the caches of all, and another takes its place when it
//! ends. See docs/decisions/0027-one-address-for-all-caches.md.

use std::fs::{File, OpenOptions};
use std::net::{SocketAddr, TcpListener};
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::time::Duration;

use anyhow::{Context, Result};
use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;

use crate::failure;
use crate::network::http::HttpPlan;
use crate::quoting::in_uri;

/// Interval between tries to listen at an address that somebody else has.
const AGAIN: Duration = Duration::from_secs(1);
/// The longest address that a lock can name.
const LONGEST_URL: usize = 256;

/// Where the dashboard is, as far as it is known.
#[derive(Debug, Default)]
pub(in crate::daemon) struct Dashboard {
    /// Held by this daemon.
    own: OnceLock<String>,
    /// The lock, in which its holder says where it listens.
    lock: OnceLock<PathBuf>,
}

impl Dashboard {
    /// The page of this cache.
    pub(in crate::daemon) fn page_of(&self, cache: &str) -> Option<String> {
        let told = || {
            let text = read_text(self.lock.get()?)?;
            text.starts_with("http://").then_some(text)
        };
        let base = self.own.get().cloned().or_else(told)?;
        Some(format!("{base}cache/{}/", in_uri(cache)))
    }
}

/// The start of a small file.
fn read_text(path: &Path) -> Option<String> {
    let mut text = [0; LONGEST_URL];
    let length = File::open(path).ok()?.read_at(&mut text, 0).ok()?;
    let text = std::str::from_utf8(&text[..length]).ok()?;
    Some(text.trim_end().to_owned())
}

/// The directory of a control socket, if other daemons of this user have theirs there too: one that
/// nobody else can write to.
pub(super) fn shared_directory(control: &Path) -> Option<PathBuf> {
    if control.extension()? != "sock" {
        return None;
    }
    let directory = match control.parent()? {
        parent if parent.as_os_str().is_empty() => Path::new("."),
        parent => parent,
    };
    let found = std::fs::metadata(directory).ok()?;
    let is_own = found.uid() == rustix::process::geteuid().as_raw();
    (is_own && found.mode() & 0o002 == 0).then(|| directory.to_owned())
}

/// Refuses an address that was asked for and is taken, unless by a daemon that shows this one's
/// cache too.
pub(in crate::daemon) fn check(plan: &HttpPlan, control: &Path) -> Result<()> {
    let HttpPlan::At(address) = plan else {
        return Ok(());
    };
    if let Some(lock) = lock_for(plan, control)
        && !lock.try_take()
    {
        return Ok(());
    }
    let bound = TcpListener::bind(address);
    bound.map(drop).with_context(|| {
        format!("cannot listen on {address} for --http; is the port taken (ss -ltn)?")
    })
}

/// A lock on an address.
struct Lock {
    file: File,
    path: PathBuf,
}

impl Lock {
    fn open(path: PathBuf) -> std::io::Result<Lock> {
        let mut options = OpenOptions::new();
        let options = options.create(true).truncate(false).read(true).write(true);
        let file = options.mode(0o600).open(&path)?;
        Ok(Lock { file, path })
    }

    fn try_take(&self) -> bool {
        flock(&self.file, FlockOperation::NonBlockingLockExclusive).is_ok()
    }

    /// Waits until its holder ends. Says whether it is ours; a file system without locks has none.
    fn take(&self) -> bool {
        loop {
            match flock(&self.file, FlockOperation::LockExclusive) {
                Ok(()) => return true,
                Err(Errno::INTR) => {}
                Err(_) => return false,
            }
        }
    }

    /// Tells those who wait where the dashboard is.
    fn tell(&self, url: &str) {
        let told = self
            .file
            .set_len(0)
            .and_then(|()| self.file.write_all_at(url.as_bytes(), 0));
        if let Err(error) = told {
            tracing::debug!("cannot write {}: {error}", self.path.display());
        }
    }
}

/// The lock for an address, where it is shared.
fn lock_for(plan: &HttpPlan, control: &Path) -> Option<Lock> {
    let name = match plan {
        HttpPlan::Off => return None,
        // Each has a port of its own.
        HttpPlan::At(address) if address.port() == 0 => return None,
        HttpPlan::At(address) => format!("dashboard-{address}.lock"),
        HttpPlan::Usual => "dashboard.lock".to_owned(),
    };
    let path = shared_directory(control)?.join(name);
    match Lock::open(path.clone()) {
        Ok(lock) => Some(lock),
        Err(error) => {
            tracing::debug!("cannot open {}: {error}", path.display());
            None
        }
    }
}

/// The wish to listen at an address.
pub(super) struct Wish {
    plan: HttpPlan,
    lock: Option<Lock>,
}

/// A socket that listens, and its lock. The latter goes with the process.
pub(super) struct Held {
    pub(super) listener: TcpListener,
    pub(super) bound: SocketAddr,
    _lock: Option<Lock>,
}

impl Wish {
    pub(super) fn new(plan: HttpPlan, control: &Path, known: &Dashboard) -> Wish {
        let lock = lock_for(&plan, control);
        if let Some(lock) = &lock {
            // Set once, here.
            let _ = known.lock.set(lock.path.clone());
        }
        Wish { plan, lock }
    }

    /// Listens now, if nobody else does.
    pub(super) fn at_once(self, known: &Dashboard) -> Result<Held, Wish> {
        if self.lock.as_ref().is_some_and(|lock| !lock.try_take()) {
            return Err(self);
        }
        match self.bind() {
            Ok(listener) => self.hold(listener, known),
            Err(_) => Err(self),
        }
    }

    /// Listens as soon as nobody else does.
    pub(super) fn at_last(mut self, known: &Dashboard) -> Held {
        if self.lock.as_ref().is_some_and(|lock| !lock.take()) {
            self.lock = None;
        }
        let mut complained = false;
        loop {
            match self.bind() {
                Ok(listener) => match self.hold(listener, known) {
                    Ok(held) => return held,
                    Err(wish) => self = wish,
                },
                Err(error) if !complained => {
                    complained = true;
                    tracing::warn!(
                        "no dashboard yet: cannot listen on {} ({}); it is tried again, or choose another with --http ADDRESS:PORT",
                        self.plan,
                        failure::in_words(&error)
                    );
                }
                Err(_) => {}
            }
            std::thread::sleep(AGAIN);
        }
    }

    fn bind(&self) -> std::io::Result<TcpListener> {
        match &self.plan {
            HttpPlan::At(address) => TcpListener::bind(address),
            HttpPlan::Usual | HttpPlan::Off => TcpListener::bind(&HttpPlan::usual()[..]),
        }
    }

    fn hold(self, listener: TcpListener, known: &Dashboard) -> Result<Held, Wish> {
        let Ok(bound) = listener.local_addr() else {
            return Err(self);
        };
        let url = format!("http://{bound}/");
        tracing::info!("dashboard and metrics on {url}");
        if let Some(lock) = &self.lock {
            lock.tell(&url);
        }
        // Set once, here.
        let _ = known.own.set(url);
        Ok(Held {
            listener,
            bound,
            _lock: self.lock,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_directory_of_ones_own_is_shared() {
        let own = std::env::temp_dir().join(format!("fb-address-{}", std::process::id()));
        std::fs::create_dir_all(&own).unwrap();
        let control = own.join("a.sock");
        assert_eq!(shared_directory(&control), Some(own.clone()));
        assert_eq!(shared_directory(&own.join("a")), None);
        let open = std::os::unix::fs::PermissionsExt::from_mode(0o777);
        std::fs::set_permissions(&own, open).unwrap();
        assert_eq!(shared_directory(&control), None);
        std::fs::remove_dir(&own).unwrap();
        assert_eq!(shared_directory(&control), None);
    }
}
