//! Devices that became smaller while they are served, and files in their place that were deleted.

use forebay_io::{DeviceKind, RealDevice};

use crate::report::status::AlteredFile;

/// Its state, if a device is not as it was when it was opened, or last grew.
pub(super) fn look(device: &RealDevice) -> Option<AlteredFile> {
    let found = rustix::fs::fstat(device.as_fd()?).ok()?;
    let is_device = device.kind() == DeviceKind::Block;
    let deleted = !is_device && found.st_nlink == 0;
    // A device that is gone fails its requests, which is told of.
    let size_bytes = device.size_now().ok()?;
    (deleted || size_bytes < device.size_bytes()).then(|| AlteredFile {
        path: device.path().display().to_string(),
        is_device,
        deleted,
        size_bytes,
        served_bytes: device.size_bytes(),
    })
}
