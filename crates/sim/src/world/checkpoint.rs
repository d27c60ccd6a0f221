//! Checkpoints of orderly stops: written as the daemon does, now and then cut short, and compared with
//! what the summaries say.

use forebay_cache::Host;
use forebay_engine::{
    AttachOptions, Attached, CheckpointHead, DeviceError, Promise, Storage, Superblock, Surviving,
    attach_promised,
};

use super::{Check, World};
use crate::device::{Control, Device};
use crate::rng::Rng;

/// Share of checkpoints that are cut short, in percent.
const CUT_PERCENT: u64 = 15;

impl World<'_> {
    /// Writes the checkpoint after an orderly stop.
    pub(super) fn write_checkpoint(&mut self) {
        if !self.plan.config.checkpoints {
            return;
        }
        let superblock = self.superblock().clone();
        let mut rng = Rng::of(self.rng.bits(), 41);
        let cut = rng.percent(CUT_PERCENT).then(|| rng.below(12) as u32);
        let mut control = Control::new(&mut self.cache, cut, &mut rng);
        let written = write(&mut self.hosts, &superblock, &mut control);
        let what = match written {
            Ok(0) => "stops without a checkpoint",
            Ok(_) => "checkpoints written",
            Err(_) => "checkpoints cut short",
        };
        self.tell(|_| format!("{what}: {written:?}"));
        self.counts().add(what, 1);
    }

    /// The cache device as it is before an attach, if that may go by a checkpoint and nothing was
    /// damaged that the summaries could miss.
    pub(super) fn twin(&self) -> Option<Device> {
        let is_sound = self.cache.tally.total() == 0 && self.options.fail_at.is_none();
        (self.plan.config.checkpoints && is_sound).then(|| self.cache.clone())
    }

    /// An attach that went by a checkpoint found what all summaries say (I29).
    pub(super) fn compare(
        &mut self,
        attached: &Attached,
        twin: Option<Device>,
        options: &AttachOptions,
        promises: &[Promise],
    ) -> Check {
        let shards = shards_of_checkpoints(attached);
        if shards == 0 {
            return Ok(());
        }
        self.counts()
            .add("shards recovered from a checkpoint", shards as u64);
        let Some(mut twin) = twin else {
            return Ok(());
        };
        let options = AttachOptions {
            from_checkpoint: false,
            ..*options
        };
        // Its own reads fail nowhere.
        twin.faulty = false;
        let mut rng = Rng::of(0, 42);
        let mut surviving: Vec<Surviving<'_>> = Vec::new();
        let mut control = Control::new(&mut twin, None, &mut rng);
        let scanned = attach_promised(&mut control, &mut surviving, &options, promises)
            .map_err(|error| format!("a start from all summaries fails: {error}"))?;
        self.counts().add("checkpoints compared", 1);
        match attached.difference(&scanned) {
            None => Ok(()),
            Some(difference) => Err(format!(
                "I29: the checkpoint is not as the summaries: {difference}"
            )),
        }
    }
}

/// The number of shards that went by their checkpoint.
pub(super) fn shards_of_checkpoints(attached: &Attached) -> usize {
    let shards = attached.report.shards.iter();
    shards.filter(|shard| shard.from_checkpoint).count()
}

/// Returns the number of shards whose checkpoint was written.
fn write<T>(
    hosts: &mut [Host<T>],
    superblock: &Superblock,
    control: &mut Control<'_>,
) -> Result<usize, DeviceError> {
    let mut head = CheckpointHead::new(superblock);
    for engine in hosts.iter_mut().flat_map(Host::engines) {
        let Some(checkpoint) = engine.begin_checkpoint(&superblock.geometry) else {
            continue;
        };
        for number in 0..checkpoint.parts() {
            let (address, part) = engine.checkpoint_part(&checkpoint, number);
            control.write(address, &part)?;
        }
        head.add(engine.shard(), checkpoint.first_place());
    }
    control.flush()?;
    head.write(superblock, control)?;
    Ok(head.shards())
}
