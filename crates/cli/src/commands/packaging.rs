//! `forebay packaging`, hidden: output of the binary for the makers of packages.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use clap::builder::PossibleValuesParser;
use clap::{Arg, Command, CommandFactory};
use clap_complete::Shell;
use forebay_engine::Mode;

use super::{initramfs, manual, removal, supervise, udev};
use crate::args::{Args, PackagingCommand};
use crate::report::grafana;
use crate::{profiles, settings};

pub(crate) fn run(command: &PackagingCommand) -> Result<()> {
    match command {
        PackagingCommand::Man { directory } => {
            for (name, page) in manual::pages(Args::command())? {
                write(&directory.join(name), &page)?;
            }
            Ok(())
        }
        PackagingCommand::Completions { directory } => completions(directory),
        PackagingCommand::Settings => {
            crate::output::line(settings::manual_table().trim_end());
            Ok(())
        }
        PackagingCommand::Grafana => {
            crate::output::line(format_args!("{:#}", grafana::dashboard()));
            Ok(())
        }
        PackagingCommand::MayRemove { files } => removal::check(files),
        PackagingCommand::Udev {
            device,
            links,
            files,
        } => udev::describe(device, links, files),
        PackagingCommand::Initramfs { files } => initramfs::list(files),
        PackagingCommand::Supervise(args) => supervise::run(args),
    }
}

fn completions(directory: &Path) -> Result<()> {
    for shell in [Shell::Bash, Shell::Zsh, Shell::Fish] {
        let mut text = Vec::new();
        clap_complete::generate(shell, &mut visible(), "forebay", &mut text);
        write(&directory.join(file_name(shell)), &text)?;
    }
    Ok(())
}

/// The command line as people see it; not every shell's generator leaves out what is hidden.
fn visible() -> Command {
    let full = with_values(Args::command());
    Command::new("forebay")
        .args(full.get_arguments().cloned())
        .subcommands(
            full.get_subcommands()
                .filter(|below| !below.is_hide_set())
                .cloned(),
        )
}

/// The command line with the values of its arguments, where they are words of a list.
fn with_values(command: Command) -> Command {
    let words = |argument: Arg, words: Vec<&'static str>| {
        argument.value_parser(PossibleValuesParser::new(words))
    };
    let modes: Vec<_> = Mode::NAMES.iter().map(|(_, name)| *name).collect();
    let profiles: Vec<_> = profiles::ALL.iter().map(|profile| profile.name).collect();
    let keys = settings::NAMES.to_vec();
    let settings = settings::words();
    let serve = |mut serve: Command| {
        for (name, values) in &settings {
            serve = serve.mut_arg(name, |it| words(it, values.clone()));
        }
        serve
            .mut_arg("mode", |it| words(it, modes.clone()))
            .mut_arg("profile", |it| words(it, profiles.clone()))
    };
    command
        .mut_arg("log_level", |it| {
            words(it, vec!["error", "warn", "info", "debug", "off"])
        })
        .mut_subcommand("serve", serve)
        .mut_subcommand("set", |set| {
            set.mut_arg("key", |it| words(it, keys.clone()))
        })
        .mut_subcommand("get", |get| {
            get.mut_arg("key", |it| words(it, keys.clone()))
        })
        .mut_subcommand("mode", |mode| {
            mode.mut_arg("mode", |it| words(it, modes.clone()))
        })
        .mut_subcommand("attach", |it| {
            it.mut_arg("mode", |it| words(it, modes.clone()))
        })
        .mut_subcommand("profile", |profile| {
            profile.mut_subcommand("show", |show| {
                show.mut_arg("name", |it| words(it, profiles.clone()))
            })
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

fn write(path: &Path, bytes: &[u8]) -> Result<()> {
    if let Some(directory) = path.parent() {
        std::fs::create_dir_all(directory)
            .with_context(|| format!("cannot make {}", directory.display()))?;
    }
    std::fs::write(path, bytes).with_context(|| format!("cannot write {}", path.display()))
}
