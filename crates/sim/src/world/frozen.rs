//! Frozen volumes: the origin of each is whole, as a snapshot of it would be, and stays as it is
//! (I27).

use forebay_cache::control::{Command, Refusal};
use forebay_engine::{Nanos, VolumeSlot};

use super::deliveries::{CONTROL, Delivery};
use super::{Check, World};

/// The longest time until a thaw: longer than most of the engine's own deadlines.
const LONGEST: Nanos = Nanos(400_000_000);

impl World<'_> {
    pub(super) fn freeze_ended(&mut self, volume: u16, result: Result<(), Refusal>) -> Check {
        if result.is_err() {
            return Ok(());
        }
        self.counts().add("frozen", 1);
        self.origin_alone(volume, "the volume is frozen")?;
        let look = self.look_of(volume);
        let delay = Nanos(self.rng.below(LONGEST.0));
        self.post_after(delay, CONTROL, CONTROL, Delivery::Thaw(volume, look));
        Ok(())
    }

    /// It is time to thaw a volume whose origin looked like this when it was frozen.
    pub(super) fn thaws(&mut self, volume: u16, look: [u8; 32]) -> Check {
        if self.look_of(volume) != look {
            return Err(format!(
                "the origin of volume {volume} changed while it was frozen"
            ));
        }
        self.origin_alone(volume, "the volume is frozen still")?;
        if self.commands_run_of(|what| matches!(what, Command::Stop)) {
            return Ok(());
        }
        let thaw = Command::Thaw(VolumeSlot(volume));
        match self.command(thaw, None)? {
            Some(_) => Ok(()),
            None => Err(format!("volume {volume} is frozen and cannot be thawed")),
        }
    }
}
