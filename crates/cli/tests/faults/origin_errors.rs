//! S10: an origin that takes no more data is named, with the kernel's reason, wherever a user looks;
//! so is a write that waits for it.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use forebay_faulty::{Fault, Operation};

use crate::support::until;
use crate::world::{Case, World, in_each};

/// Writes of 64 KiB, more than may be dirty together.
const WRITES: u64 = 128;

fn troubles(world: &World, daemon: &crate::support::Daemon) -> Vec<(String, String)> {
    let status = daemon.status(&world.scratch);
    let list = status["trouble"].as_array().unwrap().iter();
    list.map(|trouble| {
        let text = |key: &str| trouble[key].as_str().unwrap().to_owned();
        (text("kind"), text("text"))
    })
    .collect()
}

fn an_origin_refuses_writes(case: Case, world: &mut World) {
    world.with(&[
        "--age",
        "100ms",
        "--dirty-limit",
        "10",
        "--dirty-high",
        "9",
        "--dirty-low",
        "5",
    ]);
    let daemon = world.start();
    world.origin().fail(Fault::of(Operation::Write));
    let mut client = world.client();
    let mut waits = world.client();
    let cause = "cannot write devices/origin (volume origin): Input/output error";
    // More than may be dirty, at places that no long write would have.
    for at in 0..WRITES {
        let place = (at * 37 % 256) * (128 << 10);
        waits.begin_write(place, &vec![7; 64 << 10]).unwrap();
    }
    let answered = Arc::new(AtomicU64::default());
    let count = Arc::clone(&answered);
    let answers = std::thread::spawn(move || {
        // It may wait, and does not fail. Without its daemon there is no answer.
        while let Ok(reply) = waits.reply() {
            assert_eq!(reply.error, 0);
            if count.fetch_add(1, Ordering::AcqRel) + 1 == WRITES {
                return;
            }
        }
    });
    until("the origin to be named", || {
        let found = troubles(world, &daemon);
        found
            .iter()
            .any(|(kind, text)| kind == "origin-failing" && text.contains(cause))
    });
    until("the waiting writes to be named", || {
        let found = troubles(world, &daemon);
        found
            .iter()
            .any(|(kind, text)| kind == "writes-wait" && text.contains(cause))
    });
    until("a word of that in the log", || {
        daemon.log().contains("Writes wait until it does")
    });
    let log = daemon.log();
    let lines = log.matches("of devices/origin: Input/output error").count();
    assert!((1..8).contains(&lines), "{log}");
    client.read(0, 4096);
    assert!(answered.load(Ordering::Acquire) < WRITES, "none waits");
    drop(client);
    // Once is enough: the origin is tried again after half a minute.
    if case.commit == "flush" {
        world.heal();
        until("the answers", || answered.load(Ordering::Acquire) == WRITES);
    }
    daemon.kill();
    answers.join().unwrap();
}

#[test]
fn an_origin_that_refuses_writes_is_named() {
    in_each(&["writeback"], an_origin_refuses_writes);
}
