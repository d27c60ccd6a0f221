//! The ways a driver falls back to, forced on a device that would not need them.

use std::path::PathBuf;
use std::time::Duration;

use forebay_engine::Memory;

use super::*;
use crate::{DirectIo, OpenHow, Pool};

struct Scratch(PathBuf);

impl Scratch {
    fn new(name: &str) -> Scratch {
        let path = std::env::temp_dir().join(format!("forebay-{name}-{}", std::process::id()));
        std::fs::write(&path, vec![7; 4 << 20]).expect("a scratch file");
        Scratch(path)
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

/// Runs one operation on a scratch file after `prepare` had its way with what the driver knows.
fn check(
    scratch: &Scratch,
    prepare: impl FnOnce(&mut Attached),
    operation: Operation,
    expected: Result<(), DeviceError>,
) {
    let mut arena = Pool::new(1 << 20)
        .expect("a pool")
        .split(1)
        .expect("an arena")
        .remove(0);
    assert!(arena.alloc(4096).is_some());
    let mut ring = Uring::new(8, arena.view().clone()).expect("a ring");
    let how = OpenHow {
        direct: DirectIo::IfPossible,
        read_only: false,
    };
    let device = RealDevice::open(&scratch.0, how).expect("a device");
    let mut driver = Driver::new(4);
    let added = driver.add_device(&mut ring, device, None);
    prepare(driver.devices.get_mut(added.0).expect("just added"));
    driver.route(0, Device::Cache(0), added);
    let mut done = Vec::new();
    let action = Action {
        op: OpId(1),
        device: Device::Cache(0),
        operation,
    };
    driver.submit(&mut ring, 0, action, &mut done);
    let mut completions = Vec::new();
    for _ in 0..100 {
        if !done.is_empty() {
            break;
        }
        ring.submit_and_wait(1, Some(Duration::from_millis(100)))
            .expect("a working ring");
        ring.reap(&mut completions);
        for completion in completions.drain(..) {
            driver.complete(&mut ring, &completion, &mut done);
        }
    }
    assert_eq!(
        done,
        [Done {
            what: Carried::Transfer(0, OpId(1)),
            result: expected
        }]
    );
    drop(ring);
}

#[test]
fn zeroes_are_written_where_nothing_else_works() {
    let scratch = Scratch::new("zeroes");
    let len_bytes = (2 << 20) + 8192;
    let operation = Operation::WriteZeroes {
        offset_bytes: 4096,
        len_bytes,
    };
    check(
        &scratch,
        |attached| attached.zero_way = ZeroWay::Write,
        operation,
        Ok(()),
    );
    let bytes = std::fs::read(&scratch.0).expect("still there");
    let end = 4096 + len_bytes as usize;
    assert!(bytes[4096..end].iter().all(|byte| *byte == 0));
    assert!(
        bytes[..4096]
            .iter()
            .chain(&bytes[end..])
            .all(|byte| *byte == 7)
    );
}

/// A file takes neither the ring's discard nor the ioctl, so this goes down the whole chain.
#[test]
fn a_discard_tries_the_ring_then_the_thread_then_gives_up() {
    let scratch = Scratch::new("discard");
    let operation = Operation::Discard {
        offset_bytes: 0,
        len_bytes: 8192,
    };
    let ring_first = |attached: &mut Attached| attached.discard_way = DiscardWay::Ring;
    check(
        &scratch,
        ring_first,
        operation,
        Err(DeviceError::Unsupported),
    );
    let bytes = std::fs::read(&scratch.0).expect("still there");
    assert!(bytes.iter().all(|byte| *byte == 7), "nothing was touched");
}

/// Refuses each waiting operation when its turn comes, from a loop and not from within the
/// operation before.
#[test]
fn a_long_queue_of_refusals_is_no_deep_stack() {
    const COUNT: u32 = 100_000;
    let scratch = Scratch::new("refusals");
    let arena = Pool::new(1 << 20)
        .expect("a pool")
        .split(1)
        .expect("an arena")
        .remove(0);
    let mut ring = Uring::new(8, arena.view().clone()).expect("a ring");
    let how = OpenHow {
        direct: DirectIo::IfPossible,
        read_only: false,
    };
    let device = RealDevice::open(&scratch.0, how).expect("a device");
    let mut driver = Driver::new(1);
    let added = driver.add_device(&mut ring, device, None);
    driver.route(0, Device::Cache(0), added);
    let mut done = Vec::new();
    for op in 0..COUNT {
        let operation = Operation::Discard {
            offset_bytes: 0,
            len_bytes: 4096,
        };
        let action = Action {
            op: OpId(op),
            device: Device::Cache(0),
            operation,
        };
        driver.submit(&mut ring, 0, action, &mut done);
    }
    driver
        .devices
        .get_mut(added.0)
        .expect("just added")
        .discard_way = DiscardWay::None;
    let mut completions = Vec::new();
    ring.submit_and_wait(1, Some(Duration::from_secs(10)))
        .expect("a working ring");
    ring.reap(&mut completions);
    for completion in completions {
        driver.complete(&mut ring, &completion, &mut done);
    }
    assert!(
        done.iter()
            .map(|done| done.what)
            .eq((0..COUNT).map(|op| Carried::Transfer(0, OpId(op))))
    );
    assert!(
        done[1..]
            .iter()
            .all(|done| done.result == Err(DeviceError::Unsupported))
    );
    assert_eq!(driver.in_flight(), 0);
}
