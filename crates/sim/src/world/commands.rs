//! Commands: the control plane's work on volumes and space while clients go on, each step of it
//! with a delay of its own, under faults, and with machines that die in between.

use std::collections::BTreeMap;

use forebay_cache::control::{
    Change, Command, Control, Fingerprint, Happened, NewVolume, Refusal, Step as Next,
};
use forebay_cache::{Answer, Instruction};
use forebay_engine::{Device as DeviceName, Mode, Nanos, Superblock, SuperblockError, VolumeSlot};

use super::deliveries::{CONTROL, Delivery};
use super::served::Served;
use super::{Check, Kind, Life, World};
use crate::model::Range;

/// Time before the control plane looks again: at first, and twice as long each time up to 512 times
/// that, since write-back pauses for many seconds after an error.
const LOOK: Nanos = Nanos(200_000);
const LONGEST_LOOK: u32 = 9;
/// More events than a command takes once nothing fails any more.
const EVENT_LIMIT: u32 = 400_000;
/// Time after an orderly stop in which its shards are watched, in milliseconds: longer than any of
/// their deadlines.
const AFTER_STOP_MS: u64 = 3_000;

/// A command in progress.
#[derive(Debug)]
pub(super) struct Running {
    what: Command,
    /// Hosts that have not answered yet.
    waiting: usize,
    answers: Vec<Answer>,
    /// The machine dies so many device operations into the next write of the superblock.
    cut: Option<u32>,
    /// Looks so far.
    looked: u32,
}

/// All of them.
#[derive(Debug, Default)]
pub(super) struct Commands {
    pub(super) control: Option<Control>,
    running: BTreeMap<u32, Running>,
}

/// The volume that a command takes off.
fn takes_off(what: &Command) -> Option<VolumeSlot> {
    match what {
        Command::Detach(slot) | Command::HandOver(slot) | Command::Forget(slot) => Some(*slot),
        _ => None,
    }
}

impl Commands {
    fn control(&mut self) -> &mut Control {
        self.control.as_mut().expect("the cache is attached")
    }

    /// The superblock, to be changed; none while a command writes it.
    pub(super) fn take_superblock(&mut self) -> Option<Superblock> {
        self.control().take_superblock()
    }

    pub(super) fn give_superblock(&mut self, superblock: Superblock) {
        self.control().give_superblock(superblock);
    }

    fn any(&self, wanted: impl Fn(&Command) -> bool) -> bool {
        self.running.values().any(|running| wanted(&running.what))
    }
}

impl World<'_> {
    /// The superblock on record.
    pub(super) fn superblock(&mut self) -> &Superblock {
        self.commands.control().superblock()
    }

    /// Whether a command takes the volume off just now.
    pub(super) fn is_leaving(&self, volume: u16) -> bool {
        let slot = VolumeSlot(volume);
        (self.commands).any(|what| takes_off(what) == Some(slot))
    }

    /// Whether such a command is in progress.
    pub(super) fn commands_run_of(&self, wanted: impl Fn(&Command) -> bool) -> bool {
        self.commands.any(wanted)
    }

    /// Has a volume taken off, unless one is being attached, which could get its number.
    pub(super) fn detach(&mut self, how: Command, cut: Option<u32>) -> Check {
        if self.commands.any(|what| matches!(what, Command::Attach(_))) {
            return Ok(());
        }
        self.command(how, cut).map(drop)
    }

    /// Begins a command, unless it cannot be begun now; says which it is.
    pub(super) fn command(&mut self, what: Command, cut: Option<u32>) -> Check<Option<u32>> {
        let id = match self.commands.control().begin(what.clone()) {
            Ok(id) => id,
            Err(why) => {
                self.tell(|_| format!("{what:?} is refused: {why}"));
                self.counts().add("commands refused", 1);
                return Ok(None);
            }
        };
        self.tell(|_| format!("command {id}: {what:?}"));
        self.counts().add("commands", 1);
        if let Command::Detach(slot) | Command::HandOver(slot) = &what {
            let requests = self.requests.values_mut();
            for request in requests.filter(|request| request.range.volume == slot.0) {
                request.leaving = true;
            }
        }
        if let Command::SetMode(slot, mode) = &what {
            let state = &mut self.volumes[usize::from(slot.0)];
            state.through &= *mode != Mode::Writeback;
        }
        let running = Running {
            what,
            waiting: 0,
            answers: Vec::new(),
            cut,
            looked: 0,
        };
        self.commands.running.insert(id, running);
        self.goes_on(id, Happened::Begun)?;
        Ok(Some(id))
    }

    /// Nobody waits for commands of this kind any more.
    pub(super) fn interrupt(&mut self, wanted: impl Fn(&Command) -> bool) {
        let Commands {
            control, running, ..
        } = &mut self.commands;
        let Some(control) = control else { return };
        for (id, _) in running.iter().filter(|(_, running)| wanted(&running.what)) {
            control.interrupt(*id);
        }
    }

    fn goes_on(&mut self, id: u32, happened: Happened) -> Check {
        let next = self.commands.control().go_on(id, happened);
        self.do_next(id, next)
    }

    /// Does what a command wants done next.
    pub(super) fn do_next(&mut self, id: u32, next: Next) -> Check {
        let looks = matches!(next, Next::Look(_));
        let mut wait = LOOK;
        if let Some(running) = self.commands.running.get_mut(&id) {
            running.looked += u32::from(looks);
            wait = Nanos(LOOK.0 << running.looked.min(LONGEST_LOOK));
        }
        match next {
            Next::Instruct(instruction) => self.instruct(id, instruction, Nanos(0)),
            Next::Look(instruction) => self.instruct(id, instruction, wait),
            Next::Record(change) => self.put_change(id, change),
            Next::Flush(volume) => self.flush_for_command(id, volume),
            Next::Release(_) => {
                let released = !self.rng.percent(5);
                self.post_control(LOOK, Delivery::Happened(id, Happened::Released(released)));
                Ok(())
            }
            // A server that is away holds operations up here, and fails none.
            Next::Ask(_) => self.goes_on(id, Happened::Asked(Ok(()))),
            Next::See(volumes) => self.see(id, &volumes),
            Next::Wait => {
                self.post_control(LOOK, Delivery::Happened(id, Happened::Waited));
                Ok(())
            }
            Next::Ended(result) => self.ended(id, result),
        }
    }

    fn instruct(&mut self, id: u32, instruction: Instruction, delay: Nanos) -> Check {
        if let Instruction::SetMode(slot, _) = &instruction {
            // A freeze changes it too, for requests that are on their way.
            let state = &mut self.volumes[usize::from(slot.0)];
            state.on_origin.serve_in_another_mode();
        }
        let hosts = self.hosts.len();
        let running = self.commands.running.get_mut(&id).expect("it runs");
        running.waiting = hosts;
        running.answers.clear();
        for host in 0..hosts {
            let delivery = Delivery::Instruction(id, instruction.clone());
            self.post_after(delay, CONTROL, host, delivery);
        }
        Ok(())
    }

    fn post_control(&mut self, delay: Nanos, delivery: Delivery) {
        self.post_after(delay, CONTROL, CONTROL, delivery);
    }

    /// A host does what a command wants of it.
    pub(super) fn instructed(&mut self, host: usize, id: u32, instruction: &Instruction) -> Check {
        let answer = self.hosts[host].instruct(instruction);
        self.pump(host)?;
        self.post(host, CONTROL, Delivery::Answer(id, answer));
        Ok(())
    }

    /// The control plane hears something.
    pub(super) fn control_hears(&mut self, delivery: Delivery) -> Check {
        match delivery {
            Delivery::Answer(id, answer) => {
                let running = self.commands.running.get_mut(&id).expect("it runs");
                running.answers.push(answer);
                running.waiting -= 1;
                if running.waiting > 0 {
                    return Ok(());
                }
                let answers = std::mem::take(&mut running.answers);
                self.goes_on(id, Happened::Instructed(answers))
            }
            Delivery::Happened(id, happened) => self.goes_on(id, happened),
            Delivery::Next(id, next) => self.do_next(id, next),
            Delivery::Thaw(volume, look) => self.thaws(volume, look),
            other => Err(format!("the control plane is sent {other:?}")),
        }
    }

    /// Writes a changed superblock, while things go on.
    fn put_change(&mut self, id: u32, change: Change) -> Check {
        let Some(mut superblock) = self.commands.control().take_superblock() else {
            self.post_control(LOOK, Delivery::Next(id, Next::Record(change)));
            return Ok(());
        };
        let changed = match change.of(&superblock) {
            Ok(changed) => changed,
            Err(error) => {
                self.commands.control().give_superblock(superblock);
                return self.goes_on(id, Happened::Recorded(Err(error)));
            }
        };
        let mut numbers = self.cache.numbers.clone();
        numbers.extend(changed.devices_in_use().map(|on| on.number));
        numbers.sort_unstable();
        numbers.dedup();
        self.cache.numbers = numbers;
        let cut = self
            .commands
            .running
            .get_mut(&id)
            .and_then(|running| running.cut.take());
        let life = self.boot_of_daemon;
        let mut served = Served::new(self, cut);
        let result = superblock.replace(changed, &mut served);
        let (was_cut, trouble) = (served.cut, served.trouble.take());
        trouble.map_or(Ok(()), Err)?;
        if self.boot_of_daemon != life {
            return Ok(());
        }
        self.commands.control().give_superblock(superblock);
        if was_cut {
            self.counts().add("command cut short", 1);
            if self.is_detach(id) {
                self.counts().add("detach cut short", 1);
            }
            let power = self.rng.percent(50);
            return self.crash_here(power);
        }
        if result.is_err() {
            self.counts().add("changes that could not be recorded", 1);
        }
        if let (Ok(()), Change::Shrink(_) | Change::Again) = (&result, &change) {
            let superblock = self.superblock();
            self.cache.numbers = superblock.devices_in_use().map(|on| on.number).collect();
        }
        self.goes_on(id, Happened::Recorded(result))
    }

    fn is_detach(&self, id: u32) -> bool {
        let running = self.commands.running.get(&id);
        running.is_some_and(|running| {
            matches!(running.what, Command::Detach(_) | Command::HandOver(_))
        })
    }

    /// Sends a flush as a client does.
    fn flush_for_command(&mut self, id: u32, volume: VolumeSlot) -> Check {
        let request = self.submit(Range::of(volume.0, 0, 0), Kind::Flush, Some(id))?;
        self.tell(|_| format!("flush {request} is command {id}'s"));
        Ok(())
    }

    /// A flush of a command is answered.
    pub(super) fn flush_answered(&mut self, id: u32, ok: bool) {
        self.post_control(Nanos(0), Delivery::Happened(id, Happened::Flushed(ok)));
    }

    /// Flushes the origins through their gates, and looks at them.
    fn see(&mut self, id: u32, volumes: &[(u32, VolumeSlot)]) -> Check {
        let mut seen = Vec::new();
        let life = self.boot_of_daemon;
        for (volume, slot) in volumes {
            let device = DeviceName::Origin(*slot);
            let before = self.hosts[0].failures_of(device);
            let mut served = Served::new(self, None);
            let flushed = served.flush_served(device, before);
            served.trouble.take().map_or(Ok(()), Err)?;
            if self.boot_of_daemon != life {
                return Ok(());
            }
            if let Err(error) = flushed {
                return self.goes_on(id, Happened::Seen(Err(error)));
            }
            seen.push(Fingerprint {
                volume: *volume,
                contents: self.look_of(slot.0),
                at: self.now.0 + 1,
            });
        }
        self.goes_on(id, Happened::Seen(Ok(seen)))
    }

    /// The fingerprint of an origin.
    pub(super) fn look_of(&self, volume: u16) -> [u8; 32] {
        let mut bytes = vec![0; self.volumes[usize::from(volume)].sectors as usize * 512];
        self.origins[usize::from(volume)].disk.read(0, &mut bytes);
        let mut look = [0; 32];
        for (at, word) in bytes.chunks_exact(8).enumerate() {
            let word = u64::from_le_bytes(word.try_into().expect("eight bytes"));
            let place = at % 4 * 8;
            let old = u64::from_le_bytes(look[place..place + 8].try_into().expect("eight bytes"));
            let new = crate::rng::mix(old ^ crate::rng::mix(word ^ at as u64));
            look[place..place + 8].copy_from_slice(&new.to_le_bytes());
        }
        look
    }

    fn ended(&mut self, id: u32, result: Result<(), Refusal>) -> Check {
        let running = self.commands.running.remove(&id).expect("it ends once");
        self.tell(|_| format!("command {id} ended: {result:?}"));
        let ended = if result.is_ok() {
            "commands done"
        } else {
            "commands undone"
        };
        self.counts().add(ended, 1);
        match running.what {
            Command::SetMode(slot, mode) => {
                if result.is_ok() && self.volumes[usize::from(slot.0)].life == Life::Served {
                    self.volumes[usize::from(slot.0)].mode = mode;
                    self.note_through(slot.0);
                }
            }
            Command::Rename(slot, name) => {
                if result.is_ok() {
                    self.counts().add("renamed", 1);
                    self.volumes[usize::from(slot.0)].name = name;
                }
            }
            Command::GrowVolume(slot, _) => {
                if result.is_ok() {
                    self.counts().add("volumes grown", 1);
                    self.volumes[usize::from(slot.0)].hidden = 0;
                }
            }
            Command::Drain { .. }
            | Command::PassingMode(..)
            | Command::Copies(_)
            | Command::AllOnTwo => {}
            Command::Detach(slot) => self.detach_ended(slot.0, result)?,
            Command::HandOver(slot) => {
                self.counts().add("handed over", u64::from(result.is_ok()));
                self.detach_ended(slot.0, result)?;
            }
            Command::Freeze(slot) => self.freeze_ended(slot.0, result)?,
            Command::Thaw(_) => self.counts().add("thawed", u64::from(result.is_ok())),
            Command::Forget(slot) => self.forget_ended(slot.0, result)?,
            Command::Attach(volume) => self.attach_ended(&volume, result)?,
            Command::Grow(..) | Command::AddDevice(_) => {
                self.devices_are_served();
                self.counts().add("grown", u64::from(result.is_ok()));
            }
            Command::Shrink(_) => {
                self.devices_are_served();
                let what = match result {
                    Ok(()) => "shrunk",
                    Err(_) => "shrinking taken back",
                };
                self.counts().add(what, 1);
            }
            Command::Stop => self.stopped = Some(result.is_ok()),
        }
        Ok(())
    }

    /// Devices have come or gone: flushes of those that hosts write to go through their gates.
    fn devices_are_served(&mut self) {
        let superblock = self.superblock();
        self.served_devices = superblock.devices_in_use().map(|on| on.number).collect();
    }

    fn detach_ended(&mut self, volume: u16, result: Result<(), Refusal>) -> Check {
        match result {
            Ok(()) => {
                self.volumes[usize::from(volume)].name = self.another_name(usize::from(volume));
                // The cache does not matter any more.
                self.origin_alone(volume, "the volume is detached")?;
                self.counts().add("detached", 1);
                self.volumes[usize::from(volume)].life = Life::Detached;
                self.use_alone(volume);
                self.attach_detached()
            }
            Err(Refusal::Uncertain(_)) => {
                self.volumes[usize::from(volume)].life = Life::Refusing;
                Ok(())
            }
            Err(_) => Ok(()),
        }
    }

    /// Attaches what is detached, one after the other: volumes keep their numbers.
    pub(super) fn attach_detached(&mut self) -> Check {
        if self.commands.any(|what| matches!(what, Command::Attach(_))) {
            return Ok(());
        }
        let is_detached = |volume: &super::VolumeState| volume.life == Life::Detached;
        let Some(at) = self.volumes.iter().position(is_detached) else {
            return Ok(());
        };
        if (0..at).any(|lower| self.is_leaving(lower as u16)) {
            return Ok(());
        }
        let new = self.new_volume(at);
        self.command(Command::Attach(new), None).map(drop)
    }

    pub(super) fn new_volume(&self, at: usize) -> NewVolume {
        NewVolume {
            name: self.volumes[at].name.clone(),
            size_bytes: self.volumes[at].origin_sectors() * 512,
            mode: Some(self.volumes[at].mode),
            first_mode: Mode::Writeback,
            identity: [0; 32],
        }
    }

    fn attach_ended(&mut self, volume: &NewVolume, result: Result<(), Refusal>) -> Check {
        let mut named = self.volumes.iter();
        let at = named.position(|known| known.name == volume.name);
        let at = at.ok_or("a volume that nobody has is attached")?;
        if result.is_err() {
            // Later, or at the next start, which may find it on record.
            return Ok(());
        }
        self.attached_in_size(at, volume);
        let superblock = self.superblock().clone();
        let record = superblock
            .volumes
            .iter()
            .rev()
            .find(|record| record.name == volume.name);
        let record = record.ok_or("a volume that is attached is not on record")?;
        let state = &mut self.volumes[at];
        (state.record_id, state.base) = (record.id, record.base);
        (state.life, state.through, state.was_clean) = (Life::Served, false, false);
        self.counts().add("attached", 1);
        self.note_through(at as u16);
        self.attach_detached()
    }

    /// A name that no volume has or had.
    pub(super) fn another_name(&mut self, volume: usize) -> String {
        self.names_given += 1;
        format!("volume-{volume}-{}", self.names_given)
    }

    /// Lets commands end; interrupts what does not, and after that all must.
    pub(super) fn finish_commands(&mut self) -> Check {
        self.wait_for("commands to end", |world| world.commands.running.is_empty())
    }

    /// Lets things happen until something is so, or the daemon is another: faults end if it takes
    /// too long, and commands are interrupted; then it must.
    pub(super) fn wait_for(&mut self, what: &str, done: impl Fn(&Self) -> bool) -> Check {
        let life = self.boot_of_daemon;
        let mut events = 0;
        while !done(self) && self.boot_of_daemon == life {
            events += 1;
            if events == EVENT_LIMIT / 2 {
                self.counts().add("commands interrupted at last", 1);
                self.faults(false);
                for origin in &mut self.origins {
                    origin.heal();
                }
                self.interrupt(|_| true);
            }
            if events > EVENT_LIMIT || !self.event(None)? {
                let left: Vec<_> = self.commands.running.values().collect();
                return Err(format!(
                    "waited for {what} in vain; requests: {}; commands: {left:?}",
                    self.unanswered()
                ));
            }
        }
        Ok(())
    }

    /// Stops in order, and starts again.
    pub(super) fn stop_in_order(&mut self, power: bool) -> Check {
        // The driver takes no more requests before it stops.
        self.quiesce()?;
        self.stopped = None;
        self.devices_before_stop = self.served_devices.len();
        let life = self.boot_of_daemon;
        self.command(Command::Stop, None)?;
        self.wait_for("the stop to end", |world| world.stopped.is_some())?;
        if self.boot_of_daemon != life {
            return Ok(());
        }
        if self.stopped != Some(true) {
            self.counts().add("stops that failed", 1);
            return self.crash_here(power);
        }
        self.counts().add("stopped in order", 1);
        self.nothing_more_begins()?;
        self.write_checkpoint();
        let stuck = self.engines().any(|engine| engine.buffer_occupancy().1 > 0);
        self.end_in_flight(power);
        self.forgive_the_device();
        self.buffered = self.buffered_blocks();
        let looks: Vec<_> = (0..self.volumes.len() as u16)
            .map(|at| self.look_of(at))
            .collect();
        self.stop()?;
        if !stuck {
            // The crash journals and memory buffers are given back.
            self.memory.reset_shared();
            self.buffered.clear();
        }
        if power {
            self.counts().add("power cuts", 1);
            self.power_goes(crate::disk::Survival::Any);
        }
        for (at, look) in looks.iter().enumerate() {
            if self.look_of(at as u16) != *look {
                return Err(format!(
                    "the origin of volume {at} changed after an orderly stop"
                ));
            }
        }
        self.cache.gone.clear();
        self.an_old_device_is_refused()?;
        self.attach(&[])?;
        self.verify(100)
    }

    /// After an orderly stop the daemon takes its crash journals away: a shard that begins
    /// something by itself would find none.
    fn nothing_more_begins(&mut self) -> Check {
        let before = self.transfers;
        let submitted = self.submissions;
        let loses = |world: &World<'_>| world.hosts.iter().any(forebay_cache::Host::is_losing);
        let mut has_lost = loses(self);
        self.pass(AFTER_STOP_MS)?;
        has_lost |= loses(self) || self.served_devices.len() < self.devices_before_stop;
        // A device that is lost while the stop is put on record is put on record itself.
        let flushed = self.submissions > submitted && !has_lost;
        if self.transfers > before || flushed {
            return Err("a shard began something after an orderly stop".to_owned());
        }
        Ok(())
    }

    /// Whether what is on record of an origin is what it looks like.
    pub(super) fn check_fingerprints(&self, superblock: &Superblock) -> Check {
        for (at, volume) in (0..).zip(&self.volumes) {
            let mut records = superblock.volumes.iter();
            let record = records.find(|record| record.id == volume.record_id);
            let Some(record) = record.filter(|record| record.fingerprint_at > 0) else {
                continue;
            };
            if volume.life != Life::Detached && record.fingerprint != self.look_of(at) {
                return Err(format!(
                    "volume {at} is refused at the start: its origin changed"
                ));
            }
        }
        Ok(())
    }

    /// The volumes of a superblock as they are from now on, entered as the daemon does at its
    /// start: a detached volume comes back as another.
    pub(super) fn enter_volumes(&mut self, superblock: &mut Superblock, away: &[bool]) -> Check {
        let known = |error: SuperblockError| error.to_string();
        for (at, is_away) in away.iter().enumerate() {
            let id = self.volumes[at].record_id;
            let mut records = superblock.volumes.iter();
            let record = records.find(|record| {
                let attached = record.state == forebay_engine::VolumeState::Attached;
                attached && (record.id == id || record.name == self.volumes[at].name)
            });
            if let Some(record) = record.filter(|_| *is_away) {
                self.volumes[at].record_id = record.id;
                self.volumes[at].name.clone_from(&record.name);
                self.volumes[at].forgotten = false;
                continue;
            }
            let new = match record {
                Some(record) => NewVolume {
                    name: record.name.clone(),
                    mode: None,
                    ..self.new_volume(at)
                },
                None if self.volumes[at].forgotten => {
                    self.loses_dirty_data(at as u16);
                    self.new_volume(at)
                }
                None => {
                    self.origin_alone(at as u16, "the volume is on record as detached")?;
                    self.use_alone(at as u16);
                    self.new_volume(at)
                }
            };
            self.volumes[at].record_id = new.enter(superblock).map_err(known)?;
            self.volumes[at].name = new.name;
            self.volumes[at].forgotten = false;
        }
        Ok(())
    }
}
