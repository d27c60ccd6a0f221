//! Guesses of a mistyped name.

/// The least likeness of a name to a known one for it to be suggested, 0 to 1 (Jaro-Winkler).
const ALIKE: f64 = 0.8;

/// The known name that is most like this one, if any is like it.
pub(crate) fn nearest<'a>(name: &str, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let likeness = |candidate: &str| strsim::jaro_winkler(name, candidate);
    known
        .into_iter()
        .max_by(|a, b| likeness(a).total_cmp(&likeness(b)))
        .filter(|nearest| likeness(nearest) >= ALIKE)
}

/// The nearest name as the end of a sentence: `, did you mean `device`?`, or nothing.
pub(crate) fn suggestion<'a>(name: &str, known: impl IntoIterator<Item = &'a str>) -> String {
    nearest(name, known)
        .map(|nearest| format!(", did you mean `{nearest}`?"))
        .unwrap_or_default()
}
