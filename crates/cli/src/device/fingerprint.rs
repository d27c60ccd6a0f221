//! Fingerprints of origin devices, so that a cache is not laid over an origin that changed without
//! it.
//!
//! Taken of the origin itself when it is let go in order, dirty data in the cache or not: until the
//! cache is back, nobody may write to the origin. The first 8 of 32 bytes identify the device and
//! count also after a crash. The others stand for its contents.

use forebay_engine::{DeviceError, Storage};
use ring::digest::{Context, SHA256};

/// A fingerprint as the superblock keeps it.
pub(crate) type Fingerprint = [u8; 32];

const IDENTITY_BYTES: usize = 8;
/// The first bytes: partition table, boot code, most file systems' superblocks (ext4 and others
/// at 1 KiB, XFS at 0, LVM in the first sectors).
const HEAD_BYTES: u64 = 64 << 10;
/// Places further on: btrfs at 64 KiB, ZFS labels and md superblocks at the end, ext4's first
/// backup superblock.
const BTRFS_AT: u64 = 64 << 10;
const EXT_BACKUP_AT: u64 = 128 << 20;
const TAIL_BYTES: u64 = 64 << 10;
const SAMPLE_BYTES: u64 = 4096;
const SAMPLES: u64 = 64;

/// Looks at an origin of `size_bytes` (which may have grown since).
pub(crate) fn take(
    origin: &mut dyn Storage,
    identity: &str,
    size_bytes: u64,
) -> Result<Fingerprint, DeviceError> {
    let mut contents = Context::new(&SHA256);
    contents.update(&size_bytes.to_le_bytes());
    for (offset_bytes, len_bytes) in places(size_bytes) {
        let mut bytes = vec![0; len_bytes as usize];
        origin.read(offset_bytes, &mut bytes)?;
        contents.update(&bytes);
    }
    let mut fingerprint = [0; 32];
    fingerprint[..IDENTITY_BYTES].copy_from_slice(&identity_mark(identity));
    let digest = contents.finish();
    fingerprint[IDENTITY_BYTES..].copy_from_slice(&digest.as_ref()[..32 - IDENTITY_BYTES]);
    Ok(fingerprint)
}

/// A fingerprint that speaks for the identity alone, of an origin that is in use.
pub(crate) fn of_identity(identity: &str) -> Fingerprint {
    let mut fingerprint = [0; 32];
    fingerprint[..IDENTITY_BYTES].copy_from_slice(&identity_mark(identity));
    fingerprint
}

/// Whether two fingerprints are of the same device. A fingerprint without a lasting name matches
/// any.
pub(crate) fn same_device(one: &Fingerprint, other: &Fingerprint) -> bool {
    let (one, other) = (&one[..IDENTITY_BYTES], &other[..IDENTITY_BYTES]);
    let nameless = [0; IDENTITY_BYTES];
    one == other || one == nameless || other == nameless
}

/// Whether two fingerprints are of the same device, by a mark that both have.
pub(crate) fn surely_same_device(one: &Fingerprint, other: &Fingerprint) -> bool {
    one[..IDENTITY_BYTES] != [0; IDENTITY_BYTES] && one[..IDENTITY_BYTES] == other[..IDENTITY_BYTES]
}

/// Whether two fingerprints are of the same contents.
pub(crate) fn same_contents(one: &Fingerprint, other: &Fingerprint) -> bool {
    one[IDENTITY_BYTES..] == other[IDENTITY_BYTES..]
}

fn identity_mark(identity: &str) -> [u8; IDENTITY_BYTES] {
    let lasting = match identity.split_once(':') {
        // Device numbers of both kinds may change with the next boot.
        Some(("dev" | "loop", _)) => return [0; IDENTITY_BYTES],
        Some(("file", rest)) => rest.rsplit(':').next().unwrap_or(rest),
        _ => identity,
    };
    let mut context = Context::new(&SHA256);
    context.update(lasting.as_bytes());
    let mut mark = [0; IDENTITY_BYTES];
    mark.copy_from_slice(&context.finish().as_ref()[..IDENTITY_BYTES]);
    mark
}

fn places(size_bytes: u64) -> Vec<(u64, u64)> {
    let mut places = vec![
        (0, HEAD_BYTES),
        (BTRFS_AT, SAMPLE_BYTES),
        (EXT_BACKUP_AT, SAMPLE_BYTES),
        (
            size_bytes.saturating_sub(TAIL_BYTES) / SAMPLE_BYTES * SAMPLE_BYTES,
            TAIL_BYTES,
        ),
    ];
    let stride = size_bytes / SAMPLES / SAMPLE_BYTES * SAMPLE_BYTES;
    places.extend((1..SAMPLES).map(|index| (index * stride, SAMPLE_BYTES)));
    let inside = |(start, len): (u64, u64)| (start, len.min(size_bytes.saturating_sub(start)));
    places
        .into_iter()
        .map(inside)
        .filter(|(_, len)| *len > 0)
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Bytes(Vec<u8>);

    impl Storage for Bytes {
        fn size_bytes(&self) -> u64 {
            self.0.len() as u64
        }
        fn read(&mut self, offset_bytes: u64, into: &mut [u8]) -> Result<(), DeviceError> {
            let start = offset_bytes as usize;
            into.copy_from_slice(
                self.0
                    .get(start..start + into.len())
                    .ok_or(DeviceError::Io)?,
            );
            Ok(())
        }
        fn write(&mut self, _: u64, _: &[u8]) -> Result<(), DeviceError> {
            Err(DeviceError::Unsupported)
        }
        fn flush(&mut self) -> Result<(), DeviceError> {
            Ok(())
        }
    }

    #[test]
    fn contents_size_and_device_are_told_apart() {
        for size in [512usize, 4096, 70_000 / 512 * 512, 1 << 20] {
            let mut origin = Bytes(vec![1; size]);
            let first = take(&mut origin, "wwid:a", size as u64).unwrap();
            assert_eq!(first, take(&mut origin, "wwid:a", size as u64).unwrap());
            let elsewhere = take(&mut origin, "wwid:b", size as u64).unwrap();
            assert!(same_contents(&first, &elsewhere) && !same_device(&first, &elsewhere));
            for at in [0, size - 1] {
                origin.0[at] ^= 1;
                let changed = take(&mut origin, "wwid:a", size as u64).unwrap();
                assert!(
                    same_device(&first, &changed) && !same_contents(&first, &changed),
                    "{size} {at}"
                );
                origin.0[at] ^= 1;
            }
        }
    }

    #[test]
    fn names_that_do_not_last_match_any() {
        let nameless = of_identity("dev:8:0");
        assert!(same_device(&nameless, &of_identity("wwid:x")));
        assert!(!surely_same_device(&nameless, &of_identity("wwid:x")));
        assert!(!surely_same_device(&nameless, &nameless));
        assert!(same_device(
            &of_identity("file:3:17"),
            &of_identity("file:4:17")
        ));
        assert!(!same_device(
            &of_identity("file:3:17"),
            &of_identity("file:3:18")
        ));
    }
}
