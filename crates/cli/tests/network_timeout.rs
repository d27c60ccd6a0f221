//! The time that requests wait for the server of a network origin, changed while it is away.

mod support;

use support::nbd::Client;
use support::nbdkit::Server;
use support::{Daemon, MIB, Scratch, forebay_says, installed, send_signal, until};

const BLOCK: u32 = 4096;
const SIZE: u64 = 32 * MIB;

fn skips() -> bool {
    let skips = !installed("nbdkit");
    if skips {
        println!("skipped: nbdkit is not installed");
    }
    skips
}

/// A configuration with a volume on the socket `server`, whose requests wait for an hour.
fn configuration(scratch: &Scratch, more: &str) {
    scratch.file("cache", 64 * MIB);
    let socket = scratch.text("server");
    let text = format!(
        "[cache]\ndevice = \"cache\"\ncreate = true\n[[volume]]\n\
         origin = \"nbd+unix:///disk?socket={socket}&origin-timeout=3600\"\n{more}\n"
    );
    std::fs::write(scratch.path("file.toml"), text).unwrap();
}

/// A server, and a daemon with such a configuration.
fn served(scratch: &Scratch, more: &str) -> (Server, Daemon) {
    let server = Server::nbdkit(scratch, &["memory", "32M"]);
    configuration(scratch, more);
    (server, Daemon::start(scratch, &["--config", "file.toml"]))
}

fn get(daemon: &Daemon, scratch: &Scratch) -> String {
    let get = ["get", "--volume", "disk", "origin-timeout"];
    daemon.command(scratch, &get).trim().to_owned()
}

fn set(daemon: &Daemon, scratch: &Scratch, value: &str) {
    let set = ["set", "--volume", "disk", "origin-timeout", value];
    daemon.command(scratch, &set);
}

#[test]
fn requests_that_wait_already_end_with_the_new_time() {
    if skips() {
        return;
    }
    let scratch = Scratch::new();
    let (mut server, daemon) = served(&scratch, "");
    assert!(get(&daemon, &scratch).contains("3600 s"));
    let mut client = Client::connect(&scratch.path("nbd")).unwrap();
    server.kill();
    client.begin_read(SIZE - u64::from(BLOCK), BLOCK).unwrap();
    set(&daemon, &scratch, "1s");
    assert_eq!(client.reply().unwrap().error, 5);
    assert!(get(&daemon, &scratch).contains("1 s"));
    let config = daemon.command(&scratch, &["config"]);
    assert!(config.contains("origin-timeout = \"1 s\""), "{config}");
    set(&daemon, &scratch, "default");
    assert!(get(&daemon, &scratch).contains("3600 s"));
    // It waits again, and its server is back in time.
    client.begin_read(0, BLOCK).unwrap();
    let _server = Server::nbdkit(&scratch, &["memory", "32M"]);
    assert_eq!(client.reply().unwrap().error, 0);
    daemon.stop();
}

#[test]
fn a_file_has_the_time_too_and_other_origins_have_none() {
    if skips() {
        return;
    }
    let scratch = Scratch::new();
    let (_server, daemon) = served(&scratch, "origin-timeout = 7");
    assert!(get(&daemon, &scratch).contains("7 s"));
    for wrong in ["0", "off", "86401", "20ms"] {
        let set = ["set", "--volume", "disk", "origin-timeout", wrong];
        daemon.says(&scratch, &set, 2, &["number of seconds from 1 to 86400"]);
    }
    configuration(&scratch, "origin-timeout = \"9 s\"");
    daemon.command(&scratch, &["reload"]);
    assert!(get(&daemon, &scratch).contains("9 s"));
    daemon.stop();
    let scratch = Scratch::new();
    scratch.file("origin", SIZE);
    scratch.file("cache", 64 * MIB);
    let daemon = Daemon::cached(&scratch, "writethrough", &[]);
    let words = ["origin-timeout is for network origins"];
    let set = ["set", "--volume", "origin", "origin-timeout", "9"];
    daemon.says(&scratch, &set, 2, &words);
    let get = ["get", "--volume", "origin", "origin-timeout"];
    assert!(daemon.command(&scratch, &get).contains("off"));
    daemon.stop();
    let text = "[cache]\ndevice = \"cache\"\n[[volume]]\norigin = \"origin\"\norigin-timeout = 9\n";
    std::fs::write(scratch.path("file.toml"), text).unwrap();
    forebay_says(&scratch, &["check-config", "file.toml"], 2, &words);
}

/// A freeze of a volume in write-back has its writes go to the origin for a moment. It asks the origin
/// before that.
#[test]
fn writes_never_wait_for_the_server_that_a_freeze_finds_away() {
    const INTERRUPTED: i32 = 4;
    if skips() {
        return;
    }
    let scratch = Scratch::new();
    let (mut server, daemon) = served(&scratch, "mode = \"writeback\"");
    let mut client = Client::connect(&scratch.path("nbd")).unwrap();
    client.write(0, &[1; BLOCK as usize]);
    daemon.command(&scratch, &["drain", "disk"]);
    server.kill();

    let mut freeze = daemon.begin(&scratch, &["freeze", "disk"]);
    let mode = || daemon.status(&scratch)["volumes"][0]["mode"].clone();
    for _ in 0..20 {
        assert_eq!(mode(), "writeback");
        client.write(0, &[2; BLOCK as usize]);
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
    send_signal(freeze.id(), "-INT");
    assert_eq!(freeze.wait().unwrap().code(), Some(INTERRUPTED));

    set(&daemon, &scratch, "1s");
    until("the interrupted freeze to have ended", || {
        let mut freeze = daemon.begin(&scratch, &["freeze", "disk"]);
        freeze.wait().unwrap().code() == Some(1)
    });
    let words = ["volume disk goes on as it was: cannot read the origin device"];
    for command in [["freeze", "disk"], ["hand-over", "disk"]] {
        daemon.says(&scratch, &command, 1, &words);
        assert_eq!(mode(), "writeback");
    }
    client.write(0, &[3; BLOCK as usize]);
    let _server = Server::nbdkit(&scratch, &["memory", "32M"]);
    // Flushes of write-back failed meanwhile, of which the next one who flushes hears.
    client.begin_flush().unwrap();
    client.reply().unwrap();
    set(&daemon, &scratch, "default");
    daemon.command(&scratch, &["freeze", "disk"]);
    daemon.command(&scratch, &["thaw", "disk"]);
    daemon.stop();
}
