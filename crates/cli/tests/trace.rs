//! Commands that read block traces.

mod support;

use serde_json::Value;
use support::{Scratch, forebay, forebay_ok, text};

fn write(scratch: &Scratch, name: &str, content: &[u8]) -> String {
    let path = scratch.path(name);
    std::fs::write(&path, content).expect("a trace");
    path.display().to_string()
}

#[test]
fn simulate_gives_the_miss_ratio_of_each_policy_at_each_size() {
    let scratch = Scratch::new();
    let trace = write(
        &scratch,
        "blocks",
        b"# four blocks\n1\n2\n3\n1\r\n4\n\n1\n2",
    );
    let json = [
        "trace",
        "simulate",
        &trace,
        "--format",
        "blocks",
        "--policies",
        "fifo,lru,opt",
        "--sizes",
        "3,50%",
        "--json",
    ];
    let said: Value = serde_json::from_str(&forebay_ok(&scratch, &json)).expect("JSON");
    assert_eq!(
        (&said["accesses"], &said["footprint_blocks"]),
        (&7.into(), &4.into())
    );
    let found: Vec<(String, u64, u64)> = said["results"]
        .as_array()
        .expect("results")
        .iter()
        .map(|result| {
            let misses = result["misses"].as_u64().expect("misses");
            let ratio = result["miss_ratio"].as_f64().expect("miss_ratio");
            assert!((ratio - misses as f64 / 7.0).abs() < 1e-12);
            let policy = result["policy"].as_str().expect("policy").to_owned();
            (
                policy,
                result["size_blocks"].as_u64().expect("size"),
                misses,
            )
        })
        .collect();
    let expected = [
        ("fifo", 3, 6),
        ("fifo", 2, 6),
        ("lru", 3, 5),
        ("lru", 2, 6),
        ("opt", 3, 4),
        ("opt", 2, 5),
    ];
    assert_eq!(
        found,
        expected.map(|(policy, size, misses)| (policy.to_owned(), size, misses))
    );
    let table = forebay_ok(
        &scratch,
        &["trace", "simulate", &trace, "--format", "blocks"],
    );
    for word in ["7 block accesses", "w-tinylfu", "20%", "1.0000"] {
        assert!(table.contains(word), "{table}");
    }
}

#[test]
fn what_is_wrong_with_a_trace_is_said_by_line_or_skipped_and_counted() {
    let scratch = Scratch::new();
    let trace = write(&scratch, "blocks", b"1\n2\nthree\n\xff\n5\n");
    let simulate = ["trace", "simulate", &trace, "--format", "blocks", "--json"];
    let output = forebay(&scratch, &simulate);
    let said = text(&output);
    assert_eq!(output.status.code(), Some(1));
    assert!(
        said.contains("line 3: expected a block number, found `three`"),
        "{said}"
    );
    let skipping = [&simulate[..], &["--skip-bad"]].concat();
    let said: Value = serde_json::from_str(&forebay_ok(&scratch, &skipping)).expect("JSON");
    assert_eq!(
        (&said["accesses"], &said["skipped"]),
        (&3.into(), &2.into())
    );

    let text_of_many = write(&scratch, "many", &b"12345\n".repeat(20));
    for (arguments, word, code) in [
        (
            &["trace", "simulate", &trace, "--format", "nonsense"][..],
            "known: blocks, blkparse",
            2,
        ),
        // Long enough for a record of Forebay's.
        (
            &["trace", "simulate", &text_of_many],
            "the format unless another is given",
            1,
        ),
        (
            &[
                "trace",
                "simulate",
                &trace,
                "--format",
                "blocks",
                "--policies",
                "x",
            ],
            "s3-fifo, lru",
            2,
        ),
        (
            &[
                "trace", "simulate", &trace, "--format", "blocks", "--sizes", "0",
            ],
            "5%",
            2,
        ),
        (
            &[
                "trace",
                "simulate",
                &trace,
                "--format",
                "blocks",
                "--block-size",
                "3",
            ],
            "power of two",
            2,
        ),
        (
            &["trace", "simulate", "/nowhere", "--format", "blocks"],
            "cannot open /nowhere",
            1,
        ),
    ] {
        let output = forebay(&scratch, arguments);
        let said = text(&output);
        assert_eq!(output.status.code(), Some(code), "{said}");
        assert!(said.contains(word), "{said}");
    }
    let empty = write(&scratch, "empty", b"\n");
    let output = forebay(
        &scratch,
        &["trace", "simulate", &empty, "--format", "blocks"],
    );
    assert!(text(&output).contains("no read or write request"));
}

/// A hot set read and written beside a long scan, an hour of it.
fn workload() -> String {
    let mut lines = String::new();
    for at in 0..20_000u64 {
        let micros = at * 180_000;
        let hot = at * 7919 % 300 * 8192;
        let kind = if at % 3 == 0 { 'W' } else { 'R' };
        lines += &format!("1,{kind},{hot},4096,{micros}\n");
        if at % 4 == 0 {
            lines += &format!("1,R,{},65536,{micros}\n", (1 << 30) + at / 4 * 65536);
        }
    }
    lines
}

#[test]
fn advise_recommends_a_cache_and_says_what_to_expect() {
    let scratch = Scratch::new();
    let trace = write(&scratch, "a<b>.csv", workload().as_bytes());
    let page = scratch.path("advice.html");
    let html = page.to_str().expect("a path");
    // Each hot block is written every 54 seconds: worth keeping back for longer than that.
    let advise = [
        "advise", &trace, "--format", "alibaba", "--html", html, "--age", "600",
    ];
    let json = [&advise[..], &["--json"]].concat();
    let said: Value = serde_json::from_str(&forebay_ok(&scratch, &json)).expect("JSON");
    let advice = &said["recommendation"];
    let number = |value: &Value| {
        value
            .as_f64()
            .unwrap_or_else(|| panic!("{value} in {said}"))
    };
    assert_eq!(advice["mode"], "writeback");
    assert!(number(&advice["sequential_cutoff_bytes"]) >= 1048576.0);
    assert!((number(&said["duration_seconds"]) - 3600.0).abs() < 1.0);
    // Without a warm-up, the 20,000 accesses to 300 blocks all but hit; the scan's 80,000 do not.
    let expected = &advice["expected"];
    assert!(
        (number(&expected["hit_ratio"]) - 19_700.0 / 100_000.0).abs() < 0.005,
        "{said}"
    );
    assert!(number(&expected["write_hit_ratio"]) > 0.95);
    // Misses and writes are written to the SSD, 24 times a day.
    let daily = number(&advice["ssd_write_bytes_per_day"]) / 24.0 / 4096.0;
    assert!((daily / (80_200.0 + 6_667.0) - 1.0).abs() < 0.02, "{daily}");
    let years = 600e12 / number(&advice["ssd_write_bytes_per_day"]) / 365.25;
    assert!((number(&advice["years_of_life"]) / years - 1.0).abs() < 1e-9);
    let curve = said["curve"].as_array().expect("curve");
    assert!(
        curve
            .windows(2)
            .all(|two| two[0]["hit_ratio"].as_f64() <= two[1]["hit_ratio"].as_f64())
    );

    let table = forebay_ok(&scratch, &advise);
    for word in [
        "Recommended",
        "writeback",
        "years of an SSD for 600 TB",
        "####",
    ] {
        assert!(table.contains(word), "{table}");
    }
    let page = std::fs::read_to_string(&page).expect("the page");
    assert!(
        page.contains("polyline") && page.contains("a&lt;b&gt;.csv"),
        "{page}"
    );

    let wrong = [&advise[..], &["--ssd-tbw", "0"]].concat();
    assert_eq!(forebay(&scratch, &wrong).status.code(), Some(2));
    let blocks = write(&scratch, "blocks", b"1\n2\n1\n");
    let untimed = ["advise", &blocks, "--format", "blocks"];
    assert!(forebay_ok(&scratch, &untimed).contains("give --duration"));
    let years = |seconds: &str| {
        let timed = [&untimed[..], &["--duration", seconds, "--json"]].concat();
        let said: Value = serde_json::from_str(&forebay_ok(&scratch, &timed)).expect("JSON");
        said["recommendation"]["years_of_life"].clone()
    };
    assert!(years("7200").is_f64());
    assert!(years("60").is_null(), "a day is not told from a minute");

    let once: String = (0..5000).map(|block| format!("{block}\n")).collect();
    let once = write(&scratch, "once", once.as_bytes());
    let advise = ["advise", &once, "--format", "blocks"];
    let said = forebay_ok(&scratch, &advise);
    assert!(said.contains("A cache does not help this load"), "{said}");
    let said = forebay_ok(&scratch, &[&advise[..], &["--json"]].concat());
    assert!(said.contains("\"worthwhile\":false"), "{said}");
}
