//! Blocks of commands in the pages of the manual, and the mark that says where they are run.
//!
//! A block without a mark is run by `crates/cli/tests/manual.rs`. One behind
//! `<!-- run by: make lab EXPERIMENT=recipes -->` is run in a guest, from the page's own text. One behind
//! `<!-- not run: REASON -->` is not run.

use std::path::Path;

use anyhow::Context as _;

/// The mark of a block that a guest of the lab runs.
const IN_THE_LAB: &str = "<!-- run by: make lab EXPERIMENT=recipes -->";
const NOT_RUN: &str = "<!-- not run: ";

/// The place where a block is run.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Runs {
    /// The test of the manual.
    #[default]
    Here,
    /// A guest of the lab.
    InTheLab,
    /// Nowhere, with the reason.
    Nowhere(String),
}

/// A block of commands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Block {
    /// The word behind the fence.
    pub language: String,
    /// The line of the fence, from 1 on.
    pub line: usize,
    /// The text.
    pub lines: Vec<String>,
    /// Where it is run.
    pub runs: Runs,
}

impl Block {
    /// The text, as somebody would type it.
    #[must_use]
    pub fn text(&self) -> String {
        self.lines.join("\n") + "\n"
    }
}

/// The blocks of a page, those of pages that it includes too.
///
/// # Errors
/// If a page cannot be read, or a block has no end.
pub fn blocks(path: &Path) -> anyhow::Result<Vec<Block>> {
    read(path, None)
}

/// The blocks of a page that a guest runs, in their order.
///
/// # Errors
/// As [`blocks`].
pub fn blocks_for_the_lab(path: &Path) -> anyhow::Result<Vec<Block>> {
    let mut found = blocks(path)?;
    found.retain(|block| block.runs == Runs::InTheLab);
    Ok(found)
}

/// An included document is written for people who read it elsewhere: a mark is for all its blocks.
fn read(path: &Path, for_all: Option<&Runs>) -> anyhow::Result<Vec<Block>> {
    let text = std::fs::read_to_string(path)
        .with_context(|| format!("cannot read the page {}", path.display()))?;
    let mut found = Vec::new();
    let mut open: Option<Block> = None;
    let mut mark = Runs::Here;
    for (number, line) in text.lines().enumerate() {
        let fence = line.trim_start().strip_prefix("```");
        if let Some(mut block) = open.take() {
            if fence.is_some() {
                found.push(block);
            } else {
                block.lines.push(line.to_owned());
                open = Some(block);
            }
        } else if let Some(included) = line.strip_prefix("{{#include ") {
            let included = path.with_file_name(included.trim_end_matches('}'));
            found.extend(read(&included, Some(&mark))?);
        } else if line == IN_THE_LAB {
            mark = Runs::InTheLab;
        } else if let Some(reason) = line.strip_prefix(NOT_RUN) {
            mark = Runs::Nowhere(reason.trim_end_matches("-->").trim().to_owned());
        } else if let Some(language) = fence {
            let own = std::mem::take(&mut mark);
            open = Some(Block {
                language: language.to_owned(),
                line: number + 1,
                lines: Vec::new(),
                runs: for_all.cloned().unwrap_or(own),
            });
        } else if !line.is_empty() {
            mark = Runs::Here;
        }
    }
    anyhow::ensure!(open.is_none(), "{}: a block has no end", path.display());
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scratch::Scratch;

    #[test]
    fn a_mark_is_for_the_next_block_and_for_a_whole_included_page() {
        let scratch = Scratch::new("page");
        let page = scratch.path().join("page.md");
        let text = format!(
            "{IN_THE_LAB}\n```sh\na\n\nb\n```\n```console\n$ c\n```\n{NOT_RUN}no time -->\n\n```sh\nd\n```\n\
             {IN_THE_LAB}\ntext between\n```sh\ne\n```\n{NOT_RUN}all of it -->\n{{{{#include other.md}}}}\n"
        );
        std::fs::write(&page, text).unwrap();
        let other = scratch.path().join("other.md");
        std::fs::write(&other, "text\n```sh\nf\n```\ntext\n```sh\ng\n```\n").unwrap();
        let found = blocks(&page).unwrap();
        let seen: Vec<_> = found
            .iter()
            .map(|block| (block.text(), block.line, block.runs.clone()))
            .collect();
        let nowhere = |reason: &str| Runs::Nowhere(reason.to_owned());
        let expected = [
            ("a\n\nb\n", 2, Runs::InTheLab),
            ("$ c\n", 7, Runs::Here),
            ("d\n", 12, nowhere("no time")),
            ("e\n", 17, Runs::Here),
            ("f\n", 2, nowhere("all of it")),
            ("g\n", 6, nowhere("all of it")),
        ];
        assert_eq!(
            seen,
            expected.map(|(text, line, runs)| (text.to_owned(), line, runs))
        );
        assert_eq!(blocks_for_the_lab(&page).unwrap(), found[..1]);
        std::fs::write(&page, "```sh\na\n").unwrap();
        assert!(blocks(&page).is_err(), "a block without an end");
    }
}
