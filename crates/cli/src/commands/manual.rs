//! Manual pages from the definition that `--help` is made of, examples first, and that of the
//! configuration file.

mod file_page;

use std::io::Write;

use anyhow::{Context, Result};
use clap::Command;
use clap_mangen::Man;

/// Pages of commands that an administrator gives.
const SECTION: &str = "8";

/// Beginning of the text after a command's help, if it has examples.
const EXAMPLES: &str = "Example: ";

/// The pages of a command and of all below it: their file names and contents.
pub(super) fn pages(command: Command) -> Result<Vec<(String, Vec<u8>)>> {
    let mut command = without_help(command);
    command.build();
    let mut pages = Vec::new();
    add_pages(&command, &[], &mut pages)?;
    pages.push(("forebay.toml.5".to_owned(), file_page::page().into_bytes()));
    Ok(pages)
}

/// The command without its subcommands `help`, which have no pages.
fn without_help(command: Command) -> Command {
    let command = command.disable_help_subcommand(true);
    command.mut_subcommands(without_help)
}

fn add_pages(command: &Command, above: &[&str], pages: &mut Vec<(String, Vec<u8>)>) -> Result<()> {
    let path: Vec<&str> = above.iter().copied().chain([command.get_name()]).collect();
    let name = path.join("-");
    let bytes = page(command).with_context(|| format!("cannot write the page of {name}"))?;
    pages.push((format!("{name}.{SECTION}"), bytes));
    let visible = |below: &&Command| !below.is_hide_set();
    command
        .get_subcommands()
        .filter(visible)
        .try_for_each(|below| add_pages(below, &path, pages))
}

fn page(command: &Command) -> Result<Vec<u8>> {
    let (examples, notes) = divide(command);
    let man = Man::new(command.clone())
        .manual("Forebay")
        .section(SECTION)
        .source(format!("forebay {}", env!("CARGO_PKG_VERSION")));
    let mut out = Vec::new();
    man.render_title(&mut out)?;
    man.render_name_section(&mut out)?;
    if !examples.is_empty() {
        writeln!(out, ".SH EXAMPLES\n.nf")?;
        for example in examples {
            writeln!(out, "{}", escaped(&example))?;
        }
        writeln!(out, ".fi")?;
    }
    man.render_synopsis_section(&mut out)?;
    man.render_description_section(&mut out)?;
    man.render_options_section(&mut out)?;
    if command.get_subcommands().any(|below| !below.is_hide_set()) {
        man.render_subcommands_section(&mut out)?;
    }
    if !notes.is_empty() {
        writeln!(out, ".SH NOTES")?;
    }
    for note in notes {
        writeln!(out, ".PP\n{}", escaped(&note))?;
    }
    Ok(out)
}

/// Divides the text after a command's help into its examples, each a line, and its other
/// paragraphs.
fn divide(command: &Command) -> (Vec<String>, Vec<String>) {
    let text = command
        .get_after_help()
        .map(ToString::to_string)
        .unwrap_or_default();
    let mut paragraphs: Vec<&str> = text.split("\n\n").filter(|text| !text.is_empty()).collect();
    let Some(first) = paragraphs
        .first()
        .and_then(|first| first.strip_prefix(EXAMPLES))
    else {
        return (
            Vec::new(),
            paragraphs.iter().map(ToString::to_string).collect(),
        );
    };
    let examples = first.lines().map(|line| line.trim().to_owned()).collect();
    let notes = paragraphs.split_off(1);
    (examples, notes.iter().map(ToString::to_string).collect())
}

/// Text that troff leaves as it is.
fn escaped(text: &str) -> String {
    let text = text.replace('\\', "\\e").replace('-', "\\-");
    if text.starts_with(['.', '\'']) {
        format!("\\&{text}")
    } else {
        text
    }
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;
    use crate::args::Args;

    fn check_examples(command: &Command, path: &str, checked: &mut usize) {
        let (examples, _) = divide(command);
        assert!(!examples.is_empty(), "`{path}` has no example");
        for example in examples {
            assert!(
                example.starts_with(path) || path.starts_with("forebay "),
                "an example of `{path}` is of something else: {example}"
            );
            let words = example.split_whitespace();
            let parsed = Args::command().try_get_matches_from(words);
            assert!(parsed.is_ok(), "`{example}`: {}", parsed.unwrap_err());
        }
        *checked += 1;
        for below in command.get_subcommands() {
            let name = below.get_name();
            if name != "help" && name != "packaging" {
                check_examples(below, &format!("{path} {name}"), checked);
            }
        }
    }

    #[test]
    fn every_command_has_a_page_with_an_example_that_is_understood() {
        let mut command = Args::command();
        command.build();
        let mut checked = 0;
        check_examples(&command, "forebay", &mut checked);
        let pages = pages(Args::command()).unwrap();
        assert_eq!(pages.len(), checked + 1);
        let names: Vec<String> = pages.iter().map(|(name, _)| name.clone()).collect();
        for (name, page) in pages.into_iter().filter(|(name, _)| name.ends_with(".8")) {
            let text = String::from_utf8(page).unwrap();
            let at = |section: &str| text.find(&format!(".SH {section}"));
            assert!(
                at("EXAMPLES").unwrap() < at("SYNOPSIS").unwrap(),
                "{name}: {text}"
            );
            // No page names one that is not there.
            let named = text.split("(8)").collect::<Vec<_>>();
            for before in &named[..named.len() - 1] {
                let plain = before
                    .replace("\\-", "-")
                    .replace("\\fR", "")
                    .replace("\\fB", "");
                let word = plain.rsplit([' ', '\n']).next().unwrap();
                assert!(names.contains(&format!("{word}.8")), "{name}: {word}");
            }
        }
    }

    #[test]
    fn the_page_of_the_file_has_every_section_and_setting() {
        let page = file_page::page();
        for section in [
            "cache", "ublk", "nbd", "http", "profile", "daemon", "settings",
        ] {
            assert!(
                page.contains(&format!(".SH \"[{section}]")),
                "{section}: {page}"
            );
        }
        assert!(page.contains(".SH \"[[volume]]"), "{page}");
        let keys = [
            "device",
            "initramfs",
            "listen",
            "direct\\-required",
            "tls\\-ca",
            "state\\-dir",
        ];
        let settings = crate::settings::NAMES
            .iter()
            .map(|name| name.replace('-', "\\-"));
        for key in keys.into_iter().map(str::to_owned).chain(settings) {
            assert!(
                page.contains(&format!("\n.TP\n\\fB{key}\\fR")),
                "{key}: {page}"
            );
        }
        assert!(!page.contains("]("), "a link: {page}");
    }

    #[test]
    fn text_that_troff_would_take_for_itself_is_escaped() {
        assert_eq!(escaped(".x -a\\b"), "\\&.x \\-a\\eb");
        assert_eq!(escaped("plain"), "plain");
    }
}
