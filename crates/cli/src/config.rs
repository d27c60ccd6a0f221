//! Plan of `serve`, from arguments or from a TOML file.

mod claims;
mod difference;
mod faults;
mod file;
mod file_settings;
mod file_volume;
#[cfg(test)]
mod fuzz;
mod merged;
mod of_args;
mod of_file;
mod plan;
mod profile;

use std::path::{Path, PathBuf};

use crate::args::ServeArgs;
use crate::failure::{Usage, wrong_usage};
use crate::root_storage;
use anyhow::{Context, Result};

pub(crate) use claims::{Claim, ClaimKind, conflicts};
pub(crate) use of_args::{direct, model};
pub(crate) use plan::{CachePlan, DEFAULT_MEMORY_BYTES, LEAST_MEMORY_BYTES, Plan, VolumePlan};

/// Where the configuration files of services are, one per cache.
const DIRECTORY: &str = "/etc/forebay";

/// The files that are given, or else those of all services.
pub(crate) fn files_or_installed(given: &[PathBuf]) -> Result<Vec<PathBuf>> {
    let directory = Path::new(DIRECTORY);
    if !given.is_empty() {
        Ok(given.to_vec())
    } else if directory.exists() {
        files_in(directory)
    } else {
        Ok(Vec::new())
    }
}

/// The configuration files in a directory, in order of their names.
fn files_in(directory: &Path) -> Result<Vec<PathBuf>> {
    let entries = std::fs::read_dir(directory)
        .with_context(|| format!("cannot list {}", directory.display()))?;
    let mut files: Vec<PathBuf> = entries
        .flatten()
        .map(|entry| entry.path())
        .filter(|path| path.extension().is_some_and(|end| end == "toml"))
        .collect();
    files.sort();
    Ok(files)
}

/// The plan for these arguments.
pub(crate) fn plan(args: ServeArgs) -> Result<Plan> {
    let file = args.config.clone();
    plan_of(args, file.as_deref())
}

/// Plans for a daemon that may not yet read files on its own volumes.
pub(crate) fn plan_at_start(args: ServeArgs) -> Result<Plan> {
    let copy = args
        .root_storage
        .as_deref()
        .map(root_storage::configuration);
    let file = copy.or_else(|| args.config.clone());
    plan_of(args, file.as_deref())
}

/// `file` holds what `args.config` says.
fn plan_of(args: ServeArgs, file: Option<&Path>) -> Result<Plan> {
    let plan = match (&args.config, file) {
        (Some(path), Some(_)) if path.is_dir() => {
            wrong_usage!(
                "{} is a directory, and a daemon serves one cache: name a file in it. systemd runs a daemon for each: \
                 `systemctl start forebay@NAME` serves {DIRECTORY}/NAME.toml",
                path.display()
            );
        }
        (Some(path), Some(file)) => {
            let text = std::fs::read_to_string(file)
                .with_context(|| format!("cannot read {}", file.display()))?;
            of_file::plan(path, &text, &args)?.0
        }
        _ => of_args::plan(args)?,
    };
    match plan.out_of_range().into_iter().next() {
        Some(fault) => Err(Usage(fault).into()),
        None => Ok(plan),
    }
}

/// Plans a configuration file without any arguments, and returns its claims.
pub(crate) fn examine_file(path: &Path) -> Result<(Plan, Vec<Claim>)> {
    let text =
        std::fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))?;
    of_file::plan(path, &text, &ServeArgs::of_file(path.to_owned()))
}
