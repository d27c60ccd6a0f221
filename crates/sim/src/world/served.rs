//! The control plane's view of the cache devices while the cache is served: its flushes go through
//! the gates that all threads share, and things go on meanwhile.

use forebay_cache::ControlFlush;
use forebay_engine::format::extents::place_of;
use forebay_engine::{Device as DeviceName, DeviceError, Storage};

use super::World;
use crate::device::Control;
use crate::rng::Rng;

/// More events than a flush takes.
const EVENT_LIMIT: u32 = 200_000;

/// See the module.
pub(super) struct Served<'w, 'a> {
    world: &'w mut World<'a>,
    /// Failed flushes of each device before anything was written here.
    failures: Vec<(u8, u64)>,
    life: u64,
    /// Operations until the machine dies.
    left: Option<u32>,
    /// Whether it died.
    pub(super) cut: bool,
    /// The fault of the run, in words.
    pub(super) trouble: Option<String>,
}

impl<'w, 'a> Served<'w, 'a> {
    /// A view that dies with the operation after `left` others.
    pub(super) fn new(world: &'w mut World<'a>, left: Option<u32>) -> Served<'w, 'a> {
        let host = &world.hosts[0];
        let numbers = world.served_devices.iter();
        let failures =
            numbers.map(|number| (*number, host.failures_of(DeviceName::Cache(*number))));
        Served {
            failures: failures.collect(),
            life: world.boot_of_daemon,
            world,
            left,
            cut: false,
            trouble: None,
        }
    }

    fn step(&mut self) -> Result<(), DeviceError> {
        if self.cut || self.trouble.is_some() || self.world.boot_of_daemon != self.life {
            return Err(DeviceError::Gone);
        }
        if let Some(left) = &mut self.left {
            self.cut = *left == 0;
            *left = left.saturating_sub(1);
        }
        Ok(())
    }

    fn on_device<T>(&mut self, act: impl FnOnce(&mut Control<'_>) -> T) -> T {
        let mut rng = Rng::of(self.world.rng.bits(), 14);
        act(&mut Control::new(
            &mut self.world.cache,
            self.cut.then_some(0),
            &mut rng,
        ))
    }

    fn flush_device(&mut self, number: u8) -> Result<(), DeviceError> {
        if !self.world.served_devices.contains(&number) {
            // Nobody else writes to it yet.
            return self.on_device(|control| control.flush_device(number));
        }
        let mut known = self.failures.iter().filter(|(known, _)| *known == number);
        let before = known.next().map_or(0, |(_, failures)| *failures);
        self.flush_served(DeviceName::Cache(number), before)
    }

    /// Flushes a device that is served, which had so many failed flushes before.
    pub(super) fn flush_served(
        &mut self,
        device: DeviceName,
        before: u64,
    ) -> Result<(), DeviceError> {
        if !self.world.hosts[0].flush_for_control(device) {
            return Err(DeviceError::Gone);
        }
        let mut events = 0;
        let mut went = self.world.pump(0).map(|()| true);
        loop {
            events += 1;
            match went {
                Ok(true) if self.world.boot_of_daemon != self.life => {
                    return Err(DeviceError::Gone);
                }
                Ok(true) if events < EVENT_LIMIT => {}
                Ok(_) => {
                    self.trouble = Some("a flush of the control plane never ends".to_owned());
                    return Err(DeviceError::Gone);
                }
                Err(what) => {
                    self.trouble = Some(what);
                    return Err(DeviceError::Gone);
                }
            }
            if let Some(flush) = self.world.control_flush(device) {
                return flush.covers(before);
            }
            went = self.world.event(None);
        }
    }
}

impl World<'_> {
    /// The end of a flush of this device for the control plane.
    fn control_flush(&mut self, device: DeviceName) -> Option<ControlFlush> {
        while let Some(flush) = self.hosts[0].next_control_flush() {
            self.control_flushes.push(flush);
        }
        let mut ended = self.control_flushes.iter();
        let at = ended.position(|flush| flush.device == device)?;
        Some(self.control_flushes.remove(at))
    }
}

impl Storage for Served<'_, '_> {
    fn size_bytes(&self) -> u64 {
        self.world.cache.disk.size_bytes()
    }

    fn device_numbers(&self) -> Vec<u8> {
        self.world.cache.numbers.clone()
    }

    fn size_of(&self, number: u8) -> u64 {
        let known = self.world.cache.numbers.contains(&number);
        if known {
            self.world.cache.span_bytes()
        } else {
            0
        }
    }

    fn read(&mut self, offset_bytes: u64, into: &mut [u8]) -> Result<(), DeviceError> {
        self.step()?;
        self.on_device(|control| control.read(offset_bytes, into))
    }

    fn write(&mut self, offset_bytes: u64, from: &[u8]) -> Result<(), DeviceError> {
        self.step()?;
        debug_assert!(self.device_numbers().contains(&place_of(offset_bytes).0));
        self.on_device(|control| control.write(offset_bytes, from))
    }

    fn flush(&mut self) -> Result<(), DeviceError> {
        self.step()?;
        if self.cut {
            return Err(DeviceError::Gone);
        }
        let numbers = self.device_numbers();
        let mut result = Ok(());
        for number in numbers {
            result = result.and(self.flush_device(number));
        }
        result
    }
}
