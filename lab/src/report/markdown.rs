//! The summary as Markdown.

use std::fmt::Write as _;

use super::summary::{Cell, Row, Summary};
use super::{figure, throughput};

/// The whole document.
pub(super) fn render(summary: &Summary) -> String {
    let mut text = format!("# {}\n\n{}.\n\n", summary.experiment, summary.about);
    conditions(&mut text, summary);
    if !summary.rows.is_empty() {
        text.push_str("\n## Throughput, MiB/s\n\nMedians; in brackets least and most if there were several runs, and the multiple of the bare disk's.\n\n");
        table(&mut text, summary, throughput_of);
        text.push_str("\n## Requests a second\n\n");
        table(&mut text, summary, |cell| figure(cell.iops.median));
        text.push_str("\n## Latency, microseconds: p50 / p95 / p99 / p99.9\n\n");
        table(&mut text, summary, |cell| {
            cell.latency_us.map(figure).join(" / ")
        });
        text.push_str(
            "\n## Read from / written to the SSD; read from / written to the disks, MiB\n\n",
        );
        table(&mut text, summary, |cell| {
            let [[a, b], [c, d]] = [cell.ssd_mib, cell.disk_mib].map(|pair| pair.map(figure));
            format!("{a} / {b}; {c} / {d}")
        });
        text.push_str("\n## Dirty data at the end, MiB, and metadata as a share of what the SSD was written\n\n");
        table(&mut text, summary, |cell| {
            let share = cell.metadata_share;
            let share = share.map_or(String::new(), |share| format!(", {:.1} %", share * 100.0));
            format!("{}{share}", figure(cell.dirty_mib))
        });
        text.push_str("\n## Processor time of the guest per request, microseconds\n\nWhat issued the requests is included.\n\n");
        table(&mut text, summary, |cell| figure(cell.cpu_us));
    }
    values(&mut text, summary);
    text
}

fn conditions(text: &mut String, summary: &Summary) {
    let list: Vec<String> = summary.dilations.iter().map(|d| figure(*d)).collect();
    let line = |text: &mut String, name: &str, value: &str| {
        writeln!(text, "- {name}: {value}").expect("a string takes everything");
    };
    line(text, "time dilation D", &list.join(", "));
    line(text, "processor", &summary.accelerators.join(", "));
    for device in &summary.devices {
        let size = device.size_bytes >> 20;
        let model = format!(
            "{size} MiB, model `{}`: {}",
            device.model,
            device.parameters()
        );
        line(text, &device.name, &model);
    }
    for (name, version) in &summary.versions {
        line(text, name, version);
    }
    text.push('\n');
    for system in &summary.systems {
        let mut about = format!("{}; {} complete", system.about, system.complete);
        if system.failed > 0 {
            about += &format!(", {} failed: {}", system.failed, system.failures.join("; "));
        }
        if let Some(why) = &system.unsupported {
            about += &format!("; not to be had: {why}");
        }
        line(text, &format!("**{}**", system.name), &about);
    }
}

fn throughput_of(cell: &Cell) -> String {
    let mut text = throughput(cell.kib_s.median);
    if cell.runs > 1 {
        text += &format!(
            " ({}–{})",
            throughput(cell.kib_s.min),
            throughput(cell.kib_s.max)
        );
    }
    if let Some(ratio) = cell.of_disk {
        text += &format!(" {}×", figure(ratio));
    }
    text
}

/// A row's name.
pub(super) fn row_name(row: &Row) -> String {
    let direction = if row.write { "write" } else { "read" };
    format!("{} {} ({direction})", row.number, row.label)
}

fn table(text: &mut String, summary: &Summary, show: impl Fn(&Cell) -> String) {
    text.push_str("| job |");
    for name in summary.names() {
        write!(text, " {name} |").expect("a string takes everything");
    }
    text.push_str("\n|---|");
    text.push_str(&"---:|".repeat(summary.systems.len()));
    text.push('\n');
    for row in &summary.rows {
        write!(text, "| {} |", row_name(row)).expect("a string takes everything");
        for cell in &row.cells {
            let shown = cell.as_ref().map_or(String::new(), &show);
            write!(text, " {shown} |").expect("a string takes everything");
        }
        text.push('\n');
    }
}

fn values(text: &mut String, summary: &Summary) {
    let names = summary.value_names();
    if names.is_empty() {
        return;
    }
    text.push_str("\n## Other figures\n\n| |");
    for name in summary.names() {
        write!(text, " {name} |").expect("a string takes everything");
    }
    text.push_str("\n|---|");
    text.push_str(&"---:|".repeat(summary.systems.len()));
    text.push('\n');
    for name in names {
        write!(text, "| {} |", name.replace('_', " ")).expect("a string takes everything");
        for system in &summary.systems {
            let shown = system.values.get(name).map_or(String::new(), |spread| {
                let ends = format!("{}–{}", figure(spread.min), figure(spread.max));
                format!("{} ({ends})", figure(spread.median))
            });
            write!(text, " {shown} |").expect("a string takes everything");
        }
        text.push('\n');
    }
}

#[cfg(test)]
mod tests {
    use super::super::summary::tests::example;
    use super::*;

    #[test]
    fn every_system_has_its_column_and_what_it_ran_on_is_said() {
        let text = render(&example());
        assert!(text.contains("| job | hdd | ssd | bcache |"), "{text}");
        assert!(text.contains("time dilation D: 8.00"), "{text}");
        assert!(
            text.contains("| 1 read-1 (read) | 0.10 1.00× | 0.78 8.00× | 0.39 (0.29–0.49) 4.00× |"),
            "{text}"
        );
        assert!(text.contains("| recovery seconds |"), "{text}");
    }
}
