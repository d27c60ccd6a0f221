//! The screen.

use ratatui::Frame;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::{Color, Style, Stylize};
use ratatui::text::Line;
use ratatui::widgets::{Block, Clear, Paragraph, Row, Sparkline, Table};

use super::recent::Recent;
use super::view::View;
use crate::units::{duration, latency, share, size};

/// Troubles that are shown; the page of `status` has all.
const TROUBLES: usize = 3;
/// Columns of the words before a sparkline.
const WORDS: u16 = 34;

const KEYS: &str = " q quit   p pause   up/down volume   s sort   ? help";
const HELP: [&str; 7] = [
    "q, Esc, Ctrl-C   end",
    "p, space         pause, and go on",
    "up, down, k, j   choose a volume",
    "s                sort volumes: name, cached, dirty",
    "?, h             this help",
    "",
    "A column of a line is a second; now is at the right.",
];

/// Draws all of it.
pub(super) fn draw(frame: &mut Frame<'_>, recent: &Recent, view: &View) {
    let lines = lines(recent);
    let troubles = recent.status.trouble.len().clamp(1, TROUBLES) as u16;
    let volumes = recent.status.volumes.len().clamp(1, 12) as u16;
    let [head, trouble, live, table, chosen, events, keys] = Layout::vertical([
        Constraint::Length(3),
        Constraint::Length(troubles),
        Constraint::Length(lines.len() as u16 + 1),
        Constraint::Length(volumes + 1),
        Constraint::Length(2),
        Constraint::Min(0),
        Constraint::Length(1),
    ])
    .areas(frame.area());
    frame.render_widget(Paragraph::new(head_lines(recent, view)), head);
    frame.render_widget(Paragraph::new(trouble_lines(recent)), trouble);
    draw_lines(frame, live, &lines);
    draw_volumes(frame, table, recent, view);
    frame.render_widget(Paragraph::new(chosen_lines(recent, view)), chosen);
    draw_events(frame, events, recent);
    frame.render_widget(Paragraph::new(KEYS.reversed()), keys);
    if view.help {
        draw_help(frame);
    }
}

fn head_lines(recent: &Recent, view: &View) -> Vec<Line<'static>> {
    let status = &recent.status;
    let paused = if view.paused { "  PAUSED" } else { "" };
    let mut lines = vec![Line::from(vec![
        format!(
            "forebay {}, up {}, {} client(s)",
            status.version,
            duration(status.uptime_seconds),
            status.clients
        )
        .bold(),
        paused.yellow().bold(),
    ])];
    let Some(cache) = &status.cache else {
        lines.push("no cache".into());
        return lines;
    };
    let may_die = cache.may_die().map(|words| format!("; {words}"));
    let words = format!("cache {}: {}", cache.device, cache.occupancy());
    lines.push(format!("{words}{}", may_die.unwrap_or_default()).into());
    lines.push(status.lately.hit_ratios().into());
    lines
}

fn trouble_lines(recent: &Recent) -> Vec<Line<'static>> {
    let troubles = &recent.status.trouble;
    if troubles.is_empty() {
        return vec!["no trouble".green().into()];
    }
    troubles
        .iter()
        .take(TROUBLES)
        .map(|trouble| format!("! {}", trouble.text).red().bold().into())
        .collect()
}

/// Words, and the values that a sparkline shows.
struct Live {
    words: String,
    values: Vec<u64>,
    most: Option<u64>,
}

fn lines(recent: &Recent) -> Vec<Live> {
    let unknown = || "-".to_owned();
    let rate = |value: f64| format!("{}/s", size(value as u64));
    let now =
        |name: &str, write: &dyn Fn(f64) -> String| recent.latest(name).map_or_else(unknown, write);
    let values = |name: &str, factor: f64| -> Vec<u64> {
        let column = recent.columns.get(name).map_or(&[][..], Vec::as_slice);
        let scaled = column.iter().map(|value| value.unwrap_or(0.0) * factor);
        scaled.map(|value| value as u64).collect()
    };
    let plain = |title: &str, shown: String, name: &str, factor: f64| Live {
        words: format!("{title:<11}{shown:>22}"),
        values: values(name, factor),
        most: None,
    };
    let both = |requests: &str, bytes: &str| {
        format!(
            "{}/s {:>12}",
            now(requests, &|value| format!("{value:.0}")),
            now(bytes, &rate)
        )
    };
    let time = |value: f64| latency((value * 1e9) as u64);
    let ratio = |value: f64| format!("{:.1} %", value * 100.0);
    let (reads, writes) = ("read_bytes_per_second", "written_bytes_per_second");
    let mut lines = vec![
        plain("reads", both("reads_per_second", reads), reads, 1.0),
        plain("writes", both("writes_per_second", writes), writes, 1.0),
    ];
    for (title, name) in [
        ("read p99", "read_p99_seconds"),
        ("write p99", "write_p99_seconds"),
    ] {
        lines.push(plain(title, now(name, &time), name, 1e9));
    }
    if recent.status.cache.is_none() {
        return lines;
    }
    let mut hits = plain(
        "read hits",
        now("read_hit_ratio", &ratio),
        "read_hit_ratio",
        1000.0,
    );
    hits.most = Some(1000);
    lines.push(hits);
    let dirty = |value: f64| size(value as u64);
    lines.push(plain(
        "dirty",
        now("dirty_bytes", &dirty),
        "dirty_bytes",
        1.0,
    ));
    for (title, name) in [
        ("write-back", "written_back_bytes_per_second"),
        ("promotion", "promoted_bytes_per_second"),
        ("bypass", "bypassed_bytes_per_second"),
    ] {
        lines.push(plain(title, now(name, &rate), name, 1.0));
    }
    lines
}

fn draw_lines(frame: &mut Frame<'_>, area: Rect, lines: &[Live]) {
    let rows = Layout::vertical(vec![Constraint::Length(1); lines.len()]).split(area);
    for (line, row) in lines.iter().zip(rows.iter()) {
        let [words, spark] =
            Layout::horizontal([Constraint::Length(WORDS), Constraint::Min(0)]).areas(*row);
        frame.render_widget(Paragraph::new(line.words.as_str()), words);
        let shown = line.values.len().saturating_sub(usize::from(spark.width));
        let values = &line.values[shown..];
        let most = line.most.or_else(|| values.iter().copied().max());
        let sparkline = Sparkline::default()
            .data(values)
            .max(most.unwrap_or(1).max(1))
            .style(Style::new().fg(Color::Cyan));
        frame.render_widget(sparkline, spark);
    }
}

fn draw_volumes(frame: &mut Frame<'_>, area: Rect, recent: &Recent, view: &View) {
    let volumes = recent.volumes(view.sort);
    let chosen = view.chosen.min(volumes.len().saturating_sub(1));
    // The chosen one is always in sight.
    let room = usize::from(area.height.saturating_sub(1)).max(1);
    let first = (chosen + 1).saturating_sub(room);
    let rows = volumes.iter().enumerate().skip(first).map(|(at, volume)| {
        let row = Row::new([
            volume.name.clone(),
            volume.mode.clone(),
            size(volume.size_bytes),
            size(volume.cached_bytes),
            size(volume.dirty_bytes),
        ]);
        if at == chosen {
            row.style(Style::new().bold().fg(Color::Yellow))
        } else {
            row
        }
    });
    let widths = [
        Constraint::Min(12),
        Constraint::Length(12),
        Constraint::Length(10),
        Constraint::Length(10),
        Constraint::Length(10),
    ];
    let heads = [
        format!("volume (by {})", view.sort.name()),
        "mode".to_owned(),
        "size".to_owned(),
        "cached".to_owned(),
        "dirty".to_owned(),
    ];
    let table = Table::new(rows, widths).header(Row::new(heads).style(Style::new().dim()));
    frame.render_widget(table, area);
}

fn chosen_lines(recent: &Recent, view: &View) -> Vec<Line<'static>> {
    let volumes = recent.volumes(view.sort);
    let chosen = view.chosen.min(volumes.len().saturating_sub(1));
    let Some(volume) = volumes.get(chosen) else {
        return Vec::new();
    };
    let device = volume
        .block_device
        .as_ref()
        .map_or(String::new(), |path| format!(", {path}"));
    vec![
        format!(
            "{} on {}{device}: {} of it cached",
            volume.name,
            volume.origin,
            share(volume.cached_bytes, volume.size_bytes),
        )
        .into(),
    ]
}

fn draw_events(frame: &mut Frame<'_>, area: Rect, recent: &Recent) {
    let newest = recent.events.iter().rev().take(usize::from(area.height));
    let lines: Vec<Line<'_>> = newest
        .map(|event| {
            let time = clock_time(event.unix_seconds);
            Line::from(format!("{time} {:<12} {}", event.kind, event.text)).dim()
        })
        .collect();
    frame.render_widget(Paragraph::new(lines), area);
}

/// The time of day, in UTC.
fn clock_time(unix_seconds: f64) -> String {
    let second = unix_seconds.max(0.0) as u64 % 86_400;
    let (hour, minute) = (second / 3600, second / 60 % 60);
    format!("{hour:02}:{minute:02}:{:02}Z", second % 60)
}

fn draw_help(frame: &mut Frame<'_>) {
    let area = frame.area();
    let (width, height) = (58.min(area.width), (HELP.len() as u16 + 2).min(area.height));
    let middle = Rect::new(
        (area.width - width) / 2,
        (area.height - height) / 2,
        width,
        height,
    );
    let text: Vec<Line<'_>> = HELP.iter().map(|line| Line::from(*line)).collect();
    frame.render_widget(Clear, middle);
    frame.render_widget(
        Paragraph::new(text).block(Block::bordered().title("keys")),
        middle,
    );
}

#[cfg(test)]
mod tests {
    use ratatui::Terminal;
    use ratatui::backend::TestBackend;

    use super::*;
    use crate::commands::top::view::Sort;

    fn shown(recent: &Recent, view: &View, width: u16, height: u16) -> String {
        let mut terminal = Terminal::new(TestBackend::new(width, height)).unwrap();
        terminal.draw(|frame| draw(frame, recent, view)).unwrap();
        let cells = terminal.backend().buffer().content();
        let lines = cells.chunks(usize::from(width)).map(|line| {
            let line: String = line.iter().map(ratatui::buffer::Cell::symbol).collect();
            line.trim_end().to_owned()
        });
        lines.collect::<Vec<_>>().join("\n")
    }

    #[test]
    fn an_event_has_its_time() {
        assert_eq!(clock_time(0.0), "00:00:00Z");
        assert_eq!(clock_time(1_764_000_000.9), "16:00:00Z");
        let mut recent = recent();
        recent.events = vec![crate::daemon::Event {
            number: 1,
            unix_seconds: 1_764_000_061.0,
            kind: "mode".to_owned(),
            text: "volume sdb is now in mode readonly".to_owned(),
        }];
        let view = View::default();
        let said = shown(&recent, &view, 100, 40);
        assert!(
            said.contains("16:01:01Z mode         volume sdb is now"),
            "{said}"
        );
    }

    fn recent() -> Recent {
        let mut recent = Recent::of(crate::report::status::example());
        let mut add = |name: &str, values: &[Option<f64>]| {
            recent.columns.insert(name.to_owned(), values.to_vec());
        };
        add("reads_per_second", &[Some(10.0), Some(1234.0)]);
        let mib = 1048576.0;
        add("read_bytes_per_second", &[Some(mib), None, Some(8.0 * mib)]);
        add("read_hit_ratio", &[None, Some(0.5), Some(1.0)]);
        recent
    }

    #[test]
    fn the_screen_says_what_the_status_says() {
        let screen = shown(&recent(), &View::default(), 100, 30);
        for words in [
            "forebay 1.2.3, up 1 h 06 min, 1 client(s)",
            "cached 80 MiB of 100 MiB (80.0 %), dirty 8 MiB (8.0 %)",
            "hit ratio in the last 1 min 00 s: reads 99.0 %",
            "no trouble",
            "1234/s      8 MiB/s ▁ █",
            "read hits                 100.0 %  ▄█",
            "volume (by name)",
            "sdb on /dev/sdb: 7.8 % of it cached",
            "q quit",
        ] {
            assert!(screen.contains(words), "{words} is not in\n{screen}");
        }
    }

    #[test]
    fn trouble_pause_order_and_help_are_seen() {
        let mut recent = recent();
        recent.status.lately.failed_requests = 3;
        recent.status.trouble = crate::report::trouble::of(&recent.status);
        let mut second = recent.status.volumes[0].clone();
        second.name = "archive".to_owned();
        second.dirty_bytes = 1;
        recent.status.volumes.push(second);
        let mut view = View {
            paused: true,
            ..View::default()
        };
        let screen = shown(&recent, &view, 100, 30);
        assert!(screen.contains("! 3 requests were answered"), "{screen}");
        assert!(screen.contains("PAUSED"), "{screen}");
        assert!(screen.find("archive ") < screen.find("sdb "), "{screen}");
        view.sort = Sort::Dirty;
        view.help = true;
        let screen = shown(&recent, &view, 100, 30);
        assert!(screen.find("sdb ") < screen.find("archive "), "{screen}");
        assert!(screen.contains("choose a volume"), "{screen}");
    }

    #[test]
    fn no_size_of_terminal_is_too_small() {
        let view = View {
            help: true,
            chosen: 99,
            ..View::default()
        };
        for (width, height) in [(1, 1), (20, 3), (40, 10), (500, 200)] {
            shown(&recent(), &view, width, height);
        }
        let mut plain = recent();
        plain.status.cache = None;
        plain.status.volumes.clear();
        assert!(shown(&plain, &view, 80, 24).contains("no cache"));
    }
}
