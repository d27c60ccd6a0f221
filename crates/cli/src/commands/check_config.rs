//! `forebay check-config`: whether configuration files are right, each by itself and all together.

use std::path::PathBuf;

use anyhow::Result;
use serde_json::json;

use crate::args::CheckConfigArgs;
use crate::config::{self, Claim, ClaimKind};
use crate::failure::{Faults, describe};

pub(crate) fn run(args: &CheckConfigArgs) -> Result<()> {
    let files = config::files_or_installed(&args.files)?;
    let found = examine(&files);
    if args.json {
        let report = json!({
            "files": files,
            "volumes": found.volumes,
            "faults": found.faults,
            "notes": found.notes,
        });
        crate::output::line(format_args!("{report}"));
    } else {
        for note in &found.notes {
            crate::output::line(format_args!("{note}"));
        }
    }
    if !found.faults.is_empty() {
        return Err(Faults(found.faults).into());
    }
    if !args.json {
        let (files, volumes) = (
            count(files.len(), "configuration file"),
            count(found.volumes, "volume"),
        );
        let verdict = match found.missing {
            0 => "nothing is wrong".to_owned(),
            missing => format!(
                "nothing is wrong but that {} now: a daemon that needs it would not start",
                match missing {
                    1 => "a device is not there".to_owned(),
                    several => format!("{several} devices are not there"),
                }
            ),
        };
        crate::output::line(format_args!("{files}, {volumes}: {verdict}"));
    }
    Ok(())
}

/// `1 volume`, `2 volumes`.
fn count(number: usize, what: &str) -> String {
    let end = if number == 1 { "" } else { "s" };
    format!("{number} {what}{end}")
}

#[derive(Default)]
struct Found {
    /// Devices that are named and not there.
    missing: usize,
    volumes: usize,
    faults: Vec<String>,
    /// Doubtful points that may be right all the same.
    notes: Vec<String>,
}

fn examine(files: &[PathBuf]) -> Found {
    let mut found = Found::default();
    let mut claims = Vec::new();
    for file in files {
        match config::examine_file(file) {
            Ok((plan, claimed)) => {
                found.volumes += plan.volumes.len();
                found.notes.extend(plan.notes);
                claims.extend(claimed);
            }
            Err(error) => match error.downcast_ref::<Faults>() {
                Some(Faults(faults)) => found.faults.extend(faults.iter().cloned()),
                None => found.faults.push(describe(&error)),
            },
        }
    }
    found.faults.extend(config::conflicts(&claims));
    let missing: Vec<&Claim> = claims.iter().filter(|claim| is_missing(claim)).collect();
    found.missing = missing.len();
    let missing = missing.into_iter();
    found.notes.extend(missing.map(|claim| {
        format!(
            "{}: line {}: {} is not there now",
            claim.file.display(),
            claim.line,
            claim.name
        )
    }));
    found
}

fn is_missing(claim: &Claim) -> bool {
    claim.kind == ClaimKind::Device && !std::path::Path::new(&claim.name).exists()
}
