//! Pages of the daemon over HTTP: the page, metrics, history, events; and clients that get none.

mod support;

use support::nbd::Client;
use support::{Daemon, MIB, Scratch, forebay_says, http, until};

fn served(scratch: &Scratch, more: &[&str]) -> Daemon {
    let mut arguments = vec!["--http", "127.0.0.1:0", "--age", "3600"];
    arguments.extend(more);
    Daemon::cached(scratch, "writeback", &arguments)
}

#[test]
fn everything_is_there_and_true() {
    let scratch = Scratch::new();
    scratch.pattern("origin", 32 * MIB);
    scratch.file("cache", 24 * MIB);
    let daemon = served(&scratch, &[]);
    let address = http::address(&daemon, &scratch);
    for (path, content) in [
        ("/", "text/html"),
        ("/dashboard.js", "text/javascript"),
        ("/dashboard.css", "text/css"),
        ("/uplot.js", "text/javascript"),
        ("/uplot.css", "text/css"),
        ("/metrics", "application/openmetrics-text"),
        ("/api/status", "application/json"),
    ] {
        let (head, body) = http::get(&address, path, &address);
        assert!(head.starts_with("HTTP/1.1 200 OK"), "{path}: {head}");
        assert!(
            head.contains(&format!("Content-Type: {content}")),
            "{path}: {head}"
        );
        assert!(
            head.contains("Content-Security-Policy: default-src 'none'"),
            "{head}"
        );
        assert!(!body.is_empty(), "{path}");
    }
    let mut client = Client::connect(&scratch.path("nbd")).unwrap();
    until("two samples", || {
        let history = http::json(&address, "/api/history?since=0");
        history["unix_seconds"].as_array().unwrap().len() >= 2
    });
    for _ in 0..2 {
        for at in 0..16 {
            client.read(at * 65536, 65536);
        }
    }
    client.write(8 * MIB, &[7; 65536]);
    // The sum over samples is what was read, to the rounding of a rate.
    let sum = |name: &str| {
        let history = http::json(&address, "/api/history");
        let numbers = |list: &serde_json::Value| -> Vec<f64> {
            let all = list.as_array().unwrap().iter();
            all.map(|value| value.as_f64().unwrap_or(0.0)).collect()
        };
        let (times, rates) = (
            numbers(&history["unix_seconds"]),
            numbers(&history["columns"][name]),
        );
        let steps = times.windows(2).zip(&rates[1..]);
        steps
            .map(|(pair, rate)| (pair[1] - pair[0]) * rate)
            .sum::<f64>()
    };
    until("the reads in the history", || {
        let read = sum("read_bytes_per_second") / (2 * MIB) as f64;
        (0.9..1.1).contains(&read)
    });
    let history = http::json(&address, "/api/history");
    let last = |name: &str| {
        history["columns"][name]
            .as_array()
            .unwrap()
            .last()
            .unwrap()
            .clone()
    };
    assert_eq!(last("dirty_bytes"), 65536.0);
    let status = http::json(&address, "/api/status");
    assert_eq!(status["lately"]["read_blocks_hit"], 256, "{status}");
    assert_eq!(status["lately"]["read_blocks_missed"], 256);
    assert_eq!(status["trouble"].as_array().unwrap().len(), 0, "{status}");
    let newest = history["unix_seconds"]
        .as_array()
        .unwrap()
        .last()
        .unwrap()
        .clone();
    let after = http::json(&address, &format!("/api/history?since={newest}"));
    assert!(after["unix_seconds"].as_array().unwrap().len() <= 2);

    let volume = http::json(&address, "/api/volumes")[0].clone();
    assert_eq!(volume["name"], "origin");
    let touched = |part: usize| -> u64 {
        let rows = volume["heat"].as_array().unwrap().iter();
        rows.map(|row| row["requests"][part].as_u64().unwrap())
            .sum()
    };
    // A part is half a MiB: eight reads of 64 KiB, twice; the write is at a quarter.
    assert_eq!(
        (touched(0), touched(1), touched(2), touched(16)),
        (16, 16, 0, 1),
        "{volume}"
    );
    assert!(volume["curve"].as_array().unwrap().len() > 1, "{volume}");
    assert_eq!(volume["multiples"][1]["factor"], 1.0);

    daemon.command(&scratch, &["mode", "origin", "readonly"]);
    daemon.command(&scratch, &["set", "dirty-limit", "80"]);
    // As `forebay get` says them.
    let settings = http::json(&address, "/api/settings");
    assert_eq!(
        (&settings["dirty-limit"], &settings["age"]),
        (&"80 %".into(), &"3600 s".into()),
        "{settings}"
    );
    // The list of volumes has all it shows.
    let volume = http::json(&address, "/api/status")["volumes"][0].clone();
    assert_eq!(
        (&volume["mode"], &volume["dirty_bytes"]),
        (&"readonly".into(), &65536.into())
    );
    assert_eq!(
        (
            &volume["read_latency"]["count"],
            &volume["write_latency"]["count"]
        ),
        (&32.into(), &1.into())
    );
    let events = http::json(&address, "/api/events?after=1");
    let kinds: Vec<&str> = events
        .as_array()
        .unwrap()
        .iter()
        .map(|event| event["kind"].as_str().unwrap())
        .collect();
    assert_eq!(kinds, ["mode", "settings"], "{events}");
    let page = daemon.command(&scratch, &["status"]);
    assert!(
        page.contains("reads 50.0 %") && page.contains("no trouble"),
        "{page}"
    );
    assert!(
        page.contains(&format!("dashboard http://{address}/cache/control/\n")),
        "{page}"
    );
    daemon.stop();
}

#[test]
fn wrong_requests_and_hosts_are_refused_and_harm_nothing() {
    let scratch = Scratch::new();
    scratch.file("origin", 8 * MIB);
    scratch.file("cache", 16 * MIB);
    let daemon = served(&scratch, &[]);
    let address = http::address(&daemon, &scratch);
    let (head, _) = http::get(&address, "/api/status", "evil.example");
    assert!(head.starts_with("HTTP/1.1 403"), "{head}");
    let (head, _) = http::get(&address, "/api/status", "localhost");
    assert!(head.starts_with("HTTP/1.1 200"), "{head}");
    let (head, _) = http::get(&address, "/etc/passwd", &address);
    assert!(head.starts_with("HTTP/1.1 404"), "{head}");
    let long = [b"GET /".as_slice(), &[b'a'; 20_000], b" HTTP/1.1\r\n\r\n"].concat();
    for (request, status) in [
        (
            b"POST /api/status HTTP/1.1\r\nHost: localhost\r\n\r\n".as_slice(),
            "405",
        ),
        (b"GET / HTTP/1.1\r\n\r\n", "400"),
        (b"\xff\xfe\0\r\n\r\n", "400"),
        (&long, "431"),
    ] {
        let answer = http::exchange(&address, request);
        // A reset can take the answer away where the request was not read to its end.
        let fitting = answer.starts_with(&format!("HTTP/1.1 {status}"));
        assert!(
            fitting || (status == "431" && answer.is_empty()),
            "{status}: {answer}"
        );
    }
    for since in ["-1e300", "1&since=2"] {
        http::json(&address, &format!("/api/history?since={since}"));
        http::json(&address, &format!("/api/events?after={since}"));
    }
    for since in ["nan", "inf", "x", "", "%00"] {
        for path in ["/api/history?since", "/api/events?after"] {
            let (head, body) = http::get(&address, &format!("{path}={since}"), &address);
            assert!(head.starts_with("HTTP/1.1 400"), "{head}");
            assert!(body.contains("is a number"), "{body}");
        }
    }
    let idle: Vec<_> = (0..40)
        .filter_map(|_| std::net::TcpStream::connect(&address).ok())
        .collect();
    until("an answer beside idle connections", || {
        let (head, _) = http::get(&address, "/api/status", &address);
        head.starts_with("HTTP/1.1 200")
    });
    drop(idle);
    let head = http::exchange(&address, b"HEAD / HTTP/1.1\r\nHost: localhost\r\n\r\n");
    assert!(
        head.ends_with("\r\n\r\n") && head.contains("Content-Length: "),
        "{head}"
    );
    daemon.stop();
}

#[test]
fn addresses_are_checked_before_anything_begins() {
    let scratch = Scratch::new();
    scratch.file("origin", 8 * MIB);
    let serve = |address: &str, code, words: &[&str]| {
        let nbd = format!("unix:{}", scratch.text("nbd"));
        let arguments = [
            "serve", "--origin", "origin", "--nbd", &nbd, "--http", address,
        ];
        forebay_says(&scratch, &arguments, code, words);
    };
    serve(
        "0.0.0.0:0",
        3,
        &["others can reach the dashboard", "--http-insecure"],
    );
    serve("somewhere", 2, &["no address for HTTP"]);
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    serve(&address, 1, &["is the port taken"]);

    let daemon = Daemon::start(&scratch, &["--origin", "origin", "--http", "off"]);
    assert!(daemon.status(&scratch)["dashboard"].is_null());
    daemon.stop();
    let open = [
        "--origin",
        "origin",
        "--http",
        "0.0.0.0:0",
        "--http-insecure",
    ];
    let daemon = Daemon::start(&scratch, &open);
    let port = http::address(&daemon, &scratch)
        .rsplit(':')
        .next()
        .unwrap()
        .to_owned();
    let (head, _) = http::get(&format!("127.0.0.1:{port}"), "/metrics", "192.0.2.1");
    assert!(head.starts_with("HTTP/1.1 200"), "{head}");
    daemon.stop();
}
