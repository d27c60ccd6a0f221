//! The load of the members of an array: a member that is busier than the others is the pace of all.

use serde::{Deserialize, Serialize};

use crate::units::size;

/// The load of a member over the last second or so.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct MemberLoad {
    /// The kernel's name, such as `sda`.
    pub(crate) name: String,
    /// Requests in flight at this moment.
    pub(crate) in_flight: u64,
    /// The share of the time in which any was in flight.
    pub(crate) busy_percent: u64,
    pub(crate) read_bytes_per_second: u64,
    pub(crate) written_bytes_per_second: u64,
}

/// From here on a member has no time to spare.
const BUSY_PERCENT: u64 = 90;
/// A member that is busier than each other by so much holds them up.
const BUSIER_PERCENT: u64 = 30;

impl MemberLoad {
    /// `sda 40 % busy, 3 in flight, reads 12 MiB/s, writes 0 B/s`.
    pub(crate) fn in_words(&self) -> String {
        format!(
            "{} {} % busy, {} in flight, reads {}/s, writes {}/s",
            self.name,
            self.busy_percent,
            self.in_flight,
            size(self.read_bytes_per_second),
            size(self.written_bytes_per_second),
        )
    }
}

/// The member that the others wait for, if one is busy all the time and no other nearly so.
pub(crate) fn slowest(members: &[MemberLoad]) -> Option<&MemberLoad> {
    let busiest = members.iter().max_by_key(|member| member.busy_percent)?;
    let mut others = members.iter().filter(|member| member.name != busiest.name);
    let stands_out =
        others.all(|other| other.busy_percent + BUSIER_PERCENT <= busiest.busy_percent);
    (members.len() > 1 && busiest.busy_percent >= BUSY_PERCENT && stands_out).then_some(busiest)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn member(name: &str, busy_percent: u64) -> MemberLoad {
        MemberLoad {
            name: name.to_owned(),
            busy_percent,
            read_bytes_per_second: 12 << 20,
            ..MemberLoad::default()
        }
    }

    #[test]
    fn a_member_stands_out_that_alone_is_busy() {
        let members = [member("sda", 40), member("sdb", 99), member("sdc", 60)];
        assert_eq!(slowest(&members), Some(&members[1]));
        assert_eq!(slowest(&[member("sda", 99), member("sdb", 80)]), None);
        assert_eq!(slowest(&[member("sda", 60), member("sdb", 10)]), None);
        assert_eq!(slowest(&[member("sda", 100)]), None);
        assert_eq!(
            members[0].in_words(),
            "sda 40 % busy, 0 in flight, reads 12 MiB/s, writes 0 B/s"
        );
    }
}
