//! What is wrong with a configuration file, in words that point at the line.

use crate::nearest::suggestion;

/// An error of the TOML reader: the line, what is wrong there, and the line itself.
pub(super) fn describe(text: &str, error: &toml::de::Error) -> String {
    let message = match unknown_key(error.message()) {
        Some((key, known)) => explain(key, &known),
        None => error.message().to_owned(),
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

/// What serde says of a key that is not there: the key, and those that are.
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
    fn lines_are_counted_from_one() {
        assert_eq!(
            [0, 1, 2, 3, 99].map(|byte| line_number("a\nb\n", byte)),
            [1, 1, 2, 2, 3]
        );
    }
}
