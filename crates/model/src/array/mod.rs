//! An array of devices as Linux's md drives it: RAID0, 1, 5 and 10.

mod layout;
mod stripes;

use std::collections::HashMap;
use std::sync::Arc;

pub use layout::Level;
pub use stripes::ArrayCounters;

use crate::completions::Completions;
use crate::{Command, DeviceModel, Kind};
use layout::{Layout, Stretch};
use stripes::{Step, Stripes};

/// The kernel hands over together what a program sends at once. Drivers in virtual time charge
/// their processor between the parts, so a stripe waits so long for its rest.
const PLUG_NS: u64 = 1_000_000;
/// Time of a command that no member has to do with, in nanoseconds.
const COMMAND_NS: u64 = 10_000;

/// A command of the caller's with operations on members.
#[derive(Clone, Copy, Debug)]
struct Underway {
    id: u64,
    outstanding: u32,
}

/// The part that waits for an operation on a member.
#[derive(Clone, Copy, Debug)]
enum Owner {
    Command(u64),
    Stripe(u64),
}

/// The state of an array.
pub struct Array {
    layout: Layout,
    members: Vec<Box<dyn DeviceModel>>,
    /// Operations in flight on each member, and where the last one ended.
    in_flight: Vec<u32>,
    heads: Vec<u64>,
    now_ns: u64,
    issued: u64,
    owners: HashMap<u64, Owner>,
    begun: u64,
    commands: HashMap<u64, Underway>,
    stripes: Stripes,
    /// When stripes that are not whole wait no longer.
    unplug_ns: Option<u64>,
    done: Completions,
}

impl Array {
    /// An array of these members, which are alike, with chunks of `chunk_bytes`.
    ///
    /// # Panics
    /// If a level has fewer members than it needs (RAID5 three, RAID10 an even number, others one),
    /// or a chunk has no bytes.
    #[must_use]
    pub fn new(level: Level, chunk_bytes: u64, members: Vec<Box<dyn DeviceModel>>) -> Array {
        let count = members.len();
        let fits = match level {
            Level::Striped | Level::Mirrored => count > 0,
            Level::Parity => count > 2,
            Level::StripedMirrors => count > 0 && count.is_multiple_of(2),
        };
        assert!(fits && chunk_bytes > 0, "{count} members of {level:?}");
        Array {
            layout: Layout {
                level,
                members: count,
                chunk_bytes,
            },
            in_flight: vec![0; count],
            heads: vec![0; count],
            members,
            now_ns: 0,
            issued: 0,
            owners: HashMap::new(),
            begun: 0,
            commands: HashMap::new(),
            stripes: Stripes::default(),
            unplug_ns: None,
            done: Completions::default(),
        }
    }

    /// The bytes of data in a stripe: what md says as `optimal_io_size`, but for mirrors, which have
    /// none.
    #[must_use]
    pub fn stripe_bytes(&self) -> u64 {
        self.layout.chunk_bytes * self.layout.columns() as u64
    }

    /// Counters that go on being counted.
    #[must_use]
    pub fn counters(&self) -> Arc<ArrayCounters> {
        self.stripes.counters()
    }

    fn issue(&mut self, now_ns: u64, owner: Owner, kind: Kind, stretch: Stretch) {
        let id = self.issued;
        self.issued += 1;
        self.owners.insert(id, owner);
        self.in_flight[stretch.member] += 1;
        self.heads[stretch.member] = stretch.start + stretch.len_bytes;
        let command = Command {
            kind,
            offset_bytes: stretch.start,
            len_bytes: stretch.len_bytes,
            fua: false,
        };
        self.members[stretch.member].submit(now_ns, id, command);
    }

    fn begin(&mut self, id: u64) -> u64 {
        let serial = self.begun;
        self.begun += 1;
        self.commands
            .insert(serial, Underway { id, outstanding: 0 });
        serial
    }

    fn issue_for(&mut self, now_ns: u64, serial: u64, kind: Kind, stretch: Stretch) {
        if let Some(command) = self.commands.get_mut(&serial) {
            command.outstanding += 1;
        }
        self.issue(now_ns, Owner::Command(serial), kind, stretch);
    }

    /// The copy that is read: the least busy one, of those the one that is nearest.
    fn copy_to_read(&self, first: Stretch) -> Stretch {
        let copies = first.member..first.member + self.layout.copies();
        let member = copies.min_by_key(|member| {
            let distance = self.heads[*member].abs_diff(first.start);
            (self.in_flight[*member], distance)
        });
        Stretch {
            member: member.unwrap_or(first.member),
            ..first
        }
    }

    fn write(&mut self, now_ns: u64, serial: u64, command: Command) {
        if self.layout.level != Level::Parity {
            for stretch in (self.layout).stretches(command.offset_bytes, command.len_bytes) {
                for copy in 0..self.layout.copies() {
                    let member = stretch.member + copy;
                    self.issue_for(now_ns, serial, Kind::Write, Stretch { member, ..stretch });
                }
            }
            return;
        }
        let pieces = self.layout.cut(command.offset_bytes, command.len_bytes);
        if let Some(command) = self.commands.get_mut(&serial) {
            command.outstanding += pieces.len() as u32;
        }
        for piece in pieces {
            if let Some(step) = self.stripes.write(self.layout, serial, piece) {
                self.take_step(now_ns, piece.stripe, step);
            }
        }
        if self.stripes.has_waiting() {
            self.unplug_ns.get_or_insert(now_ns + PLUG_NS);
        }
    }

    fn take_step(&mut self, now_ns: u64, stripe: u64, step: Step) {
        for stretch in step.reads {
            self.issue(now_ns, Owner::Stripe(stripe), Kind::Read, stretch);
        }
        for stretch in step.writes {
            self.issue(now_ns, Owner::Stripe(stripe), Kind::Write, stretch);
        }
        let is_over = !step.done.is_empty();
        for serial in step.done {
            self.part_done(now_ns, serial);
        }
        if is_over && self.stripes.has_waiting() && self.unplug_ns.is_none() {
            self.begin_due(now_ns);
        }
    }

    fn begin_due(&mut self, now_ns: u64) {
        for stripe in self.stripes.due() {
            let step = self.stripes.begin(self.layout, stripe);
            self.take_step(now_ns, stripe, step);
        }
    }

    fn part_done(&mut self, now_ns: u64, serial: u64) {
        let Some(command) = self.commands.get_mut(&serial) else {
            return;
        };
        command.outstanding -= 1;
        if command.outstanding == 0 {
            self.done.push(now_ns, command.id);
            self.commands.remove(&serial);
        }
    }

    /// When something next happens in a member, or stripes wait no longer.
    fn next_internal_ns(&self) -> Option<u64> {
        let members = self
            .members
            .iter()
            .filter_map(|member| member.next_event_ns());
        members.chain(self.unplug_ns).min()
    }
}

impl DeviceModel for Array {
    fn submit(&mut self, now_ns: u64, id: u64, command: Command) {
        self.advance(now_ns);
        let now_ns = self.now_ns;
        match command.kind {
            Kind::Read => {
                let serial = self.begin(id);
                for stretch in (self.layout).stretches(command.offset_bytes, command.len_bytes) {
                    let stretch = self.copy_to_read(stretch);
                    self.issue_for(now_ns, serial, Kind::Read, stretch);
                }
            }
            Kind::Write => {
                let serial = self.begin(id);
                self.write(now_ns, serial, command);
            }
            Kind::Flush => {
                let serial = self.begin(id);
                for member in 0..self.members.len() {
                    let nothing = Stretch {
                        member,
                        start: self.heads[member],
                        len_bytes: 0,
                    };
                    self.issue_for(now_ns, serial, Kind::Flush, nothing);
                }
            }
            Kind::Discard => self.done.push(now_ns + COMMAND_NS, id),
        }
    }

    fn next_event_ns(&self) -> Option<u64> {
        let next = [self.next_internal_ns(), self.done.next_ns()];
        next.into_iter().flatten().min()
    }

    fn advance(&mut self, now_ns: u64) {
        self.now_ns = self.now_ns.max(now_ns);
        while let Some(at_ns) = self
            .next_internal_ns()
            .filter(|at_ns| *at_ns <= self.now_ns)
        {
            if self.unplug_ns.is_some_and(|unplug_ns| unplug_ns <= at_ns) {
                self.unplug_ns = None;
                self.begin_due(at_ns);
            }
            for member in 0..self.members.len() {
                while let Some((id, done_ns)) = self.members[member].pop_done(at_ns) {
                    self.in_flight[member] -= 1;
                    match self.owners.remove(&id) {
                        Some(Owner::Command(serial)) => self.part_done(done_ns, serial),
                        Some(Owner::Stripe(stripe)) => {
                            let step = self.stripes.ended(stripe);
                            self.take_step(done_ns.max(at_ns), stripe, step);
                        }
                        None => {}
                    }
                }
            }
        }
    }

    fn pop_done(&mut self, now_ns: u64) -> Option<(u64, u64)> {
        self.advance(now_ns);
        self.done.pop(self.now_ns)
    }
}
