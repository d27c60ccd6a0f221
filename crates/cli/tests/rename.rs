//! A volume is renamed while it is used: nobody is disturbed, the new name lasts, and no old name
//! makes a second volume.

mod support;

use support::nbd::Client;
use support::{Daemon, MIB, Scratch, forebay_ok};

fn files(scratch: &Scratch) {
    scratch.file("origin", 32 * MIB);
    scratch.file("second", 16 * MIB);
    scratch.file("cache", 64 * MIB);
}

/// A configuration file with these lines under its only volume.
fn configure(scratch: &Scratch, volume: &str) {
    let file = format!(
        "[cache]\ndevice = \"cache\"\ncreate = true\n[nbd]\nlisten = [\"unix:{}\"]\n\
         [[volume]]\norigin = \"origin\"\nmode = \"writeback\"\n{volume}\n",
        scratch.text("nbd")
    );
    std::fs::write(scratch.path("f.toml"), file).unwrap();
}

fn open(scratch: &Scratch, name: &str) -> Result<Client, String> {
    Client::open(&scratch.path("nbd"), name).unwrap()
}

fn refused(scratch: &Scratch, name: &str) -> String {
    open(scratch, name)
        .err()
        .unwrap_or_else(|| panic!("{name} can be opened"))
}

fn names(scratch: &Scratch, daemon: &Daemon) -> Vec<String> {
    let volumes = daemon.status(scratch)["volumes"].clone();
    let volumes = volumes.as_array().unwrap().iter();
    volumes
        .map(|volume| volume["name"].as_str().unwrap().to_owned())
        .collect()
}

fn started(scratch: &Scratch) -> Daemon {
    Daemon::start(scratch, &["--config", "f.toml"])
}

#[test]
fn clients_stay_and_the_file_must_follow() {
    let scratch = Scratch::new();
    files(&scratch);
    configure(&scratch, "");
    let daemon = started(&scratch);
    let mut client = open(&scratch, "origin").unwrap();
    client.write(0, &[1; 8192]);
    let said = daemon.command(&scratch, &["rename", "origin", "archive"]);
    assert!(
        said.starts_with("volume origin is called archive now\n"),
        "{said}"
    );
    for word in ["to do: write name = \"archive\"", "in f.toml"] {
        assert!(said.contains(word), "no {word}: {said}");
    }
    client.write(4096, &[2; 4096]);
    assert_eq!(client.read(0, 4096), [1; 4096]);
    assert_eq!(
        open(&scratch, "archive").unwrap().read(4096, 4096),
        [2; 4096]
    );
    assert!(refused(&scratch, "origin").contains("ask for `archive`"));
    assert_eq!(refused(&scratch, "other"), "no export has this name");
    assert_eq!(names(&scratch, &daemon), ["archive"]);
    let metrics = daemon.command(&scratch, &["status", "--prometheus"]);
    assert!(metrics.contains("forebay_volume_dirty_bytes{cache=\"control\",volume=\"archive\"}"));
    daemon.says(
        &scratch,
        &["mode", "origin", "readonly"],
        2,
        &["it is called `archive` now"],
    );
    daemon.command(&scratch, &["drain", "archive"]);

    let again = daemon.command(&scratch, &["rename", "origin", "archive", "--json"]);
    let again: serde_json::Value = serde_json::from_str(&again).unwrap();
    assert_eq!(again["renamed"], false);
    assert_eq!(again["name"], "archive");

    let old_name = [
        "nothing was changed",
        "the file calls volume `archive` `origin`",
        "write name = \"archive\"",
    ];
    daemon.says(&scratch, &["reload"], 2, &old_name);
    assert_eq!(names(&scratch, &daemon), ["archive"]);
    configure(&scratch, "name = \"archive\"");
    assert_eq!(
        daemon.command(&scratch, &["reload"]),
        "nothing has changed\n"
    );
    assert_eq!(client.read(4096, 4096), [2; 4096]);
    daemon.stop();
}

#[test]
fn the_new_name_holds_from_its_answer_on() {
    let scratch = Scratch::new();
    files(&scratch);
    configure(&scratch, "name = \"name-0\"");
    for round in 0..4 {
        let (old, new) = (format!("name-{round}"), format!("name-{}", round + 1));
        let daemon = started(&scratch);
        let mut client = open(&scratch, &old).unwrap();
        if round > 0 {
            assert_eq!(client.read(0, 4096), [round; 4096]);
        }
        client.write(0, &[round + 1; 4096]);
        daemon.command(&scratch, &["rename", &old, &new]);
        daemon.kill();
        let Err(said) = Daemon::try_start(&scratch, &["--config", "f.toml"]) else {
            panic!("it was served under its old name");
        };
        assert!(said.contains("Some(3)"), "{said}");
        let told = format!("as volume `{new}`, not as `{old}`: write name = \"{new}\"");
        assert!(said.contains(&told), "{said}");
        configure(&scratch, &format!("name = \"{new}\""));
    }
    let daemon = started(&scratch);
    assert_eq!(open(&scratch, "name-4").unwrap().read(0, 4096), [4; 4096]);
    daemon.command(&scratch, &["detach", "name-4"]);
    daemon.stop();
    let checked = forebay_ok(&scratch, &["check", "cache"]);
    assert!(!checked.contains("name-3"), "{checked}");
}

#[test]
fn names_that_cannot_be_change_nothing() {
    let scratch = Scratch::new();
    files(&scratch);
    let daemon = Daemon::cached(&scratch, "writeback", &[]);
    daemon.command(&scratch, &["attach", "second"]);
    let long = "n".repeat(65);
    for (new, word) in [
        ("second", "there is a volume `second` already"),
        ("", "1 to 64 bytes"),
        (long.as_str(), "1 to 64 bytes"),
        ("a\tb", "`a\\tb` cannot be the name"),
        ("a\nb", "no control characters"),
    ] {
        daemon.says(&scratch, &["rename", "origin", new], 2, &[word]);
    }
    daemon.says(
        &scratch,
        &["rename", "third", "fourth"],
        2,
        &["no volume `third`"],
    );
    assert_eq!(names(&scratch, &daemon), ["origin", "second"]);
    daemon.command(&scratch, &["rename", "origin", "origin"]);
    daemon.command(&scratch, &["rename", "origin", &"ä".repeat(32)]);
    daemon.kill();
    let daemon = Daemon::start(&scratch, &["--origin", "second"]);
    daemon.says(
        &scratch,
        &["rename", "second", "first"],
        2,
        &["without a cache"],
    );
    daemon.stop();
}

#[test]
fn a_former_name_is_free_for_another_volume() {
    let scratch = Scratch::new();
    files(&scratch);
    let daemon = Daemon::cached(&scratch, "writeback", &[]);
    let mut first = open(&scratch, "origin").unwrap();
    first.write(0, &[1; 4096]);
    let answer = daemon.command(&scratch, &["rename", "origin", "archive", "--json"]);
    let answer: serde_json::Value = serde_json::from_str(&answer).unwrap();
    assert_eq!(
        answer["to_do"][0],
        "give it with --name archive at the next start"
    );
    daemon.command(&scratch, &["attach", "second", "--name", "origin"]);
    let mut second = open(&scratch, "origin").unwrap();
    assert_eq!(second.read(0, 4096), [0; 4096]);
    second.write(0, &[2; 4096]);
    assert_eq!(first.read(0, 4096), [1; 4096]);
    daemon.says(
        &scratch,
        &["rename", "archive", "origin"],
        2,
        &["there is a volume `origin` already"],
    );
    daemon.command(&scratch, &["rename", "origin", "newer"]);
    daemon.command(&scratch, &["rename", "archive", "origin"]);
    assert_eq!(open(&scratch, "origin").unwrap().read(0, 4096), [1; 4096]);
    assert_eq!(open(&scratch, "newer").unwrap().read(0, 4096), [2; 4096]);
    daemon.stop();
}
