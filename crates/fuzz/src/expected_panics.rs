//! Panics that are caught are noted and not printed. The engine's tests include this file too.

use std::cell::{Cell, RefCell};
use std::panic::{AssertUnwindSafe, catch_unwind};

thread_local! {
    /// Where the last panic was, of those that are expected.
    static LAST: RefCell<String> = const { RefCell::new(String::new()) };
    static EXPECTED: Cell<bool> = const { Cell::new(false) };
}

/// From now on, panics within [`caught`] are not printed.
pub fn keep_quiet() {
    let otherwise = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |info| {
        if !EXPECTED.get() {
            return otherwise(info);
        }
        let place = info.location().map(ToString::to_string);
        LAST.set(place.unwrap_or_default());
    }));
}

/// Returns the result of `attempt`, or the place and the text of its panic.
///
/// # Errors
/// If it panics.
pub fn caught<T>(attempt: impl FnOnce() -> T) -> Result<T, (String, String)> {
    EXPECTED.set(true);
    let result = catch_unwind(AssertUnwindSafe(attempt));
    EXPECTED.set(false);
    result.map_err(|panic| {
        let text = panic.downcast_ref::<String>().cloned();
        let text = text.or_else(|| panic.downcast_ref::<&str>().map(|text| (*text).to_owned()));
        (LAST.take(), text.unwrap_or_default())
    })
}
