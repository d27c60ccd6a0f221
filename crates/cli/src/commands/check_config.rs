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
        crate::output::line(format_args!(
            "{} configuration files, {} volumes: nothing is wrong",
            files.len(),
            found.volumes
        ));
    }
    Ok(())
}

#[derive(Default)]
struct Found {
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
    let missing = claims.iter().filter(|claim| is_missing(claim));
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
