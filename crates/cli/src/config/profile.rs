//! The profile that arguments and a file choose, and the settings of that cache.

use std::collections::BTreeMap;

use forebay_engine::{Mode, Settings};
use serde::Deserialize;
use toml::{Spanned, Value};

use crate::args::ProfileArgs;
use crate::profiles::{Fault, Given, Profile};

/// The section `[profile]`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub(super) struct FileProfile {
    name: Spanned<String>,
    #[serde(default)]
    settings: BTreeMap<Spanned<String>, Value>,
}

/// Settings chosen by a profile, before our own are laid over it.
#[derive(Debug, Default)]
pub(super) struct Chosen {
    pub(super) profile: Option<&'static Profile>,
    pub(super) settings: Settings,
    pub(super) mode: Option<Mode>,
    pub(super) notes: Vec<String>,
}

/// The choice of the arguments.
pub(super) fn of_args(args: &ProfileArgs) -> Result<Chosen, Fault> {
    of_file(args, None, &|_| 1)
}

/// The choice of a file, and of the arguments after it. `line` is the number of the line with a
/// byte.
pub(super) fn of_file(
    args: &ProfileArgs,
    file: Option<&FileProfile>,
    line: &dyn Fn(usize) -> usize,
) -> Result<Chosen, Fault> {
    let Some(profile) = named(args, file, line)? else {
        return match args.set.first() {
            Some(set) => fail(
                None,
                format!(
                    "--set {set} is of no cache: say which with --profile, or in the file's [profile]"
                ),
            ),
            None => Ok(Chosen::default()),
        };
    };
    let mut given = Vec::new();
    for (name, value) in file.iter().flat_map(|file| &file.settings) {
        let at = line(name.span().start);
        flatten(name.get_ref(), value, at, &mut given)?;
    }
    let of_args: Vec<Given> = args
        .set
        .iter()
        .map(|set| of_arg(set))
        .collect::<Result<_, _>>()?;
    // The command line wins over the file.
    given.retain(|one| of_args.iter().all(|other| other.name != one.name));
    given.extend(of_args);
    let applied = profile.apply(&given)?;
    Ok(Chosen {
        profile: Some(profile),
        settings: applied.settings,
        mode: applied.mode,
        notes: applied.notes,
    })
}

fn named(
    args: &ProfileArgs,
    file: Option<&FileProfile>,
    line: &dyn Fn(usize) -> usize,
) -> Result<Option<&'static Profile>, Fault> {
    let place = file.map(|file| line(file.name.span().start));
    let of_file = file.map(|file| {
        Profile::named(file.name.get_ref()).map_err(|message| Fault {
            line: place,
            message,
        })
    });
    let of_file = of_file.transpose()?;
    let of_args = args.profile.as_deref().map(|name| {
        Profile::named(name).map_err(|message| Fault {
            line: None,
            message,
        })
    });
    let of_args = of_args.transpose()?;
    match (of_file, of_args) {
        (Some(file), Some(args)) if file.name != args.name => fail(
            place,
            format!(
                "the file is in the manner of {}, and --profile says {}",
                file.name, args.name
            ),
        ),
        (file, args) => Ok(file.or(args)),
    }
}

fn of_arg(set: &str) -> Result<Given, Fault> {
    match set.split_once('=') {
        Some((name, value)) => Ok(Given {
            name: name.trim().to_owned(),
            value: value.trim().to_owned(),
            line: None,
        }),
        None => fail(None, format!("--set {set} is not SETTING=VALUE")),
    }
}

/// A table's members are settings with its name before theirs.
fn flatten(name: &str, value: &Value, line: usize, given: &mut Vec<Given>) -> Result<(), Fault> {
    let value = match value {
        Value::String(text) => text.clone(),
        Value::Integer(number) => number.to_string(),
        Value::Float(number) => number.to_string(),
        Value::Boolean(yes) => u8::from(*yes).to_string(),
        Value::Table(members) => {
            return members.iter().try_for_each(|(member, value)| {
                flatten(&format!("{name}.{member}"), value, line, given)
            });
        }
        Value::Array(_) | Value::Datetime(_) => {
            return fail(
                Some(line),
                format!("`{name}` has no value that a setting can have"),
            );
        }
    };
    given.push(Given {
        name: name.to_owned(),
        value,
        line: Some(line),
    });
    Ok(())
}

fn fail<T>(line: Option<usize>, message: String) -> Result<T, Fault> {
    Err(Fault { line, message })
}
