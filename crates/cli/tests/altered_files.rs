//! S17: files that are served as devices, and are cut short or deleted meanwhile.

mod support;

use support::nbd::Client;
use support::{Daemon, MIB, Scratch, until};

/// The text of a trouble, if there is one of the kind.
fn trouble(scratch: &Scratch, daemon: &Daemon, kind: &str) -> Option<String> {
    let status = daemon.status(scratch);
    let mut list = status["trouble"].as_array().unwrap().iter();
    let found = list.find(|trouble| trouble["kind"] == kind)?;
    Some(found["text"].as_str().unwrap().to_owned())
}

#[test]
fn a_file_that_is_cut_short_is_noticed_and_its_words_bring_it_back() {
    let scratch = Scratch::new();
    scratch.file("origin", 16 * MIB);
    scratch.file("cache", 32 * MIB);
    let daemon = Daemon::cached(&scratch, "writeback", &["--age", "never"]);
    let mut client = Client::connect(&scratch.path("nbd")).unwrap();
    client.write(0, &[7; 4096]);
    client.flush();
    assert_eq!(trouble(&scratch, &daemon, "file-cut-short"), None);
    let cache = std::fs::File::options()
        .write(true)
        .open(scratch.path("cache"))
        .unwrap();
    cache.set_len(24 * MIB).unwrap();
    let text = trouble(&scratch, &daemon, "file-cut-short").unwrap();
    let remedy = format!("truncate -s {} cache", 32 * MIB);
    assert!(text.contains(&remedy), "{text}");
    until("a word of it in the log", || daemon.log().contains(&remedy));
    let mended = std::process::Command::new("sh")
        .args(["-c", &remedy])
        .current_dir(scratch.path(""))
        .status()
        .unwrap();
    assert!(mended.success());
    assert_eq!(trouble(&scratch, &daemon, "file-cut-short"), None);
    assert_eq!(client.read(0, 4096), [7; 4096]);
    drop(client);
    daemon.kill();
    let daemon = Daemon::cached(&scratch, "writeback", &[]);
    let mut client = Client::connect(&scratch.path("nbd")).unwrap();
    assert_eq!(client.read(0, 4096), [7; 4096]);

    // And the origin, which the stop would not miss.
    std::fs::remove_file(scratch.path("origin")).unwrap();
    let text = trouble(&scratch, &daemon, "file-deleted").unwrap();
    assert!(text.contains("origin was deleted"), "{text}");
    until("a word of that in the log", || {
        daemon.log().contains("was deleted while it is served")
    });
}
