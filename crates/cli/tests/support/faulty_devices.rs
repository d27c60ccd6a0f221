//! Devices that fail when a test says so.

use std::io::Write as _;

use forebay_faulty::FaultyDevices;

use super::Scratch;

/// Devices of these names and sizes, in bytes, in the directory `devices`. None where FUSE cannot be
/// had, and a line that says so.
pub(crate) fn faulty_devices(scratch: &Scratch, sizes: &[(&str, u64)]) -> Option<FaultyDevices> {
    let directory = scratch.path("devices");
    std::fs::create_dir_all(&directory).unwrap();
    match forebay_faulty::mount(&directory, sizes) {
        Ok(devices) => Some(devices),
        Err(error) => {
            // Past the test harness's capture: a reader of good news sees it too.
            let _ = writeln!(
                std::io::stderr(),
                "skipped: devices that fail need FUSE (/dev/fuse, and root): {error}"
            );
            None
        }
    }
}
