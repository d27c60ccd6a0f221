//! Names as parts of something that is read again: a URI, a command line, a configuration file.

use std::fmt::Write as _;

/// The text as a part of a URI: all bytes that mean something there, or that are no ASCII, are
/// escaped. A slash is left, as of a path.
pub(crate) fn in_uri(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for byte in text.bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' | b'/' => {
                escaped.push(byte.into());
            }
            other => {
                // Writing to a string does not fail.
                let _ = write!(escaped, "%{other:02X}");
            }
        }
    }
    escaped
}

/// The text as one word for a shell.
pub(crate) fn in_shell(text: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-._/:=@%+,".contains(c);
    if !text.is_empty() && text.chars().all(plain) {
        text.to_owned()
    } else {
        format!("'{}'", text.replace('\'', "'\\''"))
    }
}

/// The text as a value of a configuration file.
pub(crate) fn in_toml(text: &str) -> String {
    toml::Value::from(text).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_means_something_is_escaped() {
        assert_eq!(in_uri("/run/x.sock"), "/run/x.sock");
        assert_eq!(in_uri("a b?c#d%é"), "a%20b%3Fc%23d%25%C3%A9");
        assert_eq!(in_shell("/dev/sdb"), "/dev/sdb");
        assert_eq!(in_shell("a b"), "'a b'");
        assert_eq!(in_shell("it's"), "'it'\\''s'");
        assert_eq!(in_shell(""), "''");
        assert_eq!(in_toml("sdb"), "\"sdb\"");
        let line = format!("a = {}", in_toml("a\"b"));
        let read: toml::Table = toml::from_str(&line).unwrap();
        assert_eq!(read["a"].as_str(), Some("a\"b"));
    }
}
