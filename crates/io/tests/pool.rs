//! The buffer pool and the crash journal.

mod common;

use common::Scratch;
use forebay_engine::{Buf, Memory};
use forebay_io::{Arena, Pool, PoolError, SharedMemory, SharedMemoryError};

fn arenas(len_bytes: usize, count: usize) -> Vec<Arena> {
    Pool::new(len_bytes)
        .expect("a pool")
        .split(count)
        .expect("arenas")
}

#[test]
fn buffers_are_aligned_apart_and_all_come_back() {
    let mut arena = arenas(1000 * 4096, 1).remove(0);
    let all = arena.free_bytes();
    let mut held: Vec<(Buf, u8)> = Vec::new();
    let mut state = 7u64;
    for round in 0..20_000u32 {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        let choice = (state >> 33) as usize;
        if choice.is_multiple_of(2) || held.is_empty() {
            let len_bytes = [512, 4096, 4097, 65_536, 300_000][choice / 2 % 5];
            if let Some(buf) = arena.alloc(len_bytes) {
                assert_eq!(buf.start_sector % 8, 0);
                assert_eq!(arena.bytes(buf).as_ptr() as usize % 4096, 0);
                let fill = round as u8;
                arena.bytes_mut(buf).fill(fill);
                held.push((buf, fill));
            }
        } else {
            let (buf, fill) = held.swap_remove(choice / 2 % held.len());
            assert!(
                arena.bytes(buf).iter().all(|byte| *byte == fill),
                "nobody else wrote here"
            );
            arena.free(buf);
        }
    }
    for (buf, _) in held.drain(..) {
        arena.free(buf);
    }
    assert_eq!(arena.free_bytes(), all);
    let half = arena.alloc(512 * 4096).expect("pieces grew together again");
    arena.free(half);
}

#[test]
fn memory_that_is_short_is_none_and_not_a_panic() {
    let mut arena = arenas(4 * 4096, 1).remove(0);
    assert!(arena.alloc(5 * 4096).is_none());
    assert!(arena.alloc(usize::MAX).is_none());
    let four: Vec<Buf> = (0..4).map(|_| arena.alloc(4096).expect("a page")).collect();
    assert!(arena.alloc(1).is_none());
    assert_eq!(arena.alloc(0), Some(Buf::EMPTY));
    arena.free(Buf::EMPTY);
    for buf in four {
        arena.free(buf);
    }
    assert!(
        arena.alloc(4 * 4096).is_some(),
        "single pages at hand are merged when needed"
    );
}

#[test]
fn buffers_pass_between_threads() {
    let mut both = arenas(64 * 4096, 2);
    let (mut here, mut there) = (both.remove(0), both.remove(0));
    let buf = there.alloc(8192).expect("memory");
    there.bytes_mut(buf).fill(0x5a);
    let slice = buf.slice(4096, 512);
    let there = std::thread::spawn(move || {
        assert!(here.bytes(slice).iter().all(|byte| *byte == 0x5a));
        here.bytes_mut(slice).fill(0xa5);
        there
    });
    let mut there = there.join().expect("the other thread");
    assert!(there.bytes(slice).iter().all(|byte| *byte == 0xa5));
    there.free(buf);
}

#[test]
#[should_panic(expected = "freed once, whole, in its own arena")]
fn a_second_free_is_a_broken_invariant() {
    let mut arena = arenas(64 * 4096, 1).remove(0);
    let buf = arena.alloc(4096).expect("memory");
    arena.free(buf);
    arena.free(buf);
}

#[test]
fn impossible_pools_are_refused() {
    assert!(matches!(Pool::new(0), Err(PoolError::Size { .. })));
    assert!(matches!(Pool::new(usize::MAX), Err(PoolError::Size { .. })));
    let pool = Pool::new(4096).expect("a page");
    assert!(matches!(pool.split(2), Err(PoolError::Size { .. })));
}

#[test]
fn a_ring_outlives_its_user_and_has_one_at_a_time() {
    let scratch = Scratch::new("/dev/shm");
    let mut journal = SharedMemory::create(&scratch.0, 1 << 20).expect("a new journal");
    journal.bytes_mut()[12_345] = 7;
    assert!(matches!(
        SharedMemory::open(&scratch.0, 1 << 20),
        Err(SharedMemoryError::InUse { .. })
    ));
    assert!(matches!(
        SharedMemory::create(&scratch.0, 4096),
        Err(SharedMemoryError::Io { .. })
    ));
    drop(journal);
    assert!(matches!(
        SharedMemory::open(&scratch.0, 1 << 19),
        Err(SharedMemoryError::Foreign { .. })
    ));
    let journal = SharedMemory::open(&scratch.0, 1 << 20).expect("the journal left behind");
    let mut arena = arenas(4096, 1).remove(0);
    arena.attach_journal(2, journal);
    assert_eq!(arena.journal_mut(2)[12_345], 7);
    arena
        .detach_journal(2)
        .expect("attached")
        .remove()
        .expect("removed");
    assert!(!scratch.0.exists());
}

#[test]
fn a_ring_others_may_read_is_foreign() {
    use std::os::unix::fs::PermissionsExt;
    let scratch = Scratch::file("/dev/shm", 4096);
    std::fs::set_permissions(&scratch.0, std::fs::Permissions::from_mode(0o644)).expect("mode");
    assert!(matches!(
        SharedMemory::open(&scratch.0, 4096),
        Err(SharedMemoryError::Foreign { .. })
    ));
}

#[test]
fn an_empty_file_is_none_and_is_removed() {
    for len_bytes in [None, Some(4096)] {
        let scratch = Scratch::file("/dev/shm", 0);
        let opened = match len_bytes {
            None => SharedMemory::open_whole(&scratch.0),
            Some(len_bytes) => SharedMemory::open(&scratch.0, len_bytes),
        };
        let error = opened.expect_err("there is nothing to map");
        assert!(error.is_absence(), "{error}");
        assert!(!scratch.0.exists());
    }
}
