//! Flushes between the threads of one cache (I21), with messages delivered by hand.

use std::sync::Arc;

use forebay_cache::{ClientRequest, Host, Message, Order, Plain, Shard, Shared};
use forebay_engine::{
    BlockKey, Buf, Device, DeviceError, Failure, Geometry, Mode, Nanos, NoMemory, RequestKind,
    VolumeConfig, VolumeSlot,
};

const VOLUME: VolumeSlot = VolumeSlot(0);
const ORIGIN: Device = Device::Origin(VOLUME);
const NOW: Nanos = Nanos(0);

/// A thread of so many with one shard of its own.
fn host(
    (index, count): (u16, u16),
    (owners, shard): (Vec<u16>, u16),
    shared: &Arc<Shared>,
) -> Host<u32> {
    let shards = owners.len() as u16;
    let geometry = Geometry::for_device(1 << 30, 4096, Some(1), shards).expect("a geometry");
    let mut host = Host::new((index, count), owners, geometry, Arc::clone(shared));
    host.add_shard(shard, Shard::Plain(Box::<Plain>::default()));
    let config = VolumeConfig {
        base: BlockKey(0),
        reserved_blocks: 256,
        size_bytes: 1 << 20,
        mode: Mode::Passthrough,
    };
    host.add_volume(VOLUME, config);
    host
}

/// Threads that share one origin, and nothing else.
fn hosts(count: u16) -> Vec<Host<u32>> {
    let shared = Arc::new(Shared::default());
    let own = |index| host((index, count), (vec![index], 0), &shared);
    (0..count).map(own).collect()
}

/// Threads that ask each other's shards.
fn hosts_with_a_shard_each() -> [Host<u32>; 2] {
    let shared = Arc::new(Shared::default());
    [0, 1].map(|index| host((index, 2), (vec![0, 1], index), &shared))
}

/// Asks for a flush; whether the device is to be flushed at once.
fn flush(host: &mut Host<u32>, name: u32) -> bool {
    ask(host, name, ClientRequest::flush(VOLUME))
}

fn ask(host: &mut Host<u32>, name: u32, flush: ClientRequest) -> bool {
    host.submit(NOW, name, flush, [], &mut NoMemory::default());
    host.advance(NOW, &mut NoMemory::default());
    is_ordered(host)
}

fn is_ordered(host: &mut Host<u32>) -> bool {
    matches!(host.next_order(), Some(Order::Flush(device)) if device == ORIGIN)
}

fn ended(host: &mut Host<u32>, result: Result<(), DeviceError>) {
    host.flushed(NOW, ORIGIN, result, &mut NoMemory::default());
    host.advance(NOW, &mut NoMemory::default());
}

fn hears(host: &mut Host<u32>, message: Message) {
    host.receive(NOW, message, &mut NoMemory::default());
    host.advance(NOW, &mut NoMemory::default());
}

fn answers(host: &mut Host<u32>) -> Vec<(u32, Result<(), Failure>)> {
    let mut answers = Vec::new();
    while let Some(answer) = host.next_answer() {
        answers.push((answer.payload, answer.result));
        if let Some(unheard) = answer.unheard {
            host.heard(unheard);
        }
    }
    answers
}

#[test]
fn flushes_wait_for_each_other_and_the_next_serves_all_who_waited() {
    let mut hosts = hosts(3);
    assert!(flush(&mut hosts[0], 1));
    assert!(!flush(&mut hosts[1], 2));
    assert!(!flush(&mut hosts[2], 3));
    ended(&mut hosts[0], Ok(()));
    assert_eq!(answers(&mut hosts[0]), [(1, Ok(()))]);
    let (to, message) = hosts[0].next_message().expect("the gate is handed on");
    assert_eq!(to, 1);
    hears(&mut hosts[1], message);
    assert!(is_ordered(&mut hosts[1]));
    ended(&mut hosts[1], Ok(()));
    let (to, message) = hosts[1].next_message().expect("a result for who waited");
    assert_eq!(to, 2);
    hears(&mut hosts[2], message);
    assert!(!is_ordered(&mut hosts[2]), "one flush served both");
    assert_eq!(answers(&mut hosts[1]), [(2, Ok(()))]);
    assert_eq!(answers(&mut hosts[2]), [(3, Ok(()))]);
}

/// The second flush does not bring back what the first lost. A client that relied on it must hear
/// of it, though the second succeeds and the message about the first is still on its way.
#[test]
fn a_later_success_is_not_believed_before_the_failure_is_known() {
    let mut hosts = hosts(2);
    assert!(flush(&mut hosts[0], 1));
    ended(&mut hosts[0], Err(DeviceError::Io));
    assert!(flush(&mut hosts[1], 2), "the gate is open");
    ended(&mut hosts[1], Ok(()));
    assert_eq!(answers(&mut hosts[1]), [(2, Err(Failure::Io))]);
    assert_eq!(answers(&mut hosts[0]), [(1, Err(Failure::Io))]);
    // Everybody has heard of it now, and what is asked from here on is about newer writes.
    assert!(flush(&mut hosts[1], 3));
    ended(&mut hosts[1], Ok(()));
    assert_eq!(answers(&mut hosts[1]), [(3, Ok(()))]);
}

#[test]
fn the_control_planes_flush_goes_through_the_gate_and_its_failure_is_everybodys() {
    let mut hosts = hosts(2);
    let before = hosts[0].failures_of(ORIGIN);
    assert!(hosts[0].flush_for_control(ORIGIN));
    assert!(is_ordered(&mut hosts[0]));
    assert!(!flush(&mut hosts[1], 1), "one flush at a time");
    ended(&mut hosts[0], Err(DeviceError::Io));
    let ended_flush = hosts[0].next_control_flush().expect("it ended");
    assert_eq!(ended_flush.result, Err(DeviceError::Io));
    assert!(ended_flush.failures > before);
    while let Some((_, message)) = hosts[0].next_message() {
        hears(&mut hosts[1], message);
    }
    assert!(is_ordered(&mut hosts[1]));
    ended(&mut hosts[1], Ok(()));
    assert_eq!(answers(&mut hosts[1]), [(1, Err(Failure::Io))]);
}

/// A command that wrote before somebody else's flush failed must not believe its own.
#[test]
fn the_control_plane_learns_of_failures_since_it_wrote() {
    let mut hosts = hosts(2);
    let before = hosts[0].failures_of(ORIGIN);
    assert!(flush(&mut hosts[1], 1));
    ended(&mut hosts[1], Err(DeviceError::Io));
    assert!(hosts[0].flush_for_control(ORIGIN));
    assert!(is_ordered(&mut hosts[0]));
    ended(&mut hosts[0], Ok(()));
    let ended_flush = hosts[0].next_control_flush().expect("it ended");
    assert!(ended_flush.failures > before, "{ended_flush:?}");
}

/// A flush of a device that the cache goes on without is no failure to clients. A command that wrote
/// to it before must not believe a later flush of it all the same.
#[test]
fn the_control_plane_learns_of_a_failure_that_is_forgiven() {
    const LOST: Device = Device::Cache(1);
    let shared = Arc::new(Shared::default());
    let geometry = Geometry::for_device(1 << 30, 4096, Some(1), 1).expect("a geometry");
    let mut host: Host<u32> = Host::new((0, 1), vec![0], geometry, shared);
    host.add_shard(0, Shard::Plain(Box::<Plain>::default()));
    host.keep_two(0);
    for number in [0, 1] {
        host.add_cache_device(number);
    }
    let before = host.failures_of(LOST);
    for result in [Err(DeviceError::Io), Ok(())] {
        assert!(host.flush_for_control(LOST));
        assert!(matches!(host.next_order(), Some(Order::Flush(LOST))));
        host.flushed(NOW, LOST, result, &mut NoMemory::default());
        let flush = host.next_control_flush().expect("it ended");
        assert_eq!(flush.result, Ok(()), "the cache goes on");
        assert_eq!(flush.covers(before), Err(DeviceError::Io));
    }
    assert!(host.has_lost(1));
    assert_eq!(host.failures_of(Device::Cache(0)), 0);
}

/// Begins a change, takes it to its flush, and has that fail.
fn fails_in_its_flush(host: &mut Host<u32>, name: u32, kind: RequestKind) {
    let request = ClientRequest {
        volume: VOLUME,
        kind,
        offset_bytes: 0,
        len_bytes: 4096,
        flush_after: kind == RequestKind::Discard,
        is_of_daemon: false,
    };
    host.submit(NOW, name, request, [Buf::EMPTY], &mut NoMemory::default());
    host.advance(NOW, &mut NoMemory::default());
    let Some(Order::Transfer(shard, action)) = host.next_order() else {
        panic!("the change comes before its flush");
    };
    host.complete(NOW, shard, action.op, Ok(()), &mut NoMemory::default());
    host.advance(NOW, &mut NoMemory::default());
    assert!(is_ordered(host));
    ended(host, Err(DeviceError::Io));
    assert_eq!(answers(host), [(name, Err(Failure::Io))]);
}

/// A client that hears of a failed trim or write does not learn from it that earlier writes may be
/// lost.
#[test]
fn a_flush_that_fails_for_a_change_alone_fails_the_next_flush_too() {
    for kind in [RequestKind::Discard, RequestKind::Write { fua: true }] {
        let mut hosts = hosts(2);
        fails_in_its_flush(&mut hosts[0], 1, kind);
        assert!(flush(&mut hosts[0], 2), "{kind:?}");
        ended(&mut hosts[0], Ok(()));
        assert_eq!(answers(&mut hosts[0]), [(2, Err(Failure::Io))], "{kind:?}");
        assert!(flush(&mut hosts[0], 3), "{kind:?}");
        ended(&mut hosts[0], Ok(()));
        assert_eq!(answers(&mut hosts[0]), [(3, Ok(()))], "told once: {kind:?}");
    }
}

/// Delivers the messages of one thread to the other.
fn deliver(from: &mut Host<u32>, to: &mut Host<u32>) {
    while let Some((_, message)) = from.next_message() {
        hears(to, message);
    }
}

/// Begins a flush in one thread, and takes it to where the other thread's device is flushed for it.
fn begin_flush(
    asker: &mut Host<u32>,
    other: &mut Host<u32>,
    name: u32,
    own: Result<(), DeviceError>,
) {
    assert!(flush(asker, name));
    ended(asker, own);
    deliver(asker, other);
    assert!(is_ordered(other));
}

/// Takes a flush to its end, which the device carries out well.
fn flush_of_both(asker: &mut Host<u32>, other: &mut Host<u32>, name: u32) {
    begin_flush(asker, other, name, Ok(()));
    ended(other, Ok(()));
    deliver(other, asker);
}

const FAILS: Result<(), DeviceError> = Err(DeviceError::Io);
const FAILED: Result<(), Failure> = Err(Failure::Io);

/// I10: a client's flush has failed in its own thread's shard, but the answer waits for that of the
/// other. Nobody hears that all is well before.
#[test]
fn a_flush_does_not_overtake_the_report_of_another_ones_failure() {
    let [mut first, mut second] = hosts_with_a_shard_each();
    begin_flush(&mut first, &mut second, 1, FAILS);
    ended(&mut second, Ok(()));
    let held: Vec<_> = std::iter::from_fn(|| second.next_message()).collect();
    flush_of_both(&mut second, &mut first, 2);
    assert_eq!(answers(&mut second), [(2, FAILED)]);
    for (_, message) in held {
        hears(&mut first, message);
    }
    assert_eq!(answers(&mut first), [(1, FAILED)]);
    flush_of_both(&mut second, &mut first, 3);
    assert_eq!(answers(&mut second), [(3, Ok(()))], "told once");
}

/// A client that is gone has not heard that its flush failed: the next one does, and the next after
/// that if it is gone as well.
#[test]
fn a_failure_that_a_client_did_not_hear_of_is_the_next_ones() {
    let mut hosts = hosts(1);
    let host = &mut hosts[0];
    assert!(flush(host, 1));
    ended(host, FAILS);
    for name in 2..5 {
        let answer = host.next_answer().expect("it has failed");
        assert_eq!(answer.result, FAILED);
        assert!(answer.unheard.is_some());
        assert!(flush(host, name));
        ended(host, Ok(()));
    }
    assert_eq!(answers(host), [(4, FAILED)]);
    assert!(flush(host, 5));
    ended(host, Ok(()));
    assert_eq!(answers(host), [(5, Ok(()))], "told once");
}

/// The daemon's flush fails as long as no client has heard, and tells none.
#[test]
fn a_flush_of_the_daemon_is_not_heard() {
    let mut hosts = hosts(1);
    let host = &mut hosts[0];
    assert!(flush(host, 1));
    ended(host, FAILS);
    let answer = host.next_answer().expect("it has failed");
    assert_eq!(answer.result, FAILED);
    assert!(ask(host, 2, ClientRequest::flush_of_daemon(VOLUME)));
    ended(host, Ok(()));
    assert_eq!(answers(host), [(2, FAILED)]);
    for (name, result) in [(3, FAILED), (4, Ok(()))] {
        assert!(flush(host, name));
        ended(host, Ok(()));
        assert_eq!(answers(host), [(name, result)]);
    }
}
