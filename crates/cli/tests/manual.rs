//! The commands of the manual do what it shows, and its page of settings knows every key.
//!
//! Each chapter is run from its beginning to its end in a directory of its own. In a block of
//! `console` each command, behind `$`, must print what follows it (`…` stands for anything) and
//! succeed, unless what is shown is an error of `forebay`; `forebay serve` goes on running. A block
//! of `sh` must succeed. A block behind `<!-- not run: REASON -->` is named with its reason. Those
//! marked as the lab's are run in its guests: they must be known there. As the machine may run other
//! daemons, `forebay` gets a control socket and a state directory of its own here.

mod support;

use std::collections::BTreeSet;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};

use forebay_lab::experiments::{EXPERIMENTS, Experiment};
use forebay_lab::page::{Block, Runs, blocks, blocks_for_the_lab};
use support::{LIMIT, Scratch, forebay, forebay_ok, machine, text};

/// Stands for any text.
const ANYTHING: &str = "…";

fn source() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../manual/src")
}

/// The chapters in their order.
fn chapters() -> Vec<String> {
    let summary = std::fs::read_to_string(source().join("SUMMARY.md")).unwrap();
    let links = summary.split("](").skip(1);
    links
        .map(|link| link.split(')').next().unwrap().to_owned())
        .collect()
}

/// Whether somebody would type a line of it.
fn has_commands(block: &Block) -> bool {
    let mut lines = block.lines.iter();
    lines.any(|line| line.starts_with("$ ") || line.starts_with("forebay "))
}

/// A command as it is typed, and what it prints.
#[derive(Debug, PartialEq)]
struct Step {
    command: String,
    shown: Vec<String>,
}

fn steps(block: &Block) -> Vec<Step> {
    let mut steps: Vec<Step> = Vec::new();
    let mut lines = block.lines.iter();
    while let Some(line) = lines.next() {
        let Some(command) = line.strip_prefix("$ ") else {
            let step = steps.last_mut().expect("a command comes first");
            step.shown.push(line.clone());
            continue;
        };
        let mut command = command.to_owned();
        let here = command.contains("<<'END'");
        while here && !command.ends_with("\nEND") || command.ends_with('\\') {
            command += "\n";
            command += lines.next().expect("the rest of the command");
        }
        steps.push(Step {
            command,
            shown: Vec::new(),
        });
    }
    steps
}

/// Whether what is printed is what is shown.
fn fits(shown: &[String], printed: &[&str]) -> bool {
    match shown {
        [] => printed.is_empty(),
        [first, rest @ ..] if first == ANYTHING => {
            (0..=printed.len()).any(|skipped| fits(rest, &printed[skipped..]))
        }
        [first, rest @ ..] => printed
            .split_first()
            .is_some_and(|(line, others)| line_fits(first, line) && fits(rest, others)),
    }
}

fn line_fits(shown: &str, printed: &str) -> bool {
    let Some((start, rest)) = shown.split_once(ANYTHING) else {
        return shown.trim_end() == printed.trim_end();
    };
    let Some(printed) = printed.strip_prefix(start) else {
        return false;
    };
    let ends = printed.char_indices().map(|(at, _)| at);
    ends.chain([printed.len()])
        .any(|at| line_fits(rest, &printed[at..]))
}

/// Somebody who types what a chapter says.
struct Reader {
    scratch: Scratch,
    daemons: Vec<Child>,
}

impl Reader {
    fn new() -> Reader {
        let scratch = Scratch::new();
        std::fs::create_dir(scratch.path("tools")).unwrap();
        std::fs::create_dir(scratch.path("work")).unwrap();
        let wrapper = format!(
            "#!/bin/sh\ncase $1 in serve|create|check|dump|repair|drain) set -- \"$@\" --state-dir '{state}' ;; esac\n\
             case $1 in\nserve|status|attach|detach|mode|rename|set|get|drain|freeze|thaw|hand-over|stop|reload|explain|cache) set -- \"$@\" --control '{control}' ;;\n\
             advise) case \" $* \" in *' --format '*) ;; *) set -- \"$@\" --control '{control}' ;; esac ;;\nesac\n\
             exec '{program}' --log-level warn \"$@\"\n",
            state = scratch.text("state"),
            control = scratch.text("control"),
            program = env!("CARGO_BIN_EXE_forebay"),
        );
        let path = scratch.path("tools/forebay");
        std::fs::write(&path, wrapper).unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).unwrap();
        Reader {
            scratch,
            daemons: Vec::new(),
        }
    }

    /// A program where the chapter is read, with the `forebay` of this test.
    fn program(&self, words: &[&str]) -> Command {
        let path = std::env::var("PATH").unwrap_or_default();
        let mut program = Command::new(words[0]);
        program
            .args(&words[1..])
            .env("PATH", format!("{}:{path}", self.scratch.text("tools")))
            .current_dir(self.scratch.path("work"))
            .stdin(Stdio::null());
        program
    }

    /// Takes a step; returns its fault, if it has any.
    fn take(&mut self, step: &Step) -> Result<(), String> {
        let stays = step.command.starts_with("forebay serve") && !step.command.contains("||");
        if stays {
            return self.serve(step);
        }
        let output = self
            .program(&[
                "timeout",
                "120",
                "bash",
                "-c",
                &format!("exec 2>&1\n{}", step.command),
            ])
            .output()
            .unwrap();
        let printed = text(&output);
        let lines: Vec<&str> = printed.lines().collect();
        let error_is_shown = step
            .shown
            .first()
            .is_some_and(|line| line.starts_with("forebay: "));
        if output.status.success() == error_is_shown {
            return Err(format!("ended with {}:\n{printed}", output.status));
        }
        if !fits(&step.shown, &lines) {
            return Err(format!(
                "shown is\n{}\nprinted was\n{printed}",
                step.shown.join("\n")
            ));
        }
        Ok(())
    }

    /// Starts a daemon and reads as many lines of it as are shown.
    fn serve(&mut self, step: &Step) -> Result<(), String> {
        let mut child = self
            .program(&["bash", "-c", &format!("exec {}", step.command)])
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let lines = lines_of(child.stdout.take().unwrap());
        self.daemons.push(child);
        for shown in &step.shown {
            match lines.recv_timeout(LIMIT) {
                Ok(line) if line_fits(shown, &line) => {}
                Ok(line) => return Err(format!("shown is {shown}, printed was {line}")),
                Err(_) => return Err(format!("shown is {shown}, and nothing more was printed")),
            }
        }
        Ok(())
    }
}

/// The lines that a process prints, which it can go on printing for as long as it lives.
fn lines_of(output: std::process::ChildStdout) -> Receiver<String> {
    let (sender, lines) = channel();
    std::thread::spawn(move || {
        for line in BufReader::new(output).lines().map_while(Result::ok) {
            // Nobody waits for those that are not shown.
            let _ = sender.send(line);
        }
    });
    lines
}

impl Drop for Reader {
    fn drop(&mut self) {
        for child in &mut self.daemons {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

/// Past the capture of the test: blocks that are not run are told always.
fn tell(line: &str) {
    let _ = writeln!(std::io::stderr(), "{line}");
}

/// Runs a chapter up to the first step that goes wrong; returns how many went right.
fn read_chapter(chapter: &str) -> Result<usize, String> {
    let mut reader = Reader::new();
    // The reader has the image of a machine; the page says `truncate`, which leaves what is there.
    let disk = (chapter == "recipes/vm.md").then(|| reader.scratch.path("work/guest.img"));
    if let Some(disk) = &disk {
        machine::install(disk);
    }
    let mut run = 0;
    for block in blocks(&source().join(chapter)).map_err(|why| format!("{why:#}"))? {
        let place = format!("manual/src/{chapter}, block at line {}", block.line);
        match &block.runs {
            Runs::Here => {}
            Runs::InTheLab => {
                tell(&format!("run by make lab EXPERIMENT=recipes: {place}"));
                continue;
            }
            Runs::Nowhere(reason) => {
                tell(&format!("not run: {place}: {reason}"));
                continue;
            }
        }
        let steps = match block.language.as_str() {
            "console" => steps(&block),
            "sh" => vec![Step {
                command: format!("set -e\n{}", block.lines.join("\n")),
                shown: vec![ANYTHING.to_owned()],
            }],
            "text" | "toml" if !has_commands(&block) => continue,
            "text" | "toml" => {
                return Err(format!(
                    "{place}: commands in a block that is not run: make it one of sh, and say why it is not"
                ));
            }
            other => {
                return Err(format!(
                    "{place}: `{other}` does not say whether it is run: use console, sh, text or toml"
                ));
            }
        };
        for step in &steps {
            reader
                .take(step)
                .map_err(|why| format!("{place}: `{}` {why}", step.command))?;
            run += 1;
        }
    }
    if disk.is_some_and(|disk| !machine::has_run(&disk)) {
        return Err(format!("{chapter}: the machine has not run"));
    }
    Ok(run)
}

#[test]
fn every_command_of_the_manual_does_what_it_shows() {
    let read: Vec<_> = chapters()
        .iter()
        .map(|chapter| read_chapter(chapter))
        .collect();
    let (right, wrong): (Vec<_>, Vec<_>) = read.into_iter().partition(Result::is_ok);
    let wrong: Vec<String> = wrong.into_iter().filter_map(Result::err).collect();
    assert!(wrong.is_empty(), "{}", wrong.join("\n\n"));
    let run: usize = right.into_iter().flatten().sum();
    assert!(run > 50, "only {run} commands were found");
}

#[test]
fn the_lab_runs_each_block_that_is_marked_as_its() {
    for chapter in chapters() {
        let marked = blocks_for_the_lab(&source().join(&chapter)).unwrap();
        let all = EXPERIMENTS.iter().flat_map(Experiment::blocks);
        let known: BTreeSet<usize> = all
            .filter(|(page, _)| *page == chapter)
            .map(|(_, number)| number)
            .collect();
        assert_eq!(
            known,
            (1..=marked.len()).collect(),
            "{chapter}: the blocks that the lab's scripts run, and those marked so"
        );
    }
}

/// Asks a program of Debian's about manifests; `None` if the machine does not have it.
fn has_the_form_of_kubernetes(manifests: &str) -> Option<bool> {
    let mut program = Command::new("/usr/bin/python3")
        .args(["-c", include_str!("support/manifests.py")])
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let mut input = program.stdin.take().unwrap();
    // Without the package it ends before it has read all.
    let _ = input.write_all(manifests.as_bytes());
    drop(input);
    let status = program.wait().unwrap();
    (status.code() != Some(77)).then(|| status.success())
}

#[test]
fn the_manifests_have_the_form_of_kubernetes() {
    let blocks = blocks(&source().join("recipes/kubernetes.md")).unwrap();
    let texts = blocks.iter().map(Block::text);
    let manifests: Vec<String> = texts
        .filter_map(|text| {
            let given = text.strip_prefix("kubectl apply -f - <<'END'\n")?;
            given.strip_suffix("END\n").map(str::to_owned)
        })
        .collect();
    assert_eq!(manifests.len(), 2, "the page has two blocks of manifests");
    for manifest in manifests {
        let Some(right) = has_the_form_of_kubernetes(&manifest) else {
            tell("not run: manifests of recipes/kubernetes.md: python3-kubernetes is missing");
            return;
        };
        assert!(right, "{manifest}");
        let wrong = manifest.replace("nodeSelector", "nodeSelection");
        assert_ne!(wrong, manifest);
        assert_eq!(has_the_form_of_kubernetes(&wrong), Some(false), "{wrong}");
    }
}

#[test]
fn what_is_shown_is_compared() {
    let lines = |text: &str| text.lines().map(str::to_owned).collect::<Vec<_>>();
    let same =
        |shown: &str, printed: &str| fits(&lines(shown), &printed.lines().collect::<Vec<_>>());
    assert!(same("", "") && same("a", "a") && same("…", "") && same("…\nb", "a\na\nb"));
    assert!(same("a … c …", "a b c d") && same("x … y", "x 1 y 2 y"));
    assert!(!same("", "a") && !same("a", "") && !same("a", "b") && !same("…\nb", "b\nc"));
    assert!(!same("a … c", "a b") && !same("… y", "x"));
    let block = Block {
        language: "console".to_owned(),
        line: 1,
        lines: lines("$ cat <<'END'\nx\nEND\nx\n$ a \\\n  b\n"),
        runs: Runs::Here,
    };
    let commands: Vec<String> = steps(&block).into_iter().map(|step| step.command).collect();
    assert_eq!(commands, ["cat <<'END'\nx\nEND", "a \\\n  b"]);
}

/// The keys that the program knows in a section, from what it says of one that it does not.
fn known_keys(scratch: &Scratch, head: &str) -> BTreeSet<String> {
    std::fs::write(scratch.path("f.toml"), format!("{head}\nno-such-key = 1\n")).unwrap();
    let said = text(&forebay(scratch, &["check-config", "f.toml"]));
    let known = said.split_once("(known here: ").map(|(_, rest)| rest);
    let known = known.and_then(|rest| rest.split(')').next());
    let known = known.unwrap_or_else(|| panic!("{head}: {said}"));
    known.split(", ").map(str::to_owned).collect()
}

/// The keys of the tables below a heading that names a section.
fn listed_keys(page: &str, section: &str) -> BTreeSet<String> {
    let below = page
        .split("\n##")
        .find(|part| {
            part.lines()
                .next()
                .is_some_and(|head| head.contains(section))
        })
        .unwrap_or_else(|| panic!("settings.md has no heading with {section}"));
    let rows = below.lines().filter_map(|line| line.strip_prefix("| `"));
    rows.map(|row| row.split('`').next().unwrap().to_owned())
        .collect()
}

#[test]
fn the_page_of_settings_knows_every_key() {
    let scratch = Scratch::new();
    let page = std::fs::read_to_string(source().join("settings.md")).unwrap();
    for section in known_keys(&scratch, "") {
        let head = match section.as_str() {
            "volume" => "[[volume]]".to_owned(),
            other => format!("[{other}]"),
        };
        let known = known_keys(&scratch, &head);
        assert_eq!(listed_keys(&page, &format!("`{head}`")), known, "{head}");
    }
    let table = page
        .split_once("`forebay packaging settings` -->\n")
        .and_then(|(_, rest)| rest.split_once("<!-- settings: end -->"))
        .expect("the table of settings")
        .0;
    let written = forebay_ok(&scratch, &["packaging", "settings"]);
    assert_eq!(table, written, "replace the table by what is written");
}
