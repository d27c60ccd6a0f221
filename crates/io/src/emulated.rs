//! A timing model in front of a real device: the data is really moved, and the completion comes
//! no sooner than the modelled device would have given it.

use std::sync::{Arc, Mutex, PoisonError};

use forebay_model::{Command, DeviceModel, ModelOptions};

struct Shared {
    model: Box<dyn DeviceModel>,
    // Completions that another thread's look at the model brought out.
    mailboxes: Vec<Vec<u32>>,
}

/// A modelled device. Clones are of one device: threads that share a real device share its model.
#[derive(Clone)]
pub struct Emulation {
    shared: Arc<Mutex<Shared>>,
}

impl std::fmt::Debug for Emulation {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Emulation").finish_non_exhaustive()
    }
}

impl Emulation {
    /// A model for a device of `size_bytes`; options come from [`ModelOptions::parse`].
    #[must_use]
    pub fn new(options: &ModelOptions, size_bytes: u64) -> Emulation {
        let shared = Shared {
            model: options.build(size_bytes),
            mailboxes: Vec::new(),
        };
        Emulation {
            shared: Arc::new(Mutex::new(shared)),
        }
    }

    fn with<T>(&self, work: impl FnOnce(&mut Shared) -> T) -> T {
        // A model has no invariant that a panic elsewhere could have left half done.
        work(&mut self.shared.lock().unwrap_or_else(PoisonError::into_inner))
    }

    pub(crate) fn join(&self) -> Client {
        let index = self.with(|shared| {
            shared.mailboxes.push(Vec::new());
            shared.mailboxes.len() as u64 - 1
        });
        Client {
            emulation: self.clone(),
            index,
        }
    }
}

/// A thread's use of a modelled device.
#[derive(Debug)]
pub(crate) struct Client {
    emulation: Emulation,
    index: u64,
}

impl Client {
    /// Submits under a slot of this thread's driver; returns when to look next.
    pub(crate) fn submit(&self, now_ns: u64, slot: u32, command: Command) -> Option<u64> {
        self.emulation.with(|shared| {
            shared
                .model
                .submit(now_ns, self.index << 32 | u64::from(slot), command);
            shared.model.next_event_ns()
        })
    }

    /// Appends this thread's slots that are done by `now_ns`; returns when to look next.
    pub(crate) fn look(&self, now_ns: u64, done: &mut Vec<u32>) -> Option<u64> {
        self.emulation.with(|shared| {
            while let Some((id, _)) = shared.model.pop_done(now_ns) {
                shared.mailboxes[(id >> 32) as usize].push(id as u32);
            }
            done.append(&mut shared.mailboxes[self.index as usize]);
            shared.model.next_event_ns()
        })
    }
}

/// The clock models run on, which is that of the ring's timers.
pub(crate) fn now_ns() -> u64 {
    let mut time = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: the kernel writes one timespec; CLOCK_MONOTONIC always exists.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &raw mut time) };
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}
