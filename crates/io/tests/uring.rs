//! Sockets, timers and wakeups on one ring.

use std::io::{Read, Write};
use std::os::fd::{AsFd, FromRawFd, OwnedFd};
use std::os::unix::net::{UnixListener, UnixStream};
use std::time::{Duration, Instant};

use forebay_engine::Memory;
use forebay_io::{Arena, Completion, Pool, SendPart, Token, Uring};

fn rig() -> (Uring, Arena) {
    let arena = Pool::new(1 << 20)
        .expect("a pool")
        .split(1)
        .expect("an arena")
        .remove(0);
    (Uring::new(8, arena.view().clone()).expect("a ring"), arena)
}

fn wait(ring: &mut Uring, count: usize) -> Vec<Completion> {
    let begin = Instant::now();
    let mut completions = Vec::new();
    while completions.len() < count {
        assert!(
            begin.elapsed() < Duration::from_secs(20),
            "the ring is stuck"
        );
        ring.submit_and_wait(1, Some(Duration::from_millis(500)))
            .expect("a working ring");
        ring.reap(&mut completions);
    }
    completions
}

#[test]
fn a_connection_is_accepted_and_carries_data_both_ways() {
    let (mut ring, mut arena) = rig();
    let path = std::env::temp_dir().join(format!("forebay-io-{}.sock", std::process::id()));
    let _ = std::fs::remove_file(&path);
    let listener = UnixListener::bind(&path).expect("a listener");
    ring.accept(listener.as_fd(), Token::new(1, 9));
    let mut peer = UnixStream::connect(&path).expect("a connection");
    let accepted = wait(&mut ring, 1)[0];
    assert_eq!(accepted.token, Token::new(1, 9));
    assert!(accepted.result >= 0);
    // SAFETY: the kernel gave this descriptor to us alone.
    let socket = unsafe { OwnedFd::from_raw_fd(accepted.result) };

    let buf = arena.alloc(4096).expect("memory");
    ring.recv(socket.as_fd(), buf, Token::new(2, 0));
    peer.write_all(b"request").expect("sent");
    assert_eq!(wait(&mut ring, 1)[0].result, 7);
    assert_eq!(&arena.bytes(buf)[..7], b"request");

    let (head, tail) = (buf.slice(0, 3), buf.slice(512, 4));
    arena.bytes_mut(head).copy_from_slice(b"one");
    arena.bytes_mut(tail).copy_from_slice(b"two!");
    let parts = [head, tail]
        .map(|buf| SendPart::Buf { buf, skip_bytes: 0 })
        .into_iter();
    ring.send_parts(socket.as_fd(), parts.into_iter(), Token::new(3, 1));
    let sent = wait(&mut ring, 1)[0];
    assert_eq!((sent.token, sent.result), (Token::new(3, 1), 7));
    ring.send(socket.as_fd(), head, Token::new(3, 2));
    assert_eq!(wait(&mut ring, 1)[0].result, 3);
    let mut got = [0; 10];
    peer.read_exact(&mut got).expect("received");
    assert_eq!(&got, b"onetwo!one");
    let _ = std::fs::remove_file(&path);
}

#[test]
fn other_threads_wake_the_ring() {
    let (mut ring, _arena) = rig();
    for _ in 0..3 {
        let waker = ring.waker();
        let thread = std::thread::spawn(move || {
            std::thread::sleep(Duration::from_millis(5));
            waker.wake();
            waker.wake();
        });
        assert_eq!(wait(&mut ring, 1)[0].token, Token::WAKE);
        thread.join().expect("the waker");
        // A wake that came after the first was seen makes a completion of its own.
        ring.submit_and_wait(1, Some(Duration::from_millis(20)))
            .expect("a working ring");
        ring.reap(&mut Vec::new());
    }
}

#[test]
fn timers_fire_in_order_and_waits_end() {
    let (mut ring, _arena) = rig();
    let begin = Instant::now();
    ring.submit_and_wait(1, Some(Duration::from_millis(20)))
        .expect("a working ring");
    assert!(
        begin.elapsed() >= Duration::from_millis(19),
        "nothing was there to wake it"
    );
    let mut now = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: the kernel writes one timespec.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &raw mut now) };
    let now_ns = now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64;
    // More than the submission queue holds.
    for index in (0..40u64).rev() {
        ring.timer(now_ns + (20 + index) * 1_000_000, Token::new(7, index));
    }
    let fired = wait(&mut ring, 40);
    assert!(
        fired
            .iter()
            .map(|completion| completion.token.value())
            .eq(0..40)
    );
    assert!(
        fired
            .iter()
            .all(|completion| completion.result == -libc::ETIME)
    );
}

#[test]
fn a_ring_with_operations_on_their_way_is_dropped_at_once() {
    let (mut ring, mut arena) = rig();
    let (one, _other) = UnixStream::pair().expect("sockets");
    let buf = arena.alloc(4096).expect("memory");
    ring.recv(one.as_fd(), buf, Token::new(1, 1));
    ring.submit_and_wait(0, None).expect("a working ring");
    assert_eq!(ring.in_flight(), 2, "the receive and the watch for wakeups");
    let begin = Instant::now();
    drop(ring);
    assert!(
        begin.elapsed() < Duration::from_secs(2),
        "cancelled, not waited for"
    );
}
