//! The settings compared.

use forebay_engine::{Laboratory, Replacement, Settings};

use crate::policies::settings;

/// The role of a candidate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// It may be chosen.
    Choice,
    /// Plain S3-FIFO, which the others are held against; it may be chosen, too.
    Plain,
    /// Another policy, which counts among the best known alone.
    Other,
    /// The default without a part of it.
    Without,
}

impl Role {
    /// Whether it may be chosen.
    pub(super) fn may_be_chosen(self) -> bool {
        matches!(self, Role::Choice | Role::Plain)
    }
}

/// Settings by name.
#[derive(Clone, Debug)]
pub struct Candidate {
    /// Its name.
    pub name: String,
    /// Its role.
    pub role: Role,
    /// The engine's settings.
    pub settings: Settings,
}

/// Margins of `adaptive`, in misses.
const MARGINS: [u32; 6] = [1, 4, 8, 16, 32, 64];

fn candidate(name: &str, role: Role, change: impl FnOnce(&mut Settings)) -> Candidate {
    let mut settings = settings();
    change(&mut settings);
    Candidate {
        name: name.to_owned(),
        role,
        settings,
    }
}

/// A change of the settings, and what it is called.
type Change = (&'static str, fn(&mut Settings));

/// Other settings of `adaptive` that may be chosen.
const CHANGES: [Change; 7] = [
    ("no eager variant", |all| all.laboratory.eager = false),
    ("no steady variant", |all| all.laboratory.steady = false),
    ("10 copies of a hundred", |all| all.retain_percent = 10),
    ("15 copies of a hundred", |all| all.retain_percent = 15),
    ("probation 5 %", |all| all.probation_percent = 5),
    ("probation 20 %", |all| all.probation_percent = 20),
    ("2 hits on probation", |all| all.promotion_hits = 2),
];

/// Parts that are taken away to see their gain.
const PARTS: [Change; 2] = [
    ("evicted blocks read where they were", |all| {
        all.laboratory.victim_reads = false;
    }),
    ("renewals below the open segment", |all| {
        all.laboratory.renewals_below = false;
    }),
];

/// All of them; the first is the default.
pub(super) fn all() -> Vec<Candidate> {
    let of_margin = |margin| {
        let name = format!("`adaptive`, margin {margin}");
        candidate(&name, Role::Choice, |all| {
            all.laboratory.margin_misses = margin;
        })
    };
    let fixed =
        |name, role, replacement| candidate(name, role, |all| all.replacement = replacement);
    let margin = Laboratory::default().margin_misses;
    let mut all = vec![
        of_margin(margin),
        fixed("`s3-fifo`", Role::Plain, Replacement::S3Fifo),
        fixed("`2q`", Role::Choice, Replacement::TwoQ),
        fixed("`clock`", Role::Other, Replacement::Clock),
        fixed("`fifo`", Role::Other, Replacement::Fifo),
    ];
    let others = MARGINS.into_iter().filter(|other| *other != margin);
    all.extend(others.map(of_margin));
    all.extend(
        CHANGES
            .map(|(what, change)| candidate(&format!("`adaptive`, {what}"), Role::Choice, change)),
    );
    all.extend(PARTS.map(|(part, change)| candidate(part, Role::Without, change)));
    all
}
