//! The thread of a network origin: it owns the connection, makes requests of jobs, and connects
//! again when the server was away.

use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use forebay_cache::Resend;
use forebay_frontend::nbd::client::{Answers, Event as Answer, OpenExport};
use forebay_frontend::nbd::wire::{command, transmission_flag};
use forebay_io::{Event, RealDevice, Remote, RemoteFacts, RemoteJob, RemoteKind};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;

use super::call::{Caller, Failed, NBD_ESHUTDOWN};
use super::connect::connect;
use super::jobs::{Answered, Jobs, change_of};
use super::link::{Link, further};
use super::samples::Samples;
use super::uri::ExportUri;
use super::waits::Limits;
use crate::failure::{describe, refuse};
use crate::lock::lock;
use crate::thread;

/// The longest wait for a server's next bytes while it is connected to.
const ANSWER_LIMIT: Duration = Duration::from_secs(5);
/// Pauses between attempts to connect: from the first to the longest.
const FIRST_PAUSE: Duration = Duration::from_millis(50);
const LONGEST_PAUSE: Duration = Duration::from_secs(2);
/// A connection that breaks sooner is followed by a longer pause: a server that ends at a request is
/// asked for it again, and takes all changes again before.
const STEADY: Duration = Duration::from_secs(10);
/// Changes that may have to be sent again, beyond which the origin is flushed, in bytes; and beyond
/// which further changes wait for that flush.
const FLUSH_AT_BYTES: usize = 32 << 20;
const WAIT_AT_BYTES: usize = 64 << 20;
/// The largest unit of transfers that volumes have, in bytes.
const LARGEST_UNIT_BYTES: u32 = 4096;
/// Requests of a connection that servers take at a time, as `qemu-nbd` and `nbdkit` do.
const SERVER_DEPTH: usize = 16;
/// The interval of the look at limits on time.
const LOOK: Duration = Duration::from_millis(250);

/// The end of a session that jobs come in at.
#[derive(Debug)]
struct Inbox {
    jobs: Mutex<Vec<RemoteJob>>,
    event: Event,
    is_closed: AtomicBool,
    /// Another host has the origin now: nothing is ever sent again.
    is_fenced: AtomicBool,
    /// The timeout that the name of the export says.
    named_timeout: Duration,
    /// The timeout in its place, in seconds; zero without one.
    timeout_s: AtomicU64,
}

impl Inbox {
    fn timeout(&self) -> Duration {
        match self.timeout_s.load(Ordering::Relaxed) {
            0 => self.named_timeout,
            seconds => Duration::from_secs(seconds),
        }
    }

    fn is_fenced(&self) -> bool {
        self.is_fenced.load(Ordering::Acquire)
    }
}

/// Ends the session when the device is let go.
#[derive(Debug)]
struct Handle(Arc<Inbox>);

impl Remote for Handle {
    fn submit(&self, job: RemoteJob) {
        let mut jobs = lock(&self.0.jobs);
        let is_first = jobs.is_empty();
        jobs.push(job);
        drop(jobs);
        if is_first {
            self.0.event.notify();
        }
    }

    fn has_shut_out(&self) -> bool {
        self.0.is_fenced()
    }

    fn timeout(&self) -> Duration {
        self.0.timeout()
    }

    fn set_timeout(&self, timeout: Option<Duration>) {
        let seconds = timeout.map_or(0, |timeout| timeout.as_secs());
        self.0.timeout_s.store(seconds, Ordering::Relaxed);
        self.0.event.notify();
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        self.0.is_closed.store(true, Ordering::Release);
        self.0.event.notify();
    }
}

/// Opens an export, with every check that comes before anything is written.
pub(crate) fn open(path: &Path, name: &str, read_only: bool) -> Result<Arc<RealDevice>> {
    let uri = ExportUri::parse(name)?;
    let (mut stream, export) =
        connect(&uri, ANSWER_LIMIT).with_context(|| format!("cannot open the export {name}"))?;
    check(&uri, &export, read_only).with_context(|| format!("cannot use the export {name}"))?;
    stream.set_limit(Some(ANSWER_LIMIT.max(uri.timeout)))?;
    let mut answers = Answers::default();
    let mut caller = Caller::new(&mut stream, &mut answers, export);
    let samples = Samples::take(&mut caller, export.block_bytes)
        .map_err(|error| caller.reason(error))
        .with_context(|| format!("cannot read the export {name}"))?;
    stream.set_nonblocking()?;
    let event = Event::new().context("no descriptor for an event")?;
    let inbox = Arc::new(Inbox {
        jobs: Mutex::default(),
        event,
        is_closed: AtomicBool::new(false),
        is_fenced: AtomicBool::new(false),
        named_timeout: uri.timeout,
        timeout_s: AtomicU64::new(0),
    });
    let session = Session {
        name: path.to_owned(),
        facts: export,
        inbox: Arc::clone(&inbox),
        links: joined(&uri, Link::new(stream, answers, export)),
        jobs: Jobs::default(),
        resend: Resend::default(),
        samples,
        own_flush: None,
        connected: Instant::now(),
        away: Away::default(),
        uri: uri.clone(),
    };
    let unit = u64::from(export.block_bytes);
    let facts = RemoteFacts {
        size_bytes: export.size_bytes / unit * unit,
        logical_block_bytes: export.block_bytes,
        optimal_bytes: export.preferred_bytes,
        can_discard: export.can(transmission_flag::SEND_TRIM),
        identity: identity_of(&uri),
    };
    let handle = Box::new(Handle(inbox));
    thread::start("forebay-origin", move || session.run())?;
    Ok(RealDevice::remote(path, facts, handle))
}

/// The lasting name of an export: its server's sockets may move.
fn identity_of(uri: &ExportUri) -> String {
    if uri.export.is_empty() {
        return "dev:nbd".to_owned();
    }
    format!("nbd:{}", uri.export)
}

/// Refuses an export that cannot be served.
fn check(uri: &ExportUri, export: &OpenExport, read_only: bool) -> Result<()> {
    if export.can(transmission_flag::READ_ONLY) && !read_only {
        refuse!("the server offers it to be read only; start the server so that it may be written");
    }
    if !export.can(transmission_flag::SEND_FLUSH) && !uri.believes_writes {
        refuse!(
            "the server has no flush, so nothing says when a write is durable; if its writes are durable when it \
             answers them, say so with flush=none in the name of the export"
        );
    }
    if export.block_bytes > LARGEST_UNIT_BYTES {
        refuse!(
            "the server takes whole blocks of {} bytes only, and {LARGEST_UNIT_BYTES} is the most that a volume \
             can have; let the server take smaller ones (nbdkit has a filter for that, blocksize)",
            export.block_bytes
        );
    }
    Ok(())
}

/// The first connection, and further ones for reads.
fn joined(uri: &ExportUri, first: Link) -> Vec<Link> {
    let further = further(uri, &first);
    std::iter::once(first).chain(further).collect()
}

/// The time since the server went away.
#[derive(Default)]
struct Away {
    /// The last pause before it was asked again.
    pause: Duration,
    next: Option<Instant>,
    told: String,
}

struct Session {
    name: PathBuf,
    uri: ExportUri,
    /// The export as it was when it was opened.
    facts: OpenExport,
    inbox: Arc<Inbox>,
    /// The connections: the first has all changes and flushes, and reads go to any. None while the
    /// server is away.
    links: Vec<Link>,
    jobs: Jobs,
    resend: Resend,
    samples: Samples,
    /// The flush that frees memory, if it is on its way.
    own_flush: Option<u64>,
    /// When the server was there again last.
    connected: Instant,
    away: Away,
}

impl Session {
    fn run(mut self) {
        while !self.inbox.is_closed.load(Ordering::Acquire) {
            self.inbox.event.clear();
            let jobs = std::mem::take(&mut *lock(&self.inbox.jobs));
            for job in jobs {
                self.jobs.add(job);
            }
            let goes_on = match self.turn() {
                Ok(goes_on) => goes_on,
                Err(why) => {
                    self.lose(&why);
                    false
                }
            };
            if !goes_on {
                self.wait();
            }
        }
        self.say_goodbye();
    }

    /// Does what can be done now; says whether there is more.
    fn turn(&mut self) -> Result<bool> {
        if self.inbox.is_fenced() {
            return Ok(self.refuse_all());
        }
        if self.links.is_empty() {
            self.connect_again();
            for job in self.jobs.take_expired(self.inbox.timeout()) {
                job.answer(Errno::TIMEDOUT.raw_os_error());
            }
        }
        self.make_requests();
        let mut goes_on = false;
        for via in 0..self.links.len() {
            match self.converse(via) {
                Ok(more) => goes_on |= more,
                Err(why) if via > 0 => {
                    self.lose_further(&why);
                    return Ok(true);
                }
                Err(why) => return Err(why),
            }
        }
        Ok(goes_on)
    }

    /// Sends and takes what a connection has; says whether there is more.
    fn converse(&mut self, via: usize) -> Result<bool> {
        // None is there any more once an answer has shut this host out.
        let Some(link) = self.links.get_mut(via) else {
            return Ok(false);
        };
        if !is_watched(via, link) {
            return Ok(false);
        }
        link.send()?;
        let goes_on = link.receive()?;
        self.read_answers(via)?;
        if let Some(link) = self.links.get_mut(via) {
            if link.answers.owed() > 0 && link.heard.elapsed() >= self.inbox.timeout() {
                bail!(
                    "it has not answered for {} s",
                    self.inbox.timeout().as_secs()
                );
            }
            link.send()?;
        }
        Ok(goes_on)
    }

    fn make_requests(&mut self) {
        let Some(link) = self.links.first_mut() else {
            return;
        };
        let is_full = self.resend.memory_bytes() >= WAIT_AT_BYTES;
        if self.resend.memory_bytes() >= FLUSH_AT_BYTES
            && self.own_flush.is_none()
            && !self.jobs.is_flushing()
        {
            if link.export.can(transmission_flag::SEND_FLUSH) {
                link.before_request();
                let (cookie, header) = link.answers.ask(command::FLUSH, 0, 0);
                link.output.extend(header);
                self.own_flush = Some(cookie);
                self.resend.flush_begins();
            } else {
                self.resend.flush_begins();
                self.resend.flush_ended();
            }
        }
        while let Some(job) = self.jobs.next() {
            let via = self.jobs.begun_via().unwrap_or_else(|| match job.kind() {
                RemoteKind::Read => way_of_read(&self.links),
                _ => 0,
            });
            let link = &mut self.links[via];
            if !Jobs::has_room(&link.output) {
                return;
            }
            if job.is_change() && is_full {
                return;
            }
            if job.kind() == RemoteKind::Flush {
                if self.own_flush.is_some() {
                    return;
                }
                let is_doubtful = self.resend.take_doubt();
                self.resend.flush_begins();
                if is_doubtful || !link.export.can(transmission_flag::SEND_FLUSH) {
                    self.resend.flush_ended();
                    if let Some(job) = self.jobs.take_next() {
                        let failed = Errno::IO.raw_os_error();
                        job.answer(if is_doubtful { failed } else { 0 });
                    }
                    continue;
                }
            } else if job.is_change() {
                self.samples.changed(job.offset_bytes(), job.len_bytes());
            }
            link.before_request();
            self.jobs
                .ask(via, &link.export, &mut link.answers, &mut link.output);
        }
    }

    fn read_answers(&mut self, via: usize) -> Result<()> {
        let Some(link) = self.links.get_mut(via) else {
            return Ok(());
        };
        let mut input = std::mem::take(&mut link.input);
        let mut at = 0;
        while let Some(link) = self.links.get_mut(via) {
            let rest = &input[at..];
            let step = link.answers.receive(rest)?;
            let bytes = &rest[..step.taken];
            at += step.taken;
            match step.event {
                None if step.taken == 0 => break,
                None => {}
                Some(Answer::Data { cookie, at_bytes }) => {
                    link.heard = Instant::now();
                    self.jobs.fill((via, cookie), at_bytes, bytes);
                }
                Some(Answer::Done { cookie, error }) => {
                    link.heard = Instant::now();
                    self.answered((via, cookie), error);
                }
            }
        }
        if let Some(link) = self.links.get_mut(via) {
            input.drain(..at);
            link.input = input;
        }
        Ok(())
    }

    fn answered(&mut self, request: (usize, u64), error: u32) {
        if error == NBD_ESHUTDOWN {
            return self.fence();
        }
        if self.own_flush.map(|cookie| (0, cookie)) == Some(request) {
            self.own_flush = None;
            self.resend.flush_ended();
            if error != 0 {
                self.resend.doubt();
            }
            return;
        }
        let Some(Answered { job, error }) = self.jobs.done(request, error) else {
            return;
        };
        if job.kind() == RemoteKind::Flush {
            self.resend.flush_ended();
        } else if let (0, Some(change)) = (error, change_of(&job)) {
            self.resend.acknowledged(change);
        }
        job.answer(errno_of(error));
    }

    /// The origin belongs to another host, or its server says so: final. A server that shuts down
    /// has the same number, and to be wrong there costs a start of the daemon and no data.
    fn fence(&mut self) {
        tracing::error!(
            "the server of {} has shut this host out (error {NBD_ESHUTDOWN}): nothing is written to it any more. \
             Dirty data stays in the cache. Start the daemon again if no other host uses the export; if one does, \
             see `forebay rescue`",
            self.name.display()
        );
        self.inbox.is_fenced.store(true, Ordering::Release);
        self.links.clear();
        self.jobs.lost(self.limits());
    }

    fn limits(&self) -> Limits {
        Limits {
            of_job: self.inbox.timeout(),
            was_steady: self.connected.elapsed() >= STEADY,
        }
    }

    fn refuse_all(&mut self) -> bool {
        while let Some(job) = self.jobs.take_next() {
            job.answer(Errno::SHUTDOWN.raw_os_error());
        }
        false
    }

    fn lose(&mut self, why: &anyhow::Error) {
        let unsaved = self.resend.to_send().count();
        tracing::warn!(
            "the server of {} is gone ({}); requests wait up to {} s for it, and {unsaved} changes will be sent again",
            self.name.display(),
            describe(why),
            self.inbox.timeout().as_secs()
        );
        self.links.clear();
        self.own_flush = None;
        self.resend.lost();
        let limits = self.limits();
        self.jobs.lost(limits);
        self.away.told.clear();
        self.away.next = None;
        if limits.was_steady {
            self.away.pause = Duration::ZERO;
        } else {
            self.pause();
        }
    }

    /// Has the server asked again later, later each time.
    fn pause(&mut self) {
        let pause = (self.away.pause * 2).clamp(FIRST_PAUSE, LONGEST_PAUSE);
        self.away.pause = pause;
        self.away.next = Some(Instant::now() + pause);
    }

    /// Reads of the further connections are asked again on the first. That one stays: a change that the
    /// server has of it might otherwise be carried out after a newer one. No other takes their place,
    /// since a server that was started anew beside this one may not have its changes.
    fn lose_further(&mut self, why: &anyhow::Error) {
        tracing::warn!(
            "a further connection to the server of {} broke ({}); reads have one from here on",
            self.name.display(),
            describe(why)
        );
        self.links.truncate(1);
        self.jobs.lost_from(1, self.limits());
    }

    fn connect_again(&mut self) {
        if self.away.next.is_some_and(|next| Instant::now() < next) {
            return;
        }
        match self.reconnected() {
            Ok(link) => {
                tracing::info!("the server of {} is there again", self.name.display());
                self.links = joined(&self.uri, link);
                self.connected = Instant::now();
            }
            Err(why) => {
                let why = describe(&why);
                if self.away.told != why && !self.inbox.is_fenced() {
                    tracing::warn!("{} is still away: {why}", self.name.display());
                    self.away.told = why;
                }
                self.pause();
            }
        }
    }

    /// Connects, compares the export with the earlier one, and sends again what it
    /// may have forgotten (I26).
    fn reconnected(&mut self) -> Result<Link> {
        let (mut stream, export) = connect(&self.uri, ANSWER_LIMIT)?;
        check(&self.uri, &export, false)?;
        let before = &self.facts;
        if export.size_bytes < before.size_bytes || export.block_bytes > before.block_bytes {
            bail!(
                "the export is another one: it had {} bytes in blocks of {}, and has {} in blocks of {}",
                before.size_bytes,
                before.block_bytes,
                export.size_bytes,
                export.block_bytes
            );
        }
        let of_samples = OpenExport {
            size_bytes: before.size_bytes,
            ..export
        };
        stream.set_limit(Some(ANSWER_LIMIT.max(self.inbox.timeout())))?;
        let mut answers = Answers::default();
        let mut caller = Caller::new(&mut stream, &mut answers, of_samples);
        let sent_again = self.check_and_send_again(&mut caller);
        if caller.is_shut_out {
            self.fence();
            bail!("the server has shut this host out");
        }
        let is_doubtful = sent_again?;
        if is_doubtful {
            self.resend.doubt();
        }
        stream.set_limit(None)?;
        stream.set_nonblocking()?;
        Ok(Link::new(stream, answers, export))
    }

    /// Says whether the server refused a change. Ends early if it has shut this host out.
    fn check_and_send_again(&self, caller: &mut Caller) -> Result<bool> {
        let fits = self.samples.fit(caller);
        let fits = fits.map_err(|error| caller.reason(error));
        if !fits.context("cannot read the export")? {
            bail!("the export is another one, or somebody else wrote to it");
        }
        let mut is_doubtful = false;
        for change in self.resend.to_send() {
            match caller.send_again(change) {
                Ok(()) => {}
                Err(Failed::Lost) => bail!("the connection broke while changes were sent again"),
                Err(Failed::Refused(_)) => is_doubtful = true,
            }
            if caller.is_shut_out {
                break;
            }
        }
        Ok(is_doubtful)
    }

    fn wait(&self) {
        let mut limit = LOOK;
        if self.links.is_empty() && !self.inbox.is_fenced() {
            let next = self.away.next.unwrap_or_else(Instant::now);
            limit = limit.min(next.saturating_duration_since(Instant::now()));
        }
        let limit = Timespec {
            tv_sec: 0,
            tv_nsec: i64::from(limit.subsec_nanos()),
        };
        let mut watched = vec![PollFd::new(&self.inbox.event, PollFlags::IN)];
        let all = self.links.iter().enumerate();
        for (_, link) in all.filter(|(via, link)| is_watched(*via, link)) {
            let mut events = PollFlags::IN;
            if link.wants_write() {
                events |= PollFlags::OUT;
            }
            watched.push(PollFd::from_borrowed_fd(link.stream.as_fd(), events));
        }
        // A wait that fails is a short one.
        let _ = poll(&mut watched, Some(&limit));
    }

    fn say_goodbye(&mut self) {
        for link in &mut self.links {
            let (_, header) = link.answers.ask(command::DISC, 0, 0);
            link.output.extend(header);
            // A server that is gone needs none.
            let _ = link.send();
        }
    }
}

/// Whether to look at a connection now. The first tells that the server goes away. To look at another
/// while it is idle costs a system call.
fn is_watched(via: usize, link: &Link) -> bool {
    via == 0 || link.is_in_use()
}

/// The connection for a read: the first with fewer requests than a server takes at a time, so that
/// few of them share their transfers, or else the one with the fewest.
fn way_of_read(links: &[Link]) -> usize {
    let owed = |via: &usize| links[*via].answers.owed();
    let all = 0..links.len();
    let has_room = all.clone().find(|via| owed(via) < SERVER_DEPTH);
    has_room.or(all.min_by_key(owed)).unwrap_or_default()
}

/// The protocol's errors have the numbers of Linux.
fn errno_of(error: u32) -> i32 {
    i32::try_from(error).unwrap_or(Errno::IO.raw_os_error())
}
