//! Putting on record that the cache failed, and what is newer in it than on its origins (I15,
//! I22): in the state directory, and on every cache device that takes it.

use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use forebay_cache::{Abandonment, Report};

use crate::daemon::control::served_storage::ServedStorage;
use crate::daemon::state::Daemon;
use crate::device::attach;
use crate::device::state_dir::{self, DurableShard, UnsavedRange};
use crate::lock::lock;
use crate::units;
use crate::wall_clock::since_1970;

/// Time before a record that could not be made is tried again.
const RETRY: Duration = Duration::from_secs(1);

impl Daemon {
    /// Takes what a worker has to put on record, and puts it there once all have told theirs.
    pub(super) fn take_failure_report(&self, worker: usize, report: Report) {
        let mut record = lock(&self.failure_record);
        if !std::mem::replace(&mut record.was_told, true) {
            let reason = report.reason;
            tracing::error!("the cache failed: {reason}");
            self.events
                .note("given-up", format!("the cache failed: {reason}"));
        }
        if let Some(abandonment) = record.reports.take(worker as u16, report) {
            record.pending = Some((abandonment, Instant::now()));
        }
        drop(record);
        self.put_on_record();
    }

    /// Says what is left in a cache that failed, and what to do; `None` of one that is not.
    pub(in crate::daemon) fn after_failure(&self) -> Option<String> {
        {
            let record = lock(&self.failure_record);
            record.was_told.then_some(())?;
        }
        let admin = self.admin();
        let id = admin.cache.as_ref()?.superblock().id;
        let note = self.surroundings.state.abandonment(id).ok().flatten();
        Some(match note.map(|note| note.unsaved_bytes()) {
            Some(0) => "the cache failed, and nothing in it is newer than on its origins: nothing is lost. Make \
                        it anew with `forebay create --force`"
                .to_owned(),
            Some(bytes) => format!(
                "the cache failed: {} in it are newer than on its origins, and `forebay drain --offline` writes it \
                 out",
                units::size(bytes)
            ),
            None => "the cache failed, which could not be put on record: what is newer in it than on its origins \
                     stays there, and `forebay drain --offline` writes it out"
                .to_owned(),
        })
    }

    /// When [`Daemon::put_on_record`] should be tried again, if something waits for that.
    pub(super) fn next_record(&self) -> Option<Duration> {
        let record = lock(&self.failure_record);
        let (_, due) = record.pending.as_ref()?;
        Some(due.saturating_duration_since(Instant::now()))
    }

    /// Puts on record what waits for it; until that is done writes that need it wait.
    pub(super) fn put_on_record(&self) {
        let mut record = lock(&self.failure_record);
        let due = record.pending.take_if(|(_, due)| *due <= Instant::now());
        let Some((abandonment, _)) = due else { return };
        match self.write_abandonment(&abandonment) {
            Ok(()) => {
                for (link, serial) in self.links.iter().zip(&abandonment.serials) {
                    let serial = *serial;
                    if let Err(error) = link.call(move |worker| worker.host.recorded(serial)) {
                        tracing::error!("{error}");
                    }
                }
            }
            Err(error) => {
                tracing::error!(
                    "that the cache failed cannot be put on record, so that writes which need it wait: {}; \
                     mend the cause: it is tried again every second",
                    crate::failure::describe(&error)
                );
                record.pending = Some((abandonment, Instant::now() + RETRY));
            }
        }
    }

    /// Everything of this volume that was newer in a cache that failed is on its origin. Other
    /// volumes keep what is on record of them.
    pub(super) fn note_saved(&self, volume: &str) -> Result<()> {
        let admin = self.admin();
        let Some(cache) = &admin.cache else {
            return Ok(());
        };
        let state = &self.surroundings.state;
        match state.abandonment(cache.superblock().id)? {
            None => Ok(()),
            Some(mut note) => {
                let mut known = attach::attached_volumes(cache.superblock());
                if let Some(volume) = known.find(|known| known.name == volume) {
                    note.saved(volume);
                }
                state.abandon(cache.superblock().id, &note)
            }
        }
    }

    fn write_abandonment(&self, abandonment: &Abandonment) -> Result<()> {
        let mut admin = self.admin();
        let Some(cache) = &mut admin.cache else {
            return Ok(());
        };
        // A volume that is away has unsaved data too (I25). One that is served no more was given up with
        // its dirty data.
        let unsaved = abandonment.unsaved.iter().filter_map(|range| {
            let id = cache.control.id_of(range.volume)?;
            let mut records = cache.superblock().volumes.iter();
            let record = records.find(|record| record.id == id);
            Some(UnsavedRange {
                volume: record.expect("a served volume is on record").name.clone(),
                volume_id: Some(id),
                offset_bytes: range.offset_bytes,
                len_bytes: range.len_bytes,
                in_memory: range.in_memory,
            })
        });
        let note = state_dir::Abandonment {
            epoch: abandonment.epoch,
            reason: abandonment.reason.to_owned(),
            time: since_1970().as_secs(),
            unsaved: unsaved.collect(),
            durable: (abandonment.promises.iter())
                .map(DurableShard::of)
                .collect(),
        };
        self.surroundings
            .state
            .abandon(cache.superblock().id, &note)?;
        if !cache.superblock().abandoned {
            // Where another host or another state directory finds it. A device that takes it no
            // more is what the note in the state directory is for.
            let superblock = cache.control.take_superblock();
            let mut superblock = superblock.context("the superblock is being written")?;
            let mut storage = ServedStorage::new(&mut cache.storage, &cache.link);
            let taken = superblock.abandon(&mut storage);
            let count = superblock.devices.len();
            cache.control.give_superblock(superblock);
            if taken < count {
                tracing::warn!(
                    "{} of {count} cache devices could not be told that the cache failed: keep the state directory with them",
                    count - taken
                );
            }
        }
        let unsaved_bytes = note.unsaved_bytes();
        if unsaved_bytes > 0 {
            tracing::warn!(
                "{} are newer in the cache than on their origins; they are on record in {}",
                units::size(unsaved_bytes),
                self.surroundings
                    .state
                    .note_path(cache.superblock().id)
                    .display()
            );
        }
        Ok(())
    }
}
