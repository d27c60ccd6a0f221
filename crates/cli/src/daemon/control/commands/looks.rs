//! Looks at origins, past the cache. A server that is away can hold one up for as long as
//! `origin-timeout` says, so that it has a thread of its own, and the command's giver can end the wait.

use std::sync::mpsc::{RecvTimeoutError, channel};

use anyhow::{Context, Error, Result};
use forebay_cache::control::Fingerprint;
use forebay_engine::{Device, DeviceError, Storage, VolumeSlot};
use forebay_io::BlockingStorage;

use super::{Run, cache_of};
use crate::daemon::control::rename::DETACHED;
use crate::daemon::control::served_storage::{failures_of, flush_served};
use crate::daemon::data::link::Link;
use crate::daemon::state::VolumeSide;
use crate::device::fingerprint::{self, Marks};
use crate::failure;
use crate::thread;
use crate::wall_clock::since_1970;

/// Why an origin could not be looked at, and what could not be done.
type NoLook = (DeviceError, &'static str);

const CANNOT_READ: &str = "cannot read";

impl Run<'_, '_> {
    /// Flushes each origin through its gate, and takes its fingerprint.
    pub(super) fn see(
        &mut self,
        volumes: &[(u32, VolumeSlot)],
    ) -> Result<Result<Vec<Fingerprint>, DeviceError>> {
        let mut seen = Vec::new();
        for (id, slot) in volumes {
            let volume = self.served(*slot)?;
            let link = cache_of(&mut self.daemon.admin())?.link.clone();
            match self.look(&volume, move |volume| fingerprint_of(volume, &link))? {
                Ok(contents) => seen.push(Fingerprint {
                    volume: *id,
                    contents,
                    at: since_1970().as_secs().max(1),
                }),
                Err(_) if self.passes_by(*slot) => {}
                Err(why) => {
                    self.unseen = Some(explain(&volume, why));
                    return Ok(Err(why.0));
                }
            }
        }
        Ok(Ok(seen))
    }

    /// Reads the first blocks of an origin.
    pub(super) fn ask(&mut self, slot: VolumeSlot) -> Result<Result<(), DeviceError>> {
        let volume = self.served(slot)?;
        let asked = self.look(&volume, |volume| {
            let mut bytes = vec![0; volume.size_bytes.min(4096) as usize];
            let read = open(volume)?.read(0, &mut bytes);
            read.map_err(|error| (error, CANNOT_READ))
        })?;
        Ok(asked.map_err(|why| {
            let goes_on = format!("volume {} goes on as it was", volume.name);
            self.unseen = Some(explain(&volume, why).context(goes_on));
            why.0
        }))
    }

    fn served(&self, slot: VolumeSlot) -> Result<VolumeSide> {
        let volume = self.daemon.admin().volume(slot).cloned();
        volume.context(DETACHED)
    }

    fn look<T: Send + 'static>(
        &mut self,
        volume: &VolumeSide,
        look: impl FnOnce(&VolumeSide) -> Result<T, NoLook> + Send + 'static,
    ) -> Result<Result<T, NoLook>> {
        let (sender, receiver) = channel();
        let volume = volume.clone();
        let started = thread::start("forebay-look", move || {
            // Nobody waits for it any more, if the command was interrupted.
            let _ = sender.send(look(&volume));
        });
        if let Err(error) = started {
            tracing::error!("{}", failure::describe(&error));
            // The command ends as after a failed read, in order.
            return Ok(Err((DeviceError::Io, "cannot start a thread to read")));
        }
        let looked = self.await_answer(&receiver);
        if let Err(RecvTimeoutError::Timeout) = looked {
            self.interrupt()?;
        }
        Ok(looked.unwrap_or(Err((DeviceError::Gone, CANNOT_READ))))
    }
}

fn explain(volume: &VolumeSide, (error, what): NoLook) -> Error {
    let path = volume.device.path().display();
    Error::from(error).context(format!("{what} the origin device {path}"))
}

fn open(volume: &VolumeSide) -> Result<BlockingStorage, NoLook> {
    let storage = volume.device.storage();
    storage.map_err(|_| (DeviceError::Io, "there is no memory to read"))
}

fn fingerprint_of(volume: &VolumeSide, link: &Link) -> Result<[u8; 32], NoLook> {
    let mut storage = open(volume)?;
    // Clients' flushes leave out what write-back wrote: a power cut right after must not make another
    // origin of this one.
    let origin = Device::Origin(volume.slot);
    let before = failures_of(link, origin);
    let flushed = flush_served(link, origin, before);
    let flushed = flushed.unwrap_or_else(|| storage.flush());
    flushed.map_err(|error| (error, "cannot flush"))?;
    let marks = Marks::of(&volume.device);
    let contents = fingerprint::take(&mut storage, marks, volume.size_bytes);
    contents.map_err(|error| (error, CANNOT_READ))
}
