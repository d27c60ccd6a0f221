//! Requests of a block device's users, and the place of their data.

use forebay_engine::RequestKind;

use super::field;

/// The size of one descriptor (`ublksrv_io_desc`), in bytes.
pub const DESCRIPTOR_BYTES: usize = 24;
/// Descriptors between the starts of two queues, whatever their depth.
pub const MAX_DEPTH: u16 = 4096;

const SECTOR_BYTES: u64 = 512;
/// Where data begins in the character device; below are the descriptors.
const DATA_OFFSET: u64 = 0x8000_0000;
const TAG_SHIFT: u32 = 25;
const QUEUE_SHIFT: u32 = TAG_SHIFT + 16;
const FUA: u32 = 1 << 13;
/// The driver did not enter the request's memory in the ring's table.
const NOT_ENTERED: u32 = 1 << 17;

/// A request of a block device's user.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Request {
    /// The kind of request.
    pub kind: RequestKind,
    /// Where it starts on the volume, in bytes.
    pub offset_bytes: u64,
    /// Its length, in bytes; zero for a flush.
    pub len_bytes: u32,
    /// Its memory is in the ring's table of buffers, if the device was made so.
    pub is_entered: bool,
}

/// A request that cannot be one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RequestError {
    /// An operation that the device does not offer.
    #[error("operation {0} is none that this device offers")]
    Operation(u8),
    /// It is not inside the device.
    #[error("a request for {sectors} sectors from sector {start} is not inside the device")]
    Range {
        /// The first sector, of 512 bytes.
        start: u64,
        /// The number of sectors.
        sectors: u32,
    },
}

impl Request {
    /// From its descriptor, for a device of `size_bytes`.
    ///
    /// # Errors
    /// If it is nothing that a client of the engine may ask.
    pub fn decode(
        descriptor: &[u8; DESCRIPTOR_BYTES],
        size_bytes: u64,
    ) -> Result<Request, RequestError> {
        let operation = u32::from_ne_bytes(field(descriptor, 0));
        let sectors = u32::from_ne_bytes(field(descriptor, 4));
        let start = u64::from_ne_bytes(field(descriptor, 8));
        let fua = operation & FUA != 0;
        let is_entered = operation & NOT_ENTERED == 0;
        let kind = match operation as u8 {
            0 => RequestKind::Read,
            1 => RequestKind::Write { fua },
            2 => {
                return Ok(Request {
                    kind: RequestKind::Flush,
                    offset_bytes: 0,
                    len_bytes: 0,
                    is_entered,
                });
            }
            3 => RequestKind::Discard,
            5 => RequestKind::WriteZeroes { fua },
            other => return Err(RequestError::Operation(other)),
        };
        let range = || {
            let offset_bytes = start.checked_mul(SECTOR_BYTES)?;
            let len_bytes = sectors.checked_mul(SECTOR_BYTES as u32)?;
            let end = offset_bytes.checked_add(u64::from(len_bytes))?;
            (end <= size_bytes).then_some((offset_bytes, len_bytes))
        };
        let (offset_bytes, len_bytes) = range().ok_or(RequestError::Range { start, sectors })?;
        Ok(Request {
            kind,
            offset_bytes,
            len_bytes,
            is_entered,
        })
    }

    /// Whether data goes with it, and is copied through the character device.
    #[must_use]
    pub fn carries_data(&self) -> bool {
        matches!(self.kind, RequestKind::Read | RequestKind::Write { .. })
    }
}

/// Where a tag's data is in the character device, in bytes.
#[must_use]
pub fn data_position(queue: u16, tag: u16) -> u64 {
    DATA_OFFSET + (u64::from(queue) << QUEUE_SHIFT) + (u64::from(tag) << TAG_SHIFT)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn descriptor(operation: u32, start: u64, sectors: u32) -> [u8; DESCRIPTOR_BYTES] {
        let mut bytes = [0; DESCRIPTOR_BYTES];
        bytes[0..4].copy_from_slice(&operation.to_ne_bytes());
        bytes[4..8].copy_from_slice(&sectors.to_ne_bytes());
        bytes[8..16].copy_from_slice(&start.to_ne_bytes());
        bytes
    }

    #[test]
    fn operations_and_flags_are_told_apart() {
        let decode = |operation| Request::decode(&descriptor(operation, 8, 16), 1 << 20);
        let kind = |operation| decode(operation).map(|request| request.kind);
        // Flags of the block layer's (metadata, fail-fast) change nothing.
        assert_eq!(kind(1 << 11), Ok(RequestKind::Read));
        assert_eq!(kind(1), Ok(RequestKind::Write { fua: false }));
        assert_eq!(kind(1 | FUA), Ok(RequestKind::Write { fua: true }));
        assert_eq!(kind(2), Ok(RequestKind::Flush));
        assert_eq!(kind(3), Ok(RequestKind::Discard));
        assert_eq!(
            kind(5 | 1 << 15),
            Ok(RequestKind::WriteZeroes { fua: false })
        );
        assert_eq!(kind(10), Err(RequestError::Operation(10)));
        let request = decode(0).unwrap();
        assert_eq!((request.offset_bytes, request.len_bytes), (4096, 8192));
    }

    #[test]
    fn nothing_outside_the_device_is_asked_of_the_engine() {
        let decode = |start, sectors| Request::decode(&descriptor(0, start, sectors), 4096);
        assert!(decode(0, 8).is_ok());
        for (start, sectors) in [(1, 8), (8, 1), (u64::MAX, 1), (0, u32::MAX)] {
            let error = RequestError::Range { start, sectors };
            assert_eq!(decode(start, sectors), Err(error));
        }
    }

    #[test]
    fn data_of_different_tags_and_queues_never_meets() {
        assert_eq!(data_position(0, 0), DATA_OFFSET);
        assert_eq!(data_position(0, 1) - data_position(0, 0), 32 << 20);
        assert!(data_position(0, u16::MAX) < data_position(1, 0));
    }
}
