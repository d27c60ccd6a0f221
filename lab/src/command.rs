//! Other programs, run to their end.

use std::process::{Command, Stdio};

use anyhow::{Context as _, bail};

/// Runs a command; its output is the answer, its complaints are in the error.
///
/// # Errors
/// If it cannot be started or says that it failed.
pub fn output(command: &mut Command) -> anyhow::Result<String> {
    let name = command.get_program().to_string_lossy().into_owned();
    let output = command
        .stdin(Stdio::null())
        .output()
        .with_context(|| format!("cannot run {name}"))?;
    if !output.status.success() {
        let arguments: Vec<_> = command.get_args().map(|a| a.to_string_lossy()).collect();
        bail!(
            "{name} {} failed ({}): {}",
            arguments.join(" "),
            output.status,
            String::from_utf8_lossy(&output.stderr).trim()
        );
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// The first line of what a program prints about its version.
#[must_use]
pub fn version(command: &mut Command) -> String {
    output(command)
        .ok()
        .and_then(|text| text.lines().next().map(|line| line.trim().to_owned()))
        .unwrap_or_else(|| "unknown".to_owned())
}
