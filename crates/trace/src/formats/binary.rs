//! Common parts of binary formats.

use crate::error::{Bad, Place, TraceError};
use crate::input::Input;

/// The next record of `N` bytes and where it begins, or `None` at the end of the trace. A trace that
/// ends within one is truncated.
pub(crate) fn record<const N: usize>(
    input: &mut Input,
) -> Result<Option<([u8; N], Place)>, TraceError> {
    let place = input.place();
    let held = input.peek(N)?;
    let length = held.len();
    if length == 0 {
        return Ok(None);
    }
    let Ok(record) = <[u8; N]>::try_from(held) else {
        input.skip(length)?;
        let bad = Bad::new(format!("a record of {N} bytes"), format!("{length} bytes"));
        return Err(TraceError::Malformed { place, bad });
    };
    input.skip(N)?;
    Ok(Some((record, place)))
}

/// The `N` bytes of a record from `at` on.
pub(crate) fn bytes<const N: usize>(record: &[u8], at: usize) -> [u8; N] {
    std::array::from_fn(|index| record[at + index])
}

pub(crate) fn u16_at(record: &[u8], at: usize) -> u16 {
    u16::from_le_bytes(bytes(record, at))
}

pub(crate) fn u32_at(record: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(bytes(record, at))
}

pub(crate) fn u64_at(record: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(bytes(record, at))
}
