//! The summary as one page: nothing is fetched, it reads on a phone, in light and in dark.

use super::charts::{Bar, Line, bars, lines};
use super::markdown::row_name;
use super::summary::{Cell, Row, Summary, SystemSummary};
use super::{figure, throughput};

const STYLE: &str = include_str!("style.css");

/// Text that stands between tags or in an attribute.
pub(super) fn escape(text: &str) -> String {
    text.replace('&', "&amp;")
        .replace('<', "&lt;")
        .replace('>', "&gt;")
        .replace('"', "&quot;")
}

/// The whole page.
pub(super) fn render(summary: &Summary) -> String {
    let mut body = format!(
        "<h1>{}</h1><p>{}.</p>",
        escape(&summary.experiment),
        escape(&summary.about)
    );
    body += &conditions(summary);
    body += &systems(summary);
    if !summary.rows.is_empty() {
        body += "<h2>Throughput, MiB/s</h2><p>Longer is better. A thin line shows least and most over repetitions.</p>";
        body += &chart_of_each_job(summary);
    }
    body += &over_time(summary, "Throughput over time", "MiB/s", |system| {
        &system.throughput
    });
    body += &over_time(summary, "Transactions over time", "a second", |system| {
        &system.transactions
    });
    body += &over_time(summary, "Dirty data over time", "MiB", |system| {
        &system.dirty
    });
    if !summary.rows.is_empty() {
        let mut add = |title: &str, about: &str, show: fn(&Cell) -> String| {
            body += &format!("<h2>{title}</h2><p>{about}</p>{}", table(summary, show));
        };
        add(
            "Throughput, MiB/s",
            "Medians, with the multiples of the bare disk and the bare SSD.",
            throughput_cell,
        );
        add("Requests a second", "Medians.", |cell| {
            figure(cell.iops.median)
        });
        add(
            "Latency, µs",
            "50th, 95th, 99th and 99.9th percentile.",
            |cell| cell.latency_us.map(figure).join("<br>"),
        );
        add(
            "Device traffic, MiB",
            "SSD read and written; disks read and written. Both directions of a mixed job together.",
            |cell| {
                let [ssd, disk] = [cell.ssd_mib, cell.disk_mib].map(|two| two.map(figure));
                format!("{}<br>{}", ssd.join(" / "), disk.join(" / "))
            },
        );
        add(
            "Dirty data, metadata, processors",
            "Dirty MiB at the job's end; metadata as a share of what was written to the SSD, where the system counts it; how busy the guest's processors were.",
            state_cell,
        );
    }
    body += &values(summary);
    format!(
        "<!doctype html><html lang=\"en\"><head><meta charset=\"utf-8\">\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\
         <title>Forebay lab: {}</title><style>{STYLE}</style></head><body><main>{body}</main></body></html>\n",
        escape(&summary.experiment)
    )
}

fn conditions(summary: &Summary) -> String {
    let dilations: Vec<String> = summary.dilations.iter().map(|d| format!("{d}")).collect();
    let mut rows = vec![
        (
            "Time dilation D".to_owned(),
            format!(
                "{} (the guest's clock and its devices run this many times slower than the host, so that emulated instructions cost about what real ones do)",
                dilations.join(", ")
            ),
        ),
        ("Processor".to_owned(), summary.accelerators.join(", ")),
    ];
    for device in &summary.devices {
        let size = figure((device.size_bytes >> 20) as f64);
        let model = format!(
            "{size} MiB, timing model {}: {}",
            device.model,
            device.parameters()
        );
        rows.push((format!("Device {}", device.name), model));
    }
    rows.extend(summary.versions.clone());
    let rows: Vec<String> = rows
        .iter()
        .map(|(name, value)| format!("<dt>{}</dt><dd>{}</dd>", escape(name), escape(value)))
        .collect();
    format!(
        "<details><summary>Conditions: D = {}, {}; devices and versions</summary><dl>{}</dl></details>\
         <p class=\"note\">Good for shapes, counts and tens of percent, not for a few percent of processor time. Compare within one table only.</p>",
        dilations.join(", "),
        escape(&summary.accelerators.join(", ")),
        rows.concat()
    )
}

fn systems(summary: &Summary) -> String {
    let mut text = String::from("<h2>Systems</h2><ul class=\"systems\">");
    for (index, system) in summary.systems.iter().enumerate() {
        let runs = match (&system.unsupported, system.failed) {
            (Some(why), _) => format!("<b class=\"bad\">not to be had: {}</b>", escape(why)),
            (None, 0) => format!("{} complete", system.complete),
            (None, failed) => format!(
                "{} complete, <b class=\"bad\">{failed} failed: {}</b>",
                system.complete,
                escape(&system.failures.join("; "))
            ),
        };
        text += &format!(
            "<li><i class=\"b{}\"></i><b>{}</b> {} <span class=\"note\">({runs})</span></li>",
            index % 12,
            escape(&system.name),
            escape(&system.about)
        );
    }
    text + "</ul>"
}

fn chart_of_each_job(summary: &Summary) -> String {
    let mut text = String::from("<div class=\"charts\">");
    for row in &summary.rows {
        let drawn: Vec<Bar<'_>> = present(summary, row)
            .map(|(index, name, cell)| Bar {
                name,
                value: cell.kib_s.median / 1024.0,
                ends: (cell.kib_s.min / 1024.0, cell.kib_s.max / 1024.0),
                colour: index % 12,
            })
            .collect();
        let name = row_name(row);
        text += &format!(
            "<figure><figcaption>{}</figcaption>{}</figure>",
            escape(&name),
            bars(&drawn, &name)
        );
    }
    text + "</div>"
}

/// The cells of a row that there are, with their systems' indexes and names.
fn present<'a>(
    summary: &'a Summary,
    row: &'a Row,
) -> impl Iterator<Item = (usize, &'a str, &'a Cell)> {
    let names = summary.names().zip(&row.cells).enumerate();
    names.filter_map(|(index, (name, cell))| Some((index, name, cell.as_ref()?)))
}

/// A chart over time, if any system has points that are not zero.
fn over_time(
    summary: &Summary,
    label: &str,
    unit: &str,
    points: fn(&SystemSummary) -> &[(f64, f64)],
) -> String {
    let drawn: Vec<Line<'_>> = summary
        .systems
        .iter()
        .enumerate()
        .filter(|(_, system)| points(system).iter().any(|(_, value)| *value > 0.0))
        .map(|(index, system)| Line {
            name: &system.name,
            points: points(system),
            colour: index % 12,
        })
        .collect();
    if drawn.is_empty() {
        return String::new();
    }
    format!("<h2>{label}</h2>{}", lines(&drawn, label, unit))
}

fn throughput_cell(cell: &Cell) -> String {
    let mut text = throughput(cell.kib_s.median);
    if cell.runs > 1 {
        text += &format!(
            " <small>{}–{}</small>",
            throughput(cell.kib_s.min),
            throughput(cell.kib_s.max)
        );
    }
    let ratios = [(cell.of_disk, "disk"), (cell.of_ssd, "SSD")];
    let ratios: Vec<String> = ratios
        .iter()
        .filter_map(|(ratio, name)| Some(format!("{}× {name}", figure((*ratio)?))))
        .collect();
    if !ratios.is_empty() {
        text += &format!("<br><small>{}</small>", ratios.join(", "));
    }
    text
}

fn state_cell(cell: &Cell) -> String {
    let metadata = cell
        .metadata_share
        .map_or("–".to_owned(), |share| format!("{:.1} %", share * 100.0));
    format!(
        "{}<br><small>{metadata}, {:.0} % busy</small>",
        figure(cell.dirty_mib),
        cell.cpu * 100.0
    )
}

fn table(summary: &Summary, show: fn(&Cell) -> String) -> String {
    let mut text = String::from("<div class=\"wide\"><table><thead><tr><th>job</th>");
    for name in summary.names() {
        text += &format!("<th>{}</th>", escape(name));
    }
    text += "</tr></thead><tbody>";
    for row in &summary.rows {
        text += &format!("<tr><th>{}</th>", escape(&row_name(row)));
        for cell in &row.cells {
            let shown = cell.as_ref().map_or(String::new(), show);
            text += &format!("<td>{shown}</td>");
        }
        text += "</tr>";
    }
    text + "</tbody></table></div>"
}

fn values(summary: &Summary) -> String {
    let names = summary.value_names();
    if names.is_empty() {
        return String::new();
    }
    let mut text =
        String::from("<h2>Other figures</h2><div class=\"wide\"><table><thead><tr><th></th>");
    for name in summary.names() {
        text += &format!("<th>{}</th>", escape(name));
    }
    text += "</tr></thead><tbody>";
    for name in names {
        text += &format!("<tr><th>{}</th>", escape(&name.replace('_', " ")));
        for system in &summary.systems {
            let shown = system.values.get(name).map_or(String::new(), |spread| {
                format!(
                    "{}<br><small>{}–{}</small>",
                    figure(spread.median),
                    figure(spread.min),
                    figure(spread.max)
                )
            });
            text += &format!("<td>{shown}</td>");
        }
        text += "</tr>";
    }
    text + "</tbody></table></div>"
}

#[cfg(test)]
mod tests {
    use super::super::summary::tests::example;
    use super::*;

    #[test]
    fn the_page_fetches_nothing_and_escapes_what_it_quotes() {
        let page = render(&example());
        for word in ["http:", "https:", "src=", "<link", "<script", "url("] {
            assert!(!page.contains(word), "{word}");
        }
        assert!(page.contains("6.12 &lt;&amp;&gt;"));
        assert_eq!(
            page.matches("<table>").count(),
            page.matches("</table>").count()
        );
        assert!(page.contains("D = 8"));
    }
}
