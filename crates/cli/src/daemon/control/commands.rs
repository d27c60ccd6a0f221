//! Commands of the control plane, carried out. [`forebay_cache::control`] decides the steps and
//! their order; here the threads of the data path are told, superblocks are written, and the
//! command's giver hears of its progress.

mod looks;

use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use forebay_cache::control::{Change, Command, Happened, Refusal, Step};
use forebay_cache::{Answer, Instruction};
use forebay_engine::{SuperblockError, VolumeSlot};
use forebay_io::BlockingStorage;

use super::served_storage::ServedStorage;
use super::shut_out;
use crate::daemon::data::served::{ServedVolume, TimedDevice};
use crate::daemon::state::{Admin, CacheSide, Daemon};
use crate::device::cache_storage;
use crate::failure::{Interrupted, wrong_usage};

/// The number of first looks, which come at the shorter interval.
const FIRST_LOOKS: u32 = 10;
const FIRST_LOOK: Duration = Duration::from_millis(10);
const LOOK: Duration = Duration::from_millis(100);

/// Progress of a command.
#[derive(Clone, Copy, Debug, Default)]
pub(in crate::daemon) struct Progress {
    pub(in crate::daemon) of: forebay_cache::control::Progress,
    pub(in crate::daemon) seconds: f64,
}

/// Calls out of a command, for its progress and for a volume's users, and the devices it brings.
pub(in crate::daemon) struct Hooks<'a> {
    /// Hears how far it is; false if nobody listens any more.
    pub(in crate::daemon) tell: Box<dyn FnMut(Progress) -> bool + 'a>,
    /// Has whoever uses the volume let go.
    pub(in crate::daemon) release: Box<dyn FnMut() -> Result<()> + 'a>,
    /// The origin of a new volume, and what clients see of it.
    pub(in crate::daemon) volume: Option<ServedVolume>,
    /// A new cache device, for the data path and for superblocks.
    pub(in crate::daemon) device: Option<TimedDevice>,
    pub(in crate::daemon) storage: Option<BlockingStorage>,
}

impl<'a> Hooks<'a> {
    /// For a command of which nobody hears before it has ended.
    pub(super) fn quiet() -> Hooks<'a> {
        Hooks::telling(|_| true)
    }

    /// For a command of which somebody hears.
    pub(in crate::daemon) fn telling(tell: impl FnMut(Progress) -> bool + 'a) -> Hooks<'a> {
        Hooks {
            tell: Box::new(tell),
            release: Box::new(|| Ok(())),
            volume: None,
            device: None,
            storage: None,
        }
    }
}

/// Result of a command.
#[derive(Clone, Copy, Debug)]
pub(in crate::daemon) struct Done {
    /// The number of the volume that was added.
    pub(in crate::daemon) slot: Option<VolumeSlot>,
    pub(in crate::daemon) progress: Progress,
    /// The time for which changes of a volume waited so that it could be frozen.
    pub(in crate::daemon) clients_waited: Duration,
}

/// A command in progress.
struct Run<'a, 'b> {
    daemon: &'a Daemon,
    id: u32,
    /// The volume that it writes back.
    writes_back: Option<VolumeSlot>,
    hooks: Hooks<'b>,
    began: Instant,
    looks: u32,
    last: forebay_cache::control::Progress,
    /// The number of the volume that was added.
    slot: Option<VolumeSlot>,
    /// Why the volume was not released.
    in_use: Option<anyhow::Error>,
    /// Why an origin could not be seen.
    unseen: Option<anyhow::Error>,
    /// Volumes whose servers have shut this host out do not hold it up.
    passes_shut_out: bool,
    /// Since when changes of its volume wait.
    clients_wait: Option<Instant>,
    /// For how long they did before that.
    waited_before: Duration,
    /// The command's effect can no longer be taken back.
    is_final: bool,
    /// Somebody listens.
    is_told: bool,
}

impl Daemon {
    /// Carries out a command of which nobody hears before it has ended.
    pub(super) fn carry_out_at_once(&self, command: Command) -> Result<Done> {
        self.carry_out(command, Hooks::quiet())
    }

    /// Carries a command out.
    pub(in crate::daemon) fn carry_out(&self, command: Command, hooks: Hooks<'_>) -> Result<Done> {
        let writes_back = shut_out::written_back_by(&command);
        let passes_shut_out = matches!(command, Command::Stop);
        let begun = cache_of(&mut self.admin())?.control.begin(command);
        let mut run = Run {
            daemon: self,
            id: begun.map_err(|why| self.explain(why))?,
            writes_back,
            hooks,
            began: Instant::now(),
            looks: 0,
            last: forebay_cache::control::Progress::default(),
            slot: None,
            in_use: None,
            unseen: None,
            passes_shut_out,
            clients_wait: None,
            waited_before: Duration::ZERO,
            is_final: false,
            is_told: true,
        };
        let result = run.run_through();
        if let Some(error) = run.in_use {
            return Err(error);
        }
        if let Err(why) = result? {
            let volume = writes_back.and_then(|slot| self.shut_out_volume(slot));
            let by_it = matches!(
                why,
                Refusal::Interrupted | Refusal::Flush(_) | Refusal::Unseen(_)
            );
            if let (true, Some(volume)) = (by_it, volume) {
                self.refuse_shut_out(&volume)?;
            }
            return Err(match (why, run.unseen) {
                (Refusal::Unseen(_), Some(error)) => error,
                (why, _) => self.explain(why),
            });
        }
        Ok(Done {
            slot: run.slot,
            progress: run.progress(),
            clients_waited: run.clients_waited(),
        })
    }

    fn explain(&self, why: Refusal) -> anyhow::Error {
        let on = || {
            let mut admin = self.admin();
            let names = cache_of(&mut admin).map(|cache| cache_storage::names(&cache.storage));
            format!(
                "cannot write the superblock of the cache on {}",
                names.unwrap_or_default()
            )
        };
        match why {
            Refusal::Interrupted => Interrupted("everything is as it was".to_owned()).into(),
            Refusal::NotRecorded(error) => anyhow::Error::from(error)
                .context(on())
                .context("nothing was changed"),
            Refusal::Uncertain(error) => anyhow::Error::from(error).context(on()).context(
                "it may count at the next start, or not; mend the cause and give the command again",
            ),
            Refusal::Flush(slot) => {
                let name = self.admin().name_of(slot).unwrap_or_default();
                anyhow::anyhow!(
                    "volume {name} could not be flushed: what was written to it lately may not be on its devices"
                )
            }
            Refusal::Unreadable(blocks) => {
                let bytes = blocks * self.admin().block_bytes();
                crate::failure::DamageFound(format!(
                    "{} that are newer in the cache cannot be read from its devices and stay there; everything else \
                     is written back. Mend the cause and give the command again, or write those blocks anew",
                    crate::units::size(bytes)
                ))
                .into()
            }
            other => crate::failure::Refused(other.to_string()).into(),
        }
    }
}

impl Run<'_, '_> {
    fn run_through(&mut self) -> Result<Result<(), Refusal>> {
        let mut happened = Happened::Begun;
        loop {
            let step = {
                let mut admin = self.daemon.admin();
                let control = &mut cache_of(&mut admin)?.control;
                let step = control.go_on(self.id, happened);
                self.last = control.progress(self.id).unwrap_or(self.last);
                step
            };
            happened = match step {
                Step::Instruct(instruction) => Happened::Instructed(self.tell(&instruction)?),
                Step::Look(instruction) => {
                    self.listen()?;
                    Happened::Instructed(self.tell(&instruction)?)
                }
                Step::Record(change) => Happened::Recorded(self.record(&change)?),
                Step::Flush(volume) => {
                    Happened::Flushed(self.flush(volume)? || self.passes_by(volume))
                }
                Step::Release(_) => Happened::Released(self.release()),
                Step::Ask(volume) => Happened::Asked(self.ask(volume)?),
                Step::See(volumes) => Happened::Seen(self.see(&volumes)?),
                Step::Wait => {
                    self.listen()?;
                    Happened::Waited
                }
                Step::Ended(result) => return Ok(result),
            };
        }
    }

    /// Says how far it is, and waits a while.
    fn listen(&mut self) -> Result<()> {
        self.looks += 1;
        let shut_out = (self.writes_back).and_then(|slot| self.daemon.shut_out_volume(slot));
        if shut_out.is_some() {
            // After its users let go too: as after a failed flush, it is served again without them.
            self.interrupt()?;
        }
        if self.looks == 1 {
            // Nothing is known yet, and it may be done at once.
            return Ok(());
        }
        let progress = self.progress();
        if !self.tell_client(progress) && !self.is_final {
            self.interrupt()?;
        }
        let short = self.looks < FIRST_LOOKS;
        std::thread::sleep(if short { FIRST_LOOK } else { LOOK });
        Ok(())
    }

    /// Has the command end where that can be without harm.
    fn interrupt(&self) -> Result<()> {
        let mut admin = self.daemon.admin();
        cache_of(&mut admin)?.control.interrupt(self.id);
        Ok(())
    }

    /// The time for which changes of its volume have waited so far.
    fn clients_waited(&self) -> Duration {
        let now = self.clients_wait.map(|since| since.elapsed());
        self.waited_before + now.unwrap_or_default()
    }

    fn progress(&self) -> Progress {
        Progress {
            of: self.last,
            seconds: self.began.elapsed().as_secs_f64(),
        }
    }

    fn tell(&mut self, instruction: &Instruction) -> Result<Vec<Answer>> {
        if let Instruction::AddVolume(slot, _) | Instruction::BringBack(slot, _) = instruction {
            self.slot = Some(*slot);
        }
        if let Instruction::SetFrozen(_, on) = instruction {
            self.waited_before = self.clients_waited();
            self.clients_wait = on.then(Instant::now);
            // Clients wait for each look.
            self.looks = 0;
        }
        if let Instruction::SetDetaching(slot, true) = instruction {
            // Before the workers close its clients, so that none comes after that.
            self.daemon.exports.withdraw(*slot);
        }
        let mut answers = Vec::new();
        for link in &self.daemon.links {
            let instruction = instruction.clone();
            let volume = self.hooks.volume.clone();
            let device = self.hooks.device.clone();
            let answer = link.call(move |worker| {
                worker.instruct(&instruction, volume.as_ref(), device.as_ref())
            })?;
            answers.push(answer);
        }
        if let Instruction::SetDetaching(slot, false) = instruction {
            self.daemon.exports.offer_again(*slot);
        }
        Ok(answers)
    }

    /// Under the lock that all who change the superblock take.
    fn record(&mut self, change: &Change) -> Result<Result<(), SuperblockError>> {
        let mut admin = self.daemon.admin();
        let CacheSide {
            control,
            storage,
            link,
            ..
        } = cache_of(&mut admin)?;
        let superblock = control.take_superblock();
        let mut superblock = superblock.context("the superblock is being written")?;
        let result = change.of(&superblock).and_then(|changed| {
            let known = |number: &u8| superblock.devices.iter().any(|on| on.number == *number);
            let mut numbers = changed.devices.iter().map(|on| on.number);
            let added = numbers.find(|number| !known(number));
            if let (Some(number), Some(new)) = (added, self.hooks.storage.take()) {
                storage.add(number, new);
            }
            let result = superblock.replace(changed, &mut ServedStorage::new(storage, link));
            if let (Some(number), Err(_)) = (added, &result) {
                storage.remove(number);
            }
            result
        });
        control.give_superblock(superblock);
        if result.is_ok() && matches!(change, Change::Copies(_) | Change::Shrink(_)) {
            self.daemon.renew_witness(&mut admin);
        }
        Ok(result)
    }

    /// Flushes a volume, and serves notices meanwhile: of a cache that failed, no flush is
    /// answered before that is on record.
    fn flush(&mut self, volume: VolumeSlot) -> Result<bool> {
        let (sender, receiver) = channel();
        self.daemon.links[0].call(move |worker| worker.flush_volume(volume, sender))?;
        // A worker that ends has ended with everything else.
        let answer = self.await_answer(&receiver);
        Ok(answer.is_ok_and(|answer| answer.is_ok()))
    }

    /// Waits for an answer, and says meanwhile how far the command is. The error is `Timeout` if nobody
    /// waits any more who gave the command.
    fn await_answer<T>(&mut self, receiver: &Receiver<T>) -> Result<T, RecvTimeoutError> {
        loop {
            match receiver.recv_timeout(LOOK) {
                Err(RecvTimeoutError::Timeout) => {}
                answered => return answered,
            }
            let progress = self.progress();
            if !self.tell_client(progress) && !self.is_final {
                return Err(RecvTimeoutError::Timeout);
            }
        }
    }

    /// Says how far the command is; whether anybody listens. Who does not take a message for ten seconds
    /// is not told another: each would take as long.
    fn tell_client(&mut self, progress: Progress) -> bool {
        self.is_told = self.is_told && (self.hooks.tell)(progress);
        self.is_told
    }

    fn passes_by(&self, slot: VolumeSlot) -> bool {
        self.passes_shut_out && self.daemon.passes_by(slot)
    }

    fn release(&mut self) -> bool {
        match (self.hooks.release)() {
            Ok(()) => {
                self.is_final = true;
                true
            }
            Err(error) => {
                self.in_use = Some(error);
                false
            }
        }
    }
}

/// The cache, for commands that need one.
pub(super) fn cache_of(admin: &mut Admin) -> Result<&mut CacheSide> {
    match &mut admin.cache {
        Some(cache) => Ok(cache),
        None => wrong_usage!("this daemon serves no cache; start one with --cache"),
    }
}
