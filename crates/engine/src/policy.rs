//! Policies: what is let in, where it goes, what stays.

pub(crate) mod bypass;
pub(crate) mod clock_hand;
pub(crate) mod gate;
pub(crate) mod ghost;
pub(crate) mod replacement;
pub(crate) mod sequential;
pub(crate) mod touches;
pub(crate) mod trials;
