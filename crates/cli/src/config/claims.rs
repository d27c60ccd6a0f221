//! Claims of a configuration, and conflicts between them: devices, names of block devices,
//! addresses.

use std::collections::BTreeMap;
use std::fmt;
use std::path::{Path, PathBuf};

use toml::Spanned;

use super::faults::line_number;
use super::file::File;
use crate::device::same_device::Identity;
use crate::network::http::HttpPlan;

/// A device, name or address that a file claims, and where.
#[derive(Clone, Debug)]
pub(crate) struct Claim {
    pub(crate) file: PathBuf,
    pub(crate) line: usize,
    pub(crate) kind: ClaimKind,
    /// As it is written.
    pub(crate) name: String,
    thing: Thing,
    /// Of an address: others may name it too, as each dashboard shows all caches.
    is_shared: bool,
}

/// A claimed thing. Two are equal if they are the same device or address, whatever they are called.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Thing {
    Device(Identity),
    Named(String),
}

/// Kind of a claim.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum ClaimKind {
    /// A device, as cache or as origin.
    Device,
    /// A name in /dev/forebay.
    BlockDevice,
    /// An address for NBD or HTTP.
    Address,
    /// A control socket.
    Control,
}

impl fmt::Display for ClaimKind {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(match self {
            ClaimKind::Device => "the device",
            ClaimKind::BlockDevice => "the block device",
            ClaimKind::Address => "the address",
            ClaimKind::Control => "the control socket",
        })
    }
}

/// The claims of a file, in the order of its lines within each kind.
pub(super) fn of_file(path: &Path, text: &str, file: &File) -> Vec<Claim> {
    let claim = |kind, name: String, thing: Thing, span: std::ops::Range<usize>| Claim {
        file: path.to_owned(),
        line: line_number(text, span.start),
        kind,
        name,
        thing,
        is_shared: false,
    };
    let named = |kind, name: String, span| claim(kind, name.clone(), Thing::Named(name), span);
    let device = |path: &Spanned<PathBuf>| {
        let name = path.get_ref().display().to_string();
        claim(
            ClaimKind::Device,
            name,
            Thing::Device(Identity::of(path.get_ref())),
            path.span(),
        )
    };
    let mut claims: Vec<Claim> = file
        .cache
        .iter()
        .flat_map(|cache| cache.device.0.iter().map(device))
        .collect();
    claims.extend(file.volume.iter().map(|volume| device(&volume.origin)));
    if file.ublk.enabled {
        claims.extend(file.volume.iter().map(|volume| {
            let (name, span) = volume.called();
            let path = format!("/dev/forebay/{name}");
            named(ClaimKind::BlockDevice, path, span)
        }));
    }
    claims.extend(file.nbd.listen.iter().map(|address| {
        let name = address.get_ref().0.to_string();
        named(ClaimKind::Address, name, address.span())
    }));
    claims.extend(file.http.listen.iter().filter_map(|listen| {
        let HttpPlan::At(address) = listen.get_ref().0 else {
            return None;
        };
        let name = format!("tcp:{address}");
        let claim = named(ClaimKind::Address, name, listen.span());
        Some(Claim {
            is_shared: true,
            ..claim
        })
    }));
    claims.extend(file.daemon.control.iter().map(|control| {
        let name = control.get_ref().display().to_string();
        named(ClaimKind::Control, name, control.span())
    }));
    claims
}

/// Everything that is claimed twice, in words that point at both lines.
pub(crate) fn conflicts(claims: &[Claim]) -> Vec<String> {
    let mut first: BTreeMap<(ClaimKind, &Thing), &Claim> = BTreeMap::new();
    let mut found = Vec::new();
    for claim in claims {
        let Some(earlier) = first.insert((claim.kind, &claim.thing), claim) else {
            continue;
        };
        if earlier.is_shared && claim.is_shared {
            continue;
        }
        let place = if earlier.file == claim.file {
            format!("line {}", earlier.line)
        } else {
            format!("{}, line {}", earlier.file.display(), earlier.line)
        };
        let alias = if earlier.name == claim.name {
            String::new()
        } else {
            format!(" as {}", earlier.name)
        };
        found.push(format!(
            "{}: line {}: {} {} is used already{alias} ({place})",
            claim.file.display(),
            claim.line,
            claim.kind,
            claim.name
        ));
    }
    found
}
