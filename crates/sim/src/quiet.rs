//! Runs what may panic: a broken assertion in the engine is a violation like any other, and a
//! search over thousands of seeds prints only what it found.

use std::cell::{Cell, RefCell};
use std::panic::{AssertUnwindSafe, catch_unwind, set_hook, take_hook};
use std::sync::Once;

use crate::outcome::{Outcome, Violation};

thread_local! {
    static CATCHING: Cell<bool> = const { Cell::new(false) };
    static PANIC: RefCell<String> = const { RefCell::new(String::new()) };
    /// The trace so far, which a panic would take with it.
    static NOTES: RefCell<Vec<String>> = const { RefCell::new(Vec::new()) };
}

static HOOK: Once = Once::new();

fn install_hook() {
    HOOK.call_once(|| {
        let usual = take_hook();
        set_hook(Box::new(move |info| {
            if CATCHING.get() {
                PANIC.set(info.to_string());
            } else {
                usual(info);
            }
        }));
    });
}

/// Keeps a line of the trace.
pub(crate) fn note(line: String) {
    NOTES.with_borrow_mut(|notes| notes.push(line));
}

/// Runs `body`, which hands over its outcome; a panic is an outcome too.
pub(crate) fn catch(body: impl FnOnce(&mut dyn FnMut(Outcome))) -> Outcome {
    install_hook();
    NOTES.take();
    let mut outcome = Outcome::default();
    let was = CATCHING.replace(true);
    let result = catch_unwind(AssertUnwindSafe(|| body(&mut |done| outcome = done)));
    CATCHING.set(was);
    if result.is_err() {
        outcome.violation = Some(Violation {
            step: u32::MAX,
            what: PANIC.take(),
        });
        outcome.trace = NOTES.take();
    }
    outcome
}
