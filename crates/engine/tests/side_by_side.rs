//! An attach whose devices have handles for several threads gives what one gives that does a single
//! thing at a time: of sound caches, of caches that rotted, and with a device that fails.

mod common;
#[path = "forged/mutate.rs"]
#[allow(unreachable_pub, dead_code, reason = "is of another test")]
mod mutate;
#[path = "forged/served.rs"]
#[allow(unreachable_pub, dead_code, reason = "is of another test")]
mod served;

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use common::BOOT;
use forebay_engine::*;
use mutate::Random;
use served::{Image, image};

const SHARDS: u16 = 4;
const SEGMENTS: u32 = 24;

/// A device that several threads may use.
#[derive(Clone)]
struct Shared {
    bytes: Arc<Mutex<Vec<u8>>>,
    /// The handles that it has, at most.
    handles: usize,
    given: Arc<AtomicUsize>,
    /// Whether its segments cannot be read.
    fails: bool,
}

impl Shared {
    fn new(bytes: Vec<u8>, handles: usize, fails: bool) -> Shared {
        Shared {
            bytes: Arc::new(Mutex::new(bytes)),
            handles,
            given: Arc::default(),
            fails,
        }
    }
}

impl Storage for Shared {
    fn size_bytes(&self) -> u64 {
        self.bytes.lock().unwrap().len() as u64
    }

    fn read(&mut self, offset_bytes: u64, into: &mut [u8]) -> Result<(), DeviceError> {
        if self.fails && offset_bytes >= DATA_OFFSET_BYTES {
            return Err(DeviceError::Io);
        }
        let start = offset_bytes as usize;
        let bytes = self.bytes.lock().unwrap();
        let found = bytes.get(start..start + into.len());
        into.copy_from_slice(found.ok_or(DeviceError::Io)?);
        Ok(())
    }

    fn write(&mut self, offset_bytes: u64, from: &[u8]) -> Result<(), DeviceError> {
        let start = offset_bytes as usize;
        let mut bytes = self.bytes.lock().unwrap();
        let place = bytes.get_mut(start..start + from.len());
        place.ok_or(DeviceError::Io)?.copy_from_slice(from);
        Ok(())
    }

    fn flush(&mut self) -> Result<(), DeviceError> {
        Ok(())
    }

    fn handles(&self, most: usize) -> Vec<StorageHandle<'_>> {
        let count = most.min(self.handles);
        self.given.fetch_add(count, Ordering::Relaxed);
        (0..count)
            .map(|_| Box::new(self.clone()) as StorageHandle<'_>)
            .collect()
    }
}

/// The answer of an attach, and the contents of its devices after it.
type Outcome = (
    Result<(Superblock, RecoveryReport), AttachError>,
    Vec<Vec<u8>>,
);

/// Attaches with so many handles of each device, of which the last may fail.
fn attach_with(handles: usize, image: &Image, options: &AttachOptions, fails: bool) -> Outcome {
    let last = image.devices.len() - 1;
    let devices = image.devices.iter().cloned().enumerate();
    let mut shared: Vec<Shared> = devices
        .map(|(at, bytes)| Shared::new(bytes, handles, fails && at == last))
        .collect();
    let mut given: Vec<&mut dyn Storage> = shared.iter_mut().map(|one| one as _).collect();
    let numbers = identify(&mut given).expect("its superblocks are sound");
    let mut joined = Joined::new(numbers.into_iter().zip(shared.iter().cloned()).collect());
    let mut surviving: Vec<Surviving<'_>> = image
        .journals
        .iter()
        .flatten()
        .map(|journal| Surviving {
            journal: Some(journal),
            buffer: None,
        })
        .collect();
    let attached = attach(&mut joined, &mut surviving, options);
    for one in &shared {
        let given = one.given.load(Ordering::Relaxed);
        // A cache that may go on without a device is watched for the one that fails.
        let wanted = handles > 0 && !options.without_missing;
        assert_eq!(given > 0, wanted, "handles are used where there are any");
    }
    let left = shared.iter().map(|one| one.bytes.lock().unwrap().clone());
    (
        attached.map(|attached| (attached.superblock, attached.report)),
        left.collect(),
    )
}

fn options() -> AttachOptions {
    AttachOptions {
        boot_id: BOOT,
        accept_damage: false,
        without_missing: false,
        from_checkpoint: true,
    }
}

fn assert_same(image: &Image, options: &AttachOptions, fails: bool) -> bool {
    let (alone, left_alone) = attach_with(0, image, options, fails);
    for handles in [2, 3, 8] {
        let (together, left) = attach_with(handles, image, options, fails);
        assert_eq!(together, alone, "{}, {handles} handles", image.name);
        // A refused attach may have decided other shards than those before the one that is refused.
        assert!(alone.is_err() || left == left_alone, "{}", image.name);
    }
    alone.is_ok()
}

#[test]
fn shards_are_recovered_side_by_side_as_one_after_the_other() {
    for devices in [1, 2] {
        for stopped in [false, true] {
            let image = image(SHARDS, SEGMENTS, devices, stopped);
            assert!(assert_same(&image, &options(), false));
        }
    }
}

#[test]
fn rot_is_found_by_several_threads_as_by_one() {
    let sound = [1, 2].map(|devices| image(SHARDS, SEGMENTS, devices, false));
    let mut refused = 0;
    for seed in 0..60 {
        let mut rotten = sound[seed as usize % 2].clone();
        let mut random = Random(seed);
        for _ in 0..4 {
            // Superblocks come first, and are not the shards' matter.
            for device in &mut rotten.devices {
                let at = random.below(device.len() - DATA_OFFSET_BYTES as usize);
                let at = DATA_OFFSET_BYTES as usize + at;
                if random.below(8) == 0 {
                    let page = at / 4096 * 4096;
                    device[page..page + 4096].fill(0);
                }
                for summary in device.chunks_exact_mut(4096) {
                    if summary.starts_with(b"FBSM") && random.below(40) == 0 {
                        summary[100] ^= 1;
                    }
                }
            }
        }
        refused += u32::from(!assert_same(&rotten, &options(), false));
        let accepting = AttachOptions {
            accept_damage: true,
            ..options()
        };
        assert_same(&rotten, &accepting, false);
    }
    assert!(refused > 5, "{refused} of 60 are damaged");
}

#[test]
fn a_device_that_fails_is_known_to_every_thread() {
    let image = image(SHARDS, SEGMENTS, 2, false);
    for without_missing in [false, true] {
        let options = AttachOptions {
            without_missing,
            ..options()
        };
        assert!(!assert_same(&image, &options, true), "it has the only copy");
    }
}
