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

    for (arguments, word, code) in [
        (
            &["trace", "simulate", &trace, "--format", "nonsense"][..],
            "known: blocks, blkparse",
            2,
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
