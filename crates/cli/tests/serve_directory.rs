//! All caches of a directory's files as one service: each is served and replaced by itself, what
//! cannot be served is in nobody's way, and a stop is everyone's.

mod support;

use std::process::Child;

use support::manager::Manager;
use support::nbd::Client;
use support::{MIB, Scratch, forebay, forebay_ok, forebay_says, send_signal, start_logging, until};

/// Ended, with its daemons, at the end of the test.
struct Service<'a> {
    child: Child,
    scratch: &'a Scratch,
    manager: Manager,
}

/// A cache with a volume of its own, exported at the socket `NAME.nbd`.
fn configure(scratch: &Scratch, name: &str, more: &str) {
    std::fs::create_dir_all(scratch.path("etc")).unwrap();
    scratch.file(&format!("{name}-ssd"), 16 * MIB);
    let place = scratch.text("");
    let text = format!(
        "[cache]\ndevice = \"{place}{name}-ssd\"\ncreate = true\n[http]\nlisten = \"off\"\n\
         [nbd]\nlisten = [\"unix:{place}{name}.nbd\"]\n[daemon]\nstate-dir = \"{place}state\"\n\
         [[volume]]\norigin = \"{place}{name}-disk\"\nname = \"{name}\"\nmode = \"writeback\"\n{more}"
    );
    std::fs::write(scratch.path(&format!("etc/{name}.toml")), text).unwrap();
}

fn configure_with_disks(scratch: &Scratch, names: [&str; 2]) {
    for name in names {
        scratch.file(&format!("{name}-disk"), 32 * MIB);
        configure(scratch, name, "");
    }
}

/// One that can never be served.
fn configure_wrongly(scratch: &Scratch) {
    std::fs::create_dir_all(scratch.path("etc")).unwrap();
    std::fs::write(scratch.path("etc/wrong.toml"), "x = 1\n").unwrap();
}

impl Service<'_> {
    /// Two caches of these names and one that can never be served, and what the manager was told
    /// when they were.
    fn of_two<'a>(scratch: &'a Scratch, names: [&str; 2]) -> (Service<'a>, String) {
        configure_with_disks(scratch, names);
        configure_wrongly(scratch);
        let service = Service::start(scratch, "2000000");
        let ready = service.manager.wait_for("READY=1", "WATCHDOG=1");
        (service, ready)
    }

    fn start<'a>(scratch: &'a Scratch, watchdog_usec: &str) -> Service<'a> {
        let manager = Manager::new(&scratch.path("notify"));
        let arguments = ["serve", "--config", "etc", "--control", "run"];
        let environment = [
            ("NOTIFY_SOCKET", &*scratch.text("notify")),
            ("WATCHDOG_USEC", watchdog_usec),
        ];
        let child = start_logging(scratch, &arguments, &environment, "service");
        Service {
            child,
            scratch,
            manager,
        }
    }

    fn log(&self) -> String {
        std::fs::read_to_string(self.scratch.path("log-service")).unwrap()
    }

    fn signal(&self, signal: &str) {
        send_signal(self.child.id(), signal);
    }

    /// The daemon's process, as it says itself; none while no daemon answers.
    fn answering(&self, name: &str) -> Option<u32> {
        let socket = self.scratch.text(&format!("run/{name}.sock"));
        let status = forebay(self.scratch, &["status", "--json", "--control", &socket]);
        let status: serde_json::Value = serde_json::from_slice(&status.stdout).ok()?;
        u32::try_from(status["pid"].as_u64()?).ok()
    }

    fn daemon(&self, name: &str) -> u32 {
        self.answering(name).expect("a daemon serves")
    }

    fn client(&self, name: &str) -> Client {
        let export = self.scratch.path(&format!("{name}.nbd"));
        until("its export", || Client::connect(&export).is_ok());
        Client::connect(&export).unwrap()
    }

    /// Waits until the cache, one of two, is served by another daemon than that one.
    fn served_after(&self, name: &str, before: u32) {
        until("another daemon", || {
            self.answering(name).is_some_and(|daemon| daemon != before)
        });
        self.manager.wait_for("STATUS=1 of 3", "");
        self.manager.wait_for("STATUS=2 of 3", "");
    }
}

impl Drop for Service<'_> {
    fn drop(&mut self) {
        if self.child.try_wait().unwrap().is_some() {
            return;
        }
        // Nobody may start others meanwhile.
        self.signal("-STOP");
        let threads = std::fs::read_dir(format!("/proc/{}/task", self.child.id()));
        for thread in threads.into_iter().flatten().flatten() {
            let children = std::fs::read_to_string(thread.path().join("children"));
            for daemon in children.unwrap_or_default().split_whitespace() {
                send_signal(daemon.parse().unwrap(), "-KILL");
            }
        }
        let _gone = self.child.kill();
        let _reaped = self.child.wait();
    }
}

#[test]
fn each_cache_is_served_and_replaced_by_itself() {
    let scratch = Scratch::new();
    let (mut service, ready) = Service::of_two(&scratch, ["one", "two"]);
    assert!(ready.contains("2 of 3 caches are served"), "{ready}");
    assert!(ready.contains("wrong: exit status: 2"), "{ready}");
    for name in ["one", "two"] {
        service.client(name).write(4096, &[7; 4096]);
    }

    let [one, two] = ["one", "two"].map(|name| service.daemon(name));
    send_signal(one, "-KILL");
    service.served_after("one", one);
    send_signal(two, "-STOP");
    until("the word that it hangs", || {
        service.log().contains("the daemon hangs")
    });
    service.served_after("two", two);
    for name in ["one", "two"] {
        assert_eq!(service.client(name).read(4096, 4096), [7; 4096]);
    }
    let log = service.log();
    assert!(log.contains("daemon{cache=two}"), "{log}");

    let (one, two) = (service.daemon("one"), service.daemon("two"));
    assert_ne!(one, two);
    let socket = scratch.text("run/one.sock");
    forebay_ok(&scratch, &["stop", "--control", &socket]);
    let told = service.manager.wait_for("STATUS=1 of 3", "");
    assert!(!told.contains("one"), "it was wanted: {told}");
    assert_eq!(service.daemon("two"), two);

    service.signal("-TERM");
    service.manager.wait_for("STOPPING=1", "");
    let status = service.child.wait().unwrap();
    assert_eq!(status.code(), Some(2), "the wrong one is remembered");
    let said = service.log();
    assert!(said.contains("not served: wrong"), "{said}");
    for name in ["one", "two"] {
        let checked = forebay_ok(&scratch, &["check", &format!("{name}-ssd")]);
        assert!(checked.contains("stopped in order"), "{checked}");
    }
    let left = std::fs::read_dir(scratch.path("run")).unwrap().flatten();
    let left: Vec<_> = left.map(|entry| entry.file_name()).collect();
    assert!(left.is_empty(), "{left:?}");
}

#[test]
fn what_is_missing_is_waited_for_and_what_is_new_is_served_after_a_reload() {
    let scratch = Scratch::new();
    configure(&scratch, "late", "");
    let mut service = Service::start(&scratch, "60000000");
    let ready = service.manager.wait_for("READY=1", "WATCHDOG=1");
    assert!(ready.contains("0 of 1 caches are served"), "{ready}");
    scratch.file("late-disk", 32 * MIB);
    service.manager.wait_for("STATUS=1 of 1", "");

    scratch.file("new-disk", 32 * MIB);
    configure(&scratch, "new", "");
    configure(&scratch, "late", "[settings]\ndirty-low = 7\n");
    service.signal("-HUP");
    service.manager.wait_for("STATUS=2 of 2", "");
    until("the word of the reload", || {
        service.log().contains("late: settings: in force")
    });
    std::fs::remove_file(scratch.path("etc/new.toml")).unwrap();
    service.signal("-HUP");
    until("the word about it", || {
        service.log().contains("new.toml is gone")
    });
    service.client("new").write(0, &[1; 4096]);

    configure(&scratch, "never", "");
    service.signal("-HUP");
    service.manager.wait_for("STATUS=2 of 3", "");
    std::fs::remove_file(scratch.path("etc/never.toml")).unwrap();
    service.signal("-HUP");
    until("the end of its attempts", || {
        service.log().contains("never: stopped")
    });

    service.signal("-USR1");
    assert_eq!(service.child.wait().unwrap().code(), Some(0));
}

#[test]
fn a_cache_that_another_daemon_serves_is_left_alone() {
    let scratch = Scratch::new();
    configure_with_disks(&scratch, ["mine", "theirs"]);
    let control = scratch.text("run/theirs.sock");
    let mut theirs = support::start(
        &scratch,
        &[
            "serve",
            "--config",
            "etc/theirs.toml",
            "--control",
            &control,
        ],
    );
    until("its socket", || {
        std::os::unix::net::UnixStream::connect(&control).is_ok()
    });
    let mut service = Service::start(&scratch, "60000000");
    let ready = service.manager.wait_for("READY=1", "WATCHDOG=1");
    assert!(ready.contains("STATUS=1 of 2"), "{ready}");
    let log = service.log();
    assert!(log.contains("theirs: served by a daemon"), "{log}");
    service.signal("-TERM");
    assert_eq!(service.child.wait().unwrap().code(), Some(0));
    forebay_ok(&scratch, &["stop", "--control", &control]);
    assert_eq!(theirs.wait().unwrap().code(), Some(0));
}

#[test]
fn a_directory_is_served_as_its_files_say() {
    let scratch = Scratch::new();
    std::fs::create_dir(scratch.path("etc")).unwrap();
    let serve = ["serve", "--config", "etc", "--control", "run"];
    let words = ["there is no configuration file in", "etc", "NAME.toml"];
    forebay_says(&scratch, &serve, 2, &words);
    configure(&scratch, "one", "");
    let words = ["etc is a directory", "no option but --control"];
    forebay_says(&scratch, &[&serve[..], &["--ublk"]].concat(), 2, &words);
}

#[test]
fn a_second_service_leaves_the_first_ones_daemons_alone() {
    let scratch = Scratch::new();
    // The other is there for the service to go on when the first is stopped.
    let (mut service, _) = Service::of_two(&scratch, ["one", "other"]);
    let one = service.daemon("one");
    let serve = ["serve", "--config", "etc", "--control", "run"];
    forebay_says(&scratch, &serve, 2, &["one: served by a daemon"]);
    // Longer than a daemon may be silent.
    for _ in 0..6 {
        service.manager.wait_for("WATCHDOG=1", "STATUS");
    }
    assert_eq!(service.daemon("one"), one);
    assert!(!service.log().contains("hangs"), "{}", service.log());

    // Stopped and wanted again in one breath.
    let socket = scratch.text("run/one.sock");
    forebay_ok(&scratch, &["stop", "--control", &socket]);
    until("another daemon", || {
        service.signal("-HUP");
        service.answering("one").is_some_and(|daemon| daemon != one)
    });
    service.signal("-TERM");
    assert_eq!(service.child.wait().unwrap().code(), Some(2));
}

#[test]
fn what_can_never_be_served_is_no_success() {
    let scratch = Scratch::new();
    configure_wrongly(&scratch);
    let mut service = Service::start(&scratch, "60000000");
    assert_eq!(service.child.wait().unwrap().code(), Some(2));
    service.manager.says_nothing_of("READY=1");
}
