//! Devices that the cache goes on without, and putting on record that one is lost (I28).
//!
//! 1. Threads report that a device is lost. From then on the ends of writes and flushes wait.
//! 2. The superblocks of the other devices say that it is out.
//! 3. The witness in the state directory says so too. The order matters: a witness that knows more
//!    than every device would refuse a start with all of them.
//! 4. Threads are told, and what waited is answered.
//!
//! A thread of its own does that: clients wait for it, and a command may take its time.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use forebay_cache::control::Change;
use forebay_cache::{Loss, LossReport, LossReports};
use forebay_engine::Superblock;

use crate::daemon::control::served_storage::ServedStorage;
use crate::daemon::state::{Admin, CacheSide, Daemon};
use crate::device::cache_storage::CacheStorage;
use crate::device::witness::Witness;
use crate::failure::describe;
use crate::report::copies::LostDeviceStatus;
use crate::thread;

/// Attempts to write the superblocks of the devices that are left.
const ATTEMPTS: u32 = 8;
/// Time before the witness that could not be written is tried again.
const RETRY: Duration = Duration::from_secs(1);
/// Interval between looks at whether the witness is on record, under the root file system: what it is
/// to be on was perhaps not mounted when it should have been written.
const LOOK: Duration = Duration::from_secs(5);

/// A device that the cache goes on without, until it is removed.
#[derive(Clone, Debug)]
pub(in crate::daemon) struct LostDevice {
    pub(in crate::daemon) number: u8,
    /// Where it is or was, if anybody knows.
    pub(in crate::daemon) path: Option<PathBuf>,
    /// Since this start.
    pub(in crate::daemon) lately: bool,
}

impl LostDevice {
    /// As a status has it.
    pub(in crate::daemon) fn status(&self) -> LostDeviceStatus {
        let path = self.path.as_ref();
        LostDeviceStatus {
            path: path.map(|path| path.display().to_string()),
            number: self.number,
        }
    }

    /// `/dev/nvme1n1`, or `device number 1`.
    pub(in crate::daemon) fn in_words(&self) -> String {
        self.status().in_words()
    }
}

/// The witness for a superblock on record; `None` if the cache keeps one copy, and always did.
pub(super) fn witness_of(
    superblock: &Superblock,
    storage: &CacheStorage,
    lost: &[LostDevice],
) -> Option<Witness> {
    let witness = || {
        Witness::of(superblock, |number| {
            let mut devices = storage.devices();
            let served = devices.find(|(known, _)| *known == number);
            let mut lost = lost.iter().filter(|lost| lost.number == number);
            let served = served.map(|(_, device)| device.device().path().to_owned());
            served.or_else(|| lost.next()?.path.clone())
        })
    };
    (superblock.membership > 0).then(witness)
}

/// Why there cannot be two copies of dirty data.
pub(in crate::daemon) fn needs_two(names: &str) -> String {
    format!(
        "dirty data cannot be on two devices: the cache has {names} alone; add another first (`forebay cache add`)"
    )
}

/// Starts the thread that puts losses on record.
pub(super) fn watch(daemon: &Arc<Daemon>, reports: Receiver<LossReport>) -> Result<()> {
    let daemon = Arc::clone(daemon);
    thread::start("forebay-losses", move || {
        let mut known = LossReports::new(daemon.links.len() as u16);
        let interval = match daemon.is_under_root() {
            true => LOOK,
            false => Duration::MAX,
        };
        loop {
            match reports.recv_timeout(interval) {
                Ok(report) => {
                    if let Some(loss) = known.take(report) {
                        let may_record = known.may_record(&loss);
                        known.recorded(daemon.put_loss_on_record(&loss, may_record));
                    }
                }
                Err(RecvTimeoutError::Timeout) => daemon.catch_up_with_witness(),
                // The daemon's threads held the senders.
                Err(RecvTimeoutError::Disconnected) => return,
            }
        }
    })?;
    Ok(())
}

impl Daemon {
    /// Returns whether it is there. Else the cache fails.
    fn put_loss_on_record(&self, loss: &Loss, may_record: bool) -> bool {
        let began = Instant::now();
        let may_lose = may_record && self.may_lose();
        if !may_lose {
            tracing::error!(
                "device number {} of the cache failed, and dirty data may be on it alone: the cache cannot go on without it",
                loss.device
            );
        }
        let well = may_lose && self.write_loss(loss);
        let number = loss.device;
        for link in &self.links {
            if let Err(error) = link.call(move |worker| worker.loss_recorded(number, well)) {
                tracing::error!("{error}");
            }
        }
        if well {
            self.say_lost(number, began);
        }
        well
    }

    /// Whether the cache keeps two copies now.
    fn may_lose(&self) -> bool {
        self.copies().is_some_and(|copies| copies > 1)
    }

    /// Puts a loss on record: on the other devices, then in the state directory.
    fn write_loss(&self, loss: &Loss) -> bool {
        let mut result = Ok(());
        for _ in 0..ATTEMPTS {
            result = self.write_superblock_without(loss);
            if result.is_ok() {
                return self.witness_until_written();
            }
        }
        if let Err(error) = result {
            tracing::error!(
                "that a device of the cache is lost cannot be written to the others: {}",
                describe(&error)
            );
        }
        false
    }

    fn say_lost(&self, number: u8, began: Instant) {
        let admin = self.admin();
        let Some(cache) = &admin.cache else { return };
        let lost = cache.lost.iter().find(|lost| lost.number == number);
        let lost = lost.map_or_else(String::new, LostDevice::in_words);
        let said = format!(
            "the cache lost {lost} and goes on without it: no data is lost. Put another in its place with `forebay cache \
             replace {lost} NEW`"
        );
        tracing::error!("{said} (writes waited {} ms)", began.elapsed().as_millis());
        self.events.note("device-lost", said);
    }

    /// Writes to the other devices that one is out. Under the lock that all who change the
    /// superblock take.
    fn write_superblock_without(&self, loss: &Loss) -> Result<()> {
        let mut admin = self.admin();
        let Some(cache) = &mut admin.cache else {
            return Ok(());
        };
        // It is neither written nor flushed any more. Its threads have it until it is removed.
        if let Some(storage) = cache.storage.remove(loss.device) {
            cache.lost.push(LostDevice {
                number: loss.device,
                path: Some(storage.device().path().to_owned()),
                lately: true,
            });
        }
        let superblock = cache.control.take_superblock();
        let mut superblock = superblock.context("the superblock is being written")?;
        let change = Change::LoseDevice(loss.device, loss.clean_from.clone());
        let result = change.of(&superblock).and_then(|changed| {
            let mut storage = ServedStorage::new(&mut cache.storage, &cache.link);
            superblock.replace(changed, &mut storage)
        });
        cache.control.give_superblock(superblock);
        Ok(result?)
    }

    /// Writes the witness, however long that takes: without it a device that was left behind would
    /// be believed by a start with that alone.
    fn witness_until_written(&self) -> bool {
        loop {
            let written = match &self.admin().cache {
                Some(cache) => self.write_witness(cache),
                None => Ok(()),
            };
            let Err(error) = written else { return true };
            tracing::error!(
                "that a device of the cache is lost cannot be put on record, so that writes wait: {}; mend the cause: it is \
                 tried again every second",
                describe(&error)
            );
            std::thread::sleep(RETRY);
        }
    }

    /// Puts on record what changed in the cache's devices, other than that one is lost. An older
    /// witness refuses more, and believes nothing that is wrong.
    pub(in crate::daemon) fn renew_witness(&self, admin: &mut Admin) {
        let Some(cache) = &mut admin.cache else {
            return;
        };
        let CacheSide { control, lost, .. } = cache;
        let named = &control.superblock().devices;
        lost.retain(|lost| named.iter().any(|on| on.number == lost.number));
        if let Err(error) = self.write_witness(cache) {
            tracing::warn!(
                "the devices of the cache are not on record in the state directory, so that a start without one of them needs \
                 --without-missing: {}",
                describe(&error)
            );
        }
    }

    /// Writes the witness if another one, or none, is on record.
    fn catch_up_with_witness(&self) {
        let admin = self.admin();
        let Some(cache) = &admin.cache else { return };
        let superblock = cache.superblock();
        let state = &self.surroundings.state;
        let wanted = witness_of(superblock, &cache.storage, &cache.lost);
        let Some(wanted) = wanted.filter(|wanted| !state.keeps(superblock.id, wanted)) else {
            return;
        };
        match state.write_witness(superblock.id, &wanted) {
            Ok(()) => {
                tracing::info!("the devices of the cache are on record in the state directory")
            }
            Err(error) => {
                tracing::debug!("the witness cannot be written yet: {}", describe(&error))
            }
        }
    }

    fn write_witness(&self, cache: &CacheSide) -> Result<()> {
        let superblock = cache.superblock();
        match witness_of(superblock, &cache.storage, &cache.lost) {
            Some(witness) => (self.surroundings.state).write_witness(superblock.id, &witness),
            None => Ok(()),
        }
    }
}
