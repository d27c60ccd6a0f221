//! The devices of a cache, opened and told apart.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use forebay_engine::{IdentifyError, Joined, Storage, SuperblockError, identify};
use forebay_io::BlockingStorage;

use crate::device::attach::Opened;
use crate::device::signature::{self, Contents};
use crate::failure::Refused;
use crate::units::size;

/// All devices of a cache, as one.
pub(crate) type CacheStorage = Joined<BlockingStorage>;

/// Takes devices that were opened for those of one cache; each gets the number it says it has.
/// Nothing is written.
pub(crate) fn join(mut opened: Vec<Opened>) -> Result<CacheStorage> {
    let mut storages: Vec<&mut dyn Storage> = opened
        .iter_mut()
        .map(|opened| &mut opened.storage as &mut dyn Storage)
        .collect();
    match identify(&mut storages) {
        Ok(numbers) => {
            let storages = opened.into_iter().map(|opened| opened.storage);
            Ok(Joined::new(numbers.into_iter().zip(storages).collect()))
        }
        Err(error) => Err(explain(error, &mut opened)),
    }
}

/// Which device an error is about, and what to do.
fn explain(error: IdentifyError, opened: &mut [Opened]) -> anyhow::Error {
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
    let Some(opened) = error.given().and_then(|given| opened.get_mut(given)) else {
        return anyhow::Error::from(error).context(format!("cannot use the cache on {all}"));
    };
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
