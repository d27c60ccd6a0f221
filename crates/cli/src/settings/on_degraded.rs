//! `on-degraded`: what volumes in write-back do while dirty data that is to be on two devices can be
//! on one alone (I28).

use std::str::FromStr;

/// The name of the setting, in the section `[cache]` and of `forebay set`.
pub(crate) const ON_DEGRADED: &str = "on-degraded";

/// See the module.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum OnDegraded {
    /// They go on.
    #[default]
    Continue,
    /// They write through, until there are two devices again.
    Writethrough,
}

impl OnDegraded {
    /// Its name.
    pub(crate) fn name(self) -> &'static str {
        match self {
            OnDegraded::Continue => "continue",
            OnDegraded::Writethrough => "writethrough",
        }
    }
}

impl FromStr for OnDegraded {
    type Err = String;

    fn from_str(text: &str) -> Result<OnDegraded, String> {
        match text {
            "continue" | "default" => Ok(OnDegraded::Continue),
            "writethrough" => Ok(OnDegraded::Writethrough),
            other => Err(format!(
                "on-degraded {}: on-degraded is continue or writethrough",
                other.escape_debug()
            )),
        }
    }
}
