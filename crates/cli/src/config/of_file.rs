//! The plan that a file and the arguments beside it make.

use std::collections::BTreeMap;
use std::path::Path;

use anyhow::Result;
use forebay_engine::VolumeSettings;
use toml::Spanned;

use super::claims::{self, Claim, conflicts};
use super::faults;
use super::file::File;
use super::file_settings::FileSettings;
use super::file_volume::FileVolume;
use super::merged;
use super::plan::{CachePlan, Plan, VolumePlan};
use super::profile::{self, Chosen};
use crate::args::ServeArgs;
use crate::device::network::uri;
use crate::device::same_device::Identity;
use crate::failure::{Faults, describe};
use crate::settings::{check_kept, check_origin};

/// The plan, and what the file claims for itself.
///
/// # Errors
/// Everything that is wrong with the file, each with its line.
pub(super) fn plan(path: &Path, text: &str, args: &ServeArgs) -> Result<(Plan, Vec<Claim>)> {
    let wrong = |message: String| format!("{}: {message}", path.display());
    let file =
        faults::read(text).map_err(|found| Faults(found.into_iter().map(wrong).collect()))?;
    let claims = claims::of_file(path, text, &file);
    let mut found = conflicts(&claims);
    found.extend(contradictions(text, &file).into_iter().map(wrong));
    let line = |byte| faults::line_number(text, byte);
    let chosen = profile::of_file(&args.profile, file.profile.as_ref(), &line);
    let chosen = chosen.unwrap_or_else(|fault| {
        found.push(match fault.line {
            Some(line) => wrong(format!("line {line}: {}", fault.message)),
            None => fault.message,
        });
        Chosen::default()
    });
    let of_file = file.settings.given.over(chosen.settings.clone());
    let settings = args.settings.over(of_file);
    if let Err(message) = settings.validate() {
        let place = limits_line(text, &file.settings);
        found.push(wrong(format!("{place}{message}")));
    }
    let network = merged::network(text, &file, args);
    let plan = Plan {
        notes: chosen.notes.iter().cloned().map(wrong).collect(),
        source: Some(Box::new(args.clone())),
        ..merged::plan(&file, args, &chosen, settings)?
    };
    if found.is_empty() {
        found.extend(plan.out_of_range().into_iter().map(wrong));
    }
    if !found.is_empty() {
        // Faults of the network are told with the rest.
        found.extend(network.err().map(|error| wrong(describe(&error))));
        return Err(Faults(found).into());
    }
    let (tls, http) = network.map_err(|error| error.context(path.display().to_string()))?;
    let (cache, volumes) = devices(file, args, &chosen);
    let plan = Plan {
        cache,
        volumes,
        tls,
        http,
        ..plan
    };
    Ok((plan, claims))
}

/// Contradictions between keys.
fn contradictions(text: &str, file: &File) -> Vec<String> {
    let at = |span: std::ops::Range<usize>, message: String| {
        format!("line {}: {message}", faults::line_number(text, span.start))
    };
    let mut found = Vec::new();
    let mut names: BTreeMap<String, Identity> = BTreeMap::new();
    for volume in &file.volume {
        let (name, span) = volume.called();
        let origin = Identity::of(volume.origin.get_ref());
        // A device that is named twice is told as that.
        if names
            .insert(name.clone(), origin.clone())
            .is_some_and(|other| other != origin)
        {
            let message = format!("two volumes are called `{name}`; give one another name");
            found.push(at(span, message));
        }
    }
    let mode = file.volume.iter().find_map(|volume| volume.mode.as_ref());
    if let (None, Some(mode)) = (&file.cache, mode) {
        found.push(at(mode.span(), "a mode needs a [cache]".to_owned()));
    }
    found.extend(
        wrong_settings(file)
            .into_iter()
            .map(|(span, message)| at(span, message)),
    );
    if file.profile.is_some() && file.cache.is_none() {
        found.push("a profile needs a [cache]".to_owned());
    }
    if let Some(span) = file.daemon.initramfs_span() {
        found.extend(missing_in_initramfs(file).map(|message| at(span.clone(), message)));
    }
    found
}

/// Faults of the settings of volumes.
fn wrong_settings(file: &File) -> Vec<(std::ops::Range<usize>, String)> {
    let mut found = Vec::new();
    let mut all = Vec::new();
    for volume in &file.volume {
        let (own, faults) = volume.own();
        found.extend(faults);
        let (name, span) = volume.called();
        if file.cache.is_none() && own.engine != VolumeSettings::default() {
            found.push((span, format!("settings of volume `{name}` need a [cache]")));
        }
        let is_network = uri::as_uri(volume.origin.get_ref()).is_some();
        if let Err(why) = check_origin(&own, is_network) {
            found.push((volume.origin.span(), why));
        }
        all.push(own);
    }
    if let (Err(why), Some(last)) = (check_kept(all.iter()), file.volume.last()) {
        found.push((last.called().1, why));
    }
    found
}

/// Faults that keep a cache from being served in the initramfs.
fn missing_in_initramfs(file: &File) -> impl Iterator<Item = String> {
    let faults = [
        (
            !file.ublk.enabled,
            "`initramfs` is for block devices: [ublk] enabled = true",
        ),
        (
            file.daemon.state_dir.is_none(),
            "`initramfs` needs a `state-dir` that is not on the root file system, such as \"/boot/forebay\": \
             what is in there must be known before the root file system is mounted",
        ),
        (
            file.nbd.tls_cert.is_some() || !file.nbd.listen.is_empty(),
            "there is no network in the initramfs: take [nbd] out, and export over NBD from another cache",
        ),
        (
            file.daemon.hook.is_some(),
            "a `hook` would be read from the root file system by the daemon that serves that: take one of both out",
        ),
        (
            file.daemon.record.is_some(),
            "`record` has no place to write to in the initramfs: take one of both out",
        ),
    ];
    let found = faults.into_iter().filter(|(wrong, _)| *wrong);
    found.map(|(_, message)| message.to_owned())
}

/// The line of a dirty limit, if the file has one.
fn limits_line(text: &str, settings: &FileSettings) -> String {
    let line = |at| format!("line {}: ", faults::line_number(text, at));
    settings.dirty_limit_at().map_or_else(String::new, line)
}

fn devices(file: File, args: &ServeArgs, chosen: &Chosen) -> (Option<CachePlan>, Vec<VolumePlan>) {
    let volume = |volume: FileVolume| VolumePlan {
        own: volume.own().0,
        format: volume.format.as_ref().map(|format| format.0),
        origin: volume.origin.into_inner(),
        name: volume.name.map(Spanned::into_inner),
        mode: volume.mode.map(|mode| mode.into_inner().0).or(chosen.mode),
        emulate: volume.emulate.map(|model| model.0.0),
    };
    let cache = file.cache.map(|cache| CachePlan {
        devices: cache
            .device
            .0
            .into_iter()
            .map(Spanned::into_inner)
            .collect(),
        create: cache.create,
        emulate: cache.emulate.map(|model| model.0.0),
        on_degraded: (args.on_degraded)
            .or(cache.on_degraded.map(|word| word.0))
            .unwrap_or_default(),
        copies: args.copies.or(cache.copies.map(|copies| copies.0)),
        without_missing: args.without_missing,
    });
    (cache, file.volume.into_iter().map(volume).collect())
}
