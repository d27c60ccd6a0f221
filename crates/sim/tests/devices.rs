//! Wrong devices in place of the cache device: nothing of ours, or less of it. Attach refuses,
//! writes nothing, and the right device can still be attached. (A device that comes back old is
//! `a_cache_that_comes_back_after_it_was_abandoned_is_void`; a device with another cache's segments
//! is `a_ring_of_another_cache_says_nothing`.)

use forebay_engine::{
    AttachError, AttachOptions, CacheId, IdentifyError, Joined, Storage, Superblock,
    SuperblockError, attach, create, identify,
};
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
        without_missing: false,
        from_checkpoint: true,
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
            without_missing: false,
            from_checkpoint: true,
        };
        let mut rng = Rng::new(u64::from(cut));
        let mut control = Control::new(&mut device, Some(cut), &mut rng);
        let _ = attach(&mut control, &mut [], &options);
        let epoch = try_attach(&mut device).expect("nothing is damaged");
        assert!(epoch > last, "epoch {epoch} after {last}");
        last = epoch;
    }
}

/// Identifies these devices together, as far as they say.
fn identified(devices: &mut [Device]) -> Result<Vec<u8>, IdentifyError> {
    let mut rngs: Vec<Rng> = (0..devices.len() as u64).map(Rng::new).collect();
    let mut controls: Vec<Control<'_>> = devices
        .iter_mut()
        .zip(&mut rngs)
        .map(|(device, rng)| Control::new(device, None, rng))
        .collect();
    let mut storages: Vec<&mut dyn Storage> = controls
        .iter_mut()
        .map(|control| control as &mut dyn Storage)
        .collect();
    identify(&mut storages)
}

/// Changes the superblock that two devices share, or one of them has.
fn change(devices: [&mut Device; 2], change: impl Fn(&mut Superblock)) {
    let [first, second] = devices;
    let (mut one, mut two) = (Rng::new(1), Rng::new(2));
    let mut first = Control::new(first, None, &mut one);
    let mut second = Control::new(second, None, &mut two);
    let mut superblock = Superblock::of_device(&mut first, 0).expect("a cache").0;
    let mut changed = superblock.clone();
    change(&mut changed);
    let mut joined = Joined::new(vec![(0, &mut first), (1, &mut second)]);
    superblock.replace(changed, &mut joined).expect("written");
}

fn blank() -> Device {
    let size_bytes = device(1 << 20).disk.size_bytes();
    Device::new(Disk::new(size_bytes, PAGE_BYTES), FaultRates::NONE)
}

fn two() -> [Device; 2] {
    let mut both = [device(1 << 20), blank()];
    let size_bytes = both[1].disk.size_bytes();
    let [first, second] = &mut both;
    change([first, second], |superblock| {
        let number = superblock.add_device(size_bytes).expect("there is room");
        superblock.grow(number, size_bytes).expect("there is room");
    });
    both
}

#[test]
fn devices_of_one_cache_know_each_other_in_any_order() {
    let [first, second] = two();
    assert_eq!(
        identified(&mut [first.clone(), second.clone()]),
        Ok(vec![0, 1])
    );
    assert_eq!(identified(&mut [second, first]), Ok(vec![1, 0]));
}

#[test]
fn a_cache_without_one_of_its_devices_is_refused() {
    let [first, second] = two();
    let missing = identified(&mut [first.clone()]);
    assert!(
        matches!(
            missing,
            Err(IdentifyError::Missing {
                number: 1,
                count: 2,
                ..
            })
        ),
        "{missing:?}"
    );
    let missing = identified(&mut [second]);
    assert!(
        matches!(missing, Err(IdentifyError::Missing { number: 0, .. })),
        "{missing:?}"
    );
    is_refused(first, |error| {
        matches!(
            error,
            SuperblockError::Incomplete {
                number: 1,
                count: 2
            }
        )
    });
}

#[test]
fn a_foreign_device_a_blank_one_and_a_copy_are_told_apart() {
    let [first, second] = two();
    let mut foreign = blank();
    let geometry = Config::default().geometry;
    let mut rng = Rng::new(3);
    let mut control = Control::new(&mut foreign, None, &mut rng);
    create(&mut control, CacheId([8; 16]), geometry).expect("a cache");
    let found = identified(&mut [first.clone(), foreign]);
    assert!(
        matches!(found, Err(IdentifyError::Foreign { given: 1, .. })),
        "{found:?}"
    );
    let found = identified(&mut [first.clone(), blank()]);
    assert!(
        matches!(found, Err(IdentifyError::Superblock { given: 1, .. })),
        "{found:?}"
    );
    let found = identified(&mut [first.clone(), second, first]);
    assert!(
        matches!(found, Err(IdentifyError::Twice { given: 2 })),
        "{found:?}"
    );
}

#[test]
fn a_device_that_was_removed_does_not_come_back_by_itself() {
    let [mut first, mut second] = two();
    let before = second.clone();
    change([&mut first, &mut second], |superblock| {
        let gone = superblock
            .extents
            .beyond(1, 0, &superblock.geometry)
            .expect("whole");
        superblock.shrink(&gone);
    });
    assert_eq!(identified(&mut [first.clone()]), Ok(vec![0]));
    let found = identified(&mut [first.clone(), before.clone()]);
    assert_eq!(found, Err(IdentifyError::Removed { given: 1 }));
    // Another gets its number, and still it is not taken for that.
    let mut other = blank();
    let size_bytes = other.disk.size_bytes();
    change([&mut first, &mut other], |superblock| {
        let number = superblock.add_device(size_bytes).expect("there is room");
        superblock.grow(number, size_bytes).expect("there is room");
    });
    let found = identified(&mut [first.clone(), before]);
    assert_eq!(found, Err(IdentifyError::Removed { given: 1 }));
    assert_eq!(identified(&mut [first, other]), Ok(vec![0, 1]));
}
