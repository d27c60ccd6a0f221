//! Makes a failing plan small: removes steps as long as it still fails.

use crate::plan::Plan;
use crate::world::{Options, run};

/// The smallest failing plan found with at most `tries` runs. The steps keep their names, and so
/// their own randomness.
#[must_use]
pub fn shrink(plan: &Plan, tries: usize) -> Plan {
    let mut best = plan.clone();
    let Some(wanted) = run(plan, Options::default())
        .violation
        .map(|violation| kind(&violation.what))
    else {
        return best;
    };
    let mut left = tries;
    let mut chunk = best.steps.len().div_ceil(2).max(1);
    while left > 0 {
        let mut at = 0;
        let mut removed = false;
        while at < best.steps.len() && left > 0 {
            let mut smaller = best.clone();
            let end = (at + chunk).min(smaller.steps.len());
            smaller.steps.drain(at..end);
            left -= 1;
            let found = run(&smaller, Options::default()).violation;
            if found.is_some_and(|violation| kind(&violation.what) == wanted) {
                best = smaller;
                removed = true;
            } else {
                at += chunk;
            }
        }
        if chunk == 1 && !removed {
            break;
        }
        chunk = if chunk > 1 { chunk / 2 } else { 1 };
    }
    best
}

/// The kind of a violation: its words without the numbers. A smaller plan that fails in another way
/// is another bug.
fn kind(what: &str) -> String {
    what.chars()
        .filter(|delivery| !delivery.is_ascii_digit())
        .take(40)
        .collect()
}
