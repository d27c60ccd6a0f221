//! Clients' requests, checked before anything else sees them, and the wording of refusals.

use forebay_engine::{Failure, RequestKind};

use super::exports::Export;
use super::limits::Limits;
use super::reply::Ticket;
use super::wire::{RequestHeader, command, command_flag};

/// A request that passed all checks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Request {
    /// Names the request in its answer.
    pub ticket: Ticket,
    /// The command.
    pub command: Command,
    /// Where it starts, in bytes, a multiple of the export's minimum block size.
    pub offset_bytes: u64,
    /// Its length, in bytes, a multiple of the minimum block size, not zero except for a flush.
    /// Reads and writes are at most [`Limits::max_request_bytes`], others up to 4 GiB: the loop
    /// cuts those that are too long for the engine.
    pub len_bytes: u32,
}

/// A client's command.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Command {
    /// Answer with [`super::Connection::reply_read`].
    Read,
    /// Store the payload.
    Write {
        /// Answer only when it is durable.
        fua: bool,
    },
    /// Make all writes answered so far, on any connection, durable.
    Flush,
    /// The contents no longer matter.
    Trim {
        /// Answer only when it is durable.
        fua: bool,
    },
    /// The range shall read as zeroes.
    WriteZeroes {
        /// Answer only when it is durable.
        fua: bool,
        /// Keep it allocated (NBD_CMD_FLAG_NO_HOLE). The cache never gives up origin space for
        /// zeroes unless the loop chooses to, so this only matters where it would.
        no_hole: bool,
        /// Answer [`ErrorCode::NotSupported`] at once if it would be as slow as a write.
        fast: bool,
    },
    /// Bring the range into the cache.
    Cache,
    /// Answer with [`super::Connection::reply_status`].
    BlockStatus {
        /// The client wants one extent.
        one: bool,
    },
}

impl Command {
    /// The engine's word for it; block status is not the engine's to answer as a request.
    #[must_use]
    pub fn engine_kind(self) -> Option<RequestKind> {
        Some(match self {
            Command::Read => RequestKind::Read,
            Command::Write { fua } => RequestKind::Write { fua },
            Command::Flush => RequestKind::Flush,
            Command::Trim { .. } => RequestKind::Discard,
            Command::WriteZeroes { fua, .. } => RequestKind::WriteZeroes { fua },
            Command::Cache => RequestKind::Prefetch,
            Command::BlockStatus { .. } => return None,
        })
    }

    /// Whether the loop must follow it with a flush before answering: the engine's discard knows
    /// no FUA, the protocol's does (§ Command flags).
    #[must_use]
    pub fn needs_flush_after(self) -> bool {
        matches!(self, Command::Trim { fua: true })
    }
}

/// Errors a reply can carry (§ Error values).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, thiserror::Error)]
pub enum ErrorCode {
    /// A write to a read-only export.
    #[error("operation not permitted")]
    NotPermitted,
    /// A device failed.
    #[error("input/output error")]
    Io,
    /// Out of memory.
    #[error("out of memory")]
    NoMemory,
    /// The request makes no sense here.
    #[error("the request makes no sense")]
    Invalid,
    /// No space, or a write past the end.
    #[error("no space left on device")]
    NoSpace,
    /// An unfragmented read is too long.
    #[error("request too long")]
    Overflow,
    /// Fast zeroing is not possible here.
    #[error("operation not supported")]
    NotSupported,
    /// The server is going away.
    #[error("server is shutting down")]
    Shutdown,
}

impl ErrorCode {
    /// Its number on the wire.
    #[must_use]
    pub fn number(self) -> u32 {
        match self {
            ErrorCode::NotPermitted => 1,
            ErrorCode::Io => 5,
            ErrorCode::NoMemory => 12,
            ErrorCode::Invalid => 22,
            ErrorCode::NoSpace => 28,
            ErrorCode::Overflow => 75,
            ErrorCode::NotSupported => 95,
            ErrorCode::Shutdown => 108,
        }
    }
}

impl From<Failure> for ErrorCode {
    fn from(failure: Failure) -> Self {
        match failure {
            // A read by NBD brings memory of the driver's own, and is never refused that way.
            Failure::Io | Failure::NotStraight => ErrorCode::Io,
            Failure::Invalid => ErrorCode::Invalid,
            Failure::NoSpace => ErrorCode::NoSpace,
            Failure::Detached => ErrorCode::Shutdown,
        }
    }
}

/// An error and what to tell the person in front of the client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Refusal {
    pub(crate) code: ErrorCode,
    pub(crate) message: &'static str,
}

/// Consequence of a request's header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    Accept(Command),
    /// Nothing to do: done.
    Empty,
    Disconnect,
    Refuse(Refusal),
}

/// Agreements of client and server on which requests depend.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Agreed {
    pub(crate) structured: bool,
    pub(crate) has_contexts: bool,
}

/// Judges a request (§ Request types, § Command flags, § Block size constraints, § Error values).
pub(crate) fn judge(
    header: &RequestHeader,
    export: &Export,
    agreed: Agreed,
    limits: &Limits,
) -> Verdict {
    match check(header, export, agreed, limits) {
        Ok(verdict) => verdict,
        Err((code, message)) => Verdict::Refuse(Refusal { code, message }),
    }
}

type Checked<T> = Result<T, (ErrorCode, &'static str)>;

fn check(
    header: &RequestHeader,
    export: &Export,
    agreed: Agreed,
    limits: &Limits,
) -> Checked<Verdict> {
    let command = match header.command {
        command::DISC => return Ok(Verdict::Disconnect),
        _ => decode_command(header, export, agreed)?,
    };
    let writes = matches!(
        command,
        Command::Write { .. } | Command::Trim { .. } | Command::WriteZeroes { .. }
    );
    if writes && export.read_only {
        return Err((ErrorCode::NotPermitted, "the export is read-only"));
    }
    if command == Command::Flush {
        // § Request types, NBD_CMD_FLUSH: both fields are reserved.
        return match (header.offset_bytes, header.len_bytes) {
            (0, 0) => Ok(Verdict::Accept(command)),
            _ => Err((
                ErrorCode::Invalid,
                "offset and length of a flush must be zero",
            )),
        };
    }
    check_range(header, export, command)?;
    if header.len_bytes == 0 {
        // § Request types leaves requests of no length open; only block status cannot be answered
        // with nothing.
        return match command {
            Command::BlockStatus { .. } => {
                Err((ErrorCode::Invalid, "block status of nothing was asked for"))
            }
            _ => Ok(Verdict::Empty),
        };
    }
    let has_data = matches!(command, Command::Read | Command::Write { .. });
    if has_data && header.len_bytes > limits.max_request_bytes {
        let dont_fragment = header.flags & command_flag::DF != 0;
        let code = if dont_fragment {
            ErrorCode::Overflow
        } else {
            ErrorCode::Invalid
        };
        return Err((code, "the request is longer than the maximum block size"));
    }
    Ok(Verdict::Accept(command))
}

fn decode_command(header: &RequestHeader, export: &Export, agreed: Agreed) -> Checked<Command> {
    use command_flag as flag;
    let flags = header.flags;
    let has = |bit: u16| flags & bit != 0;
    // FUA is accepted everywhere: clients are known to set it on any command (§ Command flags).
    let fua = has(flag::FUA);
    let (command, allowed) = match header.command {
        command::READ => (Command::Read, if agreed.structured { flag::DF } else { 0 }),
        command::WRITE => (Command::Write { fua }, 0),
        command::FLUSH => (Command::Flush, 0),
        command::TRIM => (Command::Trim { fua }, 0),
        command::CACHE => (Command::Cache, 0),
        command::WRITE_ZEROES => {
            let fast = if export.fast_zero { flag::FAST_ZERO } else { 0 };
            let zeroes = Command::WriteZeroes {
                fua,
                no_hole: has(flag::NO_HOLE),
                fast: has(flag::FAST_ZERO),
            };
            (zeroes, flag::NO_HOLE | fast)
        }
        command::BLOCK_STATUS if agreed.has_contexts => (
            Command::BlockStatus {
                one: has(flag::REQ_ONE),
            },
            flag::REQ_ONE,
        ),
        command::BLOCK_STATUS => {
            return Err((ErrorCode::Invalid, "no metadata context was selected"));
        }
        _ => return Err((ErrorCode::Invalid, "the command is unknown")),
    };
    if flags & !(allowed | flag::FUA) != 0 {
        return Err((
            ErrorCode::Invalid,
            "a command flag is unknown or was not negotiated",
        ));
    }
    Ok(command)
}

fn check_range(header: &RequestHeader, export: &Export, command: Command) -> Checked<()> {
    let unit_bytes = u64::from(export.min_block_bytes);
    let len_bytes = u64::from(header.len_bytes);
    let end_bytes = header.offset_bytes.checked_add(len_bytes);
    if end_bytes.is_none_or(|end_bytes| end_bytes > export.size_bytes) {
        // § Error values: no space for what would store, invalid for the rest.
        let stores = matches!(command, Command::Write { .. } | Command::WriteZeroes { .. });
        let code = if stores {
            ErrorCode::NoSpace
        } else {
            ErrorCode::Invalid
        };
        return Err((code, "the request reaches past the end of the export"));
    }
    if !header.offset_bytes.is_multiple_of(unit_bytes) || !len_bytes.is_multiple_of(unit_bytes) {
        return Err((
            ErrorCode::Invalid,
            "the request is not aligned to the minimum block size",
        ));
    }
    Ok(())
}
