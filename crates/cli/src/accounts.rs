//! Users and groups that this machine keeps itself, in files of lines `NAME:x:NUMBER:…`. Those of a
//! directory service have no names here.

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
