//! Standard output, and text that comes from elsewhere.

use std::borrow::Cow;
use std::fmt::Display;
use std::io::Write;

/// Prints a line. That nobody reads it any more (`| head -1`) is no failure of the command, and
/// none of a daemon that said where it exports.
pub(crate) fn line(text: impl Display) {
    let text = text.to_string();
    let _ = writeln!(std::io::stdout(), "{}", plain(&text));
}

/// Prints an error in a single write: standard error can be /dev/kmsg, where each write is a record.
pub(crate) fn error(text: &str) {
    let line = format!("forebay: {}\n", plain(text));
    let _ = std::io::stderr().write_all(line.as_bytes());
}

/// Text for a terminal: words of a device, a file or a daemon must not move its cursor or change
/// its title. The escapes are also JSON's.
pub(crate) fn plain(text: &str) -> Cow<'_, str> {
    let is_harmful = |c: char| c.is_control() && c != '\n' && c != '\t';
    if !text.contains(is_harmful) {
        return Cow::Borrowed(text);
    }
    let mut plain = String::with_capacity(text.len() + 8);
    for c in text.chars() {
        if is_harmful(c) {
            plain.push_str(&format!("\\u{:04x}", u32::from(c)));
        } else {
            plain.push(c);
        }
    }
    Cow::Owned(plain)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn control_characters_are_shown_and_not_obeyed() {
        assert_eq!(
            plain("a\u{1b}[2Jb\u{9b}c\u{7f}\n"),
            "a\\u001b[2Jb\\u009bc\\u007f\n"
        );
        assert!(matches!(plain("Größe\t1\n"), Cow::Borrowed(_)));
    }
}
