//! Exit codes, and the errors that have one of their own.

use std::io::{self, ErrorKind};

use forebay_engine::format::SuperblockError;
use forebay_engine::{IdentifyError, RecoveryError};
use forebay_io::{OpenError, SharedMemoryError};

use crate::accounts;

/// The command was refused to protect data or another user of the device; nothing was changed.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub(crate) struct Refused(pub(crate) String);

/// The user stopped the command.
#[derive(Debug, thiserror::Error)]
#[error("interrupted: {0}")]
pub(crate) struct Interrupted(pub(crate) String);

/// A check found damage.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub(crate) struct DamageFound(pub(crate) String);

/// The arguments or the configuration make no sense.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub(crate) struct Usage(pub(crate) String);

/// Everything that is wrong with configuration files, a line for each fault.
#[derive(Debug, thiserror::Error)]
#[error("{}", .0.join("\nforebay: "))]
pub(crate) struct Faults(pub(crate) Vec<String>);

/// Returns early with a refusal.
macro_rules! refuse {
    ($($message:tt)*) => {
        return Err($crate::failure::Refused(format!($($message)*)).into())
    };
}
pub(crate) use refuse;

/// Returns early because of arguments that make no sense here.
macro_rules! wrong_usage {
    ($($message:tt)*) => {
        return Err($crate::failure::Usage(format!($($message)*)).into())
    };
}
pub(crate) use wrong_usage;

pub(crate) const FAILURE: u8 = 1;
pub(crate) const USAGE: u8 = 2;
pub(crate) const REFUSED: u8 = 3;
pub(crate) const INTERRUPTED: u8 = 4;
pub(crate) const DAMAGE: u8 = 5;

/// The exit code of an error: the most telling of its causes decides.
pub(crate) fn exit_code(error: &anyhow::Error) -> u8 {
    error.chain().find_map(code_of).unwrap_or(FAILURE)
}

fn code_of_superblock(error: &SuperblockError) -> u8 {
    match error {
        SuperblockError::Device(_) | SuperblockError::Full(_) => FAILURE,
        // A superblock that no forebay wrote.
        SuperblockError::Malformed(_) | SuperblockError::Geometry(_) => DAMAGE,
        _ => REFUSED,
    }
}

fn code_of(error: &(dyn std::error::Error + 'static)) -> Option<u8> {
    if error.is::<Refused>() {
        return Some(REFUSED);
    }
    if error.is::<Interrupted>() {
        return Some(INTERRUPTED);
    }
    if error.is::<DamageFound>() {
        return Some(DAMAGE);
    }
    if error.is::<Usage>() || error.is::<Faults>() {
        return Some(USAGE);
    }
    if let Some(error) = error.downcast_ref::<OpenError>() {
        return match error {
            // A device that is not connected yet is empty, too.
            OpenError::Io { .. } | OpenError::Empty { .. } => Some(FAILURE),
            OpenError::Busy { .. } => Some(REFUSED),
            OpenError::WrongKind { .. } | OpenError::NoDirectIo { .. } => Some(USAGE),
        };
    }
    if let Some(error) = error.downcast_ref::<SuperblockError>() {
        return Some(code_of_superblock(error));
    }
    if let Some(RecoveryError::Malformed(_)) = error.downcast_ref::<RecoveryError>() {
        return Some(DAMAGE);
    }
    if let Some(error) = error.downcast_ref::<IdentifyError>() {
        return match error {
            IdentifyError::Superblock { source, .. } => Some(code_of_superblock(source)),
            _ => Some(REFUSED),
        };
    }
    let error = error.downcast_ref::<SharedMemoryError>()?;
    match error {
        SharedMemoryError::Io { .. } => Some(FAILURE),
        _ => Some(REFUSED),
    }
}

/// The whole story in one line, with what to do where the kernel's word has nothing to say of that,
/// and without saying a cause twice that its effect already names.
pub(crate) fn describe(error: &anyhow::Error) -> String {
    let mut text = String::new();
    for cause in error.chain() {
        let cause = words_of(cause);
        if text.is_empty() {
            text = cause;
        } else if !text.contains(&cause) {
            text = format!("{text}: {cause}");
        }
    }
    match hint(error) {
        Some(hint) => format!("{text}; {hint}"),
        None => text,
    }
}

/// An error of the kernel with its hint, for a message of its own.
pub(crate) fn in_words(error: &io::Error) -> String {
    let words = words_of(error);
    match hint_on(error, false) {
        Some(hint) => format!("{words}; {hint}"),
        None => words,
    }
}

/// Without the kernel's number, which says the same to fewer people.
fn words_of(cause: &(dyn std::error::Error + 'static)) -> String {
    let text = cause.to_string();
    let kernel = cause.downcast_ref::<io::Error>();
    let number = kernel.and_then(io::Error::raw_os_error);
    let behind = number.map(|number| format!(" (os error {number})"));
    let words = behind.and_then(|behind| text.strip_suffix(&behind));
    words.map_or(text.clone(), str::to_owned)
}

/// Advice on the kernel's error, whatever it was that could not be done.
fn hint(error: &anyhow::Error) -> Option<String> {
    let mut opening = error.chain();
    if let Some(OpenError::Io { path, source, .. }) =
        opening.find_map(|cause| cause.downcast_ref::<OpenError>())
        && source.kind() == ErrorKind::PermissionDenied
        && let Some(words) = accounts::access_in_words(path)
    {
        return Some(words);
    }
    let mut causes = error.chain();
    let kernel = causes.find_map(|cause| cause.downcast_ref::<io::Error>())?;
    hint_on(kernel, error.chain().any(|cause| cause.is::<OpenError>())).map(str::to_owned)
}

fn hint_on(kernel: &io::Error, device: bool) -> Option<&'static str> {
    Some(match kernel.kind() {
        ErrorKind::NotFound if device => {
            "is the name right? `lsblk` lists block devices, names in /dev/disk/by-id last"
        }
        ErrorKind::NotFound => "is the path right?",
        ErrorKind::PermissionDenied => "run this as root, or as a user who may do it",
        ErrorKind::StorageFull | ErrorKind::QuotaExceeded => {
            "make room (`df` shows where there is none); of a block device: it is gone, or was cut short"
        }
        ErrorKind::ReadOnlyFilesystem => {
            "choose another place, or mount it so that it can be written"
        }
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use anyhow::Context;

    use super::*;

    #[test]
    fn the_cause_decides_the_code_and_is_said_once() {
        let refused: anyhow::Result<()> = Err(Refused("it is in use".to_owned()).into());
        let error = refused.context("cannot do it").unwrap_err();
        assert_eq!(
            (exit_code(&error), describe(&error)),
            (REFUSED, "cannot do it: it is in use".to_owned())
        );
        assert_eq!(exit_code(&anyhow::anyhow!("anything")), FAILURE);
        let twice = anyhow::anyhow!("inner").context("outer: inner");
        assert_eq!(describe(&twice), "outer: inner");
    }

    #[test]
    fn the_kernels_words_come_without_numbers_and_with_what_to_do() {
        let of = |number| {
            let kernel = io::Error::from_raw_os_error(number);
            describe(&anyhow::Error::new(kernel).context("cannot read x"))
        };
        assert_eq!(
            of(13),
            "cannot read x: Permission denied; run this as root, or as a user who may do it"
        );
        assert!(
            of(28).ends_with("; of a block device: it is gone, or was cut short"),
            "{}",
            of(28)
        );
        assert_eq!(of(5), "cannot read x: Input/output error");
    }
}
