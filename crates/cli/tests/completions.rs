//! Completions of names of running volumes (A22), asked for as a shell does.

mod support;

use std::os::unix::fs::PermissionsExt;
use std::process::{Command, Stdio};

use support::{Daemon, MIB, Scratch, forebay_ok, text, until};

/// A daemon with two volumes, and a `forebay` before others in PATH that asks only this daemon.
struct Typist {
    daemon: Daemon,
    scratch: Scratch,
}

impl Typist {
    fn new() -> Typist {
        let scratch = Scratch::new();
        for name in ["origin", "other"] {
            scratch.file(name, 16 * MIB);
        }
        scratch.file("cache", 16 * MIB);
        forebay_ok(&scratch, &["packaging", "completions", "."]);
        let daemon = Daemon::cached(&scratch, "writethrough", &["--name", "first"]);
        daemon.command(&scratch, &["attach", "other", "--name", "second"]);
        std::fs::create_dir(scratch.path("tools")).unwrap();
        let wrapper = format!(
            "#!/bin/sh\nexec '{}' \"$@\" --control '{}'\n",
            env!("CARGO_BIN_EXE_forebay"),
            scratch.text("control")
        );
        std::fs::write(scratch.path("tools/forebay"), wrapper).unwrap();
        let mode = std::fs::Permissions::from_mode(0o755);
        std::fs::set_permissions(scratch.path("tools/forebay"), mode).unwrap();
        Typist { scratch, daemon }
    }

    /// Runs a line of a shell; `None` if that shell is not installed.
    fn shell(&self, shell: &[&str], line: &str) -> Option<Vec<String>> {
        let path = std::env::var("PATH").unwrap_or_default();
        let output = Command::new(shell[0])
            .args(&shell[1..])
            .args(["-c", line])
            .current_dir(self.scratch.path(""))
            .env("PATH", format!("{}:{path}", self.scratch.text("tools")))
            .env("HOME", self.scratch.path(""))
            .stdin(Stdio::null())
            .output();
        let Ok(output) = output else {
            eprintln!("not run: {}, which is not installed", shell[0]);
            return None;
        };
        assert!(output.status.success(), "{line}: {}", text(&output));
        let said = String::from_utf8(output.stdout).unwrap();
        Some(said.lines().map(str::to_owned).collect())
    }

    /// Words that bash offers for the last of these.
    fn bash(&self, words: &[&str]) -> Vec<String> {
        let last = words.len() - 1;
        let quoted: Vec<String> = words.iter().map(|word| format!("'{word}'")).collect();
        let line = format!(
            ". bash/forebay; COMP_WORDS=({}); COMP_CWORD={last}; _forebay forebay '{}' '{}'; printf '%s\\n' \"${{COMPREPLY[@]}}\"",
            quoted.join(" "),
            words[last],
            words[last - 1]
        );
        self.shell(&["bash", "--norc"], &line).unwrap()
    }
}

#[test]
fn bash_offers_volumes_that_are_served() {
    let typist = Typist::new();
    for words in [
        &["forebay", "detach", ""][..],
        &["forebay", "drain", ""],
        &["forebay", "mode", ""],
        &["forebay", "rename", ""],
        &["forebay", "set", "age", "10", "--volume", ""],
        &["forebay", "get", "--volume", ""],
        &["forebay", "trace", "record", ""],
    ] {
        until(&format!("first and second after {words:?}"), || {
            let offered = typist.bash(words);
            ["first", "second"]
                .iter()
                .all(|name| offered.iter().any(|word| word == name))
        });
    }
    until("the only word", || {
        typist.bash(&["forebay", "detach", "se"]) == ["second"]
    });
    let options = typist.bash(&["forebay", "create", ""]);
    assert!(!options.iter().any(|word| word == "first"), "{options:?}");
    typist.daemon.stop();
}

#[test]
fn zsh_and_fish_offer_volumes_that_are_served() {
    let typist = Typist::new();
    let fish = ["fish", "--no-config"];
    for typed in ["detach ", "mode ", "set --volume ", "trace record "] {
        let line = format!("source fish/forebay.fish; complete -C 'forebay {typed}'");
        until(&format!("first and second after {typed}"), || {
            let Some(offered) = typist.shell(&fish, &line) else {
                return true;
            };
            // Beside each word is its description.
            let words: Vec<&str> = offered
                .iter()
                .filter_map(|it| it.split('\t').next())
                .collect();
            words.contains(&"first") && words.contains(&"second")
        });
    }
    let script = std::fs::read_to_string(typist.scratch.path("zsh/_forebay")).unwrap();
    let key = script.find(":key -- The key to change").unwrap();
    let value = script.find(":value -- The new value").unwrap();
    assert!(key < value, "arguments are offered in their order");
    let asked = script.matches(":_forebay_volumes'").count();
    assert_eq!(asked, 10, "each argument that names a volume asks");
    // The completion system's own words are what a terminal would show.
    let line = "compdef() { : }; compadd() { shift; print -l ${(P)1} }; source ./zsh/_forebay; _forebay_volumes";
    until("first and second in zsh", || {
        let offered = typist.shell(&["zsh", "-f"], line);
        offered.is_none_or(|offered| offered == ["first", "second"])
    });
    typist.daemon.stop();
}

/// Bash expands the words that it completes.
#[test]
fn a_name_that_a_shell_would_run_is_not_offered() {
    let typist = Typist::new();
    typist
        .daemon
        .command(&typist.scratch, &["rename", "second", "$(touch${IFS}evil)"]);
    until("the other name", || {
        typist.bash(&["forebay", "detach", "f"]) == ["first"]
    });
    let offered = typist.bash(&["forebay", "detach", ""]);
    assert!(
        !offered.iter().any(|word| word.contains("evil")),
        "{offered:?}"
    );
    assert!(!typist.scratch.path("evil").exists());
    typist.daemon.stop();
}

/// A daemon that hangs, or none at all, keeps nobody from typing on.
#[test]
fn nobody_who_types_waits_for_a_daemon() {
    let typist = Typist::new();
    let ask = || {
        typist
            .shell(&["bash"], "forebay packaging volumes")
            .unwrap()
    };
    assert_eq!(ask(), ["first", "second"]);
    typist.daemon.signal("-STOP");
    assert!(ask().is_empty(), "a halted daemon answers nothing");
    typist.daemon.signal("-CONT");
    let Typist { scratch, daemon } = typist;
    daemon.stop();
    let control = scratch.text("control");
    let nothing = ["packaging", "volumes", "--control", &control];
    assert_eq!(forebay_ok(&scratch, &nothing), "");
}
