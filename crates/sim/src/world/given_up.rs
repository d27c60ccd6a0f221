//! Devices that never come back, while dirty data may be on them alone (I28): the administrator gives
//! up what was there. Whatever a device has that is left is there as before.

use std::collections::BTreeSet;

use forebay_engine::format::Stream;
use forebay_engine::format::extents::place_of;
use forebay_engine::{Attached, BlockKey, inspect};

use super::World;
use super::touched::{Block, said_in};
use crate::device::Control;
use crate::rng::Rng;

const GIVEN_UP_PURPOSE: u64 = 73;
/// Starts that are refused for a device, and have to do without it for good.
const GIVEN_UP_PERCENT: u64 = 40;

impl World<'_> {
    /// Decides whether the devices that are not given are gone for good. The model then knows no more
    /// what the blocks hold that only those devices have, or say to be dead.
    pub(super) fn gives_up(&mut self, boot_id: [u8; 16]) -> bool {
        let purpose = GIVEN_UP_PURPOSE + (self.boot_of_daemon << 8);
        if !self.two_lost || !Rng::of(self.plan.schedule, purpose).percent(GIVEN_UP_PERCENT) {
            return false;
        }
        let Some(whole) = self.with_all_devices(boot_id) else {
            return false;
        };
        let given_up = self.only_elsewhere(&whole);
        self.tell(|_| format!("given up: blocks {given_up:?}"));
        self.counts().add("cache devices given up", 1);
        self.counts().add("blocks given up", given_up.len() as u64);
        self.model.power_cut();
        for (volume, block) in given_up {
            for sector in self.sectors_of(volume, block) {
                self.model.forget_sector(volume, sector);
            }
        }
        // A recovery without them may say what it lacks.
        self.cache.tally.damage += 1;
        true
    }

    /// The cache as a start would find it with all of its devices, none of which fails.
    fn with_all_devices(&mut self, boot_id: [u8; 16]) -> Option<Attached> {
        let mut whole = self.cache.clone();
        whole.numbers = self.devices_in_use();
        whole.faulty = false;
        whole.heal();
        let mut rng = Rng::new(1);
        let surviving = self.memory.surviving();
        let mut control = Control::new(&mut whole, None, &mut rng);
        let found = inspect(&mut control, &surviving, boot_id).ok()?;
        found.report.damage().is_empty().then_some(found)
    }

    /// The blocks whose newest contents no given device has, or whose older contents one has with
    /// nothing that says so.
    fn only_elsewhere(&self, whole: &Attached) -> BTreeSet<Block> {
        let named = self.named_by_write_stream();
        let block_bytes = u64::from(self.plan.config.geometry.block_bytes);
        let mut lost = BTreeSet::new();
        for (at, volume) in (0..).zip(&self.volumes) {
            for block in 0..(volume.sectors * 512).div_ceil(block_bytes) {
                let key = BlockKey(volume.base.0 + block);
                let is_here = |address: u64| self.cache.numbers.contains(&place_of(address).0);
                let mut found = whole.shards.iter().filter_map(|shard| shard.copies_of(key));
                let stays = match found.next() {
                    Some((true, first, second)) => is_here(first) || second.is_some_and(is_here),
                    _ => !named.contains(&(at, block)),
                };
                if !stays {
                    lost.insert((at, block));
                }
            }
        }
        lost
    }

    /// The blocks that some header or summary of the write stream on a given device names.
    fn named_by_write_stream(&self) -> BTreeSet<Block> {
        let mut named = BTreeSet::new();
        for number in &self.cache.numbers {
            let start = u64::from(*number) * self.cache.span_bytes();
            for said in said_in(&self.cache.disk, start..start + self.cache.span_bytes()) {
                if said.stream == Stream::Write {
                    named.extend(said.names(false).filter_map(|key| self.block_named(key)));
                }
            }
        }
        named
    }
}
