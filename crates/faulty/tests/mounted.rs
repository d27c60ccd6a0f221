//! Devices as other processes see them: files, past the page cache.

use std::fs::File;
use std::io::{self, Write};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::PathBuf;

use forebay_faulty::{Error, Fault, FaultyDevices, Operation};

const SIZE: u64 = 1 << 20;

/// A directory of one device, taken away at the end.
struct Mounted {
    devices: Option<FaultyDevices>,
    path: PathBuf,
}

impl Mounted {
    /// Nothing, and a word why, where FUSE cannot be used.
    fn new(name: &str) -> Option<Mounted> {
        let path = std::env::temp_dir().join(format!("faulty-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&path).unwrap();
        match forebay_faulty::mount(&path, &[("disk", SIZE), ("other", SIZE)]) {
            Ok(devices) => Some(Mounted {
                devices: Some(devices),
                path,
            }),
            Err(error) => {
                let _ = writeln!(io::stderr(), "skipped: cannot mount with FUSE: {error}");
                let _ = std::fs::remove_dir(&path);
                None
            }
        }
    }

    fn open(&self) -> File {
        File::options()
            .read(true)
            .write(true)
            .custom_flags(rustix::fs::OFlags::DIRECT.bits() as i32)
            .open(self.path.join("disk"))
            .unwrap()
    }

    fn devices(&self) -> &FaultyDevices {
        self.devices.as_ref().unwrap()
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        self.devices = None;
        let _ = std::fs::remove_dir(&self.path);
    }
}

fn read(disk: &File, offset: u64) -> io::Result<u8> {
    let mut block = [0; 4096];
    disk.read_exact_at(&mut block, offset)?;
    assert!(block.iter().all(|byte| *byte == block[0]));
    Ok(block[0])
}

fn code(result: io::Result<()>) -> Option<i32> {
    result.err().and_then(|error| error.raw_os_error())
}

#[test]
fn a_device_is_a_file_of_fixed_size() {
    let Some(mounted) = Mounted::new("file") else {
        return;
    };
    let disk = mounted.open();
    assert_eq!(disk.metadata().unwrap().len(), SIZE);
    let names = std::fs::read_dir(&mounted.path).unwrap();
    assert_eq!(names.count(), 2);
    disk.write_all_at(&[1; 4096], 8192).unwrap();
    assert_eq!(
        (read(&disk, 8192).unwrap(), read(&disk, 4096).unwrap()),
        (1, 0)
    );
    assert_eq!(mounted.devices().device("disk").contents(8192..8193), [1]);
    assert!(disk.set_len(SIZE / 2).is_err());
    // Zeroes without a hole being made, as the daemon writes them.
    let zeroes = rustix::fs::FallocateFlags::ZERO_RANGE | rustix::fs::FallocateFlags::KEEP_SIZE;
    rustix::fs::fallocate(&disk, zeroes, 8192, 4096).unwrap();
    assert_eq!(read(&disk, 8192).unwrap(), 0);
}

#[test]
fn a_flush_that_fails_drops_what_was_volatile() {
    let Some(mounted) = Mounted::new("flush") else {
        return;
    };
    let (disk, device) = (mounted.open(), mounted.devices().device("disk"));
    disk.write_all_at(&[1; 4096], 0).unwrap();
    disk.sync_data().unwrap();
    disk.write_all_at(&[2; 4096], 0).unwrap();
    let fault = device.fail(Fault::of(Operation::Flush).times(1));
    assert_eq!(device.left(fault), 1);
    assert!(disk.sync_data().is_err());
    assert_eq!(device.left(fault), 0);
    assert_eq!(read(&disk, 0).unwrap(), 1);
    disk.sync_data().unwrap();
    assert_eq!(device.durable_contents(0..1), [1]);
}

#[test]
fn faults_have_ranges_and_numbers_and_are_cleared_singly() {
    let Some(mounted) = Mounted::new("ranges") else {
        return;
    };
    let (disk, device) = (mounted.open(), mounted.devices().device("disk"));
    disk.write_all_at(&[1; 16384], 0).unwrap();
    let unreadable = device.fail(Fault::of(Operation::Read).within(4096..8192));
    let full = device.fail(
        Fault::of(Operation::Write)
            .within(0..4096)
            .with(Error::Full),
    );
    assert!(disk.read_exact_at(&mut [0; 16384], 0).is_err());
    assert_eq!(
        (read(&disk, 0).unwrap(), read(&disk, 8192).unwrap()),
        (1, 1)
    );
    assert_eq!(code(disk.write_all_at(&[2; 4096], 0)), Some(28));
    disk.write_all_at(&[2; 4096], 4096).unwrap();
    device.clear(unreadable);
    assert_eq!(
        (read(&disk, 0).unwrap(), read(&disk, 4096).unwrap()),
        (1, 2)
    );
    assert!(disk.write_all_at(&[3; 4096], 0).is_err());
    device.clear(full);
    disk.write_all_at(&[3; 4096], 0).unwrap();
    let sector = Fault::of(Operation::Read).within(8192..12288);
    device.fail(sector.until_written());
    disk.write_all_at(&[3; 4096], 4096).unwrap();
    assert!(read(&disk, 8192).is_err());
    disk.write_all_at(&[3; 8192], 8192).unwrap();
    assert_eq!(read(&disk, 8192).unwrap(), 3);
    let second = device.fail(Fault::of(Operation::Write).after(1).times(1));
    disk.write_all_at(&[4; 4096], 0).unwrap();
    assert_eq!(code(disk.write_all_at(&[5; 4096], 0)), Some(5));
    assert_eq!(device.left(second), 0);
    disk.write_all_at(&[6; 4096], 0).unwrap();
    assert_eq!(read(&disk, 0).unwrap(), 6);
}

#[test]
fn a_device_that_was_lost_comes_back_as_it_was_or_old() {
    let Some(mounted) = Mounted::new("lost") else {
        return;
    };
    let (disk, device) = (mounted.open(), mounted.devices().device("disk"));
    let put = |value| disk.write_all_at(&[value; 4096], 0);
    put(1).unwrap();
    disk.sync_data().unwrap();
    let old = device.snapshot();
    put(2).unwrap();
    disk.sync_data().unwrap();
    put(3).unwrap();
    device.lose();
    assert!(put(4).is_err() && disk.sync_data().is_err() && read(&disk, 0).is_err());
    let other = File::open(mounted.path.join("other")).unwrap();
    assert_eq!(read(&other, 0).unwrap(), 0);
    device.bring_back();
    assert_eq!(read(&disk, 0).unwrap(), 2);
    device.lose();
    device.bring_back_as(&old);
    assert_eq!(read(&disk, 0).unwrap(), 1);
}
