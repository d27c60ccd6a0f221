//! Rules for all messages a person can meet, as one set, that a machine can check. Their purpose is
//! in docs/commands.md, under "Messages".

mod support;

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use support::{Scratch, forebay_ok};

/// Whose messages reach people.
const CRATES: [&str; 7] = [
    "cli", "engine", "frontend", "io", "model", "trace", "virtual",
];

/// Text before a message, and whether the command is refused with it.
const OPENINGS: [(&str, bool); 16] = [
    ("wrong_usage!(", true),
    ("refuse!(", true),
    (" Refused(", true),
    ("Usage(", true),
    ("bail!(", false),
    ("anyhow!(", false),
    (".context(", false),
    ("with_context(", false),
    ("#[error(", false),
    ("eprintln!(", false),
    ("tracing::warn!(", false),
    ("tracing::error!(", false),
    ("faults.push(", false),
    ("found.add(", false),
    ("found.add_if_any(", false),
    ("Interrupted(", false),
];

/// Words that say less than others, words of the inside, and second spellings.
const WORDS: [(&str, &str); 18] = [
    ("invalid", "say what is wrong with it"),
    ("failed to", "cannot"),
    ("unable to", "cannot"),
    ("can't", "cannot"),
    ("couldn't", "could not"),
    ("please", "leave it out"),
    ("sorry", "leave it out"),
    ("an error occurred", "say which"),
    ("errno", "say what the kernel said"),
    ("(os error", "leave it out"),
    ("filesystem", "file system"),
    ("backend", "origin device"),
    ("worker", "thread of the daemon"),
    ("arena", "memory"),
    ("mutex", "nothing of that"),
    ("panic", "broke down"),
    ("geometry", "say what of the cache's shape"),
    ("write-behind", "write-back"),
];

#[derive(Debug)]
struct Message {
    place: String,
    refusal: bool,
    text: String,
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn sources(directory: &Path, found: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(directory).unwrap().flatten() {
        let path = entry.path();
        if path.is_dir() {
            sources(&path, found);
        } else if path.extension().is_some_and(|end| end == "rs") && !path.ends_with("tests.rs") {
            found.push(path);
        }
    }
}

/// The source without its comments and tests.
fn code(path: &Path) -> String {
    let text = std::fs::read_to_string(path).unwrap();
    let text = text.split("#[cfg(test)]\nmod tests").next().unwrap();
    let lines = text.lines().map(|line| {
        if line.trim_start().starts_with("//") {
            ""
        } else {
            line
        }
    });
    lines.collect::<Vec<_>>().join("\n")
}

/// The texts within the parenthesis that has just been opened.
fn texts(behind: &str) -> Vec<String> {
    let mut found = Vec::new();
    let mut depth = 1;
    let mut left = behind.chars();
    while let Some(c) = left.next() {
        match c {
            '(' | '[' | '{' => depth += 1,
            ')' | ']' | '}' => depth -= 1,
            // A character, and no lifetime: `'x'` or `'\n'`.
            '\'' => {
                let rest = left.as_str();
                let len = if rest.starts_with('\\') { 3 } else { 2 };
                if rest.chars().nth(len - 1) == Some('\'') {
                    left.nth(len - 1);
                }
            }
            '"' => found.push(text(&mut left)),
            _ => {}
        }
        if depth == 0 {
            break;
        }
    }
    found
}

/// A text up to its end, as it is printed but for what is put in.
fn text(left: &mut std::str::Chars<'_>) -> String {
    let mut text = String::new();
    while let Some(c) = left.next() {
        match c {
            '"' => break,
            '\\' => match left.next() {
                Some('\n') => *left = left.as_str().trim_start().chars(),
                Some('n') => text.push('\n'),
                Some(other) => text.push(other),
                None => break,
            },
            _ => text.push(c),
        }
    }
    text
}

fn short(path: &Path) -> String {
    let text = path.display().to_string();
    let at = text.find("/src/").map_or(0, |at| at + 1);
    text[at..].to_owned()
}

fn messages() -> Vec<Message> {
    let mut found = Vec::new();
    for name in CRATES {
        let mut paths = Vec::new();
        sources(&root().join("crates").join(name).join("src"), &mut paths);
        paths.sort();
        for path in paths {
            let code = code(&path);
            for (opening, refusal) in OPENINGS {
                for (at, _) in code.match_indices(opening) {
                    let line = code[..at].lines().count();
                    for text in texts(&code[at + opening.len()..]) {
                        // Text that is no sentence is a name, a unit or a word for another message.
                        if text.split_whitespace().count() > 2 {
                            found.push(Message {
                                place: format!("crates/{name}/{}:{line}", short(&path)),
                                refusal,
                                text,
                            });
                        }
                    }
                }
            }
        }
    }
    found
}

/// A message without the names of its variables.
fn without_what_is_put_in(text: &str) -> String {
    let mut parts = text.split('{');
    let first = parts.next().unwrap_or_default().to_owned();
    parts.fold(first, |kept, part| {
        kept + part.split_once('}').map_or("", |(_, behind)| behind)
    })
}

fn check(what: &str, wrong: Vec<String>) {
    assert!(wrong.is_empty(), "{what}:\n{}", wrong.join("\n"));
}

#[test]
fn the_set_is_found() {
    let all = messages();
    assert!(all.len() > 250, "{} messages", all.len());
    let has = |part: &str| all.iter().any(|message| message.text.contains(part));
    for part in [
        "there is a volume `{new}` already",
        "dirty data in it is then lost",
        "reads or writes of the cache device failed",
        "is in use: it {reason}; {remedy}",
    ] {
        assert!(has(part), "{part}");
    }
}

#[test]
fn words_are_those_of_the_documents() {
    let mut wrong = Vec::new();
    for message in messages() {
        let lower = without_what_is_put_in(&message.text).to_lowercase();
        for (word, instead) in WORDS {
            if lower.contains(word) {
                wrong.push(format!(
                    "{}: `{word}`: {instead}: {}",
                    message.place, message.text
                ));
            }
        }
        // Debug output is for those who wrote the program; names stand in backticks.
        if message.text.contains(":?}") {
            wrong.push(format!("{}: {}", message.place, message.text));
        }
    }
    check("messages with words that help nobody", wrong);
}

#[test]
fn messages_go_on_behind_a_colon_and_before_a_semicolon() {
    let wrong = messages().into_iter().filter(|message| {
        let text = message.text.trim();
        let mut letters = text.chars();
        let sentence = letters.next().is_some_and(char::is_uppercase)
            && letters.next().is_some_and(char::is_lowercase);
        sentence || text.ends_with(['.', '!'])
    });
    let wrong = wrong.map(|message| format!("{}: {}", message.place, message.text));
    check("messages that begin or end as sentences", wrong.collect());
}

#[test]
fn refusals_say_what_to_do() {
    let wrong = messages().into_iter().filter(|message| {
        let says = [";", ":", "`", "--", "{"];
        message.refusal && !says.iter().any(|sign| message.text.contains(sign))
    });
    let wrong = wrong.map(|message| format!("{}: {}", message.place, message.text));
    check("refusals that leave people alone", wrong.collect());
}

/// The commands, each with its help.
fn helps() -> BTreeMap<String, String> {
    let scratch = Scratch::new();
    let mut helps = BTreeMap::new();
    let mut open = vec![Vec::<String>::new()];
    while let Some(command) = open.pop() {
        let mut arguments: Vec<&str> = command.iter().map(String::as_str).collect();
        arguments.push("--help");
        let help = forebay_ok(&scratch, &arguments);
        let listed = help.split("Commands:\n").nth(1).unwrap_or_default();
        let names = listed
            .lines()
            .take_while(|line| !line.is_empty())
            .filter_map(|line| line.strip_prefix("  ")?.split(' ').next())
            .filter(|name| !name.is_empty() && *name != "help");
        for name in names {
            open.push([&command[..], &[name.to_owned()]].concat());
        }
        helps.insert(command.join(" "), help);
    }
    helps
}

#[test]
fn remedies_name_commands_and_options_that_are_there() {
    let helps = helps();
    let options: BTreeSet<&str> = helps.values().flat_map(|help| options_in(help)).collect();
    let mut wrong = Vec::new();
    let mut seen = 0;
    for message in messages() {
        let text = &message.text;
        for command in text.split('`').skip(1).step_by(2) {
            let Some(rest) = command.strip_prefix("forebay ") else {
                continue;
            };
            seen += 1;
            let name = rest.split(' ').next().unwrap();
            let Some(help) = helps.get(name) else {
                wrong.push(format!("{}: no command {name}: {text}", message.place));
                continue;
            };
            for option in options_in(rest).filter(|option| !help.contains(option)) {
                wrong.push(format!("{}: no {option} in {name}: {text}", message.place));
            }
        }
        for option in options_in(text).filter(|option| !options.contains(option)) {
            wrong.push(format!("{}: no option {option}: {text}", message.place));
        }
    }
    assert!(seen > 20, "{seen} remedies name commands");
    check("remedies that are not there", wrong);
}

fn options_in(text: &str) -> impl Iterator<Item = &str> {
    let words = text.split(|c: char| !(c.is_ascii_alphanumeric() || c == '-'));
    words.filter(|word| word.starts_with("--") && word.len() > 3)
}

#[test]
fn every_kind_of_trouble_is_documented() {
    let code = code(&root().join("crates/cli/src/report/trouble.rs"));
    let documented = std::fs::read_to_string(root().join("docs/dashboard.md")).unwrap();
    let mut kinds = BTreeSet::new();
    for opening in ["found.add(", "found.add_if_any("] {
        for (at, _) in code.match_indices(opening) {
            let texts = texts(&code[at + opening.len()..]);
            kinds.extend(texts.into_iter().find(|text| !text.contains(' ')));
        }
    }
    assert!(kinds.len() > 10, "{kinds:?}");
    let missing = kinds
        .iter()
        .filter(|kind| !documented.contains(&format!("`{kind}`")));
    check(
        "kinds that docs/dashboard.md lacks",
        missing.cloned().collect(),
    );
}
