//! Which forebay daemon holds a device that cannot be opened.

use std::fs;
use std::path::Path;

use forebay_io::OpenError;

use crate::device::same_device::Identity;

/// A daemon, as far as this user may see it.
const PROGRAM: &str = "forebay";

/// Adds to the error the daemon that holds the device and what to do about it.
pub(crate) fn name_holder(error: OpenError) -> OpenError {
    let OpenError::Busy { path, .. } = &error else {
        return error;
    };
    let Some(process) = holder(path) else {
        return error;
    };
    let path = path.clone();
    if process == std::process::id() {
        return OpenError::Busy {
            path,
            reason: "is given twice, and this command has it open already".to_owned(),
            remedy: "name it once",
        };
    }
    OpenError::Busy {
        path,
        reason: format!(
            "is used by the forebay process {process}{}",
            words_of(process)
        ),
        remedy: "`forebay status` shows what it serves, `forebay stop` ends it; then try again",
    }
}

/// The process of ours that has this device or file open.
fn holder(path: &Path) -> Option<u32> {
    let wanted = Identity::of_existing(path)?;
    let processes = fs::read_dir("/proc").ok()?.flatten();
    let numbers = processes.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
    numbers
        .filter(|process| {
            fs::read_to_string(format!("/proc/{process}/comm"))
                .is_ok_and(|name| name.trim_end() == PROGRAM)
        })
        .find(|process| has_open(*process, &wanted))
}

fn has_open(process: u32, wanted: &Identity) -> bool {
    let open = fs::read_dir(format!("/proc/{process}/fd"));
    let mut paths = open.into_iter().flatten().flatten();
    paths.any(|entry| Identity::of_existing(&entry.path()).as_ref() == Some(wanted))
}

/// The command line of the process, if it can be seen.
fn words_of(process: u32) -> String {
    let words = fs::read(format!("/proc/{process}/cmdline")).unwrap_or_default();
    let words: Vec<String> = words
        .split(|byte| *byte == 0)
        .filter(|word| !word.is_empty())
        .skip(1)
        .map(|word| String::from_utf8_lossy(word).into_owned())
        .collect();
    match words.as_slice() {
        [] => String::new(),
        words => format!(" (`forebay {}`)", words.join(" ")),
    }
}
