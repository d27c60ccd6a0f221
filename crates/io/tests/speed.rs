//! The data path's own cost: 4 KiB reads at depth 32 from memory, each checked.

mod common;

use std::time::Instant;

use common::{Rig, Scratch};
use forebay_engine::{Buf, Bufs, Memory, Operation};

const PAGES: u64 = 4096;

#[test]
fn reads_are_cheap_and_right() {
    let scratch = Scratch::file("/dev/shm", PAGES * 4096);
    for registered in [false, true] {
        let mut rig = Rig::new(&scratch.0);
        if registered {
            rig.register_memory();
        }
        let page = rig.buf(4096, 0);
        for index in 0..PAGES {
            rig.arena.bytes_mut(page)[..8].copy_from_slice(&index.to_le_bytes());
            assert_eq!(rig.write(index * 4096, &[page]), Ok(()));
        }
        let bufs: Vec<Buf> = (0..32).map(|_| rig.buf(4096, 0)).collect();
        let begin = Instant::now();
        let mut checked = 0;
        for round in 0..2_000u64 {
            let place = |index: u64| (round * 32 + index) * 7_919 % PAGES;
            for (index, buf) in bufs.iter().enumerate() {
                let offset_bytes = place(index as u64) * 4096;
                rig.submit(Operation::Read {
                    offset_bytes,
                    bufs: Bufs::from_slice(&[*buf]),
                });
            }
            assert!(rig.wait(32).iter().all(|done| done.result.is_ok()));
            for (index, buf) in bufs.iter().enumerate() {
                let got = &rig.arena.bytes(*buf)[..8];
                assert_eq!(got, place(index as u64).to_le_bytes());
                checked += 1;
            }
        }
        let each_us = begin.elapsed().as_secs_f64() * 1e6 / f64::from(checked);
        println!("{checked} reads checked, {each_us:.2} us each, registered: {registered}");
        assert!(each_us < 100.0, "{each_us} us");
    }
    let mut arena = Rig::new(&scratch.0).arena;
    let begin = Instant::now();
    for _ in 0..1_000_000 {
        let buf = arena.alloc(4096).expect("memory");
        arena.free(buf);
    }
    println!(
        "a page allocated and freed: {:.1} ns",
        begin.elapsed().as_secs_f64() * 1e3
    );
}
