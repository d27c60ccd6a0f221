//! Fingerprints of origin devices, so that a cache is not laid over an origin that changed without
//! it.
//!
//! Taken of the origin itself when it is let go in order, dirty data in the cache or not: until the
//! cache is back, nobody may write to the origin. The first 8 of 32 bytes identify the device and
//! count also after a crash. The others stand for its contents.

use std::time::Duration;

use forebay_engine::{DeviceError, Storage};
use forebay_io::RealDevice;
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

/// Marks of a device's identity.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Marks {
    today: Mark,
    /// As earlier versions made it: for a file, of its inode's number alone.
    earlier: Mark,
}

type Mark = [u8; IDENTITY_BYTES];

/// Mark of a device without a lasting name.
const NAMELESS: Mark = [0; IDENTITY_BYTES];

impl Marks {
    pub(crate) fn of(device: &RealDevice) -> Marks {
        Marks::new(device.identity(), device.born())
    }

    fn new(identity: &str, born: Option<Duration>) -> Marks {
        let lasting = match identity.split_once(':') {
            // Device numbers of both kinds may change with the next boot.
            Some(("dev" | "loop", _)) => {
                return Marks {
                    today: NAMELESS,
                    earlier: NAMELESS,
                };
            }
            Some(("file", rest)) => rest.rsplit(':').next().unwrap_or(rest),
            _ => identity,
        };
        Marks {
            today: match born {
                Some(born) => mark(&format!("{lasting}:{}", born.as_nanos())),
                None => mark(lasting),
            },
            earlier: mark(lasting),
        }
    }

    /// A fingerprint that speaks for the identity alone, of an origin that is in use.
    pub(crate) fn fingerprint(self) -> Fingerprint {
        let mut fingerprint = [0; 32];
        fingerprint[..IDENTITY_BYTES].copy_from_slice(&self.today);
        fingerprint
    }

    /// Whether a fingerprint can be of this device. One without a lasting name fits any.
    pub(crate) fn fit(self, known: &Fingerprint) -> bool {
        self.surely_fit(known) || self.today == NAMELESS || known[..IDENTITY_BYTES] == NAMELESS
    }

    /// Whether a fingerprint is of this device, by a mark that both have.
    pub(crate) fn surely_fit(self, known: &Fingerprint) -> bool {
        let known = &known[..IDENTITY_BYTES];
        known != NAMELESS && (known == self.today || known == self.earlier)
    }
}

/// Looks at an origin of `size_bytes` (which may have grown since).
pub(crate) fn take(
    origin: &mut dyn Storage,
    marks: Marks,
    size_bytes: u64,
) -> Result<Fingerprint, DeviceError> {
    let mut contents = Context::new(&SHA256);
    contents.update(&size_bytes.to_le_bytes());
    for (offset_bytes, len_bytes) in places(size_bytes) {
        let mut bytes = vec![0; len_bytes as usize];
        origin.read(offset_bytes, &mut bytes)?;
        contents.update(&bytes);
    }
    let mut fingerprint = marks.fingerprint();
    let digest = contents.finish();
    fingerprint[IDENTITY_BYTES..].copy_from_slice(&digest.as_ref()[..32 - IDENTITY_BYTES]);
    Ok(fingerprint)
}

/// Whether two fingerprints are of the same contents.
pub(crate) fn same_contents(one: &Fingerprint, other: &Fingerprint) -> bool {
    one[IDENTITY_BYTES..] == other[IDENTITY_BYTES..]
}

fn mark(identity: &str) -> Mark {
    let mut context = Context::new(&SHA256);
    context.update(identity.as_bytes());
    let mut mark = NAMELESS;
    mark.copy_from_slice(&context.finish().as_ref()[..IDENTITY_BYTES]);
    mark
}

pub(crate) fn places(size_bytes: u64) -> Vec<(u64, u64)> {
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

    fn marks(identity: &str) -> Marks {
        Marks::new(identity, None)
    }

    #[test]
    fn contents_size_and_device_are_told_apart() {
        let (here, there) = (marks("wwid:a"), marks("wwid:b"));
        for size in [512usize, 4096, 70_000 / 512 * 512, 1 << 20] {
            let mut origin = Bytes(vec![1; size]);
            let first = take(&mut origin, here, size as u64).unwrap();
            assert_eq!(first, take(&mut origin, here, size as u64).unwrap());
            assert!(here.fit(&first) && !there.fit(&first));
            for at in [0, size - 1] {
                origin.0[at] ^= 1;
                let changed = take(&mut origin, here, size as u64).unwrap();
                assert!(
                    here.fit(&changed) && !same_contents(&first, &changed),
                    "{size} {at}"
                );
                origin.0[at] ^= 1;
            }
        }
    }

    #[test]
    fn names_that_do_not_last_match_any() {
        let (nameless, named) = (marks("dev:8:0"), marks("wwid:x"));
        assert!(nameless.fit(&named.fingerprint()) && named.fit(&nameless.fingerprint()));
        assert!(!nameless.surely_fit(&named.fingerprint()));
        assert!(!nameless.surely_fit(&nameless.fingerprint()));
    }

    /// S24: another file may have the inode's number, in another file system or after this one.
    #[test]
    fn a_file_is_known_by_its_birth_and_by_its_inode_to_earlier_versions() {
        let file = |identity, nanos| Marks::new(identity, Some(Duration::from_nanos(nanos)));
        let known = file("file:3:17", 5).fingerprint();
        assert!(file("file:4:17", 5).surely_fit(&known), "after a boot");
        assert!(!file("file:3:17", 6).fit(&known));
        assert!(!file("file:3:18", 5).fit(&known));
        let earlier = marks("file:3:17").fingerprint();
        assert!(file("file:3:17", 5).surely_fit(&earlier));
        assert!(!file("file:3:18", 5).fit(&earlier));
    }
}
