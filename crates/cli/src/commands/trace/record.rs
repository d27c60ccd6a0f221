//! `forebay trace record`.

use std::fs::{File, OpenOptions};
use std::io::{ErrorKind, Read, Write};
use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow};
use forebay_trace::{RECORD_BYTES, Recorded};
use serde_json::json;

use super::progress::Progress;
use crate::args::RecordArgs;
use crate::client::{Client, Upgraded};
use crate::failure::{Refused, Usage};
use crate::output::line;
use crate::units::duration;

/// Interval at which the end is looked for.
const LOOK: Duration = Duration::from_millis(50);
/// The longest time that the daemon may take to send the rest.
const TIMEOUT: Duration = Duration::from_secs(30);

pub(crate) fn run(args: &RecordArgs) -> Result<()> {
    if !args
        .seconds
        .is_none_or(|seconds| seconds > 0.0 && seconds <= 1e9)
    {
        return Err(Usage("--seconds must be above 0".to_owned()).into());
    }
    if !args.force && args.file.exists() {
        return Err(existing(&args.file));
    }
    let progress = Progress::start()?;
    let client = Client::serving(args.control.control.as_deref(), &[&args.volume])?;
    let Upgraded { answer, rest } = client.upgrade("Record", &json!({ "name": args.volume }))?;
    // Only now: a recording that cannot be made leaves no file.
    let mut file = create(&args.file, args.force)?;
    let recorded = Recording::new(rest, args.seconds.map(Duration::from_secs_f64))
        .receive(&mut file, &progress)
        .with_context(|| format!("cannot record in {}", args.file.display()))?;
    progress.finish();
    let Some(dropped) = recorded.dropped else {
        return Err(anyhow!(
            "the daemon has ended, or does not answer any more: {} holds the {} requests until then, and no end (--skip-bad reads it)",
            args.file.display(),
            recorded.requests()
        ));
    };
    if args.control.json {
        line(json!({
            "volume": args.volume,
            "file": args.file,
            "volume_size_bytes": answer["size_bytes"],
            "requests": recorded.requests(),
            "dropped": dropped,
            "seconds": recorded.seconds,
        }));
    } else {
        line(format_args!(
            "{} requests to volume {} in {}, recorded in {}",
            recorded.requests(),
            args.volume,
            duration(recorded.seconds),
            args.file.display()
        ));
    }
    if dropped > 0 {
        tracing::warn!(
            "{dropped} requests are missing in it: they came faster than they could be written"
        );
    }
    Ok(())
}

fn existing(path: &Path) -> anyhow::Error {
    let message = format!(
        "{} is there already; choose another name, or give it up with --force",
        path.display()
    );
    Refused(message).into()
}

fn create(path: &Path, force: bool) -> Result<File> {
    let mut how = OpenOptions::new();
    how.write(true);
    if force {
        how.create(true).truncate(true);
    } else {
        how.create_new(true);
    }
    match how.open(path) {
        Err(error) if error.kind() == ErrorKind::AlreadyExists => Err(existing(path)),
        opened => opened.with_context(|| format!("cannot make {}", path.display())),
    }
}

/// Size and gaps of the recording.
struct Received {
    bytes: u64,
    seconds: f64,
    /// Requests that are missing; unknown if the recording has no end.
    dropped: Option<u64>,
}

impl Received {
    fn requests(&self) -> u64 {
        let not_requests = 1 + u64::from(self.dropped.is_some());
        (self.bytes / RECORD_BYTES as u64).saturating_sub(not_requests)
    }
}

/// A recording as it comes.
struct Recording {
    stream: std::io::BufReader<UnixStream>,
    began: Instant,
    most: Option<Duration>,
    /// Since when the daemon knows that it is to end.
    ending: Option<Instant>,
    received: Received,
    /// The last bytes, among which the end of the recording is.
    tail: [u8; RECORD_BYTES],
}

impl Recording {
    fn new(stream: std::io::BufReader<UnixStream>, most: Option<Duration>) -> Recording {
        Recording {
            stream,
            began: Instant::now(),
            most,
            ending: None,
            received: Received {
                bytes: 0,
                seconds: 0.0,
                dropped: None,
            },
            tail: [0; RECORD_BYTES],
        }
    }

    fn receive(mut self, file: &mut File, progress: &Progress) -> Result<Received> {
        self.stream.get_ref().set_read_timeout(Some(LOOK))?;
        let mut buffer = vec![0; 64 << 10];
        loop {
            let went_on = progress.advance(0, |_| {
                format!(
                    "{} requests in {}",
                    self.received.requests(),
                    duration(self.began.elapsed().as_secs_f64())
                )
            });
            let over = self.most.is_some_and(|most| self.began.elapsed() >= most);
            if self.ending.is_none() && (over || !went_on) {
                self.stream.get_ref().shutdown(Shutdown::Write)?;
                self.ending = Some(Instant::now());
            }
            match self.stream.read(&mut buffer) {
                Ok(0) => break,
                Ok(bytes) => {
                    file.write_all(&buffer[..bytes])?;
                    self.note(&buffer[..bytes]);
                }
                Err(error)
                    if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut)
                        || error.kind() == ErrorKind::Interrupted => {}
                // A daemon that was killed resets the connection.
                Err(error) if error.kind() == ErrorKind::ConnectionReset => break,
                Err(error) => return Err(error.into()),
            }
            if self.ending.is_some_and(|since| since.elapsed() > TIMEOUT) {
                break;
            }
        }
        self.received.seconds = self.began.elapsed().as_secs_f64();
        if self.received.bytes.is_multiple_of(RECORD_BYTES as u64) {
            self.received.dropped = Recorded::dropped(&self.tail);
        }
        Ok(self.received)
    }

    fn note(&mut self, bytes: &[u8]) {
        self.received.bytes += bytes.len() as u64;
        let kept = bytes.len().min(RECORD_BYTES);
        self.tail.rotate_left(kept);
        self.tail[RECORD_BYTES - kept..].copy_from_slice(&bytes[bytes.len() - kept..]);
    }
}
