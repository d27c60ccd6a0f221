//! Virtual time: what happens next by itself, and that every request ends.

use std::cmp::Reverse;

use forebay_cache::Host;
use forebay_engine::{Engine, Nanos};

use super::{Check, World};

/// More events than a request of a few blocks needs to end, and more for each block of longer ones:
/// each may have to be written back first, one at a time.
const EVENT_LIMIT: u64 = 20_000;
const EVENTS_OF_A_BLOCK: u64 = 100;
/// More virtual time than any request needs to end.
const TIME_LIMIT: Nanos = Nanos(3_600 * Nanos::SECOND.0);

impl World<'_> {
    /// The next thing that happens by itself. False if nothing will, or not before `until`.
    pub(super) fn event(&mut self, until: Option<Nanos>) -> Check<bool> {
        let landing = self.due.peek().map(|Reverse((due, ..))| *due);
        let deadline = self.next_deadline().map(|at| at.max(self.now));
        let record = self.record_due.as_ref().map(|(due, _)| *due);
        let loss = self.loss_due();
        let Some(next) = [landing, deadline, record, loss, self.deliveries.next_due()]
            .into_iter()
            .flatten()
            .min()
        else {
            return Ok(false);
        };
        if until.is_some_and(|until| next > until) {
            return Ok(false);
        }
        if let Some((crash_at, power)) = self.options.crash_at
            && self.submissions >= crash_at
        {
            self.options.crash_at = None;
            self.outcome.counts.add("crash point reached", 1);
            self.crash_here(power)?;
            return Ok(true);
        }
        let advanced = next > self.now;
        self.now = next;
        if record == Some(next) {
            self.put_on_record()?;
        } else if loss == Some(next) {
            self.put_loss_on_record()?;
        } else if self.deliveries.next_due() == Some(next) {
            self.deliver()?;
        } else if landing == Some(next) {
            let Some(Reverse((_, _, at))) = self.due.pop() else {
                return Ok(false);
            };
            self.end_operation(at)?;
        } else {
            let before = self.submissions;
            for host in 0..self.hosts.len() {
                let due = self.hosts[host].next_deadline();
                if due.is_some_and(|at| at <= self.now) {
                    self.pump(host)?;
                }
            }
            let still = self.next_deadline();
            if !advanced && before == self.submissions && still.is_some_and(|at| at <= self.now) {
                // Nothing happens at this deadline, and it does not move.
                if let Some(landing) = landing {
                    self.now = landing;
                    let Some(Reverse((_, _, at))) = self.due.pop() else {
                        return Ok(false);
                    };
                    self.end_operation(at)?;
                } else {
                    return Err(format!(
                        "the engine's deadline {still:?} has come and nothing is done about it"
                    ));
                }
            }
        }
        Ok(true)
    }

    fn next_deadline(&self) -> Option<Nanos> {
        self.hosts.iter().filter_map(Host::next_deadline).min()
    }

    /// Lets everything in flight end.
    pub(super) fn quiesce(&mut self) -> Check {
        self.wait_for_requests(0)?;
        let idle = self.engines().all(Engine::is_idle);
        if idle && self.memory.held != self.held_at_rest {
            let (held, start) = (self.memory.held, self.held_at_rest);
            return Err(format!(
                "{held} buffers are held at rest, {start} at the start: {}",
                self.memory.state()
            ));
        }
        Ok(())
    }

    /// Lets things happen until no more than `left` requests are in flight (bounded liveness).
    pub(super) fn wait_for_requests(&mut self, left: usize) -> Check {
        let blocks: u64 = self.requests.values().map(|on| on.range.count / 8).sum();
        let limit = EVENT_LIMIT + EVENTS_OF_A_BLOCK * blocks;
        let mut began = self.now;
        let mut events = 0;
        while self.requests.len() > left {
            let late = events >= limit || self.now.since(began) > TIME_LIMIT;
            if late
                && (self.cache.faulty
                    || self
                        .origins
                        .iter()
                        .any(|origin| origin.faulty || origin.has_bad_pages()))
            {
                // Only once faults have stopped must everything end.
                self.counts().add("faults ended so that requests can", 1);
                self.faults(false);
                for origin in &mut self.origins {
                    origin.heal();
                }
                (began, events) = (self.now, 0);
            }
            if events >= limit || self.now.since(began) > TIME_LIMIT {
                return Err(format!(
                    "after {events} events these requests have no answer: {}",
                    self.unanswered()
                ));
            }
            let (waits, done) = (self.deliveries.next_due().is_some(), self.work());
            if !self.event(None)? {
                return Err(format!(
                    "nothing will happen, but these requests have no answer: {}",
                    self.unanswered()
                ));
            }
            // A delivery can take longer than a shard takes for so many looks at its deadlines.
            if !waits || self.work() != done {
                events += 1;
            }
        }
        Ok(())
    }

    /// Counts of the work so far: operations begun and ended, deliveries sent and delivered.
    pub(super) fn work(&self) -> (u64, usize, u64, usize) {
        (
            self.submissions,
            self.due.len(),
            self.deliveries.sent(),
            self.deliveries.len(),
        )
    }

    pub(super) fn unanswered(&self) -> String {
        let some: Vec<String> = self
            .requests
            .values()
            .take(5)
            .map(|pending| format!("{:?} {:?}", pending.kind, pending.range))
            .collect();
        some.join("; ")
    }
}
