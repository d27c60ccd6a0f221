//! The devices that most experiments use, and a cache over them.

use forebay_engine::{Mode, Settings};
use forebay_model::{DeviceModel, Disk, DiskParameters, Ssd, SsdParameters};

use forebay_virtual::{Cached, CpuCost, Setup};

/// An SSD of this size that starts trimmed.
pub(crate) fn ssd(size_bytes: u64) -> Box<dyn DeviceModel> {
    Box::new(Ssd::new(SsdParameters {
        size_bytes,
        ..SsdParameters::sata_850pro()
    }))
}

/// A disk of this size.
pub(crate) fn disk(size_bytes: u64) -> Box<dyn DeviceModel> {
    Box::new(Disk::new(DiskParameters::sata_7200rpm(size_bytes)))
}

/// A write-back cache on a whole SSD, over a disk.
pub(crate) fn cached(
    cache_bytes: u64,
    origin_bytes: u64,
    settings: Settings,
    cpu: CpuCost,
) -> Result<Cached, String> {
    Cached::new(Setup {
        ssd: ssd(cache_bytes),
        cache_bytes,
        disk: disk(origin_bytes),
        stripe: None,
        origin_bytes,
        mode: Mode::Writeback,
        settings,
        cpu,
    })
}
