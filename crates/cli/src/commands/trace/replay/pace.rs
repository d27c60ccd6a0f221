//! A real target in real time: operations are handed to threads when their time has come, each of
//! which does one and waits for it. When all are busy the replay falls behind, and says so.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, sync_channel};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use anyhow::{Result, anyhow};

use super::super::progress::Progress;
use super::operations::{Operation, Operations};
use super::tally::Tally;
use super::target::{Failed, Session, Target};
use crate::args::ReplayArgs;
use crate::lock::lock;
use crate::thread;

/// The longest sleep without a look at Ctrl-C.
const NAP: Duration = Duration::from_millis(50);
/// Requests between two looks while there is no time to sleep.
const STEP: u64 = 64;

/// Drives the target with all operations.
pub(super) fn run(
    args: &ReplayArgs,
    target: &Target,
    operations: &mut Operations,
    progress: &Progress,
) -> Result<Tally> {
    // Handed over, never stored: an operation that is taken is under way.
    let (sender, receiver) = sync_channel::<Operation>(0);
    let receiver = Arc::new(Mutex::new(receiver));
    let lost = Arc::new(AtomicBool::new(false));
    let mut threads = Vec::new();
    for _ in 0..args.depth {
        let session = (target.open)()?;
        let (receiver, lost) = (Arc::clone(&receiver), Arc::clone(&lost));
        let work = move || work(session, &receiver, &lost);
        threads.push(thread::start("forebay-replay", work)?);
    }
    // With the last thread the receiver goes, and sending ends.
    drop(receiver);
    let began = Instant::now();
    let mut tally = Tally::default();
    let mut sent = 0u64;
    let read = loop {
        let operation = match operations.next() {
            Ok(Some(operation)) => operation,
            Ok(None) => break Ok(()),
            Err(error) => break Err(error),
        };
        let due = match operation.due_ns(args.speed) {
            Ok(due_ns) => due_ns.map(Duration::from_nanos),
            Err(error) => break Err(error),
        };
        tally.interrupted = !wait_until(began, due, sent, progress);
        if tally.interrupted || lost.load(Ordering::Relaxed) || sender.send(operation).is_err() {
            break Ok(());
        }
        sent += 1;
        if let Some(due) = due {
            let late = began.elapsed().saturating_sub(due);
            tally.behind.note(late.as_nanos() as u64);
        }
    };
    drop(sender);
    join(threads, &mut tally)?;
    tally.took_ns = began.elapsed().as_nanos() as u64;
    read?;
    Ok(tally)
}

/// Says no if the user does not want to wait any longer.
fn wait_until(began: Instant, due: Option<Duration>, sent: u64, progress: &Progress) -> bool {
    let say = |_| format!("{sent} requests replayed");
    let mut look = sent.is_multiple_of(STEP);
    loop {
        if look && !progress.advance(0, say) {
            return false;
        }
        let left = due.map_or(Duration::ZERO, |due| due.saturating_sub(began.elapsed()));
        if left.is_zero() {
            return true;
        }
        std::thread::sleep(left.min(NAP));
        look = true;
    }
}

fn work(
    mut session: Box<dyn Session>,
    operations: &Mutex<Receiver<Operation>>,
    lost: &AtomicBool,
) -> Tally {
    let mut tally = Tally::default();
    loop {
        let next = lock(operations).recv();
        let Ok(operation) = next else { return tally };
        let began = Instant::now();
        match session.carry_out(&operation) {
            Ok(()) => tally.answered(&operation, began.elapsed().as_nanos() as u64),
            Err(Failed::Refused(why)) => tally.failed_with(&operation, why),
            Err(Failed::Lost(why)) => {
                lost.store(true, Ordering::Relaxed);
                tally.lost = Some(why);
                return tally;
            }
        }
    }
}

fn join(threads: Vec<JoinHandle<Tally>>, tally: &mut Tally) -> Result<()> {
    for thread in threads {
        let part = thread
            .join()
            .map_err(|_| anyhow!("a thread of the replay broke down (it says where above); this is a bug: report it, with the log"))?;
        tally.add(part);
    }
    Ok(())
}
