//! Completions of bash, zsh and fish: clap's, with the words that arguments may be, and with the
//! names of running volumes, which the shell asks for at each key.

use std::path::{Path, PathBuf};

use anyhow::Result;
use clap::builder::PossibleValuesParser;
use clap::{Command, CommandFactory};
use clap_complete::Shell;
use forebay_engine::Mode;

use crate::args::Args;
use crate::client::Client;
use crate::{profiles, settings};

/// Stands for the names of running volumes in what clap writes.
const VOLUMES: &str = "FOREBAY_VOLUMES";

/// Says the names to a shell.
const ASK: &str = "forebay packaging volumes 2> /dev/null";

/// Arguments that name a running volume: the command, and the argument of it.
const NAME_A_VOLUME: [(&str, &str); 9] = [
    ("detach", "name"),
    ("drain", "name"),
    ("freeze", "name"),
    ("thaw", "name"),
    ("hand-over", "name"),
    ("mode", "name"),
    ("rename", "name"),
    ("set", "volume"),
    ("get", "volume"),
];

pub(super) fn write_all(directory: &Path) -> Result<()> {
    for shell in [Shell::Bash, Shell::Zsh, Shell::Fish] {
        let mut text = Vec::new();
        clap_complete::generate(shell, &mut visible(), "forebay", &mut text);
        let text = asking_for_volumes(shell, &String::from_utf8(text)?);
        super::write(&directory.join(file_name(shell)), text.as_bytes())?;
    }
    Ok(())
}

/// Prints the names of running volumes that are only letters, digits and a few signs: bash expands
/// the words that it completes, and a name could be a command.
pub(super) fn list_volumes(control: Option<&Path>) -> Result<()> {
    let harmless = |name: &String| {
        name.chars()
            .all(|sign| sign.is_alphanumeric() || "._+@%=,-".contains(sign))
    };
    for name in Client::volumes_at_once(control)
        .iter()
        .filter(|it| harmless(it))
    {
        crate::output::line(name);
    }
    Ok(())
}

/// Has the shell ask where clap wrote a word that stands for the answer.
fn asking_for_volumes(shell: Shell, text: &str) -> String {
    match shell {
        Shell::Zsh => {
            let function = format!(
                "_forebay_volumes() {{\n    local -a names\n    names=(${{(f)\"$({ASK})\"}})\n    compadd -a names\n}}\n\n_forebay() {{\n"
            );
            text.replace(&format!("({VOLUMES})"), "_forebay_volumes")
                .replacen("_forebay() {\n", &function, 1)
        }
        Shell::Fish => {
            let options = text.replace(&format!("{VOLUMES}\\t''"), &format!("({ASK})"));
            // clap writes nothing for arguments that are no options.
            let names = NAME_A_VOLUME
                .iter()
                .filter(|(_, argument)| *argument == "name");
            let commands = names.map(|(command, _)| (*command).to_owned());
            let commands =
                commands.chain(["trace; and __fish_seen_subcommand_from record".to_owned()]);
            let more = commands.map(|command| {
                format!("complete -c forebay -n \"__fish_forebay_using_subcommand {command}\" -a \"({ASK})\"\n")
            });
            options + &more.collect::<String>()
        }
        _ => text.replace(VOLUMES, &format!("$({ASK})")),
    }
}

/// The command line as people see it; not every shell's generator leaves out what is hidden.
fn visible() -> Command {
    let full = with_volumes(with_values(Args::command()));
    Command::new("forebay")
        .args(full.get_arguments().cloned())
        .subcommands(
            full.get_subcommands()
                .filter(|below| !below.is_hide_set())
                .cloned(),
        )
}

/// Gives an argument the words that it can be. It keeps its place, which `mut_arg` would not leave it.
fn words(command: Command, argument: &str, words: &[&'static str]) -> Command {
    command.mut_args(|it| match it.get_id() == argument {
        true => it.value_parser(PossibleValuesParser::new(words.to_vec())),
        false => it,
    })
}

fn with_volumes(command: Command) -> Command {
    let command = command.mut_subcommand("trace", |trace| {
        trace.mut_subcommand("record", |it| words(it, "volume", &[VOLUMES]))
    });
    NAME_A_VOLUME
        .iter()
        .fold(command, |command, (name, argument)| {
            command.mut_subcommand(name, |it| words(it, argument, &[VOLUMES]))
        })
}

/// The command line with the values of its arguments, where they are words of a list.
fn with_values(command: Command) -> Command {
    let modes: Vec<_> = Mode::NAMES.iter().map(|(_, name)| *name).collect();
    let profiles: Vec<_> = profiles::ALL.iter().map(|profile| profile.name).collect();
    let of_cache = [settings::COPIES, settings::ON_DEGRADED];
    let keys = [settings::NAMES, &of_cache].concat();
    let serve = |mut serve: Command| {
        for (name, values) in settings::words() {
            serve = words(serve, name, &values);
        }
        words(words(serve, "mode", &modes), "profile", &profiles)
    };
    words(
        command,
        "log_level",
        &["error", "warn", "info", "debug", "off"],
    )
    .mut_subcommand("serve", serve)
    .mut_subcommand("set", |it| words(it, "key", &keys))
    .mut_subcommand("get", |it| words(it, "key", &keys))
    .mut_subcommand("mode", |it| words(it, "mode", &modes))
    .mut_subcommand("attach", |it| words(it, "mode", &modes))
    .mut_subcommand("profile", |profile| {
        profile.mut_subcommand("show", |it| words(it, "name", &profiles))
    })
}

/// As each shell looks for it.
fn file_name(shell: Shell) -> PathBuf {
    match shell {
        Shell::Zsh => "zsh/_forebay".into(),
        Shell::Fish => "fish/forebay.fish".into(),
        _ => format!("{shell}/forebay").into(),
    }
}
