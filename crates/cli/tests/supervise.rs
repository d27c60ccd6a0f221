//! The supervisor of the daemon that the root file system is on: killed, halted and stopped daemons
//! are replaced, and one that never serves is an error.

mod support;

use std::process::Child;

use support::nbd::Client;
use support::{MIB, Scratch, forebay_ok, forebay_says, send_signal, start_logging, until};

/// Ended, with its daemon, at the end of the test.
struct Supervisor<'a> {
    child: Child,
    scratch: &'a Scratch,
}

/// A process's `cmdline`, with spaces.
fn command_line(process: &std::fs::DirEntry) -> String {
    let line = std::fs::read(process.path().join("cmdline")).unwrap_or_default();
    String::from_utf8_lossy(&line).replace('\0', " ")
}

impl Supervisor<'_> {
    fn start<'a>(scratch: &'a Scratch, watchdog: &str) -> Supervisor<'a> {
        let control = scratch.text("root.sock");
        let arguments = ["packaging", "supervise", "root.toml", "--control", &control];
        let arguments = [&arguments[..], &["--watchdog", watchdog]].concat();
        let child = start_logging(scratch, &arguments, &[], "supervisor");
        Supervisor { child, scratch }
    }

    /// The daemon of this test, by its arguments.
    fn daemon(&self) -> Option<u32> {
        let socket = self.scratch.text("root.sock");
        let mut processes = std::fs::read_dir("/proc").unwrap().flatten();
        let ours = |process: &std::fs::DirEntry| {
            let line = command_line(process);
            line.starts_with("@forebay serve ") && line.contains(&socket)
        };
        let process = processes.find(ours)?;
        process.file_name().to_str()?.parse().ok()
    }

    fn log(&self) -> String {
        std::fs::read_to_string(self.scratch.path("log-supervisor")).unwrap()
    }

    /// Another daemon than that one serves, with what was written.
    fn serves_after(&self, before: u32) {
        until("another daemon", || {
            self.daemon().is_some_and(|daemon| daemon != before)
        });
        until("its export", || {
            Client::connect(&self.scratch.path("nbd")).is_ok()
        });
        let mut client = Client::connect(&self.scratch.path("nbd")).unwrap();
        assert_eq!(client.read(4096, 4096), [7; 4096]);
    }
}

impl Drop for Supervisor<'_> {
    fn drop(&mut self) {
        let _gone = self.child.kill();
        let _reaped = self.child.wait();
        if let Some(daemon) = self.daemon() {
            send_signal(daemon, "-KILL");
        }
    }
}

/// A configuration that exports over NBD, as there are no block devices here.
fn configure(scratch: &Scratch, origin: &str) {
    let text = format!(
        "[cache]\ndevice = \"{}\"\ncreate = true\n[http]\nlisten = \"off\"\n[nbd]\nlisten = [\"unix:{}\"]\n\
         [daemon]\nstate-dir = \"{}\"\n[[volume]]\norigin = \"{}\"\nmode = \"writeback\"\n",
        scratch.text("cache"),
        scratch.text("nbd"),
        scratch.text("state"),
        scratch.text(origin)
    );
    std::fs::write(scratch.path("root.toml"), text).unwrap();
}

/// The root of process 1 is for those to see that may trace it.
fn may_follow_init() -> bool {
    let may = std::fs::metadata("/proc/1/root").is_ok();
    if !may {
        println!("skipped: /proc/1/root is not for this user to see");
    }
    may
}

#[test]
fn daemons_that_end_or_hang_are_replaced() {
    if !may_follow_init() {
        return;
    }
    let scratch = Scratch::new();
    scratch.file("origin", 32 * MIB);
    scratch.file("cache", 16 * MIB);
    configure(&scratch, "origin");
    let supervisor = Supervisor::start(&scratch, "2");
    until("the word that it serves", || {
        scratch.path("root.initramfs/served").exists()
    });
    Client::connect(&scratch.path("nbd"))
        .unwrap()
        .write(4096, &[7; 4096]);

    let first = supervisor.daemon().unwrap();
    send_signal(first, "-KILL");
    supervisor.serves_after(first);

    let second = supervisor.daemon().unwrap();
    send_signal(second, "-STOP");
    supervisor.serves_after(second);
    assert!(
        supervisor.log().contains("the daemon hangs"),
        "{}",
        supervisor.log()
    );

    let third = supervisor.daemon().unwrap();
    forebay_ok(&scratch, &["stop", "--control", &scratch.text("root.sock")]);
    supervisor.serves_after(third);
}

#[test]
fn a_daemon_that_never_serves_is_an_error() {
    if !may_follow_init() {
        return;
    }
    let scratch = Scratch::new();
    scratch.file("cache", 16 * MIB);
    configure(&scratch, "missing");
    let mut supervisor = Supervisor::start(&scratch, "60");
    assert_eq!(supervisor.child.wait().unwrap().code(), Some(1));
    let said = supervisor.log();
    assert!(
        said.contains("ended before it served (exit status: 1)"),
        "{said}"
    );
    assert!(!scratch.path("root.initramfs/served").exists());
}

#[test]
fn caches_of_the_initramfs_are_listed_and_checked() {
    let scratch = Scratch::new();
    let file = |name: &str, more: &str| {
        let text = format!(
            "[cache]\ndevice = \"/dev/{name}-ssd\"\n{more}\n[[volume]]\norigin = \"/dev/{name}-disk\"\n"
        );
        std::fs::write(scratch.path(&format!("{name}.toml")), text).unwrap();
    };
    let ublk = "[ublk]\nenabled = true\n";
    file("plain", ublk);
    file(
        "root",
        &format!("{ublk}[daemon]\ninitramfs = true\nstate-dir = \"/boot/forebay\""),
    );
    let listed = forebay_ok(
        &scratch,
        &["packaging", "initramfs", "plain.toml", "root.toml"],
    );
    assert_eq!(listed, "root /boot/forebay /dev/root-ssd /dev/root-disk\n");
    let two = "[cache]\ndevice = [\"/dev/a\", \"/dev/b\"]\ncopies = 2\n[ublk]\nenabled = true\n\
        [daemon]\ninitramfs = true\nstate-dir = \"/boot/forebay\"\n[[volume]]\norigin = \"/dev/disk\"\n";
    std::fs::write(scratch.path("two.toml"), two).unwrap();
    let listed = forebay_ok(&scratch, &["packaging", "initramfs", "two.toml"]);
    assert_eq!(
        listed,
        "two /boot/forebay spared:/dev/a spared:/dev/b /dev/disk\n"
    );

    file("bare", "[daemon]\ninitramfs = true");
    let words = ["bare.toml: line 4", "[ublk] enabled = true", "`state-dir`"];
    forebay_says(&scratch, &["check-config", "bare.toml"], 2, &words);
    file(
        "net",
        &format!(
            "{ublk}[nbd]\nlisten = [\"tcp:[::]:10809\"]\n[daemon]\ninitramfs = true\nstate-dir = \"/boot/f\""
        ),
    );
    forebay_says(
        &scratch,
        &["check-config", "net.toml"],
        2,
        &["no network in the initramfs"],
    );
    file(
        "odd name",
        &format!("{ublk}[daemon]\ninitramfs = true\nstate-dir = \"/boot/f\""),
    );
    let words = ["cannot be used in an initramfs"];
    forebay_says(
        &scratch,
        &["packaging", "initramfs", "odd name.toml"],
        2,
        &words,
    );
}
