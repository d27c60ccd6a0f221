//! A stop over a device that does not answer, which a second signal ends.

use std::time::Duration;

use forebay_faulty::Operation;

use crate::ledger::Kept;
use crate::support::until;
use crate::world::{BLOCK, Case, World, in_each};

/// Much longer than the end after a second signal takes. The kernel does not let a process go before.
const UNANSWERED: Duration = Duration::from_secs(10);

fn a_second_signal_ends_the_stop(_: Case, world: &mut World) {
    world.dirty_stays();
    let daemon = world.start();
    let mut client = world.client();
    assert!(world.ledger.write_run(&mut client, 100, 24));
    world.origin().delay(Operation::Read, UNANSWERED);
    client.begin_read(5000 * BLOCK, BLOCK as u32).unwrap();
    daemon.signal("-TERM");
    until("the stop to begin", || {
        daemon.log().contains("stopping in order")
    });
    daemon.signal("-TERM");
    until("the second signal to end the stop", || {
        daemon.log().contains("second signal")
    });
    daemon.kill();
    world.recover(Kept::Acknowledged);
}

#[test]
fn a_second_signal_ends_a_stop_over_a_device_that_does_not_answer() {
    in_each(&["writeback"], a_second_signal_ends_the_stop);
}
