//! The settings that can change while the cache runs: their names, what they may be and what they
//! do, in one list for `set`, its messages and the manual.

use forebay_engine::Settings;

use crate::nearest::suggestion;
use crate::units::{Age, Budget, Cutoff, Limit, parse_percent, parse_size};

/// A setting.
pub(crate) struct Key {
    pub(crate) name: &'static str,
    /// Its values and their unit.
    pub(crate) values: &'static str,
    /// What it does.
    pub(crate) effect: &'static str,
    change: fn(&mut Settings, &str) -> Result<(), String>,
}

/// All of them, in the order in which the manual has them.
pub(crate) const KEYS: [Key; 15] = [
    Key {
        name: "commit",
        values: "`flush`, `write`, `memory`",
        effect: "when a write is acknowledged: `flush`, as by any disk, durable with the next flush; `write`, durable at once; `memory`, as `flush`, from a buffer in memory that outlives the daemon",
        change: |settings, value| set(&mut settings.commit, value.parse()),
    },
    Key {
        name: "admission",
        values: "`always`, `second-touch`, `touch-3` to `touch-15`",
        effect: "which blocks that were read and missed enter the cache: all, or those wanted for the n-th time lately",
        change: |settings, value| set(&mut settings.read_admission, value.parse()),
    },
    Key {
        name: "write-admission",
        values: "as `admission`",
        effect: "the same for written blocks that are not in the cache; others go to the origin",
        change: |settings, value| set(&mut settings.write_admission, value.parse()),
    },
    Key {
        name: "congestion-read",
        values: "a time such as `500us`, `2ms`, `1s`; `off`",
        effect: "while hits take longer than this on average, nothing that is read enters the cache",
        change: |settings, value| {
            set(
                &mut settings.congestion_read,
                value.parse::<Limit>().map(|limit| limit.0),
            )
        },
    },
    Key {
        name: "congestion-write",
        values: "a time, or `off`",
        effect: "while writes into the cache take longer than this on average, others go to the origin",
        change: |settings, value| {
            set(
                &mut settings.congestion_write,
                value.parse::<Limit>().map(|limit| limit.0),
            )
        },
    },
    Key {
        name: "write-budget",
        values: "a size of at least 1M for each day, such as `200G`; `off`",
        effect: "how much may be written to the cache device in a day; when it is spent, only changes of dirty blocks still are. What was not used is saved for an hour",
        change: |settings, value| {
            set(
                &mut settings.write_budget_bytes_per_day,
                value.parse::<Budget>().map(|budget| budget.0),
            )
        },
    },
    Key {
        name: "sequential-cutoff",
        values: "a size such as `4M`; `off`",
        effect: "sequential streams longer than this go past the cache",
        change: |settings, value| {
            set(
                &mut settings.sequential_cutoff_bytes,
                value.parse::<Cutoff>().map(|cutoff| cutoff.0),
            )
        },
    },
    Key {
        name: "memory-buffer",
        values: "a size, 1M to 64G",
        effect: "how large the buffer of `commit = memory` is; takes effect where none is there yet",
        change: |settings, value| set(&mut settings.memory_buffer_bytes, parse_size(value)),
    },
    Key {
        name: "replacement",
        values: "`adaptive`, `s3-fifo`, `clock`, `2q`, `fifo`",
        effect: "which blocks stay when room is made",
        change: |settings, value| set(&mut settings.replacement, value.parse()),
    },
    Key {
        name: "retain",
        values: "percent, 0 to 100",
        effect: "how many clean blocks may be copied on the cache device, to keep them, for each hundred that are let in",
        change: |settings, value| set(&mut settings.retain_percent, parse_percent(value)),
    },
    Key {
        name: "writeback",
        values: "`threshold`, `timed`, `rate`, `cleaner`",
        effect: "when dirty data is written back: above `dirty-low` or older than `age`; older than `age`; steadily, to keep it at `dirty-low`; all of it, at once",
        change: |settings, value| set(&mut settings.writeback_policy, value.parse()),
    },
    Key {
        name: "dirty-low",
        values: "percent of the cache, 0 to `dirty-high`",
        effect: "write-back begins above this share of dirty data; its target, for `writeback = rate`",
        change: |settings, value| set(&mut settings.dirty_low_percent, parse_percent(value)),
    },
    Key {
        name: "dirty-high",
        values: "percent of the cache, up to `dirty-limit`",
        effect: "above this share writes slow down, and those of 1 MiB or more, in one request or in sequence, go past the cache",
        change: |settings, value| set(&mut settings.dirty_high_percent, parse_percent(value)),
    },
    Key {
        name: "dirty-limit",
        values: "percent of the cache, 1 to 90",
        effect: "there is never more dirty data than this share",
        change: |settings, value| set(&mut settings.dirty_limit_percent, parse_percent(value)),
    },
    Key {
        name: "age",
        values: "seconds, or a time such as `5min`, `1h`",
        effect: "dirty data older than this is written back, whatever its amount (`writeback` = `threshold` and `timed`)",
        change: |settings, value| {
            set(
                &mut settings.age_limit,
                value.parse::<Age>().map(|age| age.0),
            )
        },
    },
];

fn set<T>(place: &mut T, value: Result<T, String>) -> Result<(), String> {
    *place = value?;
    Ok(())
}

/// Changes one setting by name; all that can change while the cache runs.
///
/// # Errors
/// Says which setting, and what its values are.
pub(crate) fn change_setting(
    settings: &mut Settings,
    name: &str,
    value: &str,
) -> Result<(), String> {
    let Some(key) = KEYS.iter().find(|key| key.name == name) else {
        return Err(unknown(name, value));
    };
    let before = settings.clone();
    let changed = (key.change)(settings, value).and_then(|()| settings.validate());
    changed.map_err(|why| {
        *settings = before;
        format!(
            "{name} {value}: {why} ({name} is {})",
            key.values.replace('`', "")
        )
    })
}

fn unknown(name: &str, value: &str) -> String {
    let names = || KEYS.iter().map(|key| key.name);
    if name == "mode" {
        return format!(
            "the mode is not a setting of the cache, each volume has its own: `forebay mode NAME {value}`"
        );
    }
    format!(
        "there is no setting `{name}`{}: known are {}",
        suggestion(name, names()),
        names().collect::<Vec<_>>().join(", ")
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use forebay_engine::Nanos;

    fn seconds(seconds: u64) -> Nanos {
        Nanos(seconds * Nanos::SECOND.0)
    }

    fn change(name: &str, value: &str) -> Result<Settings, String> {
        let mut settings = Settings::default();
        change_setting(&mut settings, name, value).map(|()| settings)
    }

    #[test]
    fn every_setting_takes_what_it_says_and_refuses_what_it_does_not() {
        let good = [
            "write",
            "touch-3",
            "second-touch",
            "2ms",
            "off",
            "200G",
            "4M",
            "32M",
            "clock",
            "30%",
            "rate",
            "5%",
            "60",
            "80",
            "5min",
        ];
        assert_eq!(KEYS.len(), good.len());
        for (key, value) in KEYS.iter().zip(good) {
            let changed = change(key.name, value);
            assert!(changed.is_ok(), "{} {value}: {changed:?}", key.name);
            let said = change(key.name, "-5").unwrap_err();
            assert!(said.starts_with(&format!("{} -5: ", key.name)), "{said}");
        }
        assert_eq!(change("age", "5min").unwrap().age_limit, seconds(300));
        assert_eq!(change("age", "7").unwrap().age_limit, seconds(7));
    }

    #[test]
    fn what_is_refused_is_named_and_changes_nothing() {
        let mut settings = Settings::default();
        let said = change_setting(&mut settings, "dirty-low", "80").unwrap_err();
        assert!(
            said.starts_with("dirty-low 80: dirty limits must rise"),
            "{said}"
        );
        assert_eq!(settings.dirty_low_percent, 10);
        let said = change("write-budget", "10").unwrap_err();
        assert!(said.contains("10 B a day") && said.contains("1M"), "{said}");
        let said = change("dirty-lo", "5").unwrap_err();
        assert!(said.contains("did you mean `dirty-low`?"), "{said}");
        let said = change("mode", "writeback").unwrap_err();
        assert!(said.contains("`forebay mode NAME writeback`"), "{said}");
    }

    #[test]
    fn the_help_names_every_setting() {
        use clap::CommandFactory;
        let args = crate::args::Args::command();
        let set = args.find_subcommand("set").expect("the command");
        let help = set.get_after_help().expect("its help").to_string();
        for key in &KEYS {
            assert!(help.contains(key.name), "{} is not in {help}", key.name);
        }
    }
}
