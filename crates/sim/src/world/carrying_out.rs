//! Operations as devices carry them out: on a disk, as their fate has it.

use forebay_engine::{Device as DeviceName, DeviceError, Operation, VolumeSlot};

use super::World;
use super::operations::InFlight;
use crate::device::{Fate, How};
use crate::payload;
use crate::rng::Rng;

impl World<'_> {
    pub(super) fn carry_out(&mut self, operation: &InFlight) -> Result<(), DeviceError> {
        if is_straight(&operation.action.operation) && self.rng.percent(3) {
            // A device that wants its memory aligned.
            return Err(DeviceError::NotStraight);
        }
        let mut rng = self.rng.clone();
        let result = match &operation.action.operation {
            Operation::Read { offset_bytes, bufs } => {
                let mut data = vec![0; bufs.iter().map(|buf| buf.len_bytes as usize).sum()];
                let result = self.device(operation.action.device).read(
                    *offset_bytes,
                    &mut data,
                    operation.fate,
                );
                if result.is_ok() {
                    let mut at = 0;
                    for buf in bufs {
                        let len = buf.len_bytes as usize;
                        self.memory
                            .landing(*buf)
                            .copy_from_slice(&data[at..at + len]);
                        at += len;
                    }
                }
                result
            }
            Operation::Write { offset_bytes, bufs } => {
                let data = match &operation.taken {
                    Some(data) => data.clone(),
                    None => self.gather(bufs),
                };
                let fate = self.landing_of(operation.fate, data.len() as u64);
                self.device(operation.action.device)
                    .write(*offset_bytes, &data, fate, &mut rng)
            }
            Operation::ReadEither { .. } | Operation::WriteBoth(_) => {
                return Err(DeviceError::Unsupported);
            }
            Operation::Flush => match operation.action.device {
                DeviceName::Origin(volume) => self.flush_origin(volume, operation, &mut rng),
                DeviceName::Cache(number) => {
                    let fate = operation.fate;
                    self.cache
                        .flush_one(number, operation.order, fate, &mut rng)
                }
            },
            Operation::Discard {
                offset_bytes,
                len_bytes,
            } => {
                let is_cache = matches!(operation.action.device, DeviceName::Cache(_));
                let support = if is_cache {
                    2
                } else {
                    self.plan.config.origin_discards
                };
                match support {
                    0 => Err(DeviceError::Unsupported),
                    1 => self.zero(operation, *offset_bytes, 0, &mut rng),
                    _ => self.zero(operation, *offset_bytes, *len_bytes, &mut rng),
                }
            }
            Operation::WriteZeroes {
                offset_bytes,
                len_bytes,
            } => self.zero(operation, *offset_bytes, *len_bytes, &mut rng),
        };
        self.rng = rng;
        result
    }

    fn zero(
        &mut self,
        operation: &InFlight,
        offset_bytes: u64,
        len_bytes: u64,
        rng: &mut Rng,
    ) -> Result<(), DeviceError> {
        let device = self.device(operation.action.device);
        let place = device.place(offset_bytes);
        if device.is_gone_at(offset_bytes) {
            return Err(DeviceError::Gone);
        }
        if let Fate::Fails { landing, .. } = operation.fate {
            device.tally.writes += 1;
            device.harm(How::Write, place, len_bytes, &[]);
            if landing > 0 && rng.percent(50) {
                device.disk.zero(place, len_bytes);
            }
            return Err(DeviceError::Io);
        }
        device.disk.zero(place, len_bytes);
        Ok(())
    }

    /// A flush of an origin: if it fails and loses something, the model learns what.
    fn flush_origin(
        &mut self,
        volume: VolumeSlot,
        operation: &InFlight,
        rng: &mut Rng,
    ) -> Result<(), DeviceError> {
        let at = usize::from(volume.0);
        let sectors = self.volumes[at].sectors;
        if matches!(operation.fate, Fate::Good) {
            return self.origins[at].flush(operation.order, operation.fate, rng);
        }
        let mut before = vec![0; sectors as usize * 512];
        self.origins[at].disk.read(0, &mut before);
        let result = self.origins[at].flush(operation.order, operation.fate, rng);
        let mut after = vec![0; before.len()];
        self.origins[at].disk.read(0, &mut after);
        for sector in 0..sectors {
            let bytes = sector as usize * 512..(sector as usize + 1) * 512;
            let (before, after) = (&before[bytes.clone()], &after[bytes]);
            if before != after
                && let Ok(lost) = payload::decode(before, volume.0, sector)
                && let Ok(value) = payload::decode(after, volume.0, sector)
            {
                self.model.origin_lost(volume.0, sector, lost, value);
            }
        }
        result
    }
}

/// Whether an operation is of a client's own memory.
fn is_straight(operation: &Operation) -> bool {
    match operation {
        Operation::Read { bufs, .. } | Operation::Write { bufs, .. } => {
            bufs.iter().any(|buf| buf.is_of_client())
        }
        _ => false,
    }
}
