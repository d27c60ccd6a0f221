//! The entrance: listeners, and connections until they open an export, on a thread of its own.
//! Anybody who reaches a listener can cause its work, TLS handshakes among it, so none of that is
//! done by a thread of the data path. A connection that has opened an export is a client, and goes
//! to a worker for good.
//!
//! | module | subject |
//! |---|---|
//! | [`crowd`] | limits of connections that have opened nothing |
//! | [`newcomer`] | such a connection |

mod crowd;
mod newcomer;

use std::io;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use forebay_engine::VolumeSlot;
use forebay_frontend::nbd::{Connection, Limits, Settings};
use forebay_io::{Arena, Pool};
use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};
use rustix::io::Errno;

use self::crowd::{DEADLINE, room};
use self::newcomer::{Newcomer, Turn};
use super::admitted::Admitted;
use super::exports::Exports;
use super::link::{Link, Message};
use super::listener::Listener;
use super::seats::Seats;
use crate::daemon::room::{COURTESY, Room};
use crate::daemon::seldom;
use crate::failure::in_words;
use crate::lock::lock;
use crate::network::nbd::Tls;
use crate::thread;

/// The most connections that a listener accepts in one turn, so that each has its turns.
const ACCEPTED: usize = 16;
/// Pause of a listener whose connections cannot be accepted. It stays ready, so to look again at
/// once would be a loop without end.
const PAUSE: Duration = Duration::from_millis(200);
/// Interval of the look for a free place while somebody waits for one.
const LOOK: Duration = Duration::from_millis(50);

/// The entrance, from outside.
pub(in crate::daemon) struct Entrance {
    bell: Arc<OwnedFd>,
    closing: Arc<AtomicBool>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

/// Parts that the entrance works with.
pub(in crate::daemon) struct EntranceParts {
    pub(in crate::daemon) listeners: Vec<(Listener, Tls)>,
    pub(in crate::daemon) exports: Arc<Exports>,
    pub(in crate::daemon) links: Vec<Link>,
    pub(in crate::daemon) limits: Limits,
    /// The most clients of a worker.
    pub(in crate::daemon) clients_each: usize,
}

impl Entrance {
    /// Opens it.
    pub(in crate::daemon) fn open(parts: EntranceParts) -> Result<Entrance> {
        let bell = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK);
        let bell = Arc::new(bell.context("cannot make an event descriptor")?);
        let closing = Arc::new(AtomicBool::default());
        let workers = parts.links.len();
        let hall = Hall {
            seats: Seats::new(parts.clients_each, workers, parts.listeners.len().max(1)),
            resting: vec![None; parts.listeners.len()],
            newcomers: Vec::new(),
            memory: no_memory()?,
            bell: Arc::clone(&bell),
            closing: Arc::clone(&closing),
            parts,
        };
        let thread = thread::start("forebay-entry", move || hall.run())?;
        Ok(Entrance {
            bell,
            closing,
            thread: Mutex::new(Some(thread)),
        })
    }

    /// Closes it: nobody comes in any more, and whoever opened no export so far is sent away.
    pub(in crate::daemon) fn close(&self) {
        self.closing.store(true, Ordering::Release);
        // The counter is full only if the bell was rung before.
        let _ = rustix::io::write(&*self.bell, &1u64.to_ne_bytes());
        let mut thread = lock(&self.thread);
        if thread.take().is_some_and(|thread| thread.join().is_err()) {
            tracing::warn!("the thread for new clients broke down (it says where above)");
        }
    }
}

/// Memory for payloads, of which a connection that has opened no export has none.
fn no_memory() -> Result<Arena> {
    let mut arenas = Pool::new(1 << 12)?.split(1)?;
    arenas.pop().context("a pool has a part")
}

/// The entrance, inside.
struct Hall {
    parts: EntranceParts,
    seats: Arc<Seats>,
    /// When each listener is looked at again, of those that are not at present.
    resting: Vec<Option<Instant>>,
    /// In the order of their arrival.
    newcomers: Vec<Newcomer>,
    memory: Arena,
    bell: Arc<OwnedFd>,
    closing: Arc<AtomicBool>,
}

impl Hall {
    fn run(mut self) {
        while !self.closing.load(Ordering::Acquire) {
            let ready = match self.wait() {
                Ok(ready) => ready,
                Err(error) => {
                    seldom::NOT_ACCEPTED.warn(format_args!(
                        "cannot wait for clients: {}; they are looked for again",
                        in_words(&error)
                    ));
                    std::thread::sleep(PAUSE);
                    continue;
                }
            };
            let (listeners, newcomers) = ready.split_at(self.parts.listeners.len());
            self.serve(newcomers);
            self.seat_all();
            self.end_slow();
            for (at, ready) in listeners.iter().enumerate() {
                if !ready.is_empty() {
                    self.accept(at);
                }
            }
        }
    }

    /// Waits until something is to be done; returns what is ready, of listeners and newcomers.
    fn wait(&mut self) -> io::Result<Vec<PollFlags>> {
        let now = Instant::now();
        for resting in &mut self.resting {
            *resting = resting.filter(|until| *until > now);
        }
        let until = self.next_look(now);
        let timeout = until.map(|until| {
            let left = until.saturating_duration_since(now);
            Timespec {
                tv_sec: left.as_secs() as i64,
                tv_nsec: i64::from(left.subsec_nanos()),
            }
        });
        let mut polled = vec![PollFd::new(&*self.bell, PollFlags::IN)];
        for ((listener, _), resting) in self.parts.listeners.iter().zip(&self.resting) {
            let wanted = match resting {
                None => PollFlags::IN,
                Some(_) => PollFlags::empty(),
            };
            polled.push(PollFd::from_borrowed_fd(listener.as_fd(), wanted));
        }
        for newcomer in &self.newcomers {
            let socket = newcomer.socket.as_fd();
            polled.push(PollFd::from_borrowed_fd(socket, newcomer.wants()));
        }
        match poll(&mut polled, timeout.as_ref()) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
        Ok(polled.iter().skip(1).map(PollFd::revents).collect())
    }

    /// When there is something to do although nothing is ready.
    fn next_look(&self, now: Instant) -> Option<Instant> {
        let deadlines = self
            .newcomers
            .iter()
            .map(|newcomer| newcomer.since + DEADLINE);
        let waits = self
            .newcomers
            .iter()
            .any(|newcomer| newcomer.opened.is_some());
        let rests = self.resting.iter().copied().flatten();
        deadlines
            .chain(rests)
            .chain(waits.then_some(now + LOOK))
            .min()
    }

    /// Lets each newcomer go on that can.
    fn serve(&mut self, ready: &[PollFlags]) {
        let newcomers = std::mem::take(&mut self.newcomers);
        let ready = ready.iter().copied();
        for (mut newcomer, ready) in newcomers.into_iter().zip(ready) {
            // Held until it is with its worker: an export that is withdrawn has no client on the
            // way then.
            let exports = self.parts.exports.offered();
            if ready.is_empty() {
                self.newcomers.push(newcomer);
                continue;
            }
            match newcomer.turn(ready, &exports, &mut self.memory) {
                Turn::Ended => say_goodbye(&newcomer),
                Turn::GoesOn => {
                    let waits = seat(newcomer, &self.seats, &self.parts.links);
                    self.newcomers.extend(waits);
                }
            }
        }
    }

    /// Seats those who waited for a place.
    fn seat_all(&mut self) {
        let newcomers = std::mem::take(&mut self.newcomers);
        for newcomer in newcomers {
            let exports = self.parts.exports.offered();
            let is_offered = |volume: VolumeSlot| {
                let mut ids = exports.iter().map(|export| export.id.0);
                ids.any(|id| id == u32::from(volume.0))
            };
            if newcomer.opened.is_none_or(is_offered) {
                let waits = seat(newcomer, &self.seats, &self.parts.links);
                self.newcomers.extend(waits);
            }
        }
        let mut waits = self.newcomers.iter();
        self.seats
            .want(waits.any(|newcomer| newcomer.opened.is_some()));
    }

    /// Closes the connections of those who take too long.
    fn end_slow(&mut self) {
        let now = Instant::now();
        let places = self.seats.count();
        self.newcomers.retain(|newcomer| {
            let slow = now.saturating_duration_since(newcomer.since) >= DEADLINE;
            if slow && newcomer.opened.is_some() {
                seldom::TURNED_AWAY.warn(format_args!(
                    "a client was turned away: too many are connected, {places} at most, of which some are kept for \
                     each listener; close some"
                ));
            } else if slow {
                seldom::UNFINISHED.warn(format_args!(
                    "a client opened no export within {} seconds; its connection is closed",
                    DEADLINE.as_secs()
                ));
            }
            !slow
        });
    }

    /// Accepts connections of a listener, as many as there is room for.
    fn accept(&mut self, at: usize) {
        for _ in 0..ACCEPTED {
            let now = Instant::now();
            let made_by = match self.room(at, now) {
                Room::There | Room::None => None,
                Room::MadeBy(newcomer) => Some(newcomer),
                Room::At(then) => {
                    self.resting[at] = Some(then);
                    return;
                }
            };
            let (listener, tls) = &self.parts.listeners[at];
            match listener.accept(tls) {
                Ok((socket, tls, from)) => {
                    if let Some(newcomer) = made_by {
                        self.send_away(newcomer);
                    }
                    let nbd = Connection::new(Settings {
                        limits: self.parts.limits,
                        tls,
                    });
                    let mut newcomer = Newcomer::new((at, from), socket, nbd, now);
                    let exports = self.parts.exports.offered();
                    // The greeting.
                    let turn = newcomer.turn(PollFlags::empty(), &exports, &mut self.memory);
                    drop(exports);
                    if turn == Turn::GoesOn {
                        self.newcomers.push(newcomer);
                    }
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return,
                Err(error) => return self.not_accepted(at, now, &error),
            }
        }
    }

    fn room(&self, listener: usize, now: Instant) -> Room {
        let there: Vec<_> = self
            .newcomers
            .iter()
            .enumerate()
            .filter(|(_, newcomer)| newcomer.listener == listener)
            .map(|(at, newcomer)| (at, newcomer.from, newcomer.since))
            .collect();
        room(&there, now)
    }

    fn send_away(&mut self, at: usize) {
        self.newcomers.remove(at);
        seldom::UNFINISHED.warn(format_args!(
            "a client that had opened no export was closed to let another in: {} at a time for each listener",
            crowd::MOST
        ));
    }

    /// A connection waits and cannot be accepted, for want of descriptors as a rule. The oldest
    /// newcomer gives its own, if it had time enough.
    fn not_accepted(&mut self, at: usize, now: Instant, error: &io::Error) {
        seldom::NOT_ACCEPTED.warn(format_args!(
            "a client could not be accepted: {}; raise the limit of open files (LimitNOFILE= of the service, \
             `ulimit -n`) if that is the cause",
            in_words(error)
        ));
        self.resting[at] = Some(now + PAUSE);
        let oldest = self.newcomers.first();
        if oldest.is_some_and(|oldest| now >= oldest.since + COURTESY) {
            self.send_away(0);
        }
    }
}

/// Hands a newcomer that opened an export to a worker; returns it if it goes on waiting.
fn seat(newcomer: Newcomer, seats: &Arc<Seats>, links: &[Link]) -> Option<Newcomer> {
    let Some(volume) = newcomer.opened else {
        return Some(newcomer);
    };
    let Some(seat) = seats.take(newcomer.listener) else {
        return Some(newcomer);
    };
    let link = &links[seat.worker()];
    link.send(Message::Client(Box::new(Admitted {
        socket: newcomer.socket,
        nbd: newcomer.nbd,
        unread: newcomer.unread,
        volume,
        seat,
    })));
    None
}

/// Logs the end of a connection that opened no export.
fn say_goodbye(newcomer: &Newcomer) {
    match newcomer.nbd.reason() {
        Some(reason) if !reason.is_clean() => {
            seldom::ENDED.warn(format_args!("a connection ended: {reason}"))
        }
        Some(reason) => tracing::debug!("a connection ended: {reason}"),
        None => tracing::debug!("a connection was closed"),
    }
}
