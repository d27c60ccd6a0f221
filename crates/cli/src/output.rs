//! Standard output.

use std::fmt::Display;
use std::io::Write;

/// Prints a line. That nobody reads it any more (`| head -1`) is no failure of the command, and
/// none of a daemon that said where it exports.
pub(crate) fn line(text: impl Display) {
    let _ = writeln!(std::io::stdout(), "{text}");
}
