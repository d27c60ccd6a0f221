//! The recipe of the manual for `qemu-nbd` and RBD, as it stands there.

use std::os::unix::net::UnixStream;
use std::path::Path;

use crate::cluster::{Cluster, POOL};
use crate::support::nbd::Client;
use crate::support::{MIB, until};

const PAGE: &str = "../../manual/src/recipes/network.md";
/// The words of blocks that this test runs, as the page has them.
const MARK: &str = "(crates/cli/tests/ceph/recipe.rs) -->\n```sh\n";

/// The marked blocks of the page.
fn blocks() -> Vec<String> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(PAGE);
    let page = std::fs::read_to_string(path).unwrap();
    let blocks = page.split(MARK).skip(1);
    blocks
        .map(|rest| rest.split_once("\n```").unwrap().0.to_owned())
        .collect()
}

/// A block with another path or option, as this machine has none of the page's.
fn with(block: &str, changes: &[(&str, &str)]) -> String {
    changes.iter().fold(block.to_owned(), |block, (old, new)| {
        assert!(block.contains(old), "the page has no {old}: {block}");
        block.replace(old, new)
    })
}

#[test]
fn the_manuals_recipe_serves_an_image() {
    let Some(cluster) = Cluster::start() else {
        return;
    };
    let [server, daemon] = blocks().try_into().expect("two blocks of the page");
    let scratch = &cluster.scratch;
    let image = format!("{POOL}/image");
    cluster.run("rbd", &["create", "--size", "64M", &image]);
    scratch.file("cache", 32 * MIB);
    let (socket, cache) = (scratch.text("server"), scratch.text("cache"));
    let (nbd, control) = (scratch.text("nbd"), scratch.text("control"));
    let state = scratch.text("state");
    let program = env!("CARGO_BIN_EXE_forebay");
    let serve = format!("{program} serve --control {control} --state-dir {state}");
    let instead = format!("--nbd unix:{nbd}");
    let server = with(&server, &[("/run/rbd.sock", &socket)]);
    let changes = [
        ("/run/rbd.sock", &*socket),
        ("/dev/nvme0n1p3", &*cache),
        ("--ublk", &*instead),
        ("forebay serve", &*serve),
    ];
    let daemon = with(&daemon, &changes);
    let listens = |socket: &str| UnixStream::connect(socket).is_ok();
    let mut first = cluster.shell(&server, "server");
    until("the server", || listens(&socket));
    let mut serving = cluster.shell(&daemon, "daemon");
    until("the daemon", || listens(&nbd));
    let mut client = Client::connect(Path::new(&nbd)).unwrap();
    client.write(0, &[1; 4096]);
    // A service manager starts it again.
    first.kill();
    let mut second = cluster.shell(&server, "server");
    client.write(MIB, &[2; 4096]);
    client.flush();
    assert!(client.read(0, 4096) == [1; 4096]);
    serving.kill();
    second.kill();
    let found = cluster.export("image");
    let expected = |block: u64| match block {
        0 => 1,
        256 => 2,
        _ => 0,
    };
    for (number, block) in found.chunks(4096).enumerate() {
        let byte = expected(number as u64);
        assert!(block.iter().all(|found| *found == byte), "block {number}");
    }
}
