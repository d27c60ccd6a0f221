//! Image files that grow. A volume has a fixed size: served as it lies there, such an image has no
//! room for what its user writes next.

use anyhow::{Context, Result};
use forebay_engine::Storage as _;
use forebay_io::{BlockingStorage, DeviceKind};

use super::signature::{Magic, QCOW2, VMDK, magic};
use crate::failure::refuse;

/// The word of whoever knows what an origin is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum OriginFormat {
    /// A disk as it is, whatever its first bytes look like.
    Raw,
}

impl std::str::FromStr for OriginFormat {
    type Err = String;

    fn from_str(text: &str) -> Result<OriginFormat, String> {
        match text {
            "raw" => Ok(OriginFormat::Raw),
            other => Err(format!("`{other}` is no format; the only one is raw")),
        }
    }
}

impl OriginFormat {
    pub(crate) fn name(self) -> &'static str {
        match self {
            OriginFormat::Raw => "raw",
        }
    }
}

/// Formats that grow, by their first bytes.
const GROWING: &[Magic] = &[
    QCOW2,
    VMDK,
    magic("a QED image", 0, b"QED\0"),
    magic("a VHD image", 0, b"conectix"),
    magic("a VHDX image", 0, b"vhdxfile"),
    magic("a VDI image", 64, &[0x7f, 0x10, 0xda, 0xbe]),
];

/// Refuses a file that grows, unless somebody said that it is to be taken as it is. A block device
/// holds such an image in full.
pub(crate) fn check_not_growing(
    storage: &mut BlockingStorage,
    format: Option<OriginFormat>,
) -> Result<()> {
    let device = storage.device();
    if format == Some(OriginFormat::Raw) || device.kind() != DeviceKind::File {
        return Ok(());
    }
    let path = device.path().to_owned();
    let mut head = vec![0; 4096.min(device.size_bytes() as usize)];
    storage
        .read(0, &mut head)
        .with_context(|| format!("cannot read the origin device {}", path.display()))?;
    let Some(what) = found_in(&head) else {
        return Ok(());
    };
    refuse!(
        "{0} is {what}, a file that grows, and a volume does not: its user would soon find no space left. Convert it \
         (`qemu-img convert -O raw {0} NEW`) and serve that; if it has all its clusters already (`-o \
         preallocation=full`), or is a disk that only looks like this, say so with --origin-format raw (format = \"raw\" \
         under its [[volume]])",
        path.display()
    )
}

fn found_in(head: &[u8]) -> Option<&'static str> {
    let mut growing = GROWING.iter();
    let found = growing.find(|format| format.is_on(head, &[]))?;
    Some(found.name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn images_that_grow_are_known_by_their_first_bytes() {
        let mut vdi = b"<<< Oracle VM VirtualBox Disk Image >>>\n".to_vec();
        vdi.resize(64, 0);
        vdi.extend([0x7f, 0x10, 0xda, 0xbe]);
        assert_eq!(found_in(&vdi), Some("a VDI image"));
        assert_eq!(found_in(b"QFI\xfb\0\0\0\x03"), Some("a qcow2 image"));
        assert_eq!(found_in(b"QFI"), None);
        assert_eq!(found_in(&[0; 4096]), None);
    }
}
