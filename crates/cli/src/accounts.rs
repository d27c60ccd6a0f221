//! Users and groups that this machine keeps itself, in files of lines `NAME:x:NUMBER:…`. Those of a
//! directory service have no names here.

use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

pub(crate) const USERS: &str = "/etc/passwd";
pub(crate) const GROUPS: &str = "/etc/group";

/// The name of a number, in the text of such a file.
pub(crate) fn name_of(number: u32, known: &str) -> Option<&str> {
    let found = entries(known).find(|(_, of_name)| *of_name == number);
    found.map(|(name, _)| name)
}

/// The number of a name, in the text of such a file.
pub(crate) fn number_of(name: &str, known: &str) -> Option<u32> {
    let found = entries(known).find(|(known, _)| *known == name);
    found.map(|(_, number)| number)
}

/// Names and numbers of the lines that are as they should be.
fn entries(known: &str) -> impl Iterator<Item = (&str, u32)> {
    known.lines().filter_map(|line| {
        let mut fields = line.split(':');
        let (name, _, number) = (fields.next()?, fields.next()?, fields.next()?);
        let is_plain = !name.is_empty() && !name.chars().any(char::is_control);
        is_plain.then_some((name, number.parse().ok()?))
    })
}

/// Says whose a file is, who else may use it, and whom that leaves out here. Nothing if the file
/// cannot be looked at.
pub(crate) fn access_in_words(path: &Path) -> Option<String> {
    let found = std::fs::metadata(path).ok()?;
    let named = |number: u32, file: &str| {
        let known = std::fs::read_to_string(file).unwrap_or_default();
        name_of(number, &known).map_or(number.to_string(), str::to_owned)
    };
    let (owner, group) = (named(found.uid(), USERS), named(found.gid(), GROUPS));
    let mode = found.mode() & 0o777;
    let here = rustix::process::geteuid();
    let remedy = if here.is_root() {
        "root has not the capability CAP_DAC_OVERRIDE here, with which it opens files of others: add it (in the service: \
         CapabilityBoundingSet=), or give the file to root"
            .to_owned()
    } else {
        let user = named(here.as_raw(), USERS);
        format!("this is the user {user}: run it as root, or let this user read and write the file")
    };
    Some(format!(
        "it belongs to {owner}:{group} with mode {mode:04o}, and {remedy}"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_have_numbers_and_numbers_names() {
        let known = "root:x:0:0::/:/bin/sh\nlibvirt-qemu:x:64055:\nbroken\n:x:7:\n";
        assert_eq!(number_of("libvirt-qemu", known), Some(64055));
        assert_eq!(number_of("nobody-here", known), None);
        assert_eq!(number_of("broken", known), None);
        assert_eq!(name_of(0, known), Some("root"));
        assert_eq!(name_of(7, known), None);
    }
}
