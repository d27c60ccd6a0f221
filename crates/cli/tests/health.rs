//! The health of the cache device, as a stand-in for smartctl tells it: the device is not real, and
//! everything behind it is.

mod support;

use serde_json::Value;
use support::{Daemon, MIB, Scratch, openmetrics, smartctl, until};

fn scratch() -> Scratch {
    let scratch = Scratch::new();
    scratch.file("origin", 8 * MIB);
    scratch.file("cache", 16 * MIB);
    scratch
}

fn health(daemon: &Daemon, scratch: &Scratch) -> Value {
    daemon.status(scratch)["cache"]["devices"][0]["health"].clone()
}

/// The daemon of a device that answers so, once it knows.
fn answered(scratch: &Scratch, answer: &str, code: u8) -> (Daemon, Value) {
    smartctl::printing(scratch, answer, code);
    let daemon = smartctl::daemon(scratch, &["--http", "off"]);
    until("its health", || !health(&daemon, scratch).is_null());
    let known = health(&daemon, scratch);
    (daemon, known)
}

#[test]
fn a_sound_nvme_device_is_shown_everywhere() {
    let scratch = scratch();
    let (daemon, health) = answered(&scratch, smartctl::NVME, 0);
    for (name, value) in [
        ("life_used_percent", 3u64),
        ("spare_percent", 100),
        ("media_errors", 0),
        ("temperature_celsius", 38),
        ("power_on_hours", 9157),
        ("written_bytes", 21_048_576 * 512_000),
    ] {
        assert_eq!(health[name], value, "{name}");
    }
    assert_eq!(health["model"], "EXAMPLE SSD 980 1TB");
    let page = daemon.command(&scratch, &["status"]);
    let line = "health: 3 % of its life used, spare 100 %, media errors 0, 38 °C, on for 9157 h, ";
    assert!(page.contains(line), "{page}");
    assert!(page.contains("no trouble"), "{page}");
    let asked = std::fs::read_to_string(scratch.path("asked")).unwrap();
    let expected = format!(
        "--json=c --info --health --attributes {}\n",
        scratch.text("cache")
    );
    assert_eq!(asked, expected);
    let metrics = daemon.command(&scratch, &["status", "--prometheus"]);
    openmetrics::check(&metrics);
    for (name, value) in [
        ("life_used_ratio", "0.03"),
        ("spare_ratio", "1"),
        ("critical_warning", "0"),
        ("media_errors", "0"),
        ("temperature_celsius", "38"),
        ("power_on_seconds", "32965200"),
    ] {
        let line = metrics
            .lines()
            .find(|line| line.starts_with(&format!("forebay_device_{name}{{")));
        let line = line.unwrap_or_else(|| panic!("no {name} in {metrics}"));
        assert!(
            line.contains("path=\"") && line.ends_with(&format!(" {value}")),
            "{line}"
        );
    }
    daemon.stop();
}

#[test]
fn a_worn_sata_device_is_trouble() {
    let scratch = scratch();
    // Bits above the second are findings, and everything was read.
    let (daemon, health) = answered(&scratch, smartctl::SATA, 64);
    assert_eq!(health["life_used_percent"], 94, "{health}");
    assert_eq!(health["media_errors"], 2);
    assert_eq!(health["power_on_hours"], 21453);
    assert_eq!(health["written_bytes"], 512u64 << 40);
    until("its trouble", || {
        let events = daemon.log();
        events.contains("has 94 % of its life behind it")
    });
    let status = daemon.status(&scratch);
    assert_eq!(status["trouble"][0]["kind"], "device-health", "{status}");
    daemon.stop();
}

#[test]
fn a_critical_warning_is_trouble() {
    let scratch = scratch();
    let warning = smartctl::NVME.replace("\"critical_warning\": 0", "\"critical_warning\": 12");
    let (daemon, health) = answered(&scratch, &warning, 8);
    assert_eq!(
        health["warnings"],
        serde_json::json!(["reliability is degraded", "read-only"])
    );
    let page = daemon.command(&scratch, &["status"]);
    assert!(
        page.contains("health: WARNS: reliability is degraded, read-only"),
        "{page}"
    );
    assert!(page.contains("TROUBLE: the cache device "), "{page}");
    daemon.stop();
}

/// The daemon does not know, says so once, and serves.
fn not_known(script: &str, words: &str) {
    let scratch = scratch();
    smartctl::program(&scratch, "smartctl", script);
    let daemon = smartctl::daemon(&scratch, &["--http", "off"]);
    let page = daemon.command(&scratch, &["status"]);
    assert!(page.contains("  health: not known\n"), "{page}");
    until(words, || daemon.log().contains(words));
    assert!(health(&daemon, &scratch).is_null());
    let page = daemon.command(&scratch, &["status"]);
    assert!(
        page.contains("  health: not known\n") && page.contains("no trouble"),
        "{page}"
    );
    daemon.stop();
}

#[test]
fn a_smartctl_that_hangs_is_killed() {
    not_known("sleep 1000", "did not end within 10 s");
}

#[test]
fn rubbish_is_not_believed() {
    not_known(
        "echo 'smartctl 5.4: unknown option'; exit 1",
        "printed no JSON",
    );
    not_known(
        "head -c 5000000 /dev/zero | tr '\\0' '{'",
        "printed no JSON",
    );
}

#[test]
fn a_device_without_health_is_not_known() {
    let scratch = scratch();
    let told = r#"{"smartctl":{"messages":[{"string":"Unable to detect device type","severity":"error"}],"exit_status":1}}"#;
    smartctl::printing(&scratch, told, 1);
    let daemon = smartctl::daemon(&scratch, &["--http", "off"]);
    until("the question", || scratch.path("asked").exists());
    let page = daemon.command(&scratch, &["status"]);
    assert!(page.contains("  health: not known\n"), "{page}");
    assert!(!daemon.log().contains("smartctl"), "{}", daemon.log());
    daemon.stop();
}
