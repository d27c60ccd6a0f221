use std::collections::BTreeSet;
use std::fmt::Write;

use forebay_engine::{Admission, Commit, Mode, Nanos, Settings, WritebackPolicy};

use super::target::Target;
use super::*;
use crate::settings::shown;

fn given(settings: &[(&str, &str)]) -> Vec<Given> {
    let one = |(name, value): &(&str, &str)| Given {
        name: (*name).to_owned(),
        value: (*value).to_owned(),
        line: None,
    };
    settings.iter().map(one).collect()
}

fn applied(name: &str, settings: &[(&str, &str)]) -> apply::Applied {
    let profile = Profile::named(name).expect("a profile");
    profile.apply(&given(settings)).expect("it can be applied")
}

fn refused(name: &str, settings: &[(&str, &str)]) -> String {
    let profile = Profile::named(name).expect("a profile");
    let fault = profile.apply(&given(settings)).expect_err("it is refused");
    fault.message
}

#[test]
fn every_profile_makes_settings_that_are_valid() {
    for profile in ALL {
        let applied = profile.apply(&[]).expect(profile.name);
        applied.settings.validate().expect(profile.name);
        assert_eq!(applied.mode, None, "{}", profile.name);
        assert_eq!(applied.notes, Vec::<String>::new(), "{}", profile.name);
        assert_eq!(profile.settings(), applied.settings);
        let names: BTreeSet<_> = profile.foreign.iter().map(|foreign| foreign.name).collect();
        assert_eq!(
            names.len(),
            profile.foreign.len(),
            "{}: a name twice",
            profile.name
        );
    }
}

#[test]
fn every_setting_is_accepted_or_explained() {
    let known: BTreeSet<&str> = shown(&Settings::default())
        .into_iter()
        .map(|(name, _)| name)
        .chain(["mode"])
        .collect();
    for profile in ALL {
        for foreign in profile.foreign {
            let name = format!("{}.{}", profile.name, foreign.name);
            if foreign.has_meaning() {
                let ours = foreign.ours();
                assert!(
                    !ours.is_empty() && ours.iter().all(|one| known.contains(one)),
                    "{name}"
                );
                let mut target = Target::new(profile.settings());
                let wrong = foreign.apply(&mut target, "no value of anything");
                wrong.expect_err(&name);
                if let Initial::Taken(value) | Initial::Left(value) = foreign.initial {
                    foreign.apply(&mut target, value).expect(&name);
                    target.settings.validate().expect(&name);
                }
            } else {
                let change = change(&mut Settings::default(), &name, "anything").expect(&name);
                assert!(change.changed.is_empty());
                assert!(change.notes[0].contains(foreign.how), "{name}");
            }
        }
    }
}

#[test]
fn every_word_of_a_table_can_be_applied() {
    for profile in ALL {
        for foreign in profile.foreign {
            let profile::Meaning::Words(words) = &foreign.meaning else {
                continue;
            };
            for (word, _) in *words {
                let mut target = Target::new(profile.settings());
                let applied = foreign.apply(&mut target, word);
                applied.unwrap_or_else(|why| panic!("{}.{}: {why}", profile.name, foreign.name));
            }
        }
    }
}

#[test]
fn only_what_a_setting_names_changes() {
    let values = [
        "1", "2", "5", "37", "100", "4096", "always", "nhit", "acp", "nop", "wo", "4M",
    ];
    for profile in ALL {
        for foreign in profile.foreign {
            let ours = foreign.ours();
            let name = format!("{}.{}", profile.name, foreign.name);
            for value in values {
                let mut settings = profile.settings();
                let Ok(change) = change(&mut settings, &name, value) else {
                    continue;
                };
                // The dirty limits make way for each other.
                let free = |one: &str| {
                    one.starts_with("dirty-") && ours.iter().any(|our| our.starts_with("dirty-"))
                };
                for (changed, _) in change.changed {
                    assert!(
                        ours.contains(&changed) || free(changed),
                        "{name} = {value} changes {changed}"
                    );
                }
            }
        }
    }
}

#[test]
fn units_are_those_of_the_other_cache() {
    let bcache = applied(
        "bcache",
        &[("sequential_cutoff", "512k"), ("writeback_delay", "90")],
    );
    assert_eq!(bcache.settings.sequential_cutoff_bytes, Some(512 << 10));
    assert_eq!(bcache.settings.age_limit, Nanos(90 * Nanos::SECOND.0));
    let never = applied(
        "bcache",
        &[
            ("sequential_cutoff", "0"),
            ("congested_read_threshold_us", "0"),
        ],
    );
    assert_eq!(never.settings.sequential_cutoff_bytes, None);
    assert_eq!(never.settings.congestion_read, None);
    assert_eq!(
        applied("flashcache", &[("skip_seq_thresh_kb", "1024")])
            .settings
            .sequential_cutoff_bytes,
        Some(1 << 20)
    );
    let minutes = applied("enhanceio", &[("time_based_clean_interval", "15")]);
    assert_eq!(minutes.settings.age_limit, Nanos(900 * Nanos::SECOND.0));
    let sectors = applied("dm-cache", &[("migration_threshold", "8192")]);
    assert_eq!(
        (
            sectors.settings.writeback_depth,
            sectors.settings.writeback_run_bytes
        ),
        (16, 1 << 20)
    );
    let millis = applied(
        "dm-writecache",
        &[("max_age", "2500"), ("writeback_jobs", "64")],
    );
    assert_eq!(
        millis.settings.age_limit,
        Nanos(2500 * Nanos::MILLISECOND.0)
    );
    assert_eq!(
        (
            millis.settings.writeback_depth,
            millis.settings.writeback_run_bytes
        ),
        (4, 256 << 10)
    );
    let kib = applied(
        "open-cas",
        &[
            ("seq-cutoff.policy", "always"),
            ("seq-cutoff.threshold", "4096"),
        ],
    );
    assert_eq!(kib.settings.sequential_cutoff_bytes, Some(4 << 20));
}

#[test]
fn profiles_have_the_manner_of_their_cache() {
    let of = |name| Profile::named(name).expect("a profile").settings();
    let bcache = of("bcache");
    assert_eq!(
        (
            bcache.dirty_low_percent,
            bcache.dirty_high_percent,
            bcache.dirty_limit_percent
        ),
        (10, 40, 70)
    );
    assert_eq!(
        bcache.congestion_write,
        Some(Nanos(20 * Nanos::MILLISECOND.0))
    );
    assert_eq!(of("dm-cache").write_admission, Admission::SECOND_TOUCH);
    assert_eq!(of("dm-writecache").read_admission.touches(), 15);
    for name in ["flashcache", "enhanceio", "open-cas"] {
        assert_eq!(of(name).commit, Commit::Write, "{name}");
    }
    let gflash = Settings {
        commit: Commit::Memory,
        memory_buffer_bytes: 4 << 30,
        read_admission: Admission::SECOND_TOUCH,
        ..Settings::default()
    };
    assert_eq!(of("gflash"), gflash);
    assert_eq!(of("vcache").dirty_high_percent, 50);
    assert_eq!(of("vcache").writeback_policy, WritebackPolicy::Timed);
    assert_eq!(first_mode(Some(&dm_cache::PROFILE)), Mode::Writeback);
    assert_eq!(first_mode(None), Mode::Writethrough);
}

#[test]
fn limits_make_way_for_each_other() {
    let flashcache = applied("flashcache", &[("dirty_thresh_pct", "90")]).settings;
    assert_eq!(
        (
            flashcache.dirty_low_percent,
            flashcache.dirty_high_percent,
            flashcache.dirty_limit_percent
        ),
        (90, 90, 90)
    );
    let enhanceio = applied("enhanceio", &[("dirty_high_threshold", "100")]);
    assert_eq!(
        (
            enhanceio.settings.dirty_high_percent,
            enhanceio.settings.dirty_limit_percent
        ),
        (90, 90)
    );
    assert!(enhanceio.notes[0].contains("enhanceio.dirty_high_threshold: 100 % is taken as 90 %"));
    let bcache = applied("bcache", &[("cutoff_writeback_sync", "20")]).settings;
    assert_eq!(
        (bcache.dirty_high_percent, bcache.dirty_limit_percent),
        (20, 20)
    );
}

#[test]
fn the_order_in_which_settings_are_given_does_not_matter() {
    let one = [
        ("promotion.policy", "nhit"),
        ("promotion-nhit.threshold", "7"),
    ];
    let other = [one[1], one[0]];
    let settings = applied("open-cas", &one).settings;
    assert_eq!(settings, applied("open-cas", &other).settings);
    assert_eq!(settings.write_admission.touches(), 7);
    assert_eq!(
        applied("open-cas", &one[..1])
            .settings
            .read_admission
            .touches(),
        3
    );
    let never = [
        ("seq-cutoff.policy", "never"),
        ("seq-cutoff.threshold", "64"),
    ];
    assert_eq!(
        applied("open-cas", &never).settings.sequential_cutoff_bytes,
        None
    );
}

#[test]
fn modes_are_asked_for_by_their_names_there() {
    for (name, setting, value, mode) in [
        ("bcache", "cache_mode", "writearound", Mode::Readonly),
        ("bcache", "cache_mode", "none", Mode::Passthrough),
        ("dm-cache", "policy", "cleaner", Mode::Passthrough),
        ("dm-writecache", "cleaner", "1", Mode::Passthrough),
        ("flashcache", "cache_mode", "thru", Mode::Writethrough),
        ("enhanceio", "mode", "ro", Mode::Readonly),
        ("open-cas", "cache-mode", "wa", Mode::Writearound),
        ("open-cas", "cache-mode", "wo", Mode::Writeback),
    ] {
        assert_eq!(
            applied(name, &[(setting, value)]).mode,
            Some(mode),
            "{name} {value}"
        );
    }
}

#[test]
fn what_is_wrong_is_said_with_the_nearest_name() {
    let said = Profile::named("bcash").expect_err("there is none");
    assert!(
        said.contains("did you mean `bcache`?") && said.contains("open-cas"),
        "{said}"
    );
    let said = refused("bcache", &[("sequental_cutoff", "4M")]);
    assert!(said.contains("did you mean `sequential_cutoff`?"), "{said}");
    let said = refused("bcache", &[("writeback_percent", "50")]);
    assert_eq!(
        said,
        "bcache.writeback_percent: `50` is not a whole number from 0 to 40"
    );
    let said = refused("bcache", &[("cache_mode", "wt")]);
    assert!(
        said.contains("`wt` is not one of writethrough, writeback"),
        "{said}"
    );
    let said = refused("gflash", &[("anything", "1")]);
    assert_eq!(said, "no setting of gflash is publicly documented");
    let said = refused(
        "flashcache",
        &[("fallow_delay", "1"), ("fallow_delay", "2")],
    );
    assert_eq!(said, "`fallow_delay` is given twice");
    for value in ["", "-1", "4.5.6M", "4X", "5G", "many"] {
        refused("bcache", &[("sequential_cutoff", value)]);
    }
}

#[test]
fn a_live_change_says_what_of_ours_changed() {
    let mut settings = Profile::named("bcache").expect("a profile").settings();
    let changed = change(&mut settings, "bcache.writeback_percent", "20").expect("it changes");
    assert_eq!(changed.changed, [("dirty-low", "20 %".to_owned())]);
    let all = change(&mut settings.clone(), "bcache.writeback_percent", "0").expect("it changes");
    assert!(all.changed.contains(&("writeback", "cleaner".to_owned())));
    assert_eq!(settings.dirty_low_percent, 20);
    let before = settings.clone();
    for key in [
        "bcache.writeback_percent",
        "bcash.writeback_percent",
        "bcache.",
        ".",
        "bcache",
    ] {
        change(&mut settings, key, "200").expect_err(key);
    }
    assert_eq!(settings, before);
    let changed = change(&mut settings, "open-cas.seq-cutoff.threshold", "64").expect("it changes");
    assert_eq!(
        changed.changed,
        [("sequential-cutoff", "64 KiB".to_owned())]
    );
}

/// A profile as docs/profiles.md has it.
fn section(profile: &Profile) -> String {
    let mut out = format!(
        "## {}\n\n{}. Source: {}.\n\n",
        profile.name, profile.title, profile.source
    );
    let defaults = shown(&Settings::default());
    let sets: Vec<String> = shown(&profile.settings())
        .into_iter()
        .filter(|one| !defaults.contains(one))
        .map(|(name, value)| format!(", `{name}` {value}"))
        .collect();
    let _ = writeln!(
        out,
        "Sets: mode `{}` of a volume that has none yet{}.\n",
        profile.mode.name(),
        sets.concat()
    );
    for remark in profile.remarks {
        let _ = writeln!(out, "- {remark}");
    }
    if profile.foreign.is_empty() {
        return out;
    }
    out += "\n| setting | value there | default there | here |\n|---|---|---|---|\n";
    for foreign in profile.foreign {
        let initial = match foreign.initial {
            Initial::Taken(value) => format!("`{value}`, part of the profile"),
            Initial::Left(value) => format!("`{value}`"),
            Initial::None => String::new(),
        };
        let here = if foreign.has_meaning() {
            format!("`{}`: {}", foreign.ours().join("`, `"), foreign.how)
        } else {
            format!("none: {}", foreign.how)
        };
        let _ = writeln!(
            out,
            "| `{}` | {} | {initial} | {here} |",
            foreign.name, foreign.value
        );
    }
    out
}

/// With FOREBAY_WRITE_DOCUMENTS in the environment the tables are written instead.
#[test]
fn the_document_says_what_the_profiles_do() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/profiles.md");
    let document = std::fs::read_to_string(path).expect("the document");
    let (head, _) = document
        .split_once("## bcache\n")
        .expect("the first profile");
    let sections: Vec<String> = ALL.into_iter().map(section).collect();
    let whole = format!("{head}{}", sections.join("\n"));
    if std::env::var_os("FOREBAY_WRITE_DOCUMENTS").is_some() {
        std::fs::write(path, whole).expect("it can be written");
    } else {
        assert!(
            document == whole,
            "docs/profiles.md is not of this code: FOREBAY_WRITE_DOCUMENTS=1 cargo test -p forebay profiles"
        );
    }
}
