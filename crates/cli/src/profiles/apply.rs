//! Foreign settings, applied.

use forebay_engine::{Mode, Settings};

use super::profile::{Foreign, Initial, Profile};
use super::target::Target;
use crate::settings::differences;

/// A foreign setting as somebody gave it.
#[derive(Clone, Debug)]
pub(crate) struct Given {
    pub(crate) name: String,
    pub(crate) value: String,
    /// The line of the configuration file where it is, if it is there.
    pub(crate) line: Option<usize>,
}

/// A profile with the settings that were given for it.
#[derive(Debug)]
pub(crate) struct Applied {
    pub(crate) settings: Settings,
    /// The mode that one of them asks for.
    pub(crate) mode: Option<Mode>,
    /// Which of them mean nothing here or not quite the same, and why.
    pub(crate) notes: Vec<String>,
}

/// A fault of a given setting.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Fault {
    pub(crate) line: Option<usize>,
    pub(crate) message: String,
}

/// Changes by a foreign setting while the cache runs.
#[derive(Debug)]
pub(crate) struct Change {
    /// Ours that are others now, by name.
    pub(crate) changed: Vec<(&'static str, String)>,
    pub(crate) mode: Option<Mode>,
    pub(crate) notes: Vec<String>,
}

impl Profile {
    /// The profile, with these of its settings in place of their defaults, whatever their order.
    ///
    /// # Errors
    /// A setting that it does not have, or that was given twice, or a value that is none.
    pub(crate) fn apply(&self, given: &[Given]) -> Result<Applied, Fault> {
        let fault = |given: &Given, message: String| Fault {
            line: given.line,
            message,
        };
        for (at, one) in given.iter().enumerate() {
            self.setting(&one.name)
                .map_err(|message| fault(one, message))?;
            if given[..at].iter().any(|earlier| earlier.name == one.name) {
                return Err(fault(one, format!("`{}` is given twice", one.name)));
            }
        }
        let mut target = Target::new(Settings::default());
        let based = target.assign(self.base);
        based.map_err(|message| Fault {
            line: None,
            message,
        })?;
        for foreign in self.foreign {
            let wanted = given.iter().find(|given| given.name == foreign.name);
            let applied = match (wanted, foreign.initial) {
                (Some(given), _) => self.apply_one(foreign, &given.value, &mut target),
                (None, Initial::Taken(value)) => self.apply_one(foreign, value, &mut target),
                (None, _) => Ok(()),
            };
            applied.map_err(|message| Fault {
                line: wanted.and_then(|given| given.line),
                message,
            })?;
        }
        let valid = target.settings.validate();
        valid.map_err(|message| Fault {
            line: None,
            message: format!("{}: {message}", self.name),
        })?;
        Ok(Applied {
            settings: target.settings,
            mode: target.mode,
            notes: target.notes,
        })
    }

    fn apply_one(&self, foreign: &Foreign, value: &str, target: &mut Target) -> Result<(), String> {
        let name = format!("{}.{}", self.name, foreign.name);
        if !foreign.has_meaning() {
            let note = format!("{name} has no meaning here: {}", foreign.how);
            target.notes.push(note);
            return Ok(());
        }
        let earlier = target.notes.len();
        let applied = foreign.apply(target, value);
        applied.map_err(|message| format!("{name}: {message}"))?;
        for note in &mut target.notes[earlier..] {
            *note = format!("{name}: {note}");
        }
        Ok(())
    }
}

/// Applies `PROFILE.SETTING` to settings in force, whatever profile they are of.
///
/// # Errors
/// A profile or setting that does not exist, or a value that is none; nothing is changed then.
pub(crate) fn change(settings: &mut Settings, key: &str, value: &str) -> Result<Change, String> {
    let (profile, name) = key.split_once('.').unwrap_or((key, ""));
    let profile = Profile::named(profile)?;
    let foreign = profile.setting(name)?;
    let mut target = Target::new(settings.clone());
    profile.apply_one(foreign, value, &mut target)?;
    target.settings.validate()?;
    let changed = differences(settings, &target.settings)
        .into_iter()
        .map(|difference| (difference.name, difference.after))
        .collect();
    *settings = target.settings;
    Ok(Change {
        changed,
        mode: target.mode,
        notes: target.notes,
    })
}
