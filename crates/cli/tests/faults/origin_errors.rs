//! S10: an origin that takes no more data is named, with the kernel's reason, wherever a user looks;
//! so is a write that waits for it.

use forebay_faulty::{Fault, Operation};

use crate::support::{LIMIT, MIB, until};
use crate::world::{Case, World, in_each};

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
    // More than may be dirty, so that the last writes have no answer.
    for at in 0..16 {
        waits
            .begin_write(at * MIB / 4, &vec![7; 256 << 10])
            .unwrap();
    }
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
    world.heal();
    let began = std::time::Instant::now();
    while waits.waiting() > 0 {
        // From memory, a write without room there goes to the origin, and has its error.
        let error = waits.reply().unwrap().error;
        assert!(error == 0 || case.commit == "memory", "error {error}");
        assert!(began.elapsed() < LIMIT);
    }
    drop((client, waits));
    daemon.kill();
}

#[test]
fn an_origin_that_refuses_writes_is_named() {
    in_each(&["writeback"], an_origin_refuses_writes);
}
