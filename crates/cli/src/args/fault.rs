//! Faults of a command line, in our words.

use clap::error::{ContextKind, ContextValue, ErrorKind};

/// The message behind `forebay: `, and where to read on; none if help or a version was asked for.
pub(crate) fn fault(error: &clap::Error) -> Option<String> {
    let asked_for = matches!(
        error.kind(),
        ErrorKind::DisplayHelp
            | ErrorKind::DisplayVersion
            | ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand
    );
    if asked_for {
        return None;
    }
    let text = error.render().to_string();
    let text = text.strip_prefix("error: ").unwrap_or(&text);
    let Some(first) = of_value(error) else {
        return Some(text.to_owned());
    };
    let rest = text.split_once('\n').map_or("", |(_, rest)| rest);
    Some(format!("{first}\n{rest}"))
}

/// Which value cannot be, and why.
fn of_value(error: &clap::Error) -> Option<String> {
    let text = |kind| match error.get(kind) {
        Some(ContextValue::String(text)) if !text.is_empty() => Some(text),
        _ => None,
    };
    let (argument, value) = (
        text(ContextKind::InvalidArg)?,
        text(ContextKind::InvalidValue)?,
    );
    match (error.kind(), std::error::Error::source(error)) {
        (ErrorKind::ValueValidation, Some(why)) => Some(format!("{argument} `{value}`: {why}")),
        (ErrorKind::InvalidValue, _) => Some(format!("{argument} cannot be `{value}`")),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;
    use crate::args::Args;

    fn said(arguments: &[&str]) -> Option<String> {
        let arguments = std::iter::once(&"forebay").chain(arguments);
        fault(&Args::try_parse_from(arguments).unwrap_err())
    }

    #[test]
    fn values_and_arguments_that_cannot_be_are_told_in_our_words() {
        for (arguments, begins) in [
            (
                &["mode", "sdb", "fast"][..],
                "[MODE] `fast`: unknown mode `fast`",
            ),
            (
                &["--log-format", "xml", "status"],
                "--log-format <FORMAT> cannot be `xml`\n  [possible values: human, json]",
            ),
            (&["detach"], "the following required arguments"),
            (&["status", "--jsn"], "unexpected argument '--jsn' found"),
            (&["stats"], "unrecognized subcommand 'stats'"),
        ] {
            let said = said(arguments).unwrap();
            assert!(said.starts_with(begins), "{arguments:?}: {said}");
            assert!(
                !said.contains("invalid") && said.contains("--help"),
                "{said}"
            );
        }
        for asked in ["--help", "--version"] {
            assert_eq!(said(&[asked]), None);
        }
    }
}
