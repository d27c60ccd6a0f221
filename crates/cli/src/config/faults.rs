//! Faults of a configuration file, in words that point at the line.

use super::file::File;
use crate::nearest::suggestion;

/// Reads a file. Behind what is wrong it goes on as if that were not there, so that all of it is
/// found at once.
///
/// # Errors
/// All that is wrong, each with its line.
pub(super) fn read(text: &str) -> Result<File, Vec<String>> {
    let mut found = Vec::new();
    let mut rest = text.to_owned();
    loop {
        let error = match toml::from_str::<File>(&rest) {
            Ok(file) if found.is_empty() => return Ok(file),
            Ok(_) => return Err(found),
            Err(error) => error,
        };
        // A value that was cut out may be missed, or leave half a value behind: no fault of the
        // file's.
        let is_whole = toml::from_str::<toml::Table>(&rest).is_ok();
        if !found.is_empty() && !is_whole {
            return Err(found);
        }
        if found.is_empty() || !error.message().starts_with("missing field") {
            found.push(describe(text, &error));
        }
        match error.span().and_then(|span| without(&rest, span)) {
            Some(shorter) => rest = shorter,
            None => return Err(found),
        }
    }
}

/// The text with blanks in place of the lines that hold this span; of the whole section, if the
/// span is in its head. None if there is nothing to take out.
fn without(text: &str, span: std::ops::Range<usize>) -> Option<String> {
    let is_head = |line: &str| line.trim_start().starts_with('[');
    let (mut rest, mut at, mut in_section) = (String::with_capacity(text.len()), 0, false);
    let mut changed = false;
    for line in text.split_inclusive('\n') {
        let lines = at..at + line.len();
        at = lines.end;
        let touched = lines.start < span.end.max(span.start + 1) && span.start < lines.end;
        in_section = is_head(line) && touched || in_section && !is_head(line);
        if touched || in_section {
            let kept = line.len() - line.trim_end_matches(['\r', '\n']).len();
            changed |= !line.trim().is_empty();
            rest.push_str(&" ".repeat(line.len() - kept));
            rest.push_str(&line[line.len() - kept..]);
        } else {
            rest.push_str(line);
        }
    }
    changed.then_some(rest)
}

/// An error of the TOML reader: the line, what is wrong there, and the line itself.
pub(super) fn describe(text: &str, error: &toml::de::Error) -> String {
    let message = match unknown_key(error.message()) {
        Some((key, known)) => explain(key, &known),
        None => in_our_words(error.message()),
    };
    let Some(span) = error.span() else {
        return message;
    };
    let number = line_number(text, span.start);
    let line = text.lines().nth(number - 1).unwrap_or_default().trim();
    format!("line {number}: {message}\n    {line}")
}

/// The number of the line with this byte, from 1 on.
pub(super) fn line_number(text: &str, byte: usize) -> usize {
    text.as_bytes()[..byte.min(text.len())]
        .iter()
        .filter(|&&byte| byte == b'\n')
        .count()
        + 1
}

/// The message of the TOML reader, without the types of this program.
fn in_our_words(message: &str) -> String {
    if message.starts_with("invalid string") {
        return "this value is no number, and a text stands in quotes: KEY = \"VALUE\"".to_owned();
    }
    let found = message.strip_prefix("invalid type: ");
    let Some((found, expected)) = found.and_then(|rest| rest.split_once(", expected ")) else {
        return message.to_owned();
    };
    let expected = match expected {
        "a boolean" => "true or false",
        "a string" | "path string" => "a text in quotes",
        "usize" | "u8" | "u16" | "u32" | "u64" => "a whole number",
        "a sequence" => "a list, as in [\"one\", \"two\"]",
        other if other.starts_with("struct ") || other == "a map" => "a section",
        other => other,
    };
    let found = found
        .replace("integer ", "number ")
        .replace("string ", "text ");
    format!("{found} cannot stand here, but {expected}")
}

/// Reads serde's message on an unknown key: the key, and the known keys.
fn unknown_key(message: &str) -> Option<(&str, Vec<&str>)> {
    let rest = message.strip_prefix("unknown field `")?;
    let (key, rest) = rest.split_once('`')?;
    let known = rest.split('`').skip(1).step_by(2).collect();
    Some((key, known))
}

fn explain(key: &str, known: &[&str]) -> String {
    let meant = suggestion(key, known.iter().copied());
    format!(
        "unknown key `{key}`{meant} (known here: {})",
        known.join(", ")
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_nearest_key_is_named_if_one_is_near() {
        assert_eq!(
            explain("devise", &["device", "create"]),
            "unknown key `devise`, did you mean `device`? (known here: device, create)"
        );
        assert_eq!(
            explain("colour", &["device", "mode"]),
            "unknown key `colour` (known here: device, mode)"
        );
        let said = "unknown field `a`, expected one of `b`, `c-d`";
        assert_eq!(unknown_key(said), Some(("a", vec!["b", "c-d"])));
        let said = "unknown field `a`, expected `b`";
        assert_eq!(unknown_key(said), Some(("a", vec!["b"])));
        assert_eq!(unknown_key("missing field `a`"), None);
    }

    #[test]
    fn a_value_of_another_type_is_told_without_types_of_this_program() {
        let said = |line: &str| {
            let volume = "[[volume]]\norigin = \"/dev/sdb\"\n";
            read(&format!("{volume}{line}\n")).unwrap_err().join("\n")
        };
        for (line, words) in [
            (
                "[http]\nlisten = 9837",
                "`9837` is no address for HTTP: write ADDRESS:PORT",
            ),
            (
                "[daemon]\nmemory = 512",
                "`512` has no unit: write 512K, 512M or 512G",
            ),
            ("mode = 3", "unknown mode `3`"),
            ("[settings]\ncommit = flush", "a text stands in quotes"),
            (
                "[ublk]\nenabled = \"yes\"",
                "text \"yes\" cannot stand here, but true or false",
            ),
            (
                "[daemon]\nthreads = \"2\"",
                "text \"2\" cannot stand here, but a whole number",
            ),
            (
                "[nbd]\nlisten = \"unix:x\"",
                "a list, as in [\"one\", \"two\"]",
            ),
        ] {
            let said = said(line);
            assert!(said.contains(words), "{line}: {said}");
            for inside in ["invalid", "usize", "struct", "u8"] {
                assert!(!said.contains(inside), "{line}: {said}");
            }
        }
    }

    #[test]
    fn lines_are_counted_from_one() {
        assert_eq!(
            [0, 1, 2, 3, 99].map(|byte| line_number("a\nb\n", byte)),
            [1, 1, 2, 2, 3]
        );
    }
}
