//! What comes back in place of the cache device: nothing of ours, or less of it. Attach refuses,
//! writes nothing, and the right device can still be attached. (A device that comes back old is
//! `a_cache_that_comes_back_after_it_was_abandoned_is_void`; one that holds another cache's
//! segments is `a_ring_of_another_cache_says_nothing`.)

use forebay_engine::{AttachError, AttachOptions, CacheId, SuperblockError, attach, create};
use forebay_sim::device::{Control, Device};
use forebay_sim::disk::{Disk, PAGE_BYTES};
use forebay_sim::rng::Rng;
use forebay_sim::{Config, FaultRates};

fn device(extra_bytes: u64) -> Device {
    let geometry = Config::default().geometry;
    let disk = Disk::new(geometry.device_bytes() + extra_bytes, PAGE_BYTES);
    let mut device = Device::new(disk, FaultRates::NONE);
    let mut rng = Rng::new(1);
    create(
        &mut Control::new(&mut device, None, &mut rng),
        CacheId([7; 16]),
        geometry,
    )
    .expect("a cache");
    device
}

/// Attaches, as insistently as an administrator can.
fn try_attach(device: &mut Device) -> Result<u32, AttachError> {
    let options = AttachOptions {
        boot_id: [1; 16],
        accept_damage: true,
    };
    let mut rng = Rng::new(2);
    let mut control = Control::new(device, None, &mut rng);
    attach(&mut control, &mut [], &options).map(|attached| attached.superblock.epoch)
}

fn is_refused(mut device: Device, right: impl Fn(&SuperblockError) -> bool) {
    let before = device.disk.order();
    match try_attach(&mut device) {
        Err(AttachError::Superblock(error)) if right(&error) => {}
        other => panic!("{other:?}"),
    }
    assert_eq!(device.disk.order(), before, "nothing is written to it");
}

#[test]
fn a_device_that_comes_back_smaller_is_refused() {
    let whole = device(0);
    for missing_pages in [1, 2, 50] {
        let mut smaller = whole.clone();
        let size_bytes = whole.disk.size_bytes() - missing_pages * PAGE_BYTES as u64;
        smaller.disk.truncate(size_bytes);
        is_refused(smaller, |error| {
            matches!(error, SuperblockError::Truncated { .. })
        });
    }
    assert_eq!(try_attach(&mut whole.clone()), Ok(1));
}

#[test]
fn a_device_that_comes_back_larger_is_the_same_cache() {
    assert_eq!(try_attach(&mut device(1 << 20)), Ok(1));
}

#[test]
fn a_device_with_other_data_is_refused() {
    let mut other = device(0);
    let bytes = vec![0x5a; other.disk.size_bytes() as usize];
    other.disk.write(0, &bytes);
    is_refused(other, |error| {
        matches!(error, SuperblockError::NotACache { .. })
    });
}

#[test]
fn a_blank_device_is_refused() {
    let size_bytes = device(0).disk.size_bytes();
    let blank = Device::new(Disk::new(size_bytes, PAGE_BYTES), FaultRates::NONE);
    is_refused(blank, |error| matches!(error, SuperblockError::Blank));
}

/// Each attach counts on, also one that is cut short: no two lives share an epoch (I1).
#[test]
fn an_attach_that_is_cut_short_takes_its_epoch_with_it() {
    let mut device = device(0);
    let mut last = 0;
    for cut in 0..60 {
        let options = AttachOptions {
            boot_id: [1; 16],
            accept_damage: false,
        };
        let mut rng = Rng::new(u64::from(cut));
        let mut control = Control::new(&mut device, Some(cut), &mut rng);
        let _ = attach(&mut control, &mut [], &options);
        let epoch = try_attach(&mut device).expect("nothing is damaged");
        assert!(epoch > last, "epoch {epoch} after {last}");
        last = epoch;
    }
}
