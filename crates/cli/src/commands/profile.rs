//! `forebay profile`: which manners there are, and what the settings of other caches mean here.

use std::fmt::Write;

use anyhow::Result;
use forebay_engine::Settings;
use serde_json::{Value, json};

use crate::args::ProfileCommand;
use crate::failure::Usage;
use crate::output;
use crate::profiles::{ALL, Foreign, Initial, Profile};
use crate::report::status::SettingsStatus;
use crate::settings::shown;

pub(crate) fn run(command: &ProfileCommand) -> Result<()> {
    match command {
        ProfileCommand::List { json: true } => {
            let profiles =
                ALL.map(|profile| json!({ "name": profile.name, "title": profile.title }));
            output::line(format_args!("{}", json!({ "profiles": profiles })));
        }
        ProfileCommand::List { json: false } => {
            for profile in ALL {
                output::line(format_args!("{:<14} {}", profile.name, profile.title));
            }
        }
        ProfileCommand::Show { name, json } => {
            let profile = Profile::named(name).map_err(Usage)?;
            if *json {
                output::line(format_args!("{}", as_json(profile)));
            } else {
                output::line(format_args!("{}", page(profile)?.trim_end()));
            }
        }
    }
    Ok(())
}

fn page(profile: &Profile) -> Result<String, std::fmt::Error> {
    let mut page = String::new();
    let out = &mut page;
    writeln!(out, "{}: {}", profile.name, profile.title)?;
    writeln!(out, "Source: {}", profile.source)?;
    writeln!(out, "\nSets, beside our defaults:")?;
    let defaults = shown(&Settings::default());
    writeln!(
        out,
        "  {:<24} {} (of a volume that has none yet)",
        "mode",
        profile.mode.name()
    )?;
    let settings = shown(&profile.settings());
    for (name, value) in settings.iter().filter(|one| !defaults.contains(one)) {
        writeln!(out, "  {name:<24} {value}")?;
    }
    writeln!(out, "\nNot quite the same:")?;
    for remark in profile.remarks {
        writeln!(out, "  - {remark}")?;
    }
    let (known, without): (Vec<&Foreign>, Vec<&Foreign>) = profile
        .foreign
        .iter()
        .partition(|foreign| foreign.has_meaning());
    if known.is_empty() && without.is_empty() {
        writeln!(out, "\nNo setting of it is publicly documented.")?;
    }
    if !known.is_empty() {
        writeln!(out, "\nIts settings:")?;
    }
    for foreign in known {
        write_setting(out, foreign)?;
    }
    if !without.is_empty() {
        writeln!(
            out,
            "\nIts settings that have no meaning here (accepted with a warning):"
        )?;
    }
    for foreign in without {
        write_setting(out, foreign)?;
    }
    Ok(page)
}

fn write_setting(out: &mut String, foreign: &Foreign) -> std::fmt::Result {
    writeln!(out, "  {} = {}", foreign.name, foreign.value)?;
    let how = foreign.how;
    if foreign.has_meaning() {
        let ours = foreign.ours().join(", ");
        writeln!(out, "      {ours}: {how}{}", initial(foreign))
    } else {
        writeln!(out, "      because {how}")
    }
}

fn initial(foreign: &Foreign) -> String {
    match foreign.initial {
        Initial::Taken(value) => format!(" Default: {value}."),
        Initial::Left(value) => format!(" Default there: {value}."),
        Initial::None => String::new(),
    }
}

fn as_json(profile: &Profile) -> Value {
    let settings = SettingsStatus::of(&profile.settings(), Some(profile));
    let foreign: Vec<Value> = profile.foreign.iter().map(setting).collect();
    json!({
        "name": profile.name,
        "title": profile.title,
        "source": profile.source,
        "mode": profile.mode.name(),
        "settings": settings,
        "remarks": profile.remarks,
        "foreign": foreign,
    })
}

fn setting(foreign: &Foreign) -> Value {
    let default = match foreign.initial {
        Initial::Taken(value) | Initial::Left(value) => Some(value),
        Initial::None => None,
    };
    let mut setting = json!({
        "name": foreign.name,
        "value": foreign.value,
        "default": default,
        "part_of_profile": matches!(foreign.initial, Initial::Taken(_)),
    });
    if foreign.has_meaning() {
        setting["sets"] = json!(foreign.ours());
        setting["how"] = json!(foreign.how);
    } else {
        setting["no_meaning_because"] = json!(foreign.how);
    }
    setting
}
