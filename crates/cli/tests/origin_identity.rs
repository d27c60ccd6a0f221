//! S24: a file as an origin, told from a copy of it.

mod support;

use support::nbd::Client;
use support::{Daemon, MIB, Scratch, forebay_ok};

/// Also if it has the original's contents, as after a crash nobody can tell: what the cache holds
/// may be what the copy lacks.
#[test]
fn a_copied_origin_is_refused_with_what_to_do() {
    let scratch = Scratch::new();
    scratch.pattern("origin", 8 * MIB);
    scratch.file("cache", 32 * MIB);
    let daemon = Daemon::cached(&scratch, "writeback", &["--age", "never"]);
    let mut client = Client::connect(&scratch.path("nbd")).unwrap();
    client.write(0, &[7; 4096]);
    client.flush();
    daemon.kill();
    std::fs::rename(scratch.path("origin"), scratch.path("original")).unwrap();
    std::fs::copy(scratch.path("original"), scratch.path("origin")).unwrap();
    let arguments = ["--origin", "origin", "--cache", "cache"];
    let Err(said) = Daemon::try_start(&scratch, &arguments) else {
        panic!("the copy was served");
    };
    for words in [
        "another origin",
        "was restored",
        "forebay rescue origin --cache",
    ] {
        assert!(said.contains(words), "{said}");
    }
    let rescue = ["rescue", "origin", "--cache", "cache", "--to", "saved"];
    forebay_ok(&scratch, &rescue);
    assert_eq!(
        std::fs::read(scratch.path("saved")).unwrap()[..4096],
        [7; 4096]
    );

    // The original under its name is the same file.
    std::fs::rename(scratch.path("original"), scratch.path("origin")).unwrap();
    let daemon = Daemon::cached(&scratch, "writeback", &[]);
    let mut client = Client::connect(&scratch.path("nbd")).unwrap();
    assert_eq!(client.read(0, 4096), [7; 4096]);
    drop(client);
    daemon.stop();
    Daemon::cached(&scratch, "writeback", &[]).stop();
}
