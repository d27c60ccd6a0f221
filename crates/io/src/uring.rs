//! A thread's io_uring: sockets, timers, wakeups and devices all complete through it.

mod message;
mod waker;

use std::collections::VecDeque;
use std::io;
use std::marker::PhantomData;
use std::os::fd::{AsRawFd, BorrowedFd, RawFd};
use std::ptr::NonNull;
use std::time::Duration;

use forebay_engine::Buf;
use io_uring::{IoUring, cqueue, opcode, squeue, types};

use crate::pool::PoolView;
use forebay_engine::Slots;
use message::Message;
pub use message::SendPart;
pub use waker::Waker;

/// The name of an operation on the ring; comes back in its [`Completion`].
///
/// The top byte says whose it is: tags below [`Token::FIRST_RESERVED_TAG`] are the owner's to
/// give to its parts, the others belong to this crate.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Token(u64);

impl Token {
    /// The first tag the owner of the ring may not use.
    pub const FIRST_RESERVED_TAG: u8 = 0xef;
    /// Whose tokens are those of [`Token::standing`].
    pub const STANDING_TAG: u8 = 0xef;
    /// Completes when another thread called [`Waker::wake`].
    pub const WAKE: Token = Token((WAKE_TAG as u64) << TAG_SHIFT);

    /// A token of the owner's.
    ///
    /// # Panics
    /// If the tag is reserved or the value needs more than 56 bits.
    #[must_use]
    pub fn new(tag: u8, value: u64) -> Token {
        assert!(tag < Token::FIRST_RESERVED_TAG, "a tag of the owner's");
        Token::reserved(tag, value)
    }

    /// A token for a command that waits for as long as a device exists.
    ///
    /// # Panics
    /// If the value needs more than 56 bits.
    #[must_use]
    pub fn standing(value: u64) -> Token {
        Token::reserved(Token::STANDING_TAG, value)
    }

    pub(crate) fn reserved(tag: u8, value: u64) -> Token {
        assert!(value >> TAG_SHIFT == 0, "a token's value has 56 bits");
        Token(u64::from(tag) << TAG_SHIFT | value)
    }

    /// Whose it is.
    #[must_use]
    pub fn tag(self) -> u8 {
        (self.0 >> TAG_SHIFT) as u8
    }

    /// The number of the thing it names.
    #[must_use]
    pub fn value(self) -> u64 {
        self.0 & ((1 << TAG_SHIFT) - 1)
    }

    /// As the ring's `user_data`.
    #[must_use]
    pub fn raw(self) -> u64 {
        self.0
    }
}

const TAG_SHIFT: u32 = 56;
pub(crate) const DRIVER_TAG: u8 = 0xf0;
pub(crate) const TIMER_TAG: u8 = 0xf1;
pub(crate) const DISCARDER_TAG: u8 = 0xf2;
const MESSAGE_TAG: u8 = 0xf3;
pub(crate) const REMOTE_TAG: u8 = 0xf4;
const WAKE_TAG: u8 = 0xfe;
const CANCEL_TAG: u8 = 0xff;

/// A finished operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Completion {
    /// The operation.
    pub token: Token,
    /// The kernel's result: a count of bytes, a descriptor, or a negated errno.
    pub result: i32,
    /// Whether the operation goes on and completes again (multi-shot ones do).
    pub more: bool,
}

/// An open file, as it is named to the ring.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FileTarget {
    /// By its descriptor.
    Descriptor(RawFd),
    /// By its place in the ring's own table, which saves the kernel a look-up.
    Fixed(u32),
}

/// Evaluates an expression with the descriptor in the type the ring's operations want.
macro_rules! with_target {
    ($target:expr, $file:ident => $entry:expr) => {
        match $target {
            $crate::uring::FileTarget::Descriptor(descriptor) => {
                let $file = io_uring::types::Fd(descriptor);
                $entry
            }
            $crate::uring::FileTarget::Fixed(index) => {
                let $file = io_uring::types::Fixed(index);
                $entry
            }
        }
    };
}
pub(crate) use with_target;

/// Why a ring cannot be had or used.
#[derive(Debug, thiserror::Error)]
pub enum UringError {
    /// The kernel has no io_uring for this process.
    #[error(
        "the kernel refused an io_uring: Linux 5.15 or newer is needed, with the sysctl \
             kernel.io_uring_disabled=0 and no seccomp filter against it (containers have one)"
    )]
    Unavailable(#[source] io::Error),
    /// The kernel refused what should have worked.
    #[error("io_uring could not {doing}")]
    Failed {
        /// The step that failed, in words.
        doing: &'static str,
        /// The kernel's error.
        source: io::Error,
    },
}

/// The kernel pins registered buffers in pieces of at most this size.
const FIXED_CHUNK_BYTES: usize = 1 << 30;
/// Places for devices in the ring's table of files.
const FIXED_FILES: u32 = 64;
/// Places for clients' memory in the ring's table of buffers; the pool's follow.
pub const CLIENT_BUFFERS: u32 = 2048;
/// The most pieces that a pool can have.
const MAX_CHUNKS: u32 = ((crate::pool::MAX_BYTES) / FIXED_CHUNK_BYTES) as u32;
/// The longest time that a dropped ring waits for the operations it has cancelled.
const CANCEL_TIMEOUT: Duration = Duration::from_secs(5);

/// A ring and the operations on it. Belongs to the thread that made it.
pub struct Uring {
    ring: IoUring,
    memory: PoolView,
    // Entries that did not fit in the kernel's queue, in order. Bounded by the operations of its
    // users.
    backlog: VecDeque<squeue::Entry>,
    fixed_chunks: usize,
    /// Where those begin in the table, and whether clients' are before them.
    first_chunk: u32,
    takes_clients: bool,
    free_files: Vec<u32>,
    messages: Slots<Box<Message>>,
    #[expect(
        clippy::vec_box,
        reason = "they go back to where the kernel reads them by address"
    )]
    spare_messages: Vec<Box<Message>>,
    #[expect(
        clippy::vec_box,
        reason = "the kernel reads them by address, and the vector grows"
    )]
    timespecs: Vec<Box<types::Timespec>>,
    timespecs_used: usize,
    waker: Waker,
    in_flight: u64,
    _one_thread: PhantomData<*const ()>,
}

impl std::fmt::Debug for Uring {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Uring")
            .field("in_flight", &self.in_flight)
            .finish_non_exhaustive()
    }
}

impl Uring {
    /// A ring with a submission queue of `entries` for the calling thread, working on the buffers
    /// of `memory`.
    ///
    /// # Errors
    /// If the kernel refuses.
    pub fn new(entries: u32, memory: PoolView) -> Result<Uring, UringError> {
        let ring = build(entries.next_power_of_two()).map_err(UringError::Unavailable)?;
        let free_files = match ring.submitter().register_files_sparse(FIXED_FILES) {
            Ok(()) => (0..FIXED_FILES).rev().collect(),
            // Descriptors work as well, a little slower.
            Err(_) => Vec::new(),
        };
        let waker = Waker::new().map_err(|source| UringError::Failed {
            doing: "make an eventfd",
            source,
        })?;
        let mut uring = Uring {
            ring,
            memory,
            backlog: VecDeque::new(),
            fixed_chunks: 0,
            first_chunk: 0,
            takes_clients: false,
            free_files,
            messages: Slots::default(),
            spare_messages: Vec::new(),
            timespecs: Vec::new(),
            timespecs_used: 0,
            waker,
            in_flight: 0,
            _one_thread: PhantomData,
        };
        uring.watch_waker();
        Ok(uring)
    }

    /// The pool the ring works on.
    #[must_use]
    pub fn memory(&self) -> &PoolView {
        &self.memory
    }

    /// A handle with which other threads wake this one; the ring then completes [`Token::WAKE`].
    #[must_use]
    pub fn waker(&self) -> Waker {
        self.waker.clone()
    }

    /// The number of operations in flight, without those that wait for as long as a device exists.
    #[must_use]
    pub fn in_flight(&self) -> u64 {
        self.in_flight
    }

    /// Pins the pool's memory so that transfers need not look its pages up. All of the pool is
    /// touched by this, and counts against RLIMIT_MEMLOCK where that applies.
    ///
    /// # Errors
    /// If the kernel refuses; the ring works as before.
    pub fn register_memory(&mut self) -> Result<(), UringError> {
        let len_bytes = self.memory.len_bytes();
        let mut chunks = Vec::new();
        for start in (0..len_bytes).step_by(FIXED_CHUNK_BYTES) {
            // SAFETY: `start` is inside the mapping.
            let base = unsafe { self.memory.base().add(start) };
            let iov_len = FIXED_CHUNK_BYTES.min(len_bytes - start);
            chunks.push(libc::iovec {
                iov_base: base.as_ptr().cast(),
                iov_len,
            });
        }
        let places = CLIENT_BUFFERS + MAX_CHUNKS;
        let submitter = self.ring.submitter();
        self.takes_clients = submitter.register_buffers_sparse(places).is_ok();
        let failed = |source| UringError::Failed {
            doing: "register buffers",
            source,
        };
        if !self.takes_clients {
            // SAFETY: the ring holds a view that keeps the mapping alive as long as itself.
            unsafe { submitter.register_buffers(&chunks) }.map_err(failed)?;
            self.fixed_chunks = chunks.len();
            return Ok(());
        }
        self.first_chunk = CLIENT_BUFFERS;
        // One at a time: of several the kernel may take some, and says no more than that.
        for (number, chunk) in (CLIENT_BUFFERS..).zip(&chunks) {
            let chunk = std::slice::from_ref(chunk);
            // SAFETY: as above.
            unsafe { submitter.register_buffers_update(number, chunk, None) }.map_err(failed)?;
            self.fixed_chunks += 1;
        }
        Ok(())
    }

    /// Whether the table of buffers has room for clients' memory ([`CLIENT_BUFFERS`] of them), which a
    /// driver of the kernel's enters and takes out.
    #[must_use]
    pub fn takes_clients(&self) -> bool {
        self.takes_clients
    }

    /// The registered buffer that holds a range of the pool, if one does.
    pub(crate) fn fixed_buffer(&self, pointer: NonNull<u8>, len_bytes: usize) -> Option<u16> {
        if self.fixed_chunks == 0 || len_bytes == 0 {
            return None;
        }
        let offset = self.memory.offset_of(pointer);
        let chunk = offset / FIXED_CHUNK_BYTES;
        let one_chunk = chunk == (offset + len_bytes - 1) / FIXED_CHUNK_BYTES;
        (one_chunk && chunk < self.fixed_chunks).then_some(self.first_chunk as u16 + chunk as u16)
    }

    /// Enters an open file in the ring's table, or names it by descriptor if there is no room.
    /// The file must stay open until it is released and its operations have completed.
    pub fn register_file(&mut self, file: BorrowedFd<'_>) -> FileTarget {
        let descriptor = file.as_raw_fd();
        let Some(index) = self.free_files.pop() else {
            return FileTarget::Descriptor(descriptor);
        };
        match self
            .ring
            .submitter()
            .register_files_update(index, &[descriptor])
        {
            Ok(_) => FileTarget::Fixed(index),
            Err(_) => {
                self.free_files.push(index);
                FileTarget::Descriptor(descriptor)
            }
        }
    }

    /// Takes a file out of the ring's table.
    pub fn release_file(&mut self, target: FileTarget) {
        if let FileTarget::Fixed(index) = target {
            // A place that could not be cleared is not used again.
            if self
                .ring
                .submitter()
                .register_files_update(index, &[-1])
                .is_ok()
            {
                self.free_files.push(index);
            }
        }
    }

    /// Submits any operation.
    ///
    /// # Safety
    /// Everything the entry points to must stay valid, and what the kernel writes to must be
    /// touched by no one else, until the completion. Memory of the pool stays valid by itself.
    pub unsafe fn push(&mut self, entry: squeue::Entry) {
        self.in_flight += 1;
        // SAFETY: the caller's promise.
        unsafe { self.push_standing(entry) };
    }

    /// As [`Uring::push`], for an entry with a [`Token::standing`].
    ///
    /// # Safety
    /// As for [`Uring::push`].
    pub(crate) unsafe fn push_standing(&mut self, entry: squeue::Entry) {
        if self.backlog.is_empty() {
            // SAFETY: the caller's promise is the one that `push` of the queue asks for.
            let Err(_full) = (unsafe { self.ring.submission().push(&entry) }) else {
                return;
            };
        }
        self.backlog.push_back(entry);
        self.refill();
    }

    /// Waits for a connection; completes with its descriptor.
    pub fn accept(&mut self, listener: BorrowedFd<'_>, token: Token) {
        let none = std::ptr::null_mut();
        let entry = opcode::Accept::new(types::Fd(listener.as_raw_fd()), none, none.cast())
            .flags(libc::SOCK_CLOEXEC)
            .build()
            .user_data(token.raw());
        // SAFETY: the entry points to nothing.
        unsafe { self.push(entry) };
    }

    /// Receives into a buffer; completes with the count of bytes, zero at the end of the stream.
    /// The buffer belongs to the kernel until then.
    pub fn recv(&mut self, socket: BorrowedFd<'_>, buf: Buf, token: Token) {
        let pointer = self.memory.pointer(buf).as_ptr();
        let entry = opcode::Recv::new(types::Fd(socket.as_raw_fd()), pointer, buf.len_bytes)
            .build()
            .user_data(token.raw());
        // SAFETY: the buffer is of the pool and, by the pool's rule, the kernel's until completion.
        unsafe { self.push(entry) };
    }

    /// Sends a buffer; completes with the count of bytes, which may be less. The buffer belongs
    /// to the kernel until then.
    pub fn send(&mut self, socket: BorrowedFd<'_>, buf: Buf, token: Token) {
        let pointer = self.memory.pointer(buf).as_ptr();
        let entry = opcode::Send::new(types::Fd(socket.as_raw_fd()), pointer, buf.len_bytes)
            .flags(libc::MSG_NOSIGNAL)
            .build()
            .user_data(token.raw());
        // SAFETY: as for `recv`.
        unsafe { self.push(entry) };
    }

    /// Sends pieces in order, as many as one transfer takes. Completes with the count of bytes,
    /// which may be less. Buffers belong to the kernel until then; other bytes are copied now.
    pub fn send_parts<'a>(
        &mut self,
        socket: BorrowedFd<'_>,
        pieces: impl Iterator<Item = SendPart<'a>>,
        token: Token,
    ) {
        let (index, header) = self.message(pieces, token);
        let entry = opcode::SendMsg::new(types::Fd(socket.as_raw_fd()), header)
            .flags(libc::MSG_NOSIGNAL as u32)
            .build()
            .user_data(Token::reserved(MESSAGE_TAG, u64::from(index)).raw());
        // SAFETY: as for `recv`; the message's own memory is boxed and kept until completion.
        unsafe { self.push(entry) };
    }

    /// Receives into the buffers in order, each but for so many bytes at its beginning;
    /// otherwise as [`Uring::recv`].
    pub fn recv_parts(&mut self, socket: BorrowedFd<'_>, parts: &[(Buf, u32)], token: Token) {
        let pieces = parts
            .iter()
            .map(|&(buf, skip_bytes)| SendPart::Buf { buf, skip_bytes });
        let (index, header) = self.message(pieces, token);
        let entry = opcode::RecvMsg::new(types::Fd(socket.as_raw_fd()), header)
            .build()
            .user_data(Token::reserved(MESSAGE_TAG, u64::from(index)).raw());
        // SAFETY: as for `recv`; the message's own memory is boxed and kept until completion.
        unsafe { self.push(entry) };
    }

    fn message<'a>(
        &mut self,
        pieces: impl Iterator<Item = SendPart<'a>>,
        token: Token,
    ) -> (u32, *mut libc::msghdr) {
        let mut message = self.spare_messages.pop().unwrap_or_else(Message::empty);
        message.fill(&self.memory, pieces, token);
        let header = message.header();
        (self.messages.insert(message), header)
    }

    /// Waits until a descriptor is ready for `events` (as of poll(2)), once.
    pub fn poll(&mut self, file: BorrowedFd<'_>, events: u32, token: Token) {
        let entry = opcode::PollAdd::new(types::Fd(file.as_raw_fd()), events)
            .build()
            .user_data(token.raw());
        // SAFETY: the entry points to nothing.
        unsafe { self.push(entry) };
    }

    /// Completes (with -ETIME) when CLOCK_MONOTONIC reaches `deadline_ns`.
    pub fn timer(&mut self, deadline_ns: u64, token: Token) {
        let time = types::Timespec::new()
            .sec(deadline_ns / 1_000_000_000)
            .nsec((deadline_ns % 1_000_000_000) as u32);
        if self.timespecs_used == self.timespecs.len() {
            self.timespecs.push(Box::default());
        }
        let place = &mut self.timespecs[self.timespecs_used];
        self.timespecs_used += 1;
        **place = time;
        let entry = opcode::Timeout::new(&raw const **place)
            .flags(types::TimeoutFlags::ABS)
            .build()
            .user_data(token.raw());
        // SAFETY: the kernel copies the time when the entry is submitted; until then the boxed
        // value is not used for another.
        unsafe { self.push(entry) };
    }

    /// Gives the kernel what was pushed, and waits until at least `min_completions` can be
    /// reaped or the timeout has passed (`None`: no limit). Returns early on a signal.
    ///
    /// # Errors
    /// If the ring itself fails; operations report their own errors in their completions.
    pub fn submit_and_wait(
        &mut self,
        min_completions: usize,
        timeout: Option<Duration>,
    ) -> Result<(), UringError> {
        let want = if self.backlog.is_empty() {
            min_completions
        } else {
            0
        };
        let ready = self.ring.completion().len();
        let result = if want <= ready || timeout == Some(Duration::ZERO) {
            self.enter_without_waiting()
        } else if let Some(timeout) = timeout {
            let time = types::Timespec::from(timeout);
            let args = types::SubmitArgs::new().timespec(&time);
            self.ring
                .submitter()
                .submit_with_args(want, &args)
                .map(drop)
        } else {
            self.ring.submitter().submit_and_wait(want).map(drop)
        };
        match result.map_err(|error| (error.raw_os_error(), error)) {
            Ok(()) => {}
            // Nothing is wrong: time is up, a signal came, or completions must be reaped first.
            Err((Some(libc::ETIME | libc::EINTR | libc::EAGAIN | libc::EBUSY), _)) => {}
            Err((_, source)) => {
                return Err(UringError::Failed {
                    doing: "submit",
                    source,
                });
            }
        }
        self.refill();
        Ok(())
    }

    /// Whether something has completed, or has been deferred until this thread asks.
    #[must_use]
    pub fn has_completions(&mut self) -> bool {
        self.ring.submission().taskrun() || !self.ring.completion().is_empty()
    }

    /// Appends everything that has completed to `into`.
    pub fn reap(&mut self, into: &mut Vec<Completion>) {
        let mut woken = false;
        let mut rewatch = false;
        for entry in self.ring.completion() {
            let more = cqueue::more(entry.flags());
            let token = Token(entry.user_data());
            self.in_flight -= u64::from(!more && token.tag() != Token::STANDING_TAG);
            let token = match token.tag() {
                CANCEL_TAG => continue,
                WAKE_TAG => {
                    woken |= entry.result() >= 0;
                    rewatch |= !more;
                    continue;
                }
                MESSAGE_TAG => match self.messages.remove(token.value() as u32) {
                    Some(message) => {
                        let token = message.token();
                        self.spare_messages.push(message);
                        token
                    }
                    None => continue,
                },
                _ => token,
            };
            into.push(Completion {
                token,
                result: entry.result(),
                more,
            });
        }
        if rewatch {
            self.watch_waker();
        }
        if woken {
            self.waker.acknowledge();
            into.push(Completion {
                token: Token::WAKE,
                result: 0,
                more: true,
            });
        }
        self.refill();
    }

    fn watch_waker(&mut self) {
        let descriptor = types::Fd(self.waker.as_fd().as_raw_fd());
        let entry = opcode::PollAdd::new(descriptor, libc::POLLIN as u32)
            .multi(true)
            .build()
            .user_data(Token::WAKE.raw());
        // SAFETY: the entry points to nothing.
        unsafe { self.push(entry) };
    }

    /// Lets the kernel run what it deferred to us, which a plain submit would not.
    fn enter_without_waiting(&mut self) -> io::Result<()> {
        const GET_EVENTS: u32 = 1;
        let queue = self.ring.submission();
        let to_submit = queue.len() as u32;
        let deferred = queue.taskrun() || queue.cq_overflow();
        drop(queue);
        if to_submit == 0 && !deferred {
            return Ok(());
        }
        // SAFETY: no signal mask is passed, and the entries keep the promise given to `push`.
        unsafe {
            self.ring
                .submitter()
                .enter::<libc::sigset_t>(to_submit, 0, GET_EVENTS, None)
        }
        .map(drop)
    }

    /// Moves the backlog into the kernel's queue, submitting to make room.
    fn refill(&mut self) {
        while let Some(entry) = self.backlog.front() {
            // SAFETY: the promise was given when the entry was pushed.
            if unsafe { self.ring.submission().push(entry) }.is_ok() {
                self.backlog.pop_front();
                continue;
            }
            // A kernel that takes nothing now is asked again at the next call.
            if !matches!(self.ring.submit(), Ok(taken) if taken > 0) {
                return;
            }
        }
        if self.ring.submission().is_empty() {
            self.timespecs_used = 0;
        }
    }
}

impl Drop for Uring {
    /// Cancels what is on its way and waits for it: the kernel may still write to its buffers.
    fn drop(&mut self) {
        let entry = opcode::AsyncCancel2::new(types::CancelBuilder::any())
            .build()
            .user_data(Token::reserved(CANCEL_TAG, 0).raw());
        // SAFETY: the entry points to nothing.
        unsafe { self.push(entry) };
        let begin = std::time::Instant::now();
        while self.in_flight > 0 && begin.elapsed() < CANCEL_TIMEOUT {
            if self
                .submit_and_wait(1, Some(Duration::from_millis(100)))
                .is_err()
            {
                break;
            }
            for entry in self.ring.completion() {
                let standing = Token(entry.user_data()).tag() == Token::STANDING_TAG;
                self.in_flight -= u64::from(!cqueue::more(entry.flags()) && !standing);
            }
        }
        // The kernel takes a ring apart after it is closed, in its own time; files in the ring's
        // table would stay open, locked and busy for as long. That there are none is no error.
        let _ = self.ring.submitter().unregister_files();
        if self.in_flight > 0 {
            // A device that does not answer may yet write: its memory must not be used again.
            std::mem::forget(self.memory.clone());
            std::mem::forget(std::mem::take(&mut self.messages));
        }
    }
}

fn build(entries: u32) -> io::Result<IoUring> {
    type Setup = fn(&mut io_uring::Builder);
    // From the newest kernels' way to the oldest's: completions only run when this thread asks,
    // or at least without interrupting it.
    const WAYS: [Setup; 3] = [
        |builder| {
            builder
                .setup_single_issuer()
                .setup_defer_taskrun()
                .setup_taskrun_flag();
        },
        |builder| {
            builder.setup_coop_taskrun().setup_taskrun_flag();
        },
        |_| {},
    ];
    let mut last = io::Error::from_raw_os_error(libc::EINVAL);
    for way in WAYS {
        let mut builder = IoUring::builder();
        builder
            .setup_clamp()
            .setup_cqsize(entries.saturating_mul(4).max(256));
        way(&mut builder);
        match builder.build(entries) {
            Ok(ring) => return Ok(ring),
            Err(error) if error.raw_os_error() == Some(libc::EINVAL) => last = error,
            Err(error) => return Err(error),
        }
    }
    Err(last)
}
