//! `forebay packaging`, hidden: output of the binary for the makers of packages.

use std::path::Path;

use anyhow::{Context, Result};
use clap::CommandFactory;

use super::{initramfs, manual, removal, supervise, udev};
use crate::args::{Args, PackagingCommand};
use crate::report::grafana;
use crate::settings;

mod completions;

pub(crate) fn run(command: &PackagingCommand) -> Result<()> {
    match command {
        PackagingCommand::Man { directory } => {
            for (name, page) in manual::pages(Args::command())? {
                write(&directory.join(name), &page)?;
            }
            Ok(())
        }
        PackagingCommand::Completions { directory } => completions::write_all(directory),
        PackagingCommand::Volumes { control } => completions::list_volumes(control.as_deref()),
        PackagingCommand::Settings => {
            crate::output::line(settings::manual_table().trim_end());
            Ok(())
        }
        PackagingCommand::Grafana => {
            crate::output::line(format_args!("{:#}", grafana::dashboard()));
            Ok(())
        }
        PackagingCommand::MayRemove { offline, files } => removal::check(files, *offline),
        PackagingCommand::Udev {
            device,
            links,
            files,
        } => udev::describe(device, links, files),
        PackagingCommand::Initramfs { files } => initramfs::list(files),
        PackagingCommand::Supervise(args) => supervise::run(args),
    }
}

fn write(path: &Path, bytes: &[u8]) -> Result<()> {
    if let Some(directory) = path.parent() {
        std::fs::create_dir_all(directory)
            .with_context(|| format!("cannot make {}", directory.display()))?;
    }
    std::fs::write(path, bytes).with_context(|| format!("cannot write {}", path.display()))
}
