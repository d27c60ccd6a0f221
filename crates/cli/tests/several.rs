//! Several daemons at once: commands show each, or find the one that is meant.

mod support;

use std::process::Child;

use serde_json::Value;
use support::nbd::Client;
use support::{MIB, Scratch, forebay, forebay_ok, forebay_says, send_signal, start, text, until};

/// At the usual place of its control socket, where those of other tests may be, too.
struct Usual(Child);

impl Usual {
    fn start(scratch: &Scratch, volume: &str) -> Usual {
        scratch.file(&format!("{volume}-disk"), 32 * MIB);
        scratch.file(&format!("{volume}-ssd"), 16 * MIB);
        let [disk, ssd] = ["disk", "ssd"].map(|kind| format!("{volume}-{kind}"));
        let export = format!("unix:{}", scratch.text(volume));
        let child = start(
            scratch,
            &[
                "serve", "--origin", &disk, "--cache", &ssd, "--create", "--name", volume, "--nbd",
                &export,
            ],
        );
        let daemon = Usual(child);
        until("its export", || {
            Client::connect(&scratch.path(volume)).is_ok()
        });
        daemon
    }
}

impl Drop for Usual {
    fn drop(&mut self) {
        send_signal(self.0.id(), "-TERM");
        let _reaped = self.0.wait();
    }
}

/// The control socket of the daemon of a volume, as the list of all has it.
fn socket_of(scratch: &Scratch, volume: &str) -> String {
    let page = forebay_ok(scratch, &["status"]);
    let lines: Vec<&str> = page.lines().collect();
    let at = lines
        .iter()
        .position(|line| line.starts_with(&format!("volume {volume} ")));
    let socket = lines[..at.unwrap()]
        .iter()
        .rev()
        .find(|line| line.ends_with(".sock:"));
    socket.unwrap().trim_end_matches(':').to_owned()
}

#[test]
fn commands_about_a_volume_find_the_daemon_that_serves_it() {
    let scratch = Scratch::new();
    let [one, two] = ["one", "two"].map(|name| format!("{name}-{}", std::process::id()));
    let _daemons = [&one, &two].map(|volume| Usual::start(&scratch, volume));

    let said = forebay_ok(&scratch, &["status"]);
    assert!(said.contains(&one) && said.contains(&two), "{said}");
    let said = forebay_ok(&scratch, &["status", "--json"]);
    let pages: Vec<Value> = said
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    let serves = |page: &Value, volume: &str| page["volumes"][0]["name"] == volume;
    for volume in [&one, &two] {
        assert_eq!(pages.iter().filter(|page| serves(page, volume)).count(), 1);
    }

    let mode_of_two = || {
        let said = text(&forebay(&scratch, &["status", "--json"]));
        let pages = said
            .lines()
            .filter_map(|line| serde_json::from_str::<Value>(line).ok());
        let page = pages.into_iter().find(|page| serves(page, &two)).unwrap();
        page["volumes"][0]["mode"].as_str().unwrap().to_owned()
    };
    forebay_ok(&scratch, &["mode", &two, "readonly"]);
    assert_eq!(mode_of_two(), "readonly");
    let new = format!("{two}-new");
    forebay_ok(&scratch, &["rename", &two, &new]);
    let again = forebay_ok(&scratch, &["rename", &two, &new]);
    assert!(again.contains("already"), "{again}");
    forebay_ok(&scratch, &["drain", &one]);
    forebay_ok(&scratch, &["detach", &one]);
    let words = [
        "none of the daemons that run serves a volume",
        "forebay status",
    ];
    forebay_says(&scratch, &["mode", &one, "readonly"], 2, &words);
    // The choice is between caches, and their volumes say which is which.
    let volume_of_two = format!("(volume {new})");
    let words = [
        "several daemons run; choose one with --control",
        &volume_of_two,
    ];
    forebay_says(&scratch, &["set", "dirty-high", "60"], 2, &words);
    let socket = format!("--control {}", socket_of(&scratch, &new));
    let words = ["dirty-high is a setting of the cache as a whole", &socket];
    forebay_says(
        &scratch,
        &["set", "--volume", &new, "dirty-high", "60"],
        2,
        &words,
    );
    // As it says.
    let arguments = [
        "set",
        "dirty-high",
        "60",
        "--control",
        &socket_of(&scratch, &new),
    ];
    forebay_ok(&scratch, &arguments);
    // Without a value the mode is shown.
    assert_eq!(forebay_ok(&scratch, &["mode", &new]), "readonly\n");
    let said = forebay_ok(&scratch, &["mode", &new, "--json"]);
    let said: Value = serde_json::from_str(&said).unwrap();
    assert_eq!(
        (&said["name"], &said["mode"]),
        (&new.as_str().into(), &"readonly".into())
    );
}
