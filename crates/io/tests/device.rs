//! Opening devices, and the blocking storage on them.

mod common;

use std::os::fd::AsRawFd;

use common::{IF_POSSIBLE, Scratch};
use forebay_engine::{DeviceError, ReadAt, Storage};
use forebay_io::{DeviceKind, DirectIo, OpenError, OpenHow, RealDevice};

const SIZE: u64 = 8 << 20;

#[test]
fn facts_of_a_file_are_told() {
    let scratch = Scratch::file("/tmp", SIZE);
    let device = RealDevice::open(&scratch.0, IF_POSSIBLE).expect("a device");
    assert_eq!(
        (device.kind(), device.size_bytes()),
        (DeviceKind::File, SIZE)
    );
    assert!(device.has_volatile_cache() && device.can_discard());
    assert!(device.logical_block_bytes() >= 512);
    assert!(device.identity().starts_with("file:"));
}

#[test]
fn a_second_user_is_refused_with_the_reason() {
    let scratch = Scratch::file("/tmp", SIZE);
    let first = RealDevice::open(&scratch.0, IF_POSSIBLE).expect("a device");
    let error = RealDevice::open(&scratch.0, IF_POSSIBLE).expect_err("in use");
    assert!(matches!(error, OpenError::Busy { .. }), "{error}");
    assert!(error.to_string().contains("lslocks"), "{error}");
    drop(first);
    RealDevice::open(&scratch.0, IF_POSSIBLE).expect("free again");
}

/// QEMU locks single bytes of an image that it uses, shared, and not the file.
#[test]
fn an_image_that_qemu_uses_is_refused() {
    let scratch = Scratch::file("/tmp", SIZE);
    let image = std::fs::File::open(&scratch.0).expect("a file");
    // SAFETY: all fields are numbers, of which 0 is one.
    let mut byte: libc::flock = unsafe { std::mem::zeroed() };
    byte.l_type = libc::F_RDLCK as libc::c_short;
    byte.l_start = 100;
    byte.l_len = 1;
    // SAFETY: fcntl takes a descriptor, which `image` keeps open, and reads the struct.
    let locked = unsafe { libc::fcntl(image.as_raw_fd(), libc::F_OFD_SETLK, &raw const byte) };
    assert_eq!(locked, 0);
    let error = RealDevice::open(&scratch.0, IF_POSSIBLE).expect_err("in use");
    assert!(matches!(error, OpenError::Busy { .. }), "{error}");
    let read_only = OpenHow {
        read_only: true,
        ..IF_POSSIBLE
    };
    RealDevice::open(&scratch.0, read_only).expect("reading harms nobody");
    drop(image);
    RealDevice::open(&scratch.0, IF_POSSIBLE).expect("free again");
}

#[test]
fn what_is_no_device_is_refused() {
    let error = |path: &str| RealDevice::open(path.as_ref(), IF_POSSIBLE).expect_err("no device");
    assert!(matches!(error("/tmp"), OpenError::WrongKind { .. }));
    assert!(matches!(error("/dev/null"), OpenError::WrongKind { .. }));
    assert!(matches!(error("/tmp/no such file"), OpenError::Io { .. }));
    let empty = Scratch::file("/tmp", 0);
    let path = empty.0.to_str().expect("a plain path");
    assert!(matches!(error(path), OpenError::Empty { .. }));
}

/// Tmpfs takes O_DIRECT since Linux 6.6; on older kernels this is the refusal, or the fallback.
#[test]
fn direct_io_is_required_or_reported() {
    let scratch = Scratch::file("/dev/shm", SIZE);
    let required = OpenHow {
        direct: DirectIo::Required,
        read_only: false,
    };
    match RealDevice::open(&scratch.0, required) {
        Ok(device) => assert!(device.is_direct()),
        Err(error) => {
            assert!(matches!(error, OpenError::NoDirectIo { .. }), "{error}");
            let device = RealDevice::open(&scratch.0, IF_POSSIBLE).expect("a device");
            assert!(!device.is_direct());
        }
    }
}

#[test]
fn a_mounted_block_device_names_its_mount() {
    // The root file system's device, where this machine shows one.
    let text = std::fs::read_to_string("/proc/self/mountinfo").expect("mounts");
    let root = text.lines().find_map(|line| {
        let fields: Vec<&str> = line.split(' ').collect();
        let separator = fields.iter().position(|field| *field == "-")?;
        let source = *fields.get(separator + 2)?;
        (fields[4] == "/" && source.starts_with("/dev/")).then(|| source.to_owned())
    });
    let Some(root) = root.filter(|path| std::path::Path::new(path).exists()) else {
        println!("skipped: no block device under / is visible here");
        return;
    };
    let read_only = OpenHow {
        direct: DirectIo::IfPossible,
        read_only: true,
    };
    match RealDevice::open(root.as_ref(), read_only) {
        Err(OpenError::Busy { reason, .. }) => assert!(reason.contains("mounted on /"), "{reason}"),
        other => println!("skipped: {root} cannot be asked: {other:?}"),
    }
}

#[test]
fn storage_reads_back_what_it_wrote() {
    for directory in ["/tmp", "/dev/shm"] {
        let scratch = Scratch::file(directory, SIZE);
        let device = RealDevice::open(&scratch.0, IF_POSSIBLE).expect("a device");
        let mut storage = device.storage().expect("buffers");
        // Longer than the bounce buffer.
        let data: Vec<u8> = (0..3 << 20)
            .map(|index: u32| ((index * 31) >> 7) as u8)
            .collect();
        storage.write(4096, &data).expect("written");
        storage.flush().expect("flushed");
        let mut back = vec![0; data.len()];
        storage.read(4096, &mut back).expect("read");
        assert!(back == data);
        // Not aligned to anything.
        let mut piece = vec![0; 1_234_567];
        storage.read(4096 + 77, &mut piece).expect("read");
        assert!(piece == data[77..77 + piece.len()]);
        // Beyond the end.
        assert_eq!(
            storage.read(SIZE - 512, &mut [0; 1024]),
            Err(DeviceError::Io)
        );
        assert_eq!(storage.write(SIZE - 4096, &[0; 8192]), Err(DeviceError::Io));
        assert_eq!(
            storage.read(u64::MAX - 3, &mut [0; 512]),
            Err(DeviceError::Io)
        );
        assert_eq!(
            std::fs::metadata(&scratch.0).expect("still there").len(),
            SIZE
        );
    }
}

#[test]
fn many_reads_each_have_their_own_result() {
    let scratch = Scratch::file("/tmp", SIZE);
    let device = RealDevice::open(&scratch.0, IF_POSSIBLE).expect("a device");
    let mut storage = device.storage().expect("buffers");
    let data: Vec<u8> = (0..SIZE as u32)
        .map(|index| (index >> 9) as u8 ^ index as u8)
        .collect();
    storage.write(0, &data).expect("written");
    let mut places: Vec<(u64, Vec<u8>)> = (0..300u64)
        .map(|index| {
            (
                index * 25_013 % (SIZE - 700_000),
                vec![0; 1 + index as usize * 2_001],
            )
        })
        .collect();
    places[17].0 = SIZE - 5;
    places[200].0 = u64::MAX;
    let mut reads: Vec<ReadAt<'_>> = places
        .iter_mut()
        .map(|(offset_bytes, into)| ReadAt {
            offset_bytes: *offset_bytes,
            into,
        })
        .collect();
    let results = storage.read_many(&mut reads);
    assert_eq!(results.len(), 300);
    for (index, ((offset, got), result)) in places.iter().zip(results).enumerate() {
        if index == 17 || index == 200 {
            assert_eq!(result, Err(DeviceError::Io));
            continue;
        }
        assert_eq!(result, Ok(()));
        let start = *offset as usize;
        assert!(*got == data[start..start + got.len()], "read {index}");
    }
    assert!(storage.read_many(&mut []).is_empty());
}
