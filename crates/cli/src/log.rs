//! The log on standard error: for people, as JSON, or with fields where the journal reads it.

use std::os::unix::fs::MetadataExt;

use tracing::level_filters::LevelFilter;
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;

use crate::args::{LogArgs, LogFormat};

/// Begins it.
pub(crate) fn start(args: &LogArgs) {
    let log = tracing_subscriber::fmt()
        .with_writer(std::io::stderr)
        .with_max_level(args.log_level)
        .with_target(false);
    match args.log_format {
        LogFormat::Human if is_the_journal() && journal(args.log_level) => {}
        LogFormat::Human => log
            .with_ansi(std::io::IsTerminal::is_terminal(&std::io::stderr()))
            .init(),
        LogFormat::Json => log.json().flatten_event(true).init(),
    }
}

/// Sends the log to the journal with its priorities and fields; false if there is none.
fn journal(most: LevelFilter) -> bool {
    let Ok(layer) = tracing_journald::layer() else {
        return false;
    };
    let layer = layer
        .with_field_prefix(Some("FOREBAY".to_owned()))
        .with_syslog_identifier("forebay".to_owned());
    tracing_subscriber::registry().with(most).with(layer).init();
    true
}

/// Whether standard error is the journal's, as the service manager says it (systemd.exec(5)).
fn is_the_journal() -> bool {
    let said = std::env::var("JOURNAL_STREAM").ok();
    let own = std::fs::metadata("/proc/self/fd/2").ok();
    let (Some(said), Some(own)) = (said, own) else {
        return false;
    };
    said == format!("{}:{}", own.dev(), own.ino())
}
