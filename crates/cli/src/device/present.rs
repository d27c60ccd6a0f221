//! The devices of a cache that are there when somebody opens it, and whether it may go on without
//! the others (I28).
//!
//! | device | with one copy of dirty data | with two |
//! |---|---|---|
//! | out | left out | left out |
//! | one not there, or unreadable | refused | left out if the [`witness`](super::witness) vouches, or the administrator |
//! | more than one not there | refused | refused |

use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use anyhow::Result;
use forebay_engine::{CacheDevice, CacheId, Identified, IdentifyError, Joined, Superblock};
use forebay_io::OpenError;

use super::attach::{Opened, Surroundings};
use super::cache_storage::{self, CacheStorage};
use super::state_dir::StateDir;
use super::witness::{Testimony, Witness};
use crate::failure::Refused;
use crate::units::size;

/// A cache whose devices are there, as far as they must be.
pub(crate) struct Present {
    pub(crate) storage: CacheStorage,
    pub(crate) superblock: Superblock,
    /// Devices that were given and are not used.
    pub(crate) left_out: Vec<LeftOut>,
    /// The attach may go on without what is missing or fails.
    pub(crate) may_lack: bool,
    pub(crate) witness: Option<Witness>,
}

/// A device that was given and is not used.
#[derive(Clone, Debug)]
pub(crate) struct LeftOut {
    pub(crate) path: PathBuf,
    /// Its number in the cache, if it is known.
    pub(crate) number: Option<u8>,
}

/// Devices that were given, opened as far as they are there.
pub(crate) struct Given {
    pub(crate) opened: Vec<Opened>,
    /// Devices that are not there, and why.
    absent: Vec<(PathBuf, anyhow::Error)>,
}

impl Given {
    /// Opens them. A device that is not there is not an error yet if others are.
    pub(crate) fn open(paths: &[PathBuf], surroundings: &Surroundings) -> Result<Given> {
        let mut given = Given {
            opened: Vec::new(),
            absent: Vec::new(),
        };
        for path in paths {
            match surroundings.open(path) {
                Ok(one) => given.opened.push(one),
                Err(why) if is_absent(&why) => given.absent.push((path.clone(), why)),
                Err(why) => return Err(why),
            }
        }
        match given.absent.pop() {
            Some((_, why)) if given.opened.is_empty() => Err(why),
            last => {
                given.absent.extend(last);
                Ok(given)
            }
        }
    }
}

/// Whether a device is not there or fails: neither used by somebody else, nor of the wrong kind, nor
/// forbidden to this user.
fn is_absent(why: &anyhow::Error) -> bool {
    let mut causes = why.chain();
    causes.any(|cause| match cause.downcast_ref::<OpenError>() {
        Some(OpenError::Io { source, .. }) => source.kind() != ErrorKind::PermissionDenied,
        Some(OpenError::Empty { .. }) => true,
        _ => false,
    })
}

/// A decision of the administrator about devices that are not there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Decision {
    None,
    /// The cache did not go on without those that are there.
    NothingWentOn,
    /// As before; nobody decided it, and nothing is started: whether it could be is asked.
    AskedWhether,
    /// Dirty data that is on missing devices alone is given up.
    DataIsLost,
}

/// Finds out which devices are used. Nothing is written.
pub(crate) fn find(given: Given, state: &StateDir, decision: Decision) -> Result<Present> {
    let Given { mut opened, absent } = given;
    let (found, witness) = identify(&mut opened, state)?;
    let Identified {
        superblock,
        given,
        missing,
    } = found;
    let testimony = witness.as_ref().map(|witness| witness.on(&superblock));
    if let (Some(Testimony::Contradicts), Some(witness)) = (testimony, &witness) {
        return Err(went_on_without(&opened, &superblock, witness));
    }
    let (mut used, mut left_out) = (Vec::new(), Vec::new());
    let mut whys: Vec<anyhow::Error> = Vec::new();
    let paths = || opened.iter().map(|one| one.device.path());
    let (all, arguments) = (
        cache_storage::joined(paths(), ", "),
        cache_storage::joined(paths(), " "),
    );
    for (place, mut opened) in given.into_iter().zip(opened) {
        let path = opened.device.path().to_owned();
        match place {
            Ok(number) => used.push((number, opened.storage)),
            Err(IdentifyError::Out { .. }) => {
                tracing::warn!(
                    "{}; `forebay cache replace` puts another in its place",
                    cache_storage::not_used(&path)
                );
                let own = Superblock::of_device(&mut opened.storage, 0);
                let number = own.ok().map(|(_, on)| on.number);
                left_out.push(LeftOut { path, number });
            }
            Err(why) => {
                whys.push(cache_storage::explain_of(why, &mut opened));
                left_out.push(LeftOut { path, number: None });
            }
        }
    }
    for (path, why) in absent {
        whys.push(why);
        left_out.push(LeftOut { path, number: None });
    }
    if superblock.membership == 0 && !whys.is_empty() {
        return Err(whys.swap_remove(0));
    }
    if missing.is_empty() {
        for why in &whys {
            tracing::warn!(
                "{}: the cache does without it",
                crate::failure::describe(why)
            );
        }
    } else {
        let lack = Lack {
            all: &all,
            arguments: &arguments,
            superblock: &superblock,
            missing: &missing,
            vouched: testimony == Some(Testimony::Vouches),
            decision,
            why: whys.into_iter().next(),
        };
        lack.check()?;
        for on in &missing {
            let mut unknown = left_out.iter_mut().filter(|left| left.number.is_none());
            if let (Some(left), None) = (unknown.next(), unknown.next()) {
                left.number = Some(on.number);
            }
        }
    }
    Ok(Present {
        storage: Joined::new(used),
        may_lack: superblock.copies > 1,
        superblock,
        left_out,
        witness,
    })
}

/// Tells the devices apart, without those that the witness knows to be out.
fn identify(opened: &mut [Opened], state: &StateDir) -> Result<(Identified, Option<Witness>)> {
    let mut known: Option<(CacheId, Option<Witness>)> = None;
    let mut trouble = None;
    let mut is_out = |one: &Superblock, on: &CacheDevice| {
        if known.as_ref().is_none_or(|(id, _)| *id != one.id) {
            let witness = state.witness(one.id);
            let witness = witness.map_err(|error| trouble = Some(error));
            known = Some((one.id, witness.unwrap_or_default()));
        }
        let witness = known.as_ref().and_then(|(_, witness)| witness.as_ref());
        witness.is_some_and(|witness| witness.is_out(on.serial))
    };
    let found = cache_storage::identify(opened, &mut is_out);
    match trouble {
        Some(error) => Err(error),
        None => Ok((found?, known.and_then(|(_, witness)| witness))),
    }
}

/// Says that the cache went on without the devices that are there.
fn went_on_without(opened: &[Opened], superblock: &Superblock, witness: &Witness) -> anyhow::Error {
    let paths = opened.iter().map(|opened| opened.device.path());
    let newer = witness.devices.iter().filter(|on| !on.out);
    let newer: Vec<String> = newer
        .map(|on| match &on.path {
            Some(path) => format!("{} (number {})", path.display(), on.number),
            None => format!("number {}", on.number),
        })
        .collect();
    Refused(format!(
        "the cache {} went on without {}, which hold what it was before: give the devices that it went on with: {}",
        superblock.id,
        cache_storage::joined(paths, ", "),
        newer.join(", "),
    ))
    .into()
}

/// Devices that are in use and not there.
struct Lack<'a> {
    /// Paths of the devices that are there, for people.
    all: &'a str,
    /// These paths as a command takes them.
    arguments: &'a str,
    superblock: &'a Superblock,
    missing: &'a [CacheDevice],
    /// The witness says that the cache did not go on without those that are there.
    vouched: bool,
    decision: Decision,
    /// Why one is not there.
    why: Option<anyhow::Error>,
}

impl Lack<'_> {
    /// Refuses to go on without them, unless nothing is lost by that.
    fn check(self) -> Result<()> {
        let on = &self.missing[0];
        let (count, number, bytes) = (
            self.superblock.devices.len(),
            on.number,
            size(on.size_bytes),
        );
        let all = self.all;
        let missing = format!(
            "the cache on {all} has {count} devices, and number {number} ({bytes}) is not there"
        );
        if self.superblock.copies < 2 {
            return Err(self.why.unwrap_or_else(|| {
                Refused(format!(
                    "the cache on {all} has {count} devices, and number {number} ({bytes}) is not among those given: give all of them"
                ))
                .into()
            }));
        }
        if self.decision == Decision::DataIsLost {
            tracing::warn!("{missing}: what it has alone is given up");
            return Ok(());
        }
        let give_up = format!(
            "If that is gone for good, `forebay repair {} --accept-damage` gives up what it has alone",
            self.arguments
        );
        if self.missing.len() > 1 {
            return Err(because(
                self.why,
                format!(
                    "{missing}, nor are {} others: dirty data is on two devices, and may be on those alone. Give all that are sound. \
                     {give_up}",
                    self.missing.len() - 1
                ),
            ));
        }
        if !on.dispensable {
            return Err(because(
                self.why,
                format!(
                    "{missing}: dirty data may be on it alone. Bring it back as it was. {give_up}"
                ),
            ));
        }
        if !self.vouched && self.decision == Decision::None {
            return Err(because(
                self.why,
                format!(
                    "{missing}. Its dirty data is on two devices, so that it can go on without one; but the state directory of this \
                 machine does not know that it did not go on without those that are there. If it was served nowhere else since, \
                 start it once with --without-missing"
                ),
            ));
        }
        if self.decision == Decision::AskedWhether {
            return Ok(());
        }
        let whose = if self.vouched {
            "the state directory vouches for the others"
        } else {
            "--without-missing was given"
        };
        let why = self.why.map_or_else(String::new, |why| {
            format!(" ({})", crate::failure::describe(&why))
        });
        tracing::warn!("{missing}{why}: the cache goes on without it, {whose}");
        Ok(())
    }
}

fn because(why: Option<anyhow::Error>, what: String) -> anyhow::Error {
    match why {
        Some(why) => why.context(Refused(what)),
        None => Refused(what).into(),
    }
}

/// The path of a device for people: where it is or was, if anybody knows.
pub(crate) fn path_of<'a>(
    left_out: &'a [LeftOut],
    witness: Option<&'a Witness>,
    on: &CacheDevice,
) -> Option<&'a Path> {
    let mut left_out = left_out.iter();
    let here = left_out.find(|left| left.number == Some(on.number));
    let known = || witness?.path_of(on.serial);
    here.map(|left| left.path.as_path()).or_else(known)
}
