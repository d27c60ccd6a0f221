//! The driver on real files: data, errors, flushes, queues.

mod common;

use common::{NAME, Rig, SHARD, Scratch};
use forebay_engine::format::extents::address;
use forebay_engine::{Action, Buf, Bufs, Device, DeviceError, Memory, OpId, Operation};
use forebay_io::{Carried, DriverError};

const SIZE: u64 = 16 << 20;

#[test]
fn what_is_written_is_read() {
    for directory in ["/tmp", "/dev/shm"] {
        for registered in [false, true] {
            let scratch = Scratch::file(directory, SIZE);
            let mut rig = Rig::new(&scratch.0);
            if registered {
                rig.register_memory();
            }
            let one = rig.buf(8192, 1);
            let other = rig.buf(4096, 2);
            let far = rig.buf(65_536, 3);
            assert_eq!(
                rig.write(4096, &[one.slice(4096, 4096), far, other]),
                Ok(())
            );
            assert_eq!(rig.write(0, &[one.slice(0, 4096)]), Ok(()));
            assert_eq!(rig.flush(), Ok(()));
            let back = rig.buf(77_824, 0);
            assert_eq!(rig.read(0, &[back]), Ok(()));
            let bytes = rig.arena.bytes(back);
            assert!(bytes[..8192].iter().all(|byte| *byte == 1));
            assert!(bytes[8192..73_728].iter().all(|byte| *byte == 3));
            assert!(bytes[73_728..].iter().all(|byte| *byte == 2));
        }
    }
}

#[test]
fn more_buffers_than_one_vector_holds_are_transferred() {
    let scratch = Scratch::file("/tmp", SIZE);
    let mut rig = Rig::new(&scratch.0);
    // Every other page, so that neighbours cannot be joined.
    let pages: Vec<Buf> = (0..4_000)
        .map(|index| rig.buf(4096, (index / 2) as u8))
        .collect();
    let apart: Vec<Buf> = pages.iter().step_by(2).copied().collect();
    assert_eq!(rig.write(0, &apart), Ok(()));
    assert!(
        rig.driver.counters().short_transfers > 0,
        "the kernel takes 1,024 at once"
    );
    for buf in &apart {
        rig.arena.bytes_mut(*buf).fill(0xff);
    }
    assert_eq!(rig.read(0, &apart), Ok(()));
    for (index, buf) in apart.iter().enumerate() {
        assert!(
            rig.arena
                .bytes(*buf)
                .iter()
                .all(|byte| *byte == index as u8),
            "page {index}"
        );
    }
}

#[test]
fn ranges_past_the_end_fail_and_do_not_grow_the_file() {
    let scratch = Scratch::file("/tmp", SIZE);
    let mut rig = Rig::new(&scratch.0);
    let buf = rig.buf(8192, 9);
    assert_eq!(rig.read(SIZE - 4096, &[buf]), Err(DeviceError::Io));
    assert_eq!(rig.write(SIZE - 4096, &[buf]), Err(DeviceError::Io));
    assert_eq!(rig.write((1 << 56) - 4096, &[buf]), Err(DeviceError::Io));
    let past = Operation::WriteZeroes {
        offset_bytes: SIZE,
        len_bytes: 4096,
    };
    assert_eq!(rig.run(past), Err(DeviceError::Io));
    assert_eq!(
        std::fs::metadata(&scratch.0).expect("still there").len(),
        SIZE
    );
    // A file cut short under the driver ends early.
    std::fs::File::options()
        .write(true)
        .open(&scratch.0)
        .expect("ours")
        .set_len(4096)
        .expect("cut");
    assert_eq!(rig.read(8192, &[buf]), Err(DeviceError::Io));
    assert_eq!(
        rig.read(0, &[buf]),
        Err(DeviceError::Io),
        "short is not done"
    );
}

#[test]
fn unknown_devices_are_gone() {
    let scratch = Scratch::file("/tmp", SIZE);
    let mut rig = Rig::new(&scratch.0);
    let buf = rig.buf(4096, 1);
    let elsewhere = Operation::Read {
        offset_bytes: address(1, 0),
        bufs: Bufs::from_slice(&[buf]),
    };
    for (shard, operation) in [(SHARD, elsewhere.clone()), (99, elsewhere)] {
        let action = Action {
            op: OpId(5),
            device: NAME,
            operation,
        };
        rig.driver
            .submit(&mut rig.ring, shard, action, &mut rig.done);
        let done = rig.wait(1);
        let what = Carried::Transfer(shard, OpId(5));
        assert_eq!(
            (done[0].what, done[0].result),
            (what, Err(DeviceError::Gone))
        );
    }
}

#[test]
fn zeroes_and_discards_read_as_zeroes() {
    for directory in ["/tmp", "/dev/shm"] {
        let scratch = Scratch::file(directory, SIZE);
        let mut rig = Rig::new(&scratch.0);
        let buf = rig.buf(4 << 20, 7);
        assert_eq!(rig.write(0, &[buf]), Ok(()));
        let zeroes = Operation::WriteZeroes {
            offset_bytes: 4096,
            len_bytes: (3 << 20) + 4096,
        };
        assert_eq!(rig.run(zeroes), Ok(()));
        assert_eq!(
            rig.run(Operation::Discard {
                offset_bytes: 0,
                len_bytes: 4096
            }),
            Ok(())
        );
        assert_eq!(rig.read(0, &[buf]), Ok(()));
        let bytes = rig.arena.bytes(buf);
        assert!(bytes[..(3 << 20) + 8192].iter().all(|byte| *byte == 0));
        assert!(bytes[(3 << 20) + 8192..].iter().all(|byte| *byte == 7));
    }
}

/// An address says which of a cache's devices is meant.
#[test]
fn devices_of_a_cache_are_addressed() {
    let (first, second) = (Scratch::file("/tmp", SIZE), Scratch::file("/tmp", SIZE));
    let mut rig = Rig::new(&first.0);
    let device = forebay_io::RealDevice::open(&second.0, common::IF_POSSIBLE).expect("a device");
    let added = rig.driver.add_device(&mut rig.ring, device, None);
    rig.driver.route(SHARD, Device::Cache(1), added);
    let (here, there) = (rig.buf(4096, 1), rig.buf(4096, 2));
    assert_eq!(rig.write(8192, &[here]), Ok(()));
    assert_eq!(rig.write(address(1, 8192), &[there]), Ok(()));
    let past = address(1, SIZE);
    assert_eq!(rig.write(past, &[there]), Err(DeviceError::Io));
    for (scratch, byte) in [(&first, 1), (&second, 2)] {
        let held = std::fs::read(&scratch.0).expect("a file");
        assert!(held[8192..12_288].iter().all(|held| *held == byte));
    }
    assert_eq!(rig.driver.remove_device(&mut rig.ring, added), Ok(()));
    assert_eq!(rig.write(address(1, 0), &[there]), Err(DeviceError::Gone));
    assert_eq!(rig.flush(), Ok(()));
}

#[test]
fn what_exceeds_the_bound_waits_its_turn() {
    let scratch = Scratch::file("/tmp", SIZE);
    let device = forebay_io::RealDevice::open(&scratch.0, common::IF_POSSIBLE).expect("a device");
    let mut rig = Rig::with(device, None, 2);
    let bufs: Vec<Buf> = (0..100).map(|index| rig.buf(4096, index)).collect();
    for (index, buf) in bufs.iter().enumerate() {
        let bufs = Bufs::from_slice(&[*buf]);
        rig.submit(Operation::Write {
            offset_bytes: index as u64 * 4096,
            bufs,
        });
        // Two transfers and the watch for wakeups.
        assert!(rig.ring.in_flight() <= 3);
    }
    assert_eq!(
        rig.driver.remove_device(&mut rig.ring, rig.device),
        Err(DriverError::Busy)
    );
    assert!(rig.wait(100).iter().all(|done| done.result.is_ok()));
    let back = rig.buf(409_600, 0xff);
    assert_eq!(rig.read(0, &[back]), Ok(()));
    for (index, page) in rig.arena.bytes(back).chunks(4096).enumerate() {
        assert!(page.iter().all(|byte| *byte == index as u8));
    }
    assert_eq!(rig.driver.remove_device(&mut rig.ring, rig.device), Ok(()));
    assert_eq!(
        rig.driver.remove_device(&mut rig.ring, rig.device),
        Err(DriverError::Unknown)
    );
    assert_eq!(rig.flush(), Err(DeviceError::Gone));
}

/// The kernel takes rings apart in its own time; devices must be free all the same.
#[test]
fn a_device_is_free_as_soon_as_it_is_let_go() {
    let scratch = Scratch::file("/tmp", SIZE);
    for round in 0..50 {
        let mut rig = Rig::new(&scratch.0);
        let buf = rig.buf(4096, round);
        assert_eq!(rig.write(0, &[buf]), Ok(()));
        if round % 2 == 0 {
            assert_eq!(rig.driver.remove_device(&mut rig.ring, rig.device), Ok(()));
            let again = forebay_io::RealDevice::open(&scratch.0, common::IF_POSSIBLE);
            assert!(again.is_ok(), "{again:?}");
        }
    }
}
