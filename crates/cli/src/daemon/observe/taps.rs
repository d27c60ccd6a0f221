//! Taps in all threads of the data path.

use std::sync::Arc;

use forebay_engine::VolumeSlot;

use crate::daemon::data::link::WorkerGone;
use crate::daemon::data::tap::Tap;
use crate::daemon::state::Daemon;

impl Daemon {
    /// Has all threads show a volume's requests, with room for so many between two looks.
    pub(in crate::daemon) fn tap(
        &self,
        volume: VolumeSlot,
        room: usize,
    ) -> Result<Arc<Tap>, WorkerGone> {
        let tap = Arc::new(Tap::new(room));
        for link in &self.links {
            let tap = Arc::clone(&tap);
            link.call(move |worker| worker.taps.add(volume, tap))?;
        }
        Ok(tap)
    }

    /// Ends that.
    pub(super) fn untap(&self, volume: VolumeSlot, tap: &Arc<Tap>) -> Result<(), WorkerGone> {
        for link in &self.links {
            let tap = Arc::clone(tap);
            link.call(move |worker| worker.taps.remove(volume, &tap))?;
        }
        Ok(())
    }
}
