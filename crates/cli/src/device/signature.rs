//! Signatures of data on a device that is to be overwritten: the magic numbers of what people would
//! miss.

use forebay_engine::{DeviceError, Storage};

pub(super) struct Magic {
    pub(super) name: &'static str,
    /// From the start of the device, or from its end if negative.
    offset: i64,
    bytes: &'static [u8],
}

impl Magic {
    /// Whether it is there, on a device with this start and this end.
    pub(super) fn is_on(&self, head: &[u8], tail: &[u8]) -> bool {
        let found = if self.offset >= 0 {
            head.get(self.offset as usize..)
        } else {
            tail.len()
                .checked_sub(self.offset.unsigned_abs() as usize)
                .and_then(|at| tail.get(at..))
        };
        found.is_some_and(|bytes| bytes.starts_with(self.bytes))
    }
}

pub(super) const QCOW2: Magic = magic("a qcow2 image", 0, b"QFI\xfb");
pub(super) const VMDK: Magic = magic("a VMDK image", 0, b"KDMV");

pub(super) const fn magic(name: &'static str, offset: i64, bytes: &'static [u8]) -> Magic {
    Magic {
        name,
        offset,
        bytes,
    }
}

/// Other caches and what holds several devices together come first: their members may also show
/// what is inside.
const MAGICS: &[Magic] = &[
    magic("a LUKS encrypted volume", 0, b"LUKS\xba\xbe"),
    magic("an LVM physical volume", 512, b"LABELONE"),
    magic("an LVM physical volume", 0, b"LABELONE"),
    magic("an LVM physical volume", 1024, b"LABELONE"),
    magic("an LVM physical volume", 1536, b"LABELONE"),
    magic(
        "a member of an md RAID array",
        4096,
        &[0xfc, 0x4e, 0x2b, 0xa9],
    ),
    magic("a member of an md RAID array", 0, &[0xfc, 0x4e, 0x2b, 0xa9]),
    magic(
        "a bcache device",
        4096 + 24,
        b"\xc6\x85\x73\xf6\x4e\x1a\x45\xca\x82\x65\xf5\x7f\x48\xba\x6d\x81",
    ),
    magic(
        "a bcachefs file system",
        4096 + 24,
        b"\xc6\x85\x73\xf6\x66\xce\x90\xa9\xd9\x6a\x60\xcf\x80\x3d\xf7\xef",
    ),
    magic(
        "a dm-cache metadata device",
        32,
        &[0x03, 0xc4, 0x18, 0, 0, 0, 0, 0],
    ),
    magic("a dm-writecache cache", 0, &[0x21, 0x93, 0x48, 0x23]),
    magic(
        "an Open CAS cache",
        0,
        &[0x53, 0x56, 0x43, 0x00, 0x50, 0x54, 0x49, 0x4f],
    ),
    magic(
        "a ZFS pool member",
        128 << 10,
        &[0x0c, 0xb1, 0xba, 0, 0, 0, 0, 0],
    ),
    magic("a GUID partition table", 512, b"EFI PART"),
    magic("a GUID partition table", 4096, b"EFI PART"),
    magic("an XFS file system", 0, b"XFSB"),
    magic("a btrfs file system", 65536 + 64, b"_BHRfS_M"),
    magic(
        "an ext2, ext3 or ext4 file system",
        1024 + 56,
        &[0x53, 0xef],
    ),
    magic("an F2FS file system", 1024, &[0x10, 0x20, 0xf5, 0xf2]),
    magic("a squashfs image", 0, b"hsqs"),
    magic("an NTFS file system", 3, b"NTFS    "),
    magic("an exFAT file system", 3, b"EXFAT   "),
    magic("a FAT file system", 82, b"FAT32   "),
    magic("a FAT file system", 54, b"FAT1"),
    magic("an ISO 9660 image", 32768 + 1, b"CD001"),
    magic("swap space", 4086, b"SWAPSPACE2"),
    QCOW2,
    VMDK,
    magic("a partition table", 510, &[0x55, 0xaa]),
    magic("a GUID partition table (its backup)", -512, b"EFI PART"),
];

/// Bytes at the start that must be zero for a device to count as blank.
const BLANK_BYTES: usize = 4 << 20;

/// Contents of a device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Contents {
    /// Zeroes as far as was looked.
    Blank,
    /// Something with a name.
    Known(&'static str),
    /// Something.
    Unknown,
}

/// Looks at a device.
pub(crate) fn examine(device: &mut dyn Storage) -> Result<Contents, DeviceError> {
    let size = device.size_bytes();
    let mut head = vec![0; BLANK_BYTES.min(size as usize)];
    device.read(0, &mut head)?;
    let tail_start = size.saturating_sub(65536) / 4096 * 4096;
    let mut tail = vec![0; (size - tail_start) as usize];
    device.read(tail_start, &mut tail)?;
    for known in MAGICS {
        if known.is_on(&head, &tail) {
            return Ok(Contents::Known(known.name));
        }
    }
    let blank = head.iter().chain(&tail).all(|byte| *byte == 0);
    Ok(if blank {
        Contents::Blank
    } else {
        Contents::Unknown
    })
}
