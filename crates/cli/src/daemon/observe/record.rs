//! `forebay trace record`: a volume's requests to the command that asked for them, which keeps
//! them where its user may write.
//!
//! The call is Varlink's upgrade: the answer says what is recorded, and what follows it on the
//! connection is the recording (`forebay_trace::Recorded`), until the client shuts down its side,
//! the volume is no longer served, or the daemon stops.

use std::io::Write;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Result;
use forebay_engine::Nanos;
use forebay_trace::Recorded;
use serde_json::json;

use crate::daemon::control::answer::send;
use crate::daemon::data::tap::{Seen, Tap};
use crate::daemon::state::{Daemon, VolumeSide};
use crate::network::hang_up::has_hung_up;

/// Requests between two looks: 2 MiB of memory, and at 1.6 million requests a second not enough.
const ROOM: usize = 1 << 16;
/// Interval between looks.
const LOOK: Duration = Duration::from_millis(20);

impl Daemon {
    /// Streams a recording to its end.
    pub(in crate::daemon) fn record(&self, volume: &VolumeSide, stream: &UnixStream) -> Result<()> {
        let _counted = self.recordings.begin();
        let tap = self.tap(volume.slot, ROOM)?;
        let began = self.clock.now();
        tracing::info!("volume {} is being recorded", volume.name);
        let answer = json!({ "name": volume.name, "size_bytes": volume.size_bytes });
        if send(stream, &json!({ "parameters": answer })) {
            let header = Recorded::header(volume.size_bytes);
            self.stream(volume, stream, &tap, began, header.to_vec());
        }
        // A worker that has ended shows nothing any more.
        let _ = self.untap(volume.slot, &tap);
        tracing::info!("volume {} is no longer being recorded", volume.name);
        Ok(())
    }

    /// Ends with the recording, or without its end when the client has gone away.
    fn stream(
        &self,
        volume: &VolumeSide,
        mut stream: &UnixStream,
        tap: &Arc<Tap>,
        began: Nanos,
        mut bytes: Vec<u8>,
    ) {
        let mut last_ns = 0;
        loop {
            let closed = tap.is_closed();
            let ended = closed || has_hung_up(stream);
            if ended {
                // Nothing more is added to what is taken next.
                let _ = self.untap(volume.slot, tap);
            }
            let full = take(tap, began, &mut last_ns, &mut bytes);
            if ended && !full {
                let end_ns = self.clock.now().since(began).0.max(last_ns);
                bytes.extend(Recorded::end(end_ns, tap.dropped()));
            }
            if stream.write_all(&bytes).is_err() || (ended && !full) {
                return;
            }
            bytes.clear();
            if !full {
                std::thread::sleep(LOOK);
            }
        }
    }
}

/// Appends what is waiting, at most as much as there is room for, in order of time: several
/// threads show requests, each in its own order. Says whether there may be more.
fn take(tap: &Tap, began: Nanos, last_ns: &mut u64, bytes: &mut Vec<u8>) -> bool {
    let mut batch: Vec<Seen> = std::iter::from_fn(|| tap.take()).take(ROOM).collect();
    batch.sort_by_key(|seen| seen.at);
    for seen in &batch {
        *last_ns = seen.at.since(began).0.max(*last_ns);
        let recorded = Recorded {
            time_ns: *last_ns,
            kind: seen.kind,
            offset_bytes: seen.offset_bytes,
            len_bytes: seen.len_bytes,
        };
        bytes.extend(recorded.encode());
    }
    batch.len() == ROOM
}
