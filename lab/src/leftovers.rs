//! Leftovers in memory of a lab that was killed: the contents of its devices.

use std::path::Path;

use anyhow::Context as _;

const PREFIX: &str = "forebay-lab-";

/// The folder of this process for devices' contents.
#[must_use]
pub fn own_name() -> String {
    format!("{PREFIX}{}", std::process::id())
}

/// Removes the folders of labs that no longer run.
///
/// # Errors
/// If one cannot be removed.
pub fn remove(images: &Path) -> anyhow::Result<()> {
    let Ok(entries) = std::fs::read_dir(images) else {
        return Ok(());
    };
    for entry in entries.flatten() {
        let name = entry.file_name().to_string_lossy().into_owned();
        let Some(process) = name.strip_prefix(PREFIX) else {
            continue;
        };
        let is_number = process.parse::<u32>().is_ok();
        if is_number && !Path::new("/proc").join(process).exists() {
            std::fs::remove_dir_all(entry.path())
                .with_context(|| format!("cannot remove {}", entry.path().display()))?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scratch::Scratch;

    #[test]
    fn only_folders_of_the_dead_go() {
        let scratch = Scratch::new("leftovers");
        // No process has a number beyond the kernel's limit of four million.
        let own = own_name();
        let names = [
            own.as_str(),
            "forebay-lab-4999999",
            "forebay-lab-x",
            "other",
        ];
        for name in names {
            std::fs::create_dir(scratch.path().join(name)).unwrap();
        }
        remove(scratch.path()).unwrap();
        assert!(!scratch.path().join("forebay-lab-4999999").exists());
        for name in [names[0], names[2], names[3]] {
            assert!(scratch.path().join(name).exists(), "{name}");
        }
    }
}
