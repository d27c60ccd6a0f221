//! The manual page of the configuration file, from the tables of the manual and of the settings.

use std::fmt::Write;

use super::escaped;
use crate::settings;

/// The page of the manual whose tables a test holds to the program.
const SETTINGS_PAGE: &str = include_str!("../../../../../manual/src/settings.md");
/// The heading of its part on the file, and of the next.
const FROM: &str = "## The configuration file\n";
const TO: &str = "\n## ";

/// forebay.toml(5).
pub(super) fn page() -> String {
    let mut page = format!(
        ".TH forebay.toml 5 \"\" \"forebay {}\" Forebay\n.SH NAME\nforebay.toml \\- configuration of a cache and its volumes\n\
         .SH DESCRIPTION\n",
        env!("CARGO_PKG_VERSION")
    );
    let part = SETTINGS_PAGE.split_once(FROM).map_or("", |(_, rest)| rest);
    let part = part.split_once(TO).map_or(part, |(part, _)| part);
    for line in part.lines() {
        add_line(&mut page, line);
    }
    page.push_str(
        ".SH \"[settings]\"\n.PP\nWhat can change while the cache runs: all of it live.\n",
    );
    let table = settings::manual_table();
    for line in table.lines() {
        add_line(&mut page, line);
    }
    page.push_str(".SH \"SEE ALSO\"\nforebay(8), forebay\\-serve(8), forebay\\-check\\-config(8), forebay\\-config(8)\n");
    page
}

/// A line of Markdown in troff. Writing to a string does not fail.
fn add_line(page: &mut String, line: &str) {
    if let Some(heading) = line.strip_prefix("### ") {
        let _ = writeln!(page, ".SH \"{}\"", plain(heading));
    } else if let Some(row) = line.strip_prefix("| `") {
        let cells: Vec<String> = row
            .trim_end_matches(['|', ' '])
            .split(" | ")
            .map(plain)
            .collect();
        let [key, values, default, effect, rest @ ..] = &cells[..] else {
            return;
        };
        let live = match rest {
            [live] if !live.is_empty() => format!(" Live: {live}."),
            _ => String::new(),
        };
        let _ = writeln!(page, ".TP\n\\fB{key}\\fR");
        let _ = writeln!(
            page,
            "{effect}. Values: {values}. Default: {default}.{live}"
        );
    } else if !line.starts_with('|') && !line.is_empty() {
        let _ = writeln!(page, ".PP\n{}", plain(line));
    }
}

/// The text without the marks of Markdown, and with the address of a link left out.
fn plain(text: &str) -> String {
    let mut plain = String::new();
    let mut left = text;
    while let Some((before, rest)) = left.split_once("](") {
        let (before, words) = before.rsplit_once('[').unwrap_or((before, ""));
        plain.push_str(before);
        plain.push_str(words);
        left = rest.split_once(')').map_or("", |(_, rest)| rest);
    }
    plain.push_str(left);
    escaped(plain.replace('`', "").trim_end_matches(" |"))
}
