//! Rot on the cache device, while nobody compares hits, is found by the scrub and reaches no origin.

mod support;

use std::fs::File;
use std::os::unix::fs::FileExt;

use support::model::{contents, expect_each, write_each};
use support::nbd::Client;
use support::{Daemon, MIB, Scratch, until};

const BLOCK: u64 = 4096;
const BLOCKS: u64 = 1000;

/// Changes a byte of a block where the cache has it.
fn rot(scratch: &Scratch, block: u64) {
    let cache = std::fs::read(scratch.path("cache")).unwrap();
    let wanted = contents(block + 1);
    let mut pages = cache.chunks_exact(BLOCK as usize);
    let page = pages.position(|page| page == wanted).expect("it is cached");
    let file = File::options().write(true).open(scratch.path("cache"));
    let file = file.unwrap();
    let at = page as u64 * BLOCK + 100;
    file.write_all_at(&[!wanted[100]], at).unwrap();
    file.sync_all().unwrap();
}

fn checksum_errors(daemon: &Daemon, scratch: &Scratch) -> u64 {
    let traffic = &daemon.status(scratch)["traffic"];
    traffic["checksum_errors"].as_u64().expect("a number")
}

fn started(scratch: &Scratch) -> (Daemon, Client) {
    scratch.file("origin", 8 * MIB);
    scratch.file("cache", 32 * MIB);
    let daemon = Daemon::cached(
        scratch,
        "writeback",
        &[
            "--age",
            "never",
            "--dirty-low",
            "60",
            "--verify",
            "background",
        ],
    );
    let mut client = Client::connect(&scratch.path("nbd")).unwrap();
    write_each(&mut client, BLOCKS, 1);
    (daemon, client)
}

#[test]
fn rot_of_clean_data_is_found_and_the_origin_asked() {
    let scratch = Scratch::new();
    let (daemon, mut client) = started(&scratch);
    daemon.command(&scratch, &["drain", "origin"]);
    rot(&scratch, 40);
    assert_eq!(checksum_errors(&daemon, &scratch), 0);
    daemon.command(&scratch, &["set", "scrub", "1s"]);
    until("the scrub to find it", || {
        checksum_errors(&daemon, &scratch) > 0
    });
    // What was found is dropped as soon as it was read again.
    until("the block to come from the origin", || {
        client.read(40 * BLOCK, BLOCK as u32) == contents(41)
    });
    expect_each(&mut client, BLOCKS, 1);
    drop(client);
    daemon.stop();
}

#[test]
fn rot_of_dirty_data_reaches_no_origin() {
    let scratch = Scratch::new();
    let (daemon, mut client) = started(&scratch);
    rot(&scratch, 40);
    daemon.command(&scratch, &["set", "scrub", "1s"]);
    until("reads to fail", || {
        client.begin_read(40 * BLOCK, BLOCK as u32).unwrap();
        client.reply().unwrap().error != 0
    });
    assert_eq!(client.read(41 * BLOCK, BLOCK as u32), contents(42));
    daemon.command(&scratch, &["set", "writeback", "cleaner"]);
    let origin = || std::fs::read(scratch.path("origin")).unwrap();
    let block_of =
        |image: &[u8], block: u64| image[(block * BLOCK) as usize..][..BLOCK as usize].to_vec();
    until("all others to be written back", || {
        let image = origin();
        let others = (0..BLOCKS).filter(|block| *block != 40);
        others
            .into_iter()
            .all(|block| block_of(&image, block) == contents(block + 1))
    });
    assert_eq!(block_of(&origin(), 40), [0; BLOCK as usize], "as it was");
    drop(client);
    daemon.kill();
}
