//! Real block devices (loop) and full file systems. They need privileges; without them each test
//! says what it skipped.

mod common;

use std::path::{Path, PathBuf};
use std::process::Command;

use common::{IF_POSSIBLE, Rig, Scratch};
use forebay_engine::{Buf, DeviceError, Memory, Operation, Storage};
use forebay_io::{DeviceKind, OpenError, RealDevice};

const SIZE: u64 = 64 << 20;

fn run(program: &str, arguments: &[&str]) -> Option<String> {
    let output = Command::new(program).args(arguments).output().ok()?;
    output
        .status
        .success()
        .then(|| String::from_utf8_lossy(&output.stdout).trim().to_owned())
}

/// A loop device over a scratch file.
struct Loop {
    path: PathBuf,
    _file: Scratch,
}

impl Loop {
    fn new() -> Option<Loop> {
        let file = Scratch::file("/tmp", SIZE);
        let path = run("losetup", &["--find", "--show", file.0.to_str()?]);
        match path {
            Some(path) => Some(Loop {
                path: path.into(),
                _file: file,
            }),
            None => {
                println!("skipped: no loop devices for this user");
                None
            }
        }
    }

    fn name(&self) -> &str {
        self.path.to_str().expect("a plain path")
    }
}

impl Drop for Loop {
    fn drop(&mut self) {
        run("losetup", &["--detach", self.name()]);
    }
}

/// A mount that ends with the test.
struct Mount(PathBuf);

impl Mount {
    fn new(arguments: &[&str]) -> Option<Mount> {
        let at = Scratch::new("/tmp").0.clone();
        std::fs::create_dir(&at).expect("a scratch directory");
        let mut all = arguments.to_vec();
        all.push(at.to_str()?);
        if run("mount", &all).is_some() {
            return Some(Mount(at));
        }
        println!("skipped: this user may not mount");
        let _ = std::fs::remove_dir(&at);
        None
    }
}

impl Drop for Mount {
    fn drop(&mut self) {
        run("umount", &[self.0.to_str().expect("a plain path")]);
        let _ = std::fs::remove_dir(&self.0);
    }
}

fn all(rig: &Rig, buf: Buf, value: u8) -> bool {
    rig.arena.bytes(buf).iter().all(|byte| *byte == value)
}

#[test]
fn a_block_device_is_told_apart_held_and_used() {
    let Some(disk) = Loop::new() else { return };
    let device = RealDevice::open(&disk.path, IF_POSSIBLE).expect("a device");
    assert_eq!(
        (device.kind(), device.size_bytes()),
        (DeviceKind::Block, SIZE)
    );
    assert!(device.is_direct());
    assert!(device.logical_block_bytes() >= 512);
    assert!(
        device.identity().starts_with("loop:/tmp/forebay-io"),
        "{}",
        device.identity()
    );
    let error = RealDevice::open(&disk.path, IF_POSSIBLE).expect_err("held by us");
    assert!(matches!(error, OpenError::Busy { .. }), "{error}");

    let mut storage = device.storage().expect("buffers");
    storage.write(8192, &[5; 16_384]).expect("written");
    storage.flush().expect("flushed");

    let discards = device.can_discard();
    let mut rig = Rig::with(device, None, 16);
    let buf = rig.buf(16_384, 0);
    assert_eq!(rig.read(8192, &[buf]), Ok(()));
    assert!(all(&rig, buf, 5));
    assert_eq!(rig.flush(), Ok(()));
    let discard = Operation::Discard {
        offset_bytes: 8192,
        len_bytes: 16_384,
    };
    if discards {
        assert_eq!(rig.run(discard), Ok(()));
        assert_eq!(rig.read(8192, &[buf]), Ok(()));
        assert!(all(&rig, buf, 0), "a loop device's discards leave zeroes");
    } else {
        assert_eq!(rig.run(discard), Err(DeviceError::Unsupported));
    }
    rig.arena.bytes_mut(buf).fill(6);
    assert_eq!(rig.write(32_768, &[buf]), Ok(()));
    let zeroes = Operation::WriteZeroes {
        offset_bytes: 32_768,
        len_bytes: 16_384,
    };
    assert_eq!(rig.run(zeroes), Ok(()));
    assert_eq!(rig.read(32_768, &[buf]), Ok(()));
    assert!(all(&rig, buf, 0));
}

#[test]
fn a_mounted_block_device_is_refused_with_its_mount_point() {
    let Some(disk) = Loop::new() else { return };
    if run("mkfs.ext4", &["-q", disk.name()]).is_none() {
        println!("skipped: no mkfs.ext4");
        return;
    }
    let Some(mount) = Mount::new(&[disk.name()]) else {
        return;
    };
    let error = RealDevice::open(&disk.path, IF_POSSIBLE).expect_err("mounted");
    let at = format!("mounted on {}", mount.0.display());
    assert!(error.to_string().contains(&at), "{error}");
    assert!(error.to_string().contains("unmount it"), "{error}");
}

#[test]
fn a_full_file_system_is_no_space() {
    let Some(mount) = Mount::new(&["-t", "tmpfs", "-o", "size=2m", "tmpfs"]) else {
        return;
    };
    let path = mount.0.join("volume");
    sparse(&path);
    let mut rig = Rig::new(&path);
    let buf = rig.buf(4 << 20, 1);
    assert_eq!(rig.write(0, &[buf]), Err(DeviceError::NoSpace));
    assert_eq!(rig.driver.counters().failures, 1);
    // The driver goes on.
    let page = buf.slice(0, 4096);
    assert_eq!(rig.read(1 << 20, &[page]), Ok(()));
    drop(rig);
    let mut storage = RealDevice::open(&path, IF_POSSIBLE)
        .expect("a device")
        .storage()
        .expect("buffers");
    assert_eq!(
        storage.write(4 << 20, &[1; 3 << 20]),
        Err(DeviceError::NoSpace)
    );
}

fn sparse(path: &Path) {
    let file = std::fs::File::create_new(path).expect("a file");
    file.set_len(SIZE).expect("its size");
}
