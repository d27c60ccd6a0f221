//! Medians and spreads over repetitions.

use serde::{Deserialize, Serialize};

/// The middle and the ends of some figures.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Spread {
    /// Half are below, half above.
    pub median: f64,
    /// The least.
    pub min: f64,
    /// The most.
    pub max: f64,
}

impl Spread {
    /// Of at least one figure.
    #[must_use]
    pub fn of(figures: impl IntoIterator<Item = f64>) -> Option<Spread> {
        let mut sorted: Vec<f64> = figures.into_iter().filter(|one| one.is_finite()).collect();
        sorted.sort_by(f64::total_cmp);
        let (min, max) = (*sorted.first()?, *sorted.last()?);
        let middle = sorted.len() / 2;
        let median = if sorted.len() % 2 == 1 {
            sorted[middle]
        } else {
            f64::midpoint(sorted[middle - 1], sorted[middle])
        };
        Some(Spread { median, min, max })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_middle_of_odd_and_even_counts() {
        let odd = Spread::of([5.0, 1.0, 3.0]).unwrap();
        assert_eq!((odd.median, odd.min, odd.max), (3.0, 1.0, 5.0));
        assert_eq!(Spread::of([4.0, 2.0]).unwrap().median, 3.0);
    }

    #[test]
    fn nothing_has_no_middle() {
        assert_eq!(Spread::of([]), None);
        assert_eq!(Spread::of([f64::NAN]), None);
    }
}
