//! Bugs that a part of a seed's steps shows. Seeds that show them by themselves are so rare that a
//! change of the engine's timing takes the next one out of reach: of 60,000 seeds none.

use forebay_engine::planted::{Bug, plant};
use forebay_sim::{Options, Plan, generate, run};

/// The part of a seed that shows a bug, for which there is one: the names of its steps are those of
/// `forebay-sim replay SEED --keep`.
pub(crate) fn part_of(bug: Bug) -> Option<Plan> {
    match bug {
        // The header has to be torn that says where a tail is now, and nothing else may be to be
        // decided.
        Bug::TailsUnsaid => Some(plan(
            15_307_945,
            &[
                10, 16, 71, 111, 116, 121, 123, 132, 141, 142, 143, 175, 176, 177, 178, 179, 180,
                184, 185, 194, 195, 196, 197, 198, 199, 200, 202, 203, 204, 205, 206, 207, 231,
                233, 238, 239, 240, 241, 242, 244, 245, 278, 279, 280, 281, 284, 288, 290,
            ],
        )),
        _ => None,
    }
}

fn plan(seed: u64, steps: &[u32]) -> Plan {
    let mut plan = generate::plan(seed);
    plan.steps.retain(|(name, _)| steps.contains(name));
    plan
}

/// Whether a plan shows the bug that is planted, and holds without it.
pub(crate) fn shows(plan: &Plan, bug: Bug) -> bool {
    let fails = || run(plan, Options::default()).violation.is_some();
    let shows = fails();
    plant(None);
    let holds = !fails();
    plant(Some(bug));
    shows && holds
}
