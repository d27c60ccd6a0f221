//! The choice on all traces but one, and its worth on that one.

use super::candidates::Role;
use super::{Candidate, Measured};
use crate::policies::Point;

/// A choice misses at most so much more than plain S3-FIFO on any trace it is chosen on.
pub(super) const MOST_ABOVE_PLAIN: f64 = 0.01;
/// It writes at most so much more than plain S3-FIFO, per block let in, on the mean.
const MOST_WRITTEN_ABOVE_PLAIN: f64 = 0.01;

/// Results of all candidates on all traces.
#[derive(Clone, Debug)]
pub struct Results {
    /// The candidates.
    pub candidates: Vec<Candidate>,
    /// The results of each trace.
    pub traces: Vec<Measured>,
}

/// A trace, by its place.
pub(super) type TraceAt = usize;
/// A candidate, by its place.
pub(super) type CandidateAt = usize;

impl Results {
    /// Misses for each access, the mean over the sizes of a trace.
    #[must_use]
    pub fn misses(&self, trace: TraceAt, candidate: CandidateAt) -> f64 {
        self.of_points(trace, candidate, Point::miss_ratio)
    }

    /// Bytes written to the cache device for each let in, the mean over the sizes of a trace.
    #[must_use]
    pub fn amplification(&self, trace: TraceAt, candidate: CandidateAt) -> f64 {
        self.of_points(trace, candidate, Point::write_amplification)
    }

    fn of_points(&self, trace: TraceAt, candidate: CandidateAt, of: fn(&Point) -> f64) -> f64 {
        let sizes = self.traces[trace].sizes.iter();
        mean(sizes.map(|size| of(&size.points[candidate])))
    }

    /// Misses of ideal S3-FIFO with as many blocks.
    #[must_use]
    pub fn ideal(&self, trace: TraceAt) -> f64 {
        let sizes = self.traces[trace].sizes.iter();
        mean(sizes.map(|size| size.points[0].ideal_miss_ratio()))
    }

    /// The fewest misses of any policy at each size, ideal or the engine's.
    #[must_use]
    pub fn best_known(&self, trace: TraceAt) -> f64 {
        let sizes = self.traces[trace].sizes.iter();
        mean(sizes.map(|size| {
            let engine = size.points.iter().map(|point| point.misses).min();
            let misses = engine.map_or(size.best_ideal_misses, |engine| {
                engine.min(size.best_ideal_misses)
            });
            misses as f64 / size.points[0].accesses.max(1) as f64
        }))
    }

    /// The misses of a candidate above those of the best known policy.
    #[must_use]
    pub fn regret(&self, trace: TraceAt, candidate: CandidateAt) -> f64 {
        self.misses(trace, candidate) - self.best_known(trace)
    }

    /// The misses of a candidate above those of plain S3-FIFO.
    #[must_use]
    pub fn above_plain(&self, trace: TraceAt, candidate: CandidateAt) -> f64 {
        self.misses(trace, candidate) - self.misses(trace, self.plain())
    }

    /// The trace on which a candidate is furthest above plain S3-FIFO, and by how much.
    #[must_use]
    pub fn worst(&self, candidate: CandidateAt) -> Option<(TraceAt, f64)> {
        let all = (0..self.traces.len()).map(|trace| (trace, self.above_plain(trace, candidate)));
        all.max_by(|one, other| one.1.total_cmp(&other.1))
    }

    /// Where plain S3-FIFO is among the candidates.
    pub(super) fn plain(&self) -> CandidateAt {
        let mut candidates = self.candidates.iter();
        let plain = candidates.position(|candidate| candidate.role == Role::Plain);
        plain.expect("it is always compared")
    }

    /// Where the candidate of this name is.
    pub(super) fn named(&self, name: &str) -> CandidateAt {
        let mut candidates = self.candidates.iter();
        let named = candidates.position(|candidate| candidate.name == name);
        named.expect("it is always compared")
    }

    /// The choice on all traces but this one. Of the candidates that keep to the limits there, it
    /// has the least misses above the best known on the mean and above plain S3-FIFO at worst, both
    /// together. By the mean alone a little saved on many traces would pay for much that is lost on
    /// another.
    #[must_use]
    pub fn chosen_without(&self, left_out: TraceAt) -> CandidateAt {
        let others = || (0..self.traces.len()).filter(|trace| *trace != left_out);
        let written = |candidate| mean(others().map(|trace| self.amplification(trace, candidate)));
        let plain = self.plain();
        let keeps_to_limits = |candidate: &CandidateAt| {
            others().all(|trace| self.above_plain(trace, *candidate) <= MOST_ABOVE_PLAIN)
                && written(*candidate) <= written(plain) + MOST_WRITTEN_ABOVE_PLAIN
        };
        let loss = |candidate| {
            let regret = mean(others().map(|trace| self.regret(trace, candidate)));
            let above = others().map(|trace| self.above_plain(trace, candidate));
            regret + above.fold(0.0, f64::max)
        };
        let choices = (0..self.candidates.len())
            .filter(|candidate| self.candidates[*candidate].role.may_be_chosen())
            .filter(keeps_to_limits);
        let least = choices.min_by(|one, other| loss(*one).total_cmp(&loss(*other)));
        least.expect("plain S3-FIFO keeps to them")
    }

    /// The mean of something over all traces.
    pub(super) fn mean(&self, of: impl Fn(TraceAt) -> f64) -> f64 {
        mean((0..self.traces.len()).map(of))
    }
}

fn mean(values: impl Iterator<Item = f64>) -> f64 {
    let (mut sum, mut count) = (0.0, 0u32);
    for value in values {
        sum += value;
        count += 1;
    }
    sum / f64::from(count.max(1))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::crossvalidate::generated::Load;
    use crate::crossvalidate::{AtSize, Named, Source};
    use crate::policies::settings;

    fn point((misses, written_percent): (u64, u64)) -> Point {
        Point {
            size_blocks: 100,
            accesses: 1000,
            misses,
            inserted: misses,
            retained: 0,
            renewed: 0,
            used: 1.0,
            written_bytes: misses * 4096 * written_percent / 100,
            metadata_bytes: 0,
            ideal_misses: 500,
        }
    }

    /// Plain S3-FIFO and two others; what each trace gave is misses of a thousand accesses, and
    /// what was written of what was let in, in percent.
    fn results(traces: &[[(u64, u64); 3]]) -> Results {
        let roles = [Role::Plain, Role::Choice, Role::Choice].into_iter();
        let candidates = roles.map(|role| Candidate {
            name: String::new(),
            role,
            settings: settings(),
        });
        let traces = traces.iter().map(|points| Measured {
            trace: Named {
                name: "a trace",
                kind: "generated",
                source: Source::Generated(Load::Join),
            },
            sizes: vec![AtSize {
                percent: 5,
                best_ideal_misses: 300,
                points: points.map(point).to_vec(),
            }],
        });
        Results {
            candidates: candidates.collect(),
            traces: traces.collect(),
        }
    }

    const ALIKE: [(u64, u64); 3] = [(400, 110), (400, 110), (400, 110)];

    #[test]
    fn the_trace_left_out_has_no_say() {
        let better = [(400, 110), (350, 110), (390, 110)];
        let results = results(&[ALIKE, better, [(400, 110), (900, 110), (300, 110)]]);
        assert_eq!(results.chosen_without(2), 1);
        assert_eq!(
            results.chosen_without(1),
            2,
            "the other misses far more on the third"
        );
    }

    #[test]
    fn the_worst_trace_counts_as_much_as_the_mean() {
        let better = [(400, 110), (390, 110), (392, 110)];
        let worse = [(400, 110), (406, 110), (400, 110)];
        let results = results(&[ALIKE, better, better, worse]);
        assert_eq!(results.chosen_without(0), 2, "the other loses 0.006 once");
        assert_eq!(results.chosen_without(3), 1, "which nobody sees here");
    }

    #[test]
    fn what_is_far_above_plain_on_a_trace_is_not_chosen() {
        let far = [(400, 110), (300, 110), (395, 110)];
        let results = results(&[ALIKE, far, [(400, 110), (411, 110), (400, 110)]]);
        assert_eq!(
            results.chosen_without(0),
            2,
            "the other saves more, and costs 0.011 once"
        );
    }

    #[test]
    fn what_writes_more_than_plain_is_not_chosen() {
        let results = results(&[ALIKE, [(400, 110), (300, 112), (395, 110)]]);
        assert_eq!(results.chosen_without(0), 2);
    }

    #[test]
    fn the_best_known_is_the_best_of_all() {
        let results = results(&[ALIKE, [(400, 110), (200, 110), (400, 110)]]);
        assert!((results.best_known(0) - 0.3).abs() < 1e-9, "the ideal");
        assert!((results.best_known(1) - 0.2).abs() < 1e-9, "the engine");
    }
}
