//! Files in place of devices that were cut short or deleted while they are served.

use forebay_io::{DeviceKind, RealDevice};

use crate::report::status::AlteredFile;

/// Its state, if a file is not as it was when it was opened.
pub(super) fn look(device: &RealDevice) -> Option<AlteredFile> {
    if device.kind() != DeviceKind::File {
        return None;
    }
    let found = rustix::fs::fstat(device.as_fd()).ok()?;
    let size_bytes = u64::try_from(found.st_size).unwrap_or(0);
    let deleted = found.st_nlink == 0;
    (deleted || size_bytes < device.size_bytes()).then(|| AlteredFile {
        path: device.path().display().to_string(),
        deleted,
        size_bytes,
        served_bytes: device.size_bytes(),
    })
}
