//! A machine that writes to a volume, and moves with it to another host.

use serde_json::Value;

use super::moving::{daemon, make_dirty};
use super::nbd::Client;
use super::writing_machine::{BLOCKS, boot_sector, expected, number_of};
use super::{Daemon, MIB, Scratch};

const BLOCK: u64 = 4096;
/// Room for all that the machine writes, and as much behind it.
const DISK_BYTES: u64 = 2 * BLOCKS * BLOCK;

/// The manual's page on machines.
pub(crate) const PAGE: &str = include_str!("../../../../manual/src/recipes/vm.md");

/// The page from these words on, up to others.
pub(crate) fn part_of_page(from: &str, to: &str) -> &'static str {
    let (_, after) = PAGE.split_once(from).expect("its part");
    after.split_once(to).expect("the next part").0
}

/// Two hosts, the image between them, and the machine's disk on the first.
pub(crate) struct Hosts {
    pub(crate) here: Scratch,
    pub(crate) there: Scratch,
    pub(crate) disk: Scratch,
    pub(crate) cache_bytes: u64,
    pub(crate) dirty_mib: u64,
}

impl Hosts {
    pub(crate) fn new(dirty_mib: u64) -> Hosts {
        Hosts {
            here: Scratch::new(),
            there: Scratch::new(),
            disk: Scratch::new(),
            cache_bytes: (dirty_mib * 2 + 128) * MIB,
            dirty_mib,
        }
    }

    pub(crate) fn size_bytes(&self) -> u64 {
        DISK_BYTES + self.dirty_mib * MIB
    }

    pub(crate) fn first_daemon(&self) -> Daemon {
        let daemon = daemon(&self.here, &self.disk, self.cache_bytes);
        let dirty = make_dirty(&daemon, &self.here, DISK_BYTES, self.dirty_mib);
        println!("{} MiB dirty before the machine starts", dirty / MIB);
        let mut client = Client::connect(&self.here.path("nbd")).unwrap();
        client.write(0, &boot_sector());
        daemon
    }

    pub(crate) fn second_daemon(&self) -> Daemon {
        daemon(&self.there, &self.disk, self.cache_bytes)
    }

    /// Writes back here what is dirty, by the page's command with a smaller `--left`: the test has less
    /// than 64 MiB.
    pub(crate) fn drain(&self, first: &Daemon, command: &[&str]) {
        let [command @ .., "--left", "64M"] = command else {
            panic!("{command:?}");
        };
        let command = [command, &["--left", "1M", "--json"]].concat();
        let said = first.command(&self.here, &command);
        let last = said.lines().last().expect("a result");
        let result: Value = serde_json::from_str(last).unwrap();
        let [dirty, written_back] =
            ["dirty_bytes", "drained_bytes"].map(|name| result[name].as_u64().unwrap());
        assert!(dirty <= MIB, "{said}");
        assert!(written_back >= self.dirty_mib * MIB / 2, "{said}");
    }

    /// Every number was written once, in order, here and then there, and is on the volume.
    pub(crate) fn assert_whole(&self, mut said: Vec<u8>, more: &[u8]) {
        said.extend(more);
        let words = said.chunks_exact(4);
        let numbers: Vec<u64> = words
            .map(|word| u32::from_le_bytes(word.try_into().unwrap()).into())
            .collect();
        let last = numbers.len() as u64;
        assert!(numbers.iter().copied().eq(1..=last), "{numbers:?}");
        let mut client = Client::connect(&self.there.path("nbd")).unwrap();
        for (block, number) in expected(last) {
            let found = number_of(&client.read(block * BLOCK, BLOCK as u32));
            // One more may have been on its way when the machine was stopped.
            assert!(
                found == number || found == number + BLOCKS,
                "block {block}: {found} instead of {number}"
            );
        }
        for at in 0..self.dirty_mib {
            let bytes = client.read(DISK_BYTES + at * MIB, BLOCK as u32);
            assert!(bytes.iter().all(|byte| *byte == at as u8), "MiB {at}");
        }
    }
}
