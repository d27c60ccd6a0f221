//! A cache device of several is put back as it was before an attach: writes since then are missing,
//! and the cache must not be attached with it.

use forebay_engine::Superblock;

use super::{Check, World};
use crate::device::Control;
use crate::rng::Rng;

/// See the module.
#[derive(Debug)]
pub(super) struct OldDevice {
    number: u8,
    bytes: Vec<u8>,
}

impl World<'_> {
    /// Keeps one of several devices as it is now.
    pub(super) fn keep_old_device(&mut self) {
        let numbers = self.devices_named();
        if !self.plan.config.returns_old || numbers.len() < 2 {
            return;
        }
        let number = numbers[self.rng.below(numbers.len() as u64) as usize];
        let mut bytes = vec![0; self.cache.span_bytes() as usize];
        let place = u64::from(number) * self.cache.span_bytes();
        self.cache.disk.read(place, &mut bytes);
        self.old = Some(OldDevice { number, bytes });
    }

    /// Puts it back, and has somebody try to use the cache with it, before the right one is there
    /// again.
    pub(super) fn an_old_device_is_refused(&mut self) -> Check {
        let numbers = self.devices_named();
        let Some(OldDevice { number, bytes }) = self.old.take() else {
            return Ok(());
        };
        if !numbers.contains(&number) || numbers.len() < 2 {
            return Ok(());
        }
        let right = self.cache.disk.clone();
        self.cache.numbers = numbers;
        let now = self.without_faults(|control| Superblock::read(control));
        let place = u64::from(number) * self.cache.span_bytes();
        self.cache.disk.write(place, &bytes);
        let alone = self.without_faults(|control| Superblock::of_device(control, number));
        let mixed = self.without_faults(|control| Superblock::read(control));
        self.cache.disk = right;
        if let (Ok(now), Ok((old, _))) = (now, alone)
            && old.epoch < now.decided_epoch
        {
            self.counts().add("old cache devices", 1);
            if mixed.is_ok() {
                return Err(format!(
                    "device {number} of epoch {} is believed beside others of epoch {}",
                    old.epoch, now.epoch
                ));
            }
        }
        Ok(())
    }

    /// Looks at the cache devices while none of them fails.
    fn without_faults<T>(&mut self, look: impl FnOnce(&mut Control<'_>) -> T) -> T {
        let (faulty, mut rng) = (std::mem::take(&mut self.cache.faulty), Rng::new(1));
        let found = look(&mut Control::new(&mut self.cache, None, &mut rng));
        self.cache.faulty = faulty;
        found
    }
}
