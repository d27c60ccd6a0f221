//! The tables.

use std::fmt::Write as _;

use super::candidates::Role;
use super::leave_out::{CandidateAt, Results};

const HEADING: &str = "\
| trace | kind | cache, % of its blocks | default | chosen without this trace | `s3-fifo` | `2q` | ideal S3-FIFO | best known | write amplification | of `s3-fifo` |
|---|---|---|---|---|---|---|---|---|---|---|
";

const CANDIDATES_HEADING: &str = "\
| candidate | misses | above the best known | most above `s3-fifo` | write amplification | at worst | chosen, of the traces left out |
|---|---|---|---|---|---|---|
";

const PARTS_HEADING: &str = "\
| without | misses | traces with more, fewer | most saved | most cost | write amplification |
|---|---|---|---|---|---|
";

/// A difference of misses that counts as one.
const A_DIFFERENCE: f64 = 0.0005;

/// All tables.
pub(super) fn tables(results: &Results) -> String {
    let mut text = HEADING.to_owned();
    per_trace(results, &mut text).expect("a string takes everything");
    text.push('\n');
    text.push_str(CANDIDATES_HEADING);
    per_candidate(results, &mut text).expect("a string takes everything");
    text.push('\n');
    text.push_str(PARTS_HEADING);
    per_part(results, &mut text).expect("a string takes everything");
    text
}

fn per_trace(results: &Results, text: &mut String) -> std::fmt::Result {
    let (default, plain) = (0, results.plain());
    let two_q = results.named("`2q`");
    let chosen: Vec<CandidateAt> = (0..results.traces.len())
        .map(|trace| results.chosen_without(trace))
        .collect();
    for (at, measured) in results.traces.iter().enumerate() {
        let sizes = measured.sizes.iter().map(|size| size.percent.to_string());
        let sizes: Vec<String> = sizes.collect();
        writeln!(
            text,
            "| {} | {} | {} | {:.4} | {:.4}, {} | {:.4} | {:.4} | {:.4} | {:.4} | {:.3} | {:.3} |",
            measured.trace.name,
            measured.trace.kind,
            sizes.join(", "),
            results.misses(at, default),
            results.misses(at, chosen[at]),
            results.candidates[chosen[at]].name,
            results.misses(at, plain),
            results.misses(at, two_q),
            results.ideal(at),
            results.best_known(at),
            results.amplification(at, default),
            results.amplification(at, plain),
        )?;
    }
    let misses = |candidate| results.mean(|trace| results.misses(trace, candidate));
    let amplification = |candidate| results.mean(|trace| results.amplification(trace, candidate));
    writeln!(
        text,
        "| mean of {} | | | {:.4} | {:.4} | {:.4} | {:.4} | {:.4} | {:.4} | {:.3} | {:.3} |",
        results.traces.len(),
        misses(default),
        results.mean(|trace| results.misses(trace, chosen[trace])),
        misses(plain),
        misses(two_q),
        results.mean(|trace| results.ideal(trace)),
        results.mean(|trace| results.best_known(trace)),
        amplification(default),
        amplification(plain),
    )?;
    let most = |above: &dyn Fn(usize) -> f64| (0..chosen.len()).map(above).fold(f64::MIN, f64::max);
    writeln!(
        text,
        "| most above `s3-fifo` | | | {:+.4} | {:+.4} | | {:+.4} | | | | |",
        most(&|trace| results.above_plain(trace, default)),
        most(&|trace| results.above_plain(trace, chosen[trace])),
        most(&|trace| results.above_plain(trace, two_q)),
    )
}

fn per_candidate(results: &Results, text: &mut String) -> std::fmt::Result {
    let traces = results.traces.len();
    for (at, candidate) in results.candidates.iter().enumerate() {
        if candidate.role == Role::Without {
            continue;
        }
        let worst = results.worst(at).map_or(String::new(), |(trace, above)| {
            format!("{above:+.4}, {}", results.traces[trace].trace.name)
        });
        let amplifications = (0..traces).map(|trace| results.amplification(trace, at));
        let chosen = (0..traces).filter(|trace| results.chosen_without(*trace) == at);
        writeln!(
            text,
            "| {} | {:.4} | {:.4} | {worst} | {:.3} | {:.3} | {} |",
            candidate.name,
            results.mean(|trace| results.misses(trace, at)),
            results.mean(|trace| results.regret(trace, at)),
            results.mean(|trace| results.amplification(trace, at)),
            amplifications.fold(0.0, f64::max),
            chosen.count(),
        )?;
    }
    Ok(())
}

/// The default, and what it is without each of its parts.
fn per_part(results: &Results, text: &mut String) -> std::fmt::Result {
    let default = 0;
    writeln!(
        text,
        "| nothing: the default | {:.4} | | | | {:.3} |",
        results.mean(|trace| results.misses(trace, default)),
        results.mean(|trace| results.amplification(trace, default)),
    )?;
    for (at, candidate) in results.candidates.iter().enumerate() {
        if candidate.role != Role::Without && at != results.plain() {
            continue;
        }
        let saved: Vec<f64> = (0..results.traces.len())
            .map(|trace| results.misses(trace, at) - results.misses(trace, default))
            .collect();
        let furthest = |of: fn(f64, f64) -> f64| {
            let furthest = saved.iter().copied().reduce(of).unwrap_or(0.0);
            let trace = saved.iter().position(|saved| *saved == furthest);
            let name = trace.map_or("", |trace| results.traces[trace].trace.name);
            (furthest, name)
        };
        let (most_saved, where_saved) = furthest(f64::max);
        let (least_saved, where_cost) = furthest(f64::min);
        let name = match candidate.role {
            Role::Without => candidate.name.as_str(),
            _ => "`adaptive`: plain `s3-fifo`",
        };
        writeln!(
            text,
            "| {name} | {:.4} | {}, {} | {:.4}, {where_saved} | {:.4}, {where_cost} | {:.3} |",
            results.mean(|trace| results.misses(trace, at)),
            saved.iter().filter(|saved| **saved > A_DIFFERENCE).count(),
            saved.iter().filter(|saved| **saved < -A_DIFFERENCE).count(),
            most_saved.max(0.0),
            (0.0 - least_saved).max(0.0),
            results.mean(|trace| results.amplification(trace, at)),
        )?;
    }
    Ok(())
}
