//! The health of a cache device: from smartctl (smartmontools) if it is installed, the temperature
//! otherwise from the kernel.

use std::path::{Path, PathBuf};
use std::time::Duration;

use serde_json::Value;

use crate::bounded_program::Program;
use crate::device::whole_disk::whole_disk;
use crate::report::health::DeviceHealth;

/// The longest time that smartctl may take: a disk that sleeps wakes up in less.
const LIMIT: Duration = Duration::from_secs(10);
/// The most that it prints.
const MOST_BYTES: usize = 1 << 20;
/// Exit codes of smartctl are bits; with these it has read nothing.
const NOTHING_READ: i32 = 0b11;
/// A unit in which NVMe devices count what is written.
const DATA_UNIT_BYTES: u64 = 512_000;

/// Bits of an NVMe device's critical warning.
const WARNINGS: [&str; 6] = [
    "spare space is below its threshold",
    "too hot or too cold",
    "reliability is degraded",
    "read-only",
    "the backup of its volatile memory failed",
    "persistent memory is read-only or unreliable",
];

/// Normalized attributes of SATA SSDs that count down from 100 with their life, the first that a
/// device has. Names are those of smartctl's database: numbers mean something else for each maker.
const LIFE_LEFT: [&str; 8] = [
    "SSD_Life_Left",
    "Percent_Lifetime_Remain",
    "Remaining_Lifetime_Perc",
    "Percent_Life_Remaining",
    "Media_Wearout_Indicator",
    "Wear_Leveling_Count",
    "Drive_Life_Remaining%",
    "Lifetime_Remaining%",
];

/// Health of a device, and why it is not known.
#[derive(Debug, Default)]
pub(crate) struct Looked {
    pub(crate) health: Option<DeviceHealth>,
    /// For the log.
    pub(crate) fault: Option<String>,
}

/// Asks for the health of a device, for [`LIMIT`] at most.
pub(crate) fn look(device: &Path) -> Looked {
    let disk = whole_disk(device);
    // A program is run elsewhere, and takes a name with a dash at its beginning for an option.
    let path = std::path::absolute(device).unwrap_or_else(|_| device.to_owned());
    let (mut health, fault) = match ask_smartctl(disk.as_deref().unwrap_or(&path)) {
        Ok(health) => (health, None),
        Err(fault) => (DeviceHealth::default(), fault),
    };
    if health.temperature_celsius.is_none()
        && let Some(name) = disk.as_ref().and_then(|disk| disk.file_name())
    {
        health.temperature_celsius = temperature(&Path::new("/sys/class/block").join(name));
    }
    Looked {
        health: (!health.is_empty()).then_some(health),
        fault,
    }
}

/// The error is a fault for the log, or nothing if this is no device with a health, or smartctl is
/// not installed.
fn ask_smartctl(disk: &Path) -> Result<DeviceHealth, Option<String>> {
    let program = Program::new("smartctl")
        .argument("--json=c")
        .argument("--info")
        .argument("--health")
        .argument("--attributes")
        .argument(disk)
        .without_errors();
    let ran = program.run(LIMIT, MOST_BYTES).map_err(|error| {
        let is_missing = error.kind() == std::io::ErrorKind::NotFound;
        (!is_missing).then(|| format!("cannot run smartctl: {}", crate::failure::in_words(&error)))
    })?;
    let Some(status) = ran.status else {
        let seconds = LIMIT.as_secs();
        return Err(Some(format!(
            "smartctl did not end within {seconds} s for {}, and was killed",
            disk.display()
        )));
    };
    let answer: Value = serde_json::from_slice(&ran.output).map_err(|_| {
        Some(format!(
            "smartctl printed no JSON for {} ({status}); is it version 7 or newer?",
            disk.display()
        ))
    })?;
    // Killed by a signal it has no code.
    if status.code().is_none_or(|code| code & NOTHING_READ != 0) {
        return Err(None);
    }
    Ok(parse(&answer))
}

/// The health in an answer of smartctl.
fn parse(answer: &Value) -> DeviceHealth {
    let nvme = &answer["nvme_smart_health_information_log"];
    let number = |value: &Value| value.as_u64();
    let mut health = DeviceHealth {
        model: answer["model_name"].as_str().map(printable),
        warnings: warnings(answer),
        life_used_percent: number(&answer["endurance_used"]["current_percent"])
            .or_else(|| number(&nvme["percentage_used"])),
        spare_percent: number(&answer["spare_available"]["current_percent"])
            .or_else(|| number(&nvme["available_spare"])),
        media_errors: number(&nvme["media_errors"]),
        temperature_celsius: answer["temperature"]["current"].as_i64(),
        power_on_hours: number(&answer["power_on_time"]["hours"]),
        written_bytes: number(&nvme["data_units_written"])
            .map(|units| units.saturating_mul(DATA_UNIT_BYTES)),
    };
    sata(&mut health, answer);
    health
}

fn warnings(answer: &Value) -> Vec<String> {
    let bits = answer["nvme_smart_health_information_log"]["critical_warning"].as_u64();
    let bits = bits.unwrap_or(0);
    let set = WARNINGS.iter().enumerate();
    let mut warnings: Vec<String> = set
        .filter(|(bit, _)| bits >> bit & 1 == 1)
        .map(|(_, words)| (*words).to_owned())
        .collect();
    if bits >> WARNINGS.len() != 0 {
        warnings.push(format!("critical warning {bits:#04x}"));
    }
    if warnings.is_empty() && answer["smart_status"]["passed"] == false {
        warnings.push("it expects to fail (SMART)".to_owned());
    }
    warnings
}

/// Adds the attributes of SATA devices.
fn sata(health: &mut DeviceHealth, answer: &Value) {
    let table = answer["ata_smart_attributes"]["table"].as_array();
    let Some(table) = table else { return };
    let called = |name: &str| table.iter().find(|attribute| attribute["name"] == name);
    let raw = |name: &str| called(name)?["raw"]["value"].as_u64();
    if health.life_used_percent.is_none() {
        let left = LIFE_LEFT.iter().find_map(|name| called(name));
        let left = left.and_then(|attribute| attribute["value"].as_u64());
        // Some begin at 200 or 253, and say nothing in percent then.
        health.life_used_percent = left.filter(|left| *left <= 100).map(|left| 100 - left);
    }
    health.media_errors = health
        .media_errors
        .or_else(|| raw("Reported_Uncorrect"))
        .or_else(|| raw("Uncorrectable_Error_Cnt"));
    let block_bytes = answer["logical_block_size"].as_u64().unwrap_or(512);
    health.written_bytes = health.written_bytes.or_else(|| {
        let blocks = raw("Total_LBAs_Written");
        blocks.map(|blocks| blocks.saturating_mul(block_bytes))
    });
}

/// A device's own words, without what would steer a terminal, and not without end.
fn printable(text: &str) -> String {
    text.chars()
        .filter(|letter| !letter.is_control())
        .take(100)
        .collect()
}

/// The first temperature that the kernel measures in a disk (`nvme`, `drivetemp`).
fn temperature(disk: &Path) -> Option<i64> {
    let entries = |path: PathBuf| std::fs::read_dir(path).into_iter().flatten().flatten();
    let device = disk.join("device");
    let near = entries(device.clone());
    let below = entries(device.join("hwmon"));
    let sensors = near.chain(below).filter(|entry| {
        let name = entry.file_name();
        name.to_string_lossy().starts_with("hwmon")
    });
    let mut degrees = sensors.filter_map(|sensor| {
        let text = std::fs::read_to_string(sensor.path().join("temp1_input")).ok()?;
        text.trim().parse::<i64>().ok()
    });
    degrees.next().map(|thousandths| thousandths / 1000)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bits_of_the_warning_have_words() {
        let answer = |bits: u64| serde_json::json!({ "nvme_smart_health_information_log": { "critical_warning": bits } });
        assert_eq!(parse(&answer(0)).warnings, Vec::<String>::new());
        let warnings = parse(&answer(0b1001)).warnings;
        assert_eq!(
            warnings,
            ["spare space is below its threshold", "read-only"]
        );
        assert_eq!(parse(&answer(0x80)).warnings, ["critical warning 0x80"]);
        let failing = serde_json::json!({ "smart_status": { "passed": false } });
        assert_eq!(
            parse(&failing).trouble().unwrap(),
            "warns of itself: it expects to fail (SMART)"
        );
    }

    #[test]
    fn wrong_types_and_numbers_are_not_known() {
        for text in [
            "null",
            "[]",
            "{}",
            r#"{"nvme_smart_health_information_log":{"percentage_used":"3","critical_warning":-1}}"#,
            r#"{"ata_smart_attributes":{"table":{"name":1}},"temperature":38}"#,
            r#"{"ata_smart_attributes":{"table":[{"name":"Wear_Leveling_Count","value":253}]}}"#,
        ] {
            let health = parse(&serde_json::from_str(text).unwrap());
            assert!(health.is_empty(), "{text}: {health:?}");
        }
        let huge = format!(
            r#"{{"nvme_smart_health_information_log":{{"data_units_written":{0},"percentage_used":{0}}}}}"#,
            u64::MAX
        );
        let health = parse(&serde_json::from_str(&huge).unwrap());
        assert_eq!(health.written_bytes, Some(u64::MAX));
        assert!(health.trouble().is_some());
        assert_eq!(printable("a\u{1b}[31m\nb"), "a[31mb");
    }

    #[test]
    fn the_kernel_knows_the_temperature_of_disks() {
        let root = std::env::temp_dir().join(format!("fb-health-{}", std::process::id()));
        let disk = root.join("nvme0n1");
        std::fs::create_dir_all(&disk).unwrap();
        assert_eq!(temperature(&disk), None);
        for (sensor, degrees) in [
            ("device/hwmon2", "38850\n"),
            ("device/hwmon/hwmon3", "-2000\n"),
        ] {
            let sensor = disk.join(sensor);
            std::fs::create_dir_all(&sensor).unwrap();
            std::fs::write(sensor.join("temp1_input"), degrees).unwrap();
            let expected = if degrees.starts_with('3') { 38 } else { -2 };
            assert_eq!(temperature(&disk), Some(expected));
            std::fs::remove_dir_all(sensor).unwrap();
        }
        std::fs::remove_dir_all(root).unwrap();
    }
}
