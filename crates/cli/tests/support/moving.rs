//! Two hosts that serve one image in turn, over an emulated network.

use super::nbd::Client;
use super::nbdkit::Server;
use super::{Daemon, MIB, Scratch};

/// Of 10 Gbit/s, and a millisecond more for each request.
const NETWORK: [&str; 3] = ["rate=10G", "rdelay=1ms", "wdelay=1ms"];

/// An image behind a server that is a network away.
pub(crate) fn network_disk(scratch: &Scratch, size_bytes: u64) -> Server {
    scratch.file("disk", size_bytes);
    let served = ["--filter=rate", "--filter=delay", "file", "disk"];
    Server::nbdkit(scratch, &[&served[..], &NETWORK].concat())
}

/// A daemon that serves that image as `guest`, with an empty cache, and keeps what is dirty.
pub(crate) fn daemon(here: &Scratch, disk: &Scratch, cache_bytes: u64) -> Daemon {
    here.file("cache", cache_bytes);
    let origin = format!("nbd+unix:///disk?socket={}", disk.text("server"));
    let arguments = [
        "--origin",
        &origin,
        "--name",
        "guest",
        "--cache",
        "cache",
        "--create",
        "--mode",
        "writeback",
        "--age",
        "never",
        "--dirty-low",
        "85",
    ];
    Daemon::start(here, &arguments)
}

/// The dirty data of a run, in MiB: `MOVE_DIRTY_MIB`, or `usually`.
pub(crate) fn dirty_mib(usually: u64) -> u64 {
    let asked = std::env::var("MOVE_DIRTY_MIB").ok();
    asked.map_or(usually, |mib| mib.parse().expect("a number of MiB"))
}

/// Writes dirty data from an offset on, which tells its place. Returns how much is dirty.
pub(crate) fn make_dirty(daemon: &Daemon, here: &Scratch, offset: u64, dirty_mib: u64) -> u64 {
    let mut client = Client::connect(&here.path("nbd")).unwrap();
    for at in 0..dirty_mib {
        client.write(offset + at * MIB, &vec![at as u8; MIB as usize]);
    }
    let status = daemon.status(here);
    let dirty = status["volumes"][0]["dirty_bytes"].as_u64().unwrap();
    assert!(dirty >= dirty_mib * MIB / 4 * 3, "{dirty} bytes are dirty");
    dirty
}
