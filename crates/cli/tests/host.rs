//! The caches of a machine at one address: metrics with the name of each, a page for each, and
//! another daemon that takes the address over.

mod support;

use std::process::Child;

use support::{
    MIB, Scratch, forebay_ok, forebay_says, http, openmetrics, send_signal, start, until,
};

/// A daemon by the name of its cache, with its control socket among those of the others.
struct Named {
    name: &'static str,
    child: Child,
}

impl Named {
    fn start(scratch: &Scratch, name: &'static str, address: &str) -> Named {
        let exported = scratch.text(&format!("{name}-nbd"));
        for (kind, size) in [("disk", 32 * MIB), ("ssd", 16 * MIB)] {
            let file = format!("{name}-{kind}");
            if !scratch.path(&file).exists() {
                scratch.file(&file, size);
            }
        }
        let text = format!(
            "[cache]\ndevice = \"{name}-ssd\"\ncreate = true\n[nbd]\nlisten = [\"unix:{exported}\"]\n\
             [http]\nlisten = \"{address}\"\n[[volume]]\norigin = \"{name}-disk\"\nname = \"volume-{name}\"\n"
        );
        std::fs::write(scratch.path(&format!("{name}.toml")), text).unwrap();
        std::fs::create_dir_all(scratch.path("run")).unwrap();
        let config = format!("{name}.toml");
        let arguments = ["serve", "--config", &config, "--control", &control(name)];
        let child = start(scratch, &arguments);
        let named = Named { name, child };
        until("its answer", || named.page(scratch).is_some());
        named
    }

    /// The page of its cache, as its status says it.
    fn page(&self, scratch: &Scratch) -> Option<String> {
        let arguments = ["status", "--json", "--control", &control(self.name)];
        let output = support::forebay(scratch, &arguments);
        let status: serde_json::Value = serde_json::from_slice(&output.stdout).ok()?;
        assert_eq!(status["name"], self.name, "{status}");
        status["dashboard"].as_str().map(str::to_owned)
    }

    fn stop(mut self) {
        send_signal(self.child.id(), "-TERM");
        assert!(self.child.wait().unwrap().success());
    }

    fn kill(mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }
}

impl Drop for Named {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn control(name: &str) -> String {
    format!("run/{name}.sock")
}

fn free_address() -> String {
    let free = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    free.local_addr().unwrap().to_string()
}

/// The metrics at an address; none while nobody answers there.
fn metrics(address: &str) -> Option<String> {
    std::net::TcpStream::connect(address).ok()?;
    let (head, body) = http::get(address, "/metrics", address);
    head.starts_with("HTTP/1.1 200").then_some(body)
}

/// Whether each cache is up, in order of their names.
fn up(metrics: &str) -> Vec<(String, bool)> {
    let samples = metrics.lines().filter_map(|line| {
        let (name, value) = line
            .strip_prefix("forebay_up{cache=\"")?
            .split_once("\"} ")?;
        Some((name.to_owned(), value == "1"))
    });
    samples.collect()
}

fn is(metrics: &str, expected: &[(&str, bool)]) -> bool {
    let expected: Vec<(String, bool)> = expected
        .iter()
        .map(|(name, up)| ((*name).to_owned(), *up))
        .collect();
    up(metrics) == expected
}

fn served_together(first: &'static str, second: &'static str) {
    let scratch = Scratch::new();
    let address = free_address();
    let holder = Named::start(&scratch, first, &address);
    // Alone it is the page itself, without a choice.
    let (_, page) = http::get(&address, "/", &address);
    assert!(page.contains("dashboard.js"), "{page}");
    let other = Named::start(&scratch, second, &address);
    for daemon in [&holder, &other] {
        let name = daemon.name;
        let page = format!("http://{address}/cache/{name}/");
        assert_eq!(daemon.page(&scratch).unwrap(), page);
        let status = http::json(&address, &format!("/cache/{name}/api/status"));
        assert_eq!(status["volumes"][0]["name"], format!("volume-{name}"));
        for part in ["history?since=0", "events?after=0", "volumes"] {
            http::json(&address, &format!("/cache/{name}/api/{part}"));
        }
        for file in ["", "dashboard.js", "uplot.css"] {
            let (head, _) = http::get(&address, &format!("/cache/{name}/{file}"), &address);
            assert!(head.starts_with("HTTP/1.1 200"), "{file}: {head}");
        }
        let (_, own) = http::get(&address, &format!("/cache/{name}/metrics"), &address);
        assert_eq!(up(&own), [(name.to_owned(), true)]);
    }
    let all = metrics(&address).unwrap();
    assert!(is(&all, &[("a", true), ("b", true)]), "{all}");
    openmetrics::check(&all);
    for line in all.lines().filter(|line| !line.starts_with('#')) {
        assert!(
            line.contains("{cache=\"a\"") || line.contains("{cache=\"b\""),
            "{line}"
        );
    }
    for name in ["a", "b"] {
        let of_volume =
            format!("forebay_volume_dirty_bytes{{cache=\"{name}\",volume=\"volume-{name}\"}} 0\n");
        assert!(all.contains(&of_volume), "{of_volume} is not in {all}");
    }
    let (_, overview) = http::get(&address, "/", &address);
    assert!(overview.contains("overview.js"), "{overview}");
    let lines = http::json(&address, "/api/caches");
    assert_eq!(
        (&lines[0]["name"], &lines[1]["name"]),
        (&"a".into(), &"b".into())
    );
    assert_eq!(lines[1]["now"]["volumes"][0], "volume-b");
    for missing in ["/cache/c/api/status", "/cache/a", "/api/status"] {
        let (head, _) = http::get(&address, missing, &address);
        assert!(head.starts_with("HTTP/1.1 404"), "{missing}: {head}");
    }

    // A daemon that was stopped is absent, and the other has the address.
    holder.stop();
    until("the other at the address", || {
        metrics(&address).is_some_and(|all| is(&all, &[(second, true)]))
    });
    // A daemon that died is down.
    let again = Named::start(&scratch, first, &address);
    until("both", || {
        metrics(&address).is_some_and(|all| up(&all).len() == 2)
    });
    again.kill();
    let mut expected = [(first, false), (second, true)];
    expected.sort_unstable();
    let all = metrics(&address).unwrap();
    assert!(is(&all, &expected), "{all}");
    let lines = http::json(&address, "/api/caches");
    let down = lines
        .as_array()
        .unwrap()
        .iter()
        .find(|line| line["name"] == first);
    assert_eq!(down.unwrap()["up"], false, "{lines}");
    // The address goes on when its holder is killed.
    let third = Named::start(&scratch, first, &address);
    other.kill();
    let mut expected = [(first, true), (second, false)];
    expected.sort_unstable();
    until("the third at the address", || {
        metrics(&address).is_some_and(|all| is(&all, &expected))
    });
    third.stop();
}

#[test]
fn one_scrape_has_both_in_either_order() {
    served_together("a", "b");
    served_together("b", "a");
}

#[test]
fn the_command_prints_what_the_address_serves() {
    let scratch = Scratch::new();
    let address = free_address();
    let daemon = Named::start(&scratch, "a", &address);
    let printed = forebay_ok(
        &scratch,
        &["status", "--prometheus", "--control", &control("a")],
    );
    assert!(is(&printed, &[("a", true)]), "{printed}");
    // Another file may name the address for its dashboard, and nobody may for anything else.
    let other = |nbd: &str| {
        let text = format!(
            "[nbd]\nlisten = [\"{nbd}\"]\ninsecure = true\n[http]\nlisten = \"{address}\"\n[[volume]]\norigin = \"/x\"\n"
        );
        std::fs::write(scratch.path("other.toml"), text).unwrap();
    };
    other("unix:other");
    forebay_ok(&scratch, &["check-config", "a.toml", "other.toml"]);
    other(&format!("tcp:{address}"));
    let words = ["is used already"];
    forebay_says(
        &scratch,
        &["check-config", "a.toml", "other.toml"],
        2,
        &words,
    );
    daemon.stop();
}

/// S21: on a machine of several users the address alone keeps nobody out.
#[test]
fn a_token_is_asked_of_readers() {
    const TOKEN: &str = "0123456789abcdef";
    let scratch = Scratch::new();
    scratch.file("origin", 16 * MIB);
    let daemon = |token: &str| {
        let more = ["--origin", "origin", "--http-token", token];
        support::Daemon::try_start(&scratch, &more)
    };
    let put = |text: &str, mode: u32| {
        let path = scratch.path("token");
        std::fs::write(&path, text).unwrap();
        let mode = std::os::unix::fs::PermissionsExt::from_mode(mode);
        std::fs::set_permissions(&path, mode).unwrap();
    };
    put("short", 0o600);
    let said = daemon("token").err().unwrap();
    assert!(said.contains("16 at least"), "{said}");
    put(TOKEN, 0o644);
    let said = daemon("token").err().unwrap();
    assert!(said.contains("open to every user"), "{said}");
    let said = daemon("tokn").err().unwrap();
    assert!(said.contains("cannot read the dashboard's token"), "{said}");

    put(&format!("{TOKEN}\n"), 0o640);
    let daemon = daemon("token").unwrap();
    let address = http::address(&daemon, &scratch);
    let head = |path: &str, more: &str| {
        let request = format!("GET {path} HTTP/1.1\r\nHost: {address}\r\n{more}\r\n");
        let answer = http::exchange(&address, request.as_bytes());
        answer.split_once("\r\n\r\n").unwrap().0.to_owned()
    };
    for path in ["/", "/metrics", "/api/caches", "/cache/control/api/status"] {
        let without = head(path, "");
        assert!(without.starts_with("HTTP/1.1 401 "), "{without}");
        assert!(without.contains("WWW-Authenticate: Basic"), "{without}");
    }
    let wrong = head("/metrics", "Authorization: Bearer 0123456789abcdee\r\n");
    assert!(wrong.starts_with("HTTP/1.1 401 "), "{wrong}");
    let bearer = head("/metrics", &format!("authorization: Bearer {TOKEN}\r\n"));
    assert!(bearer.starts_with("HTTP/1.1 200 "), "{bearer}");
    // admin:0123456789abcdef
    let basic = "Authorization: Basic YWRtaW46MDEyMzQ1Njc4OWFiY2RlZg==\r\n";
    assert!(head("/metrics", basic).starts_with("HTTP/1.1 200 "));
    let config = daemon.command(&scratch, &["config"]);
    assert!(
        config.contains("[http]\ntoken = ") && !config.contains(TOKEN),
        "{config}"
    );
    daemon.stop();
}
