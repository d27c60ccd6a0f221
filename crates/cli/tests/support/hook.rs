//! A hook that writes down its calls.

use super::{Scratch, smartctl, until};

/// A hook of this name that writes down how it was called, and does this then.
pub(crate) fn writing(scratch: &Scratch, name: &str, then: &str) -> String {
    let script = format!(
        "echo \"$1|$2|$FOREBAY_EVENT|$FOREBAY_PHASE|$FOREBAY_CACHE|$FOREBAY_VOLUME|$FOREBAY_TEXT\" >> {}\n{then}",
        scratch.text(&format!("{name}-called"))
    );
    smartctl::program(scratch, name, &script)
}

/// Calls of the hook, a line for each.
pub(crate) fn called(scratch: &Scratch, name: &str) -> Vec<String> {
    let text = std::fs::read_to_string(scratch.path(&format!("{name}-called")));
    text.unwrap_or_default()
        .lines()
        .map(str::to_owned)
        .collect()
}

/// Waits for a call that begins with these words.
pub(crate) fn until_called(scratch: &Scratch, name: &str, with: &str) {
    until_called_times(scratch, name, with, 1..);
}

/// Waits until so many calls begin with these words.
pub(crate) fn until_called_times(
    scratch: &Scratch,
    name: &str,
    with: &str,
    times: impl std::ops::RangeBounds<usize>,
) {
    until(with, || {
        let calls = called(scratch, name).into_iter();
        times.contains(&calls.filter(|call| call.starts_with(with)).count())
    });
}
