//! The plan that arguments make.

use anyhow::Result;
use forebay_io::DirectIo;
use forebay_model::ModelOptions;

use super::file::File;
use super::plan::{CachePlan, Plan, VolumePlan};
use super::{merged, profile};
use crate::args::{Direct, ServeArgs};
use crate::failure::Usage;
use crate::settings::OwnSettings;

/// The plan for arguments without a file.
pub(super) fn plan(args: ServeArgs) -> Result<Plan> {
    let emulate = |text: Option<&String>| text.map(|text| model(text)).transpose();
    let Some(origin) = &args.origin else {
        return Err(Usage("no origin device is given: name it with --origin".to_owned()).into());
    };
    let chosen = profile::of_args(&args.profile).map_err(|fault| Usage(fault.message))?;
    if chosen.profile.is_some() && args.cache.is_empty() {
        return Err(Usage("a profile needs a cache: --cache SSD".to_owned()).into());
    }
    if (args.copies.is_some() || args.on_degraded.is_some()) && args.cache.is_empty() {
        return Err(
            Usage("--copies and --on-degraded need a cache: --cache SSD".to_owned()).into(),
        );
    }
    let volume = VolumePlan {
        origin: origin.clone(),
        name: args.name.clone(),
        mode: args.mode.or(chosen.mode),
        own: OwnSettings::default(),
        format: args.origin_format,
        emulate: emulate(args.origin_emulate.as_ref())?,
    };
    let cache_emulation = emulate(args.cache_emulate.as_ref())?;
    let cache = (!args.cache.is_empty()).then(|| CachePlan {
        devices: args.cache.clone(),
        create: args.create,
        emulate: cache_emulation,
        copies: args.copies,
        on_degraded: args.on_degraded.unwrap_or_default(),
        without_missing: args.without_missing,
    });
    let file = File::default();
    let settings = args.settings.over(chosen.settings.clone());
    let plan = merged::plan(&file, &args, &chosen, settings)?;
    let (tls, http) = merged::network("", &file, &args)?;
    Ok(Plan {
        cache,
        volumes: vec![volume],
        tls,
        http,
        ..plan
    })
}

pub(crate) fn direct(wanted: Direct) -> DirectIo {
    match wanted {
        Direct::Required => DirectIo::Required,
        Direct::IfPossible => DirectIo::IfPossible,
    }
}

pub(crate) fn model(text: &str) -> Result<ModelOptions> {
    ModelOptions::parse(text).map_err(|error| Usage(error.to_string()).into())
}
