//! The devices of a cache, opened and told apart.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use forebay_engine::{
    CacheDevice, Identified, IdentifyError, Joined, Storage, Superblock, SuperblockError,
    identify_those_given,
};
use forebay_io::BlockingStorage;

use crate::device::attach::Opened;
use crate::device::signature::{self, Contents};
use crate::failure::Refused;
use crate::quoting::in_shell;
use crate::units::size;

/// All devices of a cache, as one.
pub(crate) type CacheStorage = Joined<BlockingStorage>;

/// Takes devices that were opened for those of one cache; each gets the number it says it has.
/// Devices that are out are left out (I28). Nothing is written.
pub(crate) fn join(mut opened: Vec<Opened>) -> Result<CacheStorage> {
    let found = identify(&mut opened, &mut |_, _| false)?;
    if let Some(missing) = found.error_of_missing() {
        // A device that is there and cannot be read says more.
        let mut unreadable = found.given.into_iter().filter_map(Result::err);
        let unreadable = unreadable.find(|why| !matches!(why, IdentifyError::Out { .. }));
        return Err(explain(unreadable.unwrap_or(missing), &mut opened));
    }
    let mut devices = Vec::new();
    for (place, opened) in found.given.into_iter().zip(opened) {
        match place {
            Ok(number) => devices.push((number, opened.storage)),
            Err(_) => tracing::warn!("{}", not_used(opened.device.path())),
        }
    }
    Ok(Joined::new(devices))
}

/// Says that a device was given which is out.
pub(crate) fn not_used(path: &Path) -> String {
    format!(
        "{} is out of the cache, which went on without it: it is not used, whatever it holds",
        path.display()
    )
}

/// Tells devices apart. `is_out` is as in [`identify_those_given`].
pub(crate) fn identify(
    opened: &mut [Opened],
    is_out: &mut dyn FnMut(&Superblock, &CacheDevice) -> bool,
) -> Result<Identified> {
    let mut storages: Vec<&mut dyn Storage> = opened
        .iter_mut()
        .map(|opened| &mut opened.storage as &mut dyn Storage)
        .collect();
    identify_those_given(&mut storages, is_out).map_err(|error| explain(error, opened))
}

/// Which device an error is about, and what to do.
pub(crate) fn explain(error: IdentifyError, opened: &mut [Opened]) -> anyhow::Error {
    let all = joined(opened.iter().map(|opened| opened.device.path()), ", ");
    if let IdentifyError::Missing {
        number,
        size_bytes,
        count,
    } = error
    {
        let told = format!(
            "the cache on {all} has {count} devices, and number {number} ({}) is not among those given: give all of them",
            size(size_bytes)
        );
        return Refused(told).into();
    }
    if let IdentifyError::Split { given, other } = error {
        let two = [given, other].map(|at| opened[at].device.path());
        let two = joined(two, " and ");
        return anyhow::Error::from(error).context(format!("cannot use {two} together"));
    }
    match error.given().and_then(|given| opened.get_mut(given)) {
        Some(opened) => explain_of(error, opened),
        None => anyhow::Error::from(error).context(format!("cannot use the cache on {all}")),
    }
}

/// Says what is wrong with a device, and what to do.
pub(crate) fn explain_of(error: IdentifyError, opened: &mut Opened) -> anyhow::Error {
    let path = opened.device.path().display().to_string();
    match error {
        IdentifyError::Superblock {
            source: source @ SuperblockError::NotACache { .. },
            ..
        } => {
            let detail = match signature::examine(&mut opened.storage) {
                Ok(Contents::Known(what)) => format!(": it holds {what}"),
                _ => String::new(),
            };
            anyhow::Error::from(source).context(format!(
                "{path} is not a Forebay cache{detail}; make one with `forebay create`"
            ))
        }
        IdentifyError::Superblock {
            source: source @ SuperblockError::Blank,
            ..
        } => anyhow::Error::from(source).context(format!(
            "{path} holds no cache yet; make one with `forebay create`, or add --create"
        )),
        IdentifyError::Superblock { source, .. } => {
            anyhow::Error::from(source).context(format!("cannot use the cache device {path}"))
        }
        other => anyhow::Error::from(other).context(format!("cannot use the cache device {path}")),
    }
}

/// Opens the devices of a cache and joins them.
pub(crate) fn open(
    paths: &[PathBuf],
    open: impl Fn(&Path) -> Result<Opened>,
) -> Result<CacheStorage> {
    let opened = paths.iter().map(|path| open(path));
    join(opened.collect::<Result<Vec<_>>>()?)
}

/// Their paths, for people.
pub(crate) fn names(storage: &CacheStorage) -> String {
    joined(paths(storage), ", ")
}

/// Their paths, as a command takes them.
pub(crate) fn arguments(storage: &CacheStorage) -> String {
    joined(paths(storage), " ")
}

/// Their paths as options, for a command that takes each by `--cache`.
pub(crate) fn options(storage: &CacheStorage) -> String {
    let options =
        paths(storage).map(|path| format!("--cache {}", in_shell(&path.display().to_string())));
    options.collect::<Vec<_>>().join(" ")
}

fn paths(storage: &CacheStorage) -> impl Iterator<Item = &Path> {
    storage.devices().map(|(_, device)| device.device().path())
}

/// Paths in a row, for people.
pub(crate) fn joined(paths: impl IntoIterator<Item = impl AsRef<Path>>, between: &str) -> String {
    let paths = paths.into_iter();
    let shown: Vec<String> = paths
        .map(|path| path.as_ref().display().to_string())
        .collect();
    shown.join(between)
}

/// Looks at a device again that its user may have made larger or smaller.
pub(crate) fn look_at_size(storage: &BlockingStorage) -> Result<u64> {
    let device = storage.device();
    device
        .look_at_size()
        .with_context(|| format!("cannot find the size of {}", device.path().display()))
}
