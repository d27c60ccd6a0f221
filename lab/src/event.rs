//! Events on the guest's console: lines that begin with `@lab`.

/// Such a line.
#[derive(Clone, Debug, PartialEq)]
pub enum Event {
    /// The kernel and the shared folder are up, at this time of the guest's, in seconds.
    Up(f64),
    /// The system under test is there, new or found again.
    Ready(String),
    /// A job has ended.
    Job {
        /// Its number.
        number: u32,
        /// Its name.
        label: String,
    },
    /// Something went wrong; the guest goes on if it can.
    Failed(String),
    /// The system cannot be had, and why.
    Unsupported(String),
    /// A writer's writes up to this number are durable.
    Synced {
        /// The writer.
        writer: usize,
        /// Its last write that was synced.
        number: u64,
    },
    /// Findings of the check after a power cut.
    Verified {
        /// Blocks compared.
        checked: u64,
        /// Blocks older than promised, or torn.
        missing: u64,
    },
    /// A figure by name.
    Value {
        /// Its name.
        name: String,
        /// Its value.
        value: f64,
    },
    /// The guest has ended in order, at this time of its own, in seconds.
    Done(f64),
}

impl Event {
    /// Reads a line of the console. `None` if it is no event.
    #[must_use]
    pub fn parse(line: &str) -> Option<Event> {
        // The kernel's own messages can stand before it on the line.
        let rest = line[line.find("@lab ")? + 5..].trim();
        let (word, rest) = rest.split_once(' ').unwrap_or((rest, ""));
        let mut words = rest.split_whitespace();
        Some(match word {
            "up" => Event::Up(rest.parse().ok()?),
            "started" | "resumed" => Event::Ready(rest.to_owned()),
            "job" => Event::Job {
                number: words.next()?.parse().ok()?,
                label: words.next()?.to_owned(),
            },
            "failed" => Event::Failed(rest.to_owned()),
            "unsupported" => Event::Unsupported(rest.to_owned()),
            "synced" => Event::Synced {
                writer: words.next()?.parse().ok()?,
                number: words.next()?.parse().ok()?,
            },
            "verified" => Event::Verified {
                checked: words.next()?.parse().ok()?,
                missing: words.nth(1)?.parse().ok()?,
            },
            "value" => Event::Value {
                name: words.next()?.to_owned(),
                value: words.next()?.parse().ok()?,
            },
            "done" => Event::Done(rest.parse().ok()?),
            _ => return None,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_are_found_among_the_kernels_messages() {
        assert_eq!(Event::parse("@lab up 1.66"), Some(Event::Up(1.66)));
        assert_eq!(
            Event::parse("[    2.1] x@lab job 04 randread-depth-1 12.3"),
            Some(Event::Job {
                number: 4,
                label: "randread-depth-1".to_owned()
            })
        );
        assert_eq!(
            Event::parse("@lab verified 320 missing 0\r"),
            Some(Event::Verified {
                checked: 320,
                missing: 0
            })
        );
        assert_eq!(Event::parse("@lab synced 3"), None, "cut off in the middle");
        assert_eq!(Event::parse("EXT4-fs mounted"), None);
    }
}
