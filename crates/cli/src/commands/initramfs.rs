//! `forebay packaging initramfs`: files that the hook which makes an initramfs must put into it.

use std::path::{Path, PathBuf};

use anyhow::Result;

use crate::config::{self, Plan};
use crate::failure::wrong_usage;

/// Before a device that the cache may be able to do without.
const SPARED: &str = "spared:";

/// Prints a line for each cache that is to be served there: its name, its state directory and its
/// devices, with spaces between.
pub(super) fn list(files: &[PathBuf]) -> Result<()> {
    for file in config::files_or_installed(files)? {
        let (plan, _) = config::examine_file(&file)?;
        if plan.initramfs {
            crate::output::line(line(&file, &plan)?);
        }
    }
    Ok(())
}

fn line(file: &Path, plan: &Plan) -> Result<String> {
    let name = file.file_stem().unwrap_or_default();
    let cache = plan.cache.iter().flat_map(|cache| {
        let mark = if cache.copies == Some(2) { SPARED } else { "" };
        cache
            .devices
            .iter()
            .map(move |device| (mark, device.as_path()))
    });
    let needed = |path| ("", path);
    let origins = plan.volumes.iter().map(|volume| volume.origin.as_path());
    let words = [Path::new(name)]
        .into_iter()
        .chain(plan.state_dir.as_deref())
        .map(needed)
        .chain(cache)
        .chain(origins.map(needed));
    let mut line = Vec::new();
    for (mark, path) in words {
        let word = path.display().to_string();
        // A shell is to read it.
        if word.contains(|letter: char| !letter.is_ascii_graphic() || "'\"\\$`*?[".contains(letter))
        {
            wrong_usage!(
                "{}: `{word}` cannot be used in an initramfs; give it a name without spaces and quotes",
                file.display()
            );
        }
        line.push(format!("{mark}{word}"));
    }
    Ok(line.join(" "))
}
