//! Which half of the copies of a superblock is whole is known after any failure (I24).

use forebay_engine::{CacheId, DeviceError, Geometry, Storage, Superblock};

const PAGE: usize = 4096;

/// A disk whose failing flush keeps every other page of what was written since the last good one.
struct Disk {
    durable: Vec<u8>,
    current: Vec<u8>,
    operations: u32,
    /// Which operations fail.
    fails: Vec<u32>,
}

impl Disk {
    fn new(size_bytes: usize) -> Disk {
        Disk {
            durable: vec![0; size_bytes],
            current: vec![0; size_bytes],
            operations: 0,
            fails: Vec::new(),
        }
    }

    fn step(&mut self) -> Result<(), DeviceError> {
        self.operations += 1;
        if self.fails.contains(&self.operations) {
            return Err(DeviceError::Io);
        }
        Ok(())
    }

    /// Volatile pages are lost, but for every other one.
    fn tear(&mut self) {
        let pages = self
            .durable
            .chunks_mut(PAGE)
            .zip(self.current.chunks_mut(PAGE));
        let mut changed = pages.filter(|(durable, current)| durable != current);
        let mut keep = false;
        for (durable, current) in &mut changed {
            keep = !keep;
            if keep {
                durable.copy_from_slice(current);
            } else {
                current.copy_from_slice(durable);
            }
        }
    }
}

impl Storage for Disk {
    fn size_bytes(&self) -> u64 {
        self.durable.len() as u64
    }

    fn read(&mut self, offset_bytes: u64, into: &mut [u8]) -> Result<(), DeviceError> {
        let at = offset_bytes as usize;
        into.copy_from_slice(&self.current[at..at + into.len()]);
        Ok(())
    }

    fn write(&mut self, offset_bytes: u64, from: &[u8]) -> Result<(), DeviceError> {
        self.step()?;
        let at = offset_bytes as usize;
        self.current[at..at + from.len()].copy_from_slice(from);
        Ok(())
    }

    fn flush(&mut self) -> Result<(), DeviceError> {
        let result = self.step();
        match result {
            Ok(()) => self.durable.copy_from_slice(&self.current),
            Err(_) => self.tear(),
        }
        result
    }
}

/// A superblock whose copies take several pages, on a disk.
fn written() -> (Superblock, Disk) {
    let mut disk = Disk::new(16 << 20);
    let geometry = Geometry::for_device(16 << 20, 4096, Some(1), 1).expect("a geometry");
    let mut superblock = Superblock::new(CacheId([7; 16]), geometry, 16 << 20);
    for at in 0..60 {
        let added = superblock.add_volume(&format!("volume {at}"), 1 << 20, 1);
        added.expect("there is room");
    }
    superblock.write(&mut disk).expect("nothing fails yet");
    disk.operations = 0;
    (superblock, disk)
}

/// Three changes; what the superblock says afterwards if any of them was written.
fn change_thrice(superblock: &mut Superblock, disk: &mut Disk) -> Vec<bool> {
    let change = |mode: u8| {
        let mut changed = superblock.clone();
        for volume in &mut changed.volumes {
            volume.mode = mode;
        }
        superblock.replace(changed, disk).is_ok()
    };
    [2, 3, 4].map(change).to_vec()
}

#[test]
fn any_two_failures_in_three_writes_leave_a_whole_copy() {
    let (mut superblock, mut disk) = written();
    assert_eq!(change_thrice(&mut superblock, &mut disk), [true; 3]);
    let operations = disk.operations;
    for first in 1..=operations {
        for second in first..=operations {
            let (mut superblock, mut disk) = written();
            disk.fails = vec![first, second];
            let written = change_thrice(&mut superblock, &mut disk);
            // The power goes.
            disk.tear();
            let found = Superblock::read(&mut disk);
            let found = found.unwrap_or_else(|error| panic!("{first}, {second}: {error}"));
            let modes: Vec<u8> = found.volumes.iter().map(|volume| volume.mode).collect();
            assert!(modes.iter().all(|mode| *mode == modes[0]), "of one write");
            // The last that was written counts, or a later one that failed on the way.
            let last = written
                .iter()
                .rposition(|ok| *ok)
                .map_or(1, |at| at as u8 + 2);
            assert!(
                modes[0] >= last,
                "{first}, {second}: {} of {written:?}",
                modes[0]
            );
        }
    }
}

#[test]
fn what_a_failed_change_gave_out_is_not_given_again() {
    let (mut superblock, mut disk) = written();
    let mut changed = superblock.clone();
    changed
        .add_volume("another", 1 << 20, 1)
        .expect("there is room");
    let given = changed.next_volume_id;
    disk.fails = vec![1];
    assert!(superblock.replace(changed, &mut disk).is_err());
    assert_eq!(
        superblock.next_volume_id, given,
        "ids are never reused (I16)"
    );
}

#[test]
fn an_abandoned_cache_says_so() {
    let (mut superblock, mut disk) = written();
    assert_eq!(superblock.abandon(&mut disk), 1);
    let found = Superblock::read(&mut disk).expect("it is whole");
    assert!(found.abandoned);
    assert_eq!(found.volumes, superblock.volumes);
}
