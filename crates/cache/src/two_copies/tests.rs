use std::sync::Arc;

use forebay_engine::format::extents::address;
use forebay_engine::{Geometry, NoMemory};

use super::*;
use crate::shared::Shared;

const NOW: Nanos = Nanos(0);

/// A thread of a cache on devices 0 and 1.
fn host() -> Host<u32> {
    let geometry = Geometry::for_device(1 << 30, 4096, Some(1), 1).expect("a geometry");
    let mut host = Host::new((0, 1), vec![0], geometry, Arc::new(Shared::default()));
    host.keep_two(0);
    (0..2).for_each(|device| host.add_cache_device(device));
    host
}

/// A read of device 1 that a shard wants, and the name that it goes out by.
fn read(host: &mut Host<u32>, op: u32) -> OpId {
    let operation = Operation::Read {
        offset_bytes: address(1, 4096),
        bufs: Default::default(),
    };
    let action = Action {
        op: OpId(op),
        device: Device::Cache(0),
        operation,
    };
    host.order_transfer(NOW, 0, action);
    match host.next_order() {
        Some(Order::Transfer(0, action)) => action.op,
        other => panic!("{other:?}"),
    }
}

fn ended(host: &mut Host<u32>, name: OpId, result: Result<(), DeviceError>) {
    assert!(host.took_part(NOW, 0, name, result, &mut NoMemory::default()));
}

#[test]
fn a_read_that_is_not_timed_tells_that_its_device_is_gone() {
    let mut host = host();
    let timed = read(&mut host, 7);
    assert_ne!(timed.0 & OF_TABLE, 0, "the first is timed");
    let untimed = read(&mut host, 7);
    assert_eq!(untimed.0 & OF_TABLE, 0);
    ended(&mut host, untimed, Ok(()));
    assert!(!host.has_lost(1));
    let untimed = read(&mut host, 8);
    ended(&mut host, untimed, Err(DeviceError::Gone));
    assert!(host.has_lost(1) && !host.has_lost(0));
    ended(&mut host, timed, Ok(()));
}

#[test]
fn errors_of_reads_count_whether_they_are_timed_or_not() {
    let mut host = host();
    for op in 0..MOST_READ_ERRORS {
        assert!(!host.has_lost(1), "after {op}");
        let name = read(&mut host, op);
        ended(&mut host, name, Err(DeviceError::Io));
    }
    assert!(host.has_lost(1));
}

#[test]
fn a_read_counts_as_in_flight_until_it_ends() {
    let mut host = host();
    let names: Vec<OpId> = (0..20).map(|op| read(&mut host, op)).collect();
    assert_eq!(host.two.loads.sooner([1, 0]), 1, "device 1 has a queue");
    for name in names {
        ended(&mut host, name, Ok(()));
    }
    assert_eq!(host.two.loads.sooner([1, 0]), 0);
}
