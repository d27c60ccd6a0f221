//! Values as other caches write them.

use std::ops::RangeInclusive;

use forebay_engine::Nanos;

/// A whole number within what that cache allows.
pub(super) fn number(text: &str, range: RangeInclusive<u64>) -> Result<u64, String> {
    match text.trim().parse() {
        Ok(number) if range.contains(&number) => Ok(number),
        _ => Err(format!(
            "`{text}` is not a whole number from {} to {}",
            range.start(),
            range.end()
        )),
    }
}

/// 0 or 1.
pub(super) fn switch(text: &str) -> Result<bool, String> {
    match text.trim() {
        "0" => Ok(false),
        "1" => Ok(true),
        _ => Err(format!("`{text}` is not 0 or 1")),
    }
}

/// One of these words, as what it stands for.
pub(super) fn word<T: Copy>(text: &str, words: &[(&str, T)]) -> Result<T, String> {
    let found = words.iter().find(|(word, _)| *word == text.trim());
    found.map(|(_, meaning)| *meaning).ok_or_else(|| {
        let known: Vec<&str> = words.iter().map(|(word, _)| *word).collect();
        format!("`{text}` is not one of {}", known.join(", "))
    })
}

/// A number of microseconds, of which none is no limit.
pub(super) fn limit_us(text: &str) -> Result<Option<Nanos>, String> {
    let micros = number(text, 0..=u64::from(u32::MAX))?;
    Ok((micros > 0).then_some(Nanos(micros * 1_000)))
}

/// A size beyond which something happens, of which 0 is never.
pub(super) fn cutoff(bytes: u64) -> Option<u64> {
    (bytes > 0).then_some(bytes)
}

/// So many milliseconds.
pub(super) fn millis(number: u64) -> Nanos {
    Nanos(number * Nanos::MILLISECOND.0)
}
