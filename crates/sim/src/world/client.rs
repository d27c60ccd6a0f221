//! The clients: what they ask, and whether the answers are right.

use forebay_cache::{Asked, Joined};
use forebay_engine::{
    BlockKey, Buf, Device as DeviceName, Failure, MAX_REQUEST_BYTES, Memory, RequestKind,
    VolumeSlot,
};

use super::{Ask, Check, Pending, World};
use crate::device::Tally;
use crate::model::{Effect, Event, Range};
use crate::payload::{self, SECTOR_BYTES, Value, ZERO};

impl World<'_> {
    /// A new value for a write.
    pub(super) fn fresh(&mut self) -> Value {
        self.next_value += 1;
        self.next_value
    }

    /// Submits what a client asks, on some thread.
    pub(super) fn ask(&mut self, range: Range, ask: Ask) -> Check {
        let depth = self.plan.config.depth;
        self.wait_for_requests(depth - 1)?;
        let host = match self.hosts.len() as u64 {
            1 => 0,
            hosts => self.rng.below(hosts) as usize,
        };
        let (kind, offset_bytes, len_bytes) = request_of(range, ask);
        let bufs = self.buffers(host, range, ask);
        let submitted = match ask {
            Ask::Write { effect, .. } => self.model.write(range, effect),
            _ => self.model.begin(),
        };
        let id = self.register(Pending {
            ask,
            range,
            bufs: bufs.clone(),
            submitted,
            untold: self.has_untold_failure(range.volume),
            cache_tally: self.cache.tally,
            origin_tally: self.origins[usize::from(range.volume)].tally,
        });
        self.tell(|_| format!("ask {id} on thread {host} {ask:?} {range:?}"));
        if ask != Ask::Flush {
            self.hash(offset_bytes, u64::from(len_bytes));
        }
        let asked = Asked {
            volume: VolumeSlot(range.volume),
            kind,
            offset_bytes,
            len_bytes,
            flush_after: false,
        };
        let bufs = bufs.into_iter().map(|(_, buf)| buf);
        self.hosts[host].launch(self.now, id, asked, bufs, &mut self.memory);
        self.pump(host)
    }

    /// Buffers for what is read or written, one for each piece it is cut into, with the data.
    fn buffers(&mut self, host: usize, range: Range, ask: Ask) -> Vec<(Range, Buf)> {
        let carries_data = matches!(
            ask,
            Ask::Read { prefetch: false }
                | Ask::Write {
                    effect: Effect::Store(_),
                    ..
                }
        );
        let is_zero = matches!(
            ask,
            Ask::Write {
                effect: Effect::Store(ZERO),
                ..
            }
        );
        if !carries_data || is_zero {
            return Vec::new();
        }
        let (volume, offset, len) = (
            VolumeSlot(range.volume),
            range.sector * 512,
            (range.count * 512) as u32,
        );
        let pieces = self.hosts[host].pieces(volume, offset, len, MAX_REQUEST_BYTES);
        let pieces: Vec<_> = pieces.into_iter().flatten().collect();
        let mut bufs = Vec::new();
        for (_, offset_bytes, len_bytes) in pieces {
            let piece = Range {
                sector: offset_bytes / 512,
                count: u64::from(len_bytes) / 512,
                ..range
            };
            let buf = self.memory.take(len_bytes as usize);
            if let Ask::Write {
                effect: Effect::Store(value),
                ..
            } = ask
            {
                let bytes = self.memory.bytes_mut(buf);
                payload::fill(bytes, range.volume, piece.sector, value);
            }
            bufs.push((piece, buf));
        }
        bufs
    }

    fn has_untold_failure(&self, volume: u16) -> bool {
        let origin = DeviceName::Origin(VolumeSlot(volume));
        let mut hosts = self.hosts.iter();
        hosts.any(|host| host.has_untold_failure(origin))
    }

    fn register(&mut self, pending: Pending) -> u64 {
        let id = self.next_request;
        self.next_request += 1;
        self.outcome.operations += 1;
        self.requests.insert(id, pending);
        id
    }

    /// Takes an answer.
    pub(super) fn answered(&mut self, answer: Joined<u64>) -> Check {
        let Joined {
            payload: id,
            result,
        } = answer;
        let Some(pending) = self.requests.remove(&id) else {
            return Err(format!("request {id} was answered twice"));
        };
        let ok = result.is_ok();
        self.hash(id, u64::from(!ok));
        self.tell(|_| format!("answer {id} {result:?}"));
        if let Err(failure) = result {
            self.counts().add("failed requests", 1);
            self.explained(&pending, failure)?;
        }
        let range = pending.range;
        match pending.ask {
            Ask::Read { prefetch } => {
                if ok && !prefetch {
                    self.check_read(&pending)?;
                }
            }
            Ask::Write { effect, fua } => {
                self.model
                    .written(range, effect, pending.submitted, ok, fua);
                if !ok {
                    self.volumes[usize::from(range.volume)].through = false;
                }
            }
            Ask::Flush => {
                let flushes = self
                    .requests
                    .values()
                    .filter(|other| other.ask == Ask::Flush);
                let others = flushes
                    .filter(|other| other.range.volume == range.volume)
                    .count()
                    > 0;
                self.model
                    .flushed(range.volume, pending.submitted, ok, others);
                // What a failed flush doubts is whole in the log, not on the origin.
                self.volumes[usize::from(range.volume)].through &= ok;
                if ok {
                    self.after_flush(range.volume)?;
                }
            }
        }
        for (_, buf) in pending.bufs {
            self.memory.give(buf);
        }
        Ok(())
    }

    fn check_read(&mut self, pending: &Pending) -> Check {
        for (piece, buf) in &pending.bufs {
            self.check_piece(*piece, *buf, pending.submitted)?;
        }
        Ok(())
    }

    fn check_piece(&mut self, piece: Range, buf: Buf, submitted: Event) -> Check {
        let Range {
            volume,
            sector,
            count,
        } = piece;
        for i in 0..count {
            let bytes = &self.memory.bytes(buf)[i as usize * SECTOR_BYTES..][..SECTOR_BYTES];
            let place = format!(
                "volume {volume} sector {} (block {})",
                sector + i,
                self.block_of(sector + i)
            );
            let value = payload::decode(bytes, volume, sector + i).map_err(|stray| {
                format!(
                    "{place}: read {stray}, expected {}",
                    self.model.describe(volume, sector + i)
                )
            })?;
            self.hash(sector + i, u64::from(value));
            self.model
                .read(volume, sector + i, submitted, value)
                .map_err(|what| format!("{place}: {what}"))?;
        }
        Ok(())
    }

    pub(super) fn block_of(&self, sector: u64) -> u64 {
        sector * 512 / u64::from(self.plan.config.geometry.block_bytes)
    }

    /// Whether injected faults explain that a request failed.
    fn explained(&mut self, pending: &Pending, failure: Failure) -> Check {
        if self
            .options
            .fail_at
            .is_some_and(|at| self.submissions >= at)
        {
            return Ok(());
        }
        let origin = self.origins[usize::from(pending.range.volume)].tally;
        let cache = self.cache.tally;
        let since = |now: Tally, then: Tally| {
            (
                now.reads - then.reads,
                now.writes - then.writes,
                now.flushes - then.flushes,
            )
        };
        let (origin_reads, origin_writes, origin_flushes) = since(origin, pending.origin_tally);
        let (cache_reads, ..) = since(cache, pending.cache_tally);
        let bad_reads = cache.bad_reads - pending.cache_tally.bad_reads;
        let cache_broken =
            self.cache.gone || cache.damage > 0 || cache.writes > 0 || cache.flushes > 0;
        let given_up = self.engines().any(|engine| {
            engine.stats().unreadable_dirty_blocks > 0
                || !engine
                    .unreadable_dirty(VolumeSlot(pending.range.volume))
                    .is_empty()
        });
        // A write that was answered from memory can fail later; who touches its blocks hears of it.
        let late = self.plan.config.buffer_bytes > 0 && origin.writes > 0;
        let cache_unreadable = cache_reads + bad_reads >= 2 || given_up || self.misread;
        let explained = late
            || match pending.ask {
                Ask::Read { .. } => origin_reads > 0 || cache_unreadable || cache_broken,
                Ask::Write { .. } => {
                    origin_reads + origin_writes + origin_flushes > 0
                        || pending.untold
                        || cache_unreadable
                        || cache_broken
                }
                Ask::Flush => {
                    // Each shard tells of its own failed flush, once.
                    origin.flushes
                        > self.volumes[usize::from(pending.range.volume)].flush_errors_before
                        || cache_broken
                }
            };
        if explained && failure != Failure::Invalid && failure != Failure::Detached {
            return Ok(());
        }
        let key = BlockKey(self.block_of(pending.range.sector));
        Err(format!(
            "{:?} {:?} (block {}) failed with `{failure}`, and no fault explains it",
            pending.ask, pending.range, key.0
        ))
    }
}

/// A request as a client's thread takes it: what, from where on and how much, in bytes.
fn request_of(range: Range, ask: Ask) -> (RequestKind, u64, u32) {
    let kind = match ask {
        Ask::Flush => return (RequestKind::Flush, 0, 0),
        Ask::Read { prefetch: true } => RequestKind::Prefetch,
        Ask::Read { .. } => RequestKind::Read,
        Ask::Write {
            effect: Effect::Store(ZERO),
            fua,
        } => RequestKind::WriteZeroes { fua },
        Ask::Write {
            effect: Effect::Store(_),
            fua,
        } => RequestKind::Write { fua },
        Ask::Write {
            effect: Effect::Discard,
            ..
        } => RequestKind::Discard,
    };
    (kind, range.sector * 512, (range.count * 512) as u32)
}
