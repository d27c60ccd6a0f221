//! The clients: what they ask, and whether the answers are right.

use forebay_engine::{
    Ack, BlockKey, Buf, Failure, Memory, Request, RequestId, RequestKind, VolumeSlot,
};

use super::{Ask, Check, Pending, World};
use crate::device::Tally;
use crate::model::{Effect, Range};
use crate::payload::{self, SECTOR_BYTES, Value, ZERO};

impl World<'_> {
    /// A new value for a write.
    pub(super) fn fresh(&mut self) -> Value {
        self.next_value += 1;
        self.next_value
    }

    /// Submits what a client asks, in one request for each shard it touches.
    pub(super) fn ask(&mut self, range: Range, ask: Ask) -> Check {
        let depth = self.plan.config.depth;
        self.wait_for_requests(depth - 1)?;
        if ask == Ask::Flush {
            return self.ask_flush(range);
        }
        let geometry = self.plan.config.geometry;
        let base = self.volumes[usize::from(range.volume)].base;
        let (offset, len) = (range.sector * 512, range.count * 512);
        let pieces: Vec<_> = geometry.split(base, offset, len, 1 << 20).collect();
        for (shard, offset_bytes, len_bytes) in pieces {
            let piece = Range {
                sector: offset_bytes / 512,
                count: u64::from(len_bytes) / 512,
                ..range
            };
            self.ask_piece(shard, piece, ask)?;
        }
        Ok(())
    }

    fn ask_piece(&mut self, shard: u16, range: Range, ask: Ask) -> Check {
        let offset_bytes = range.sector * 512;
        let len_bytes = (range.count * 512) as u32;
        let (kind, buf) = match ask {
            Ask::Read { prefetch: true } => (RequestKind::Prefetch, Buf::EMPTY),
            Ask::Read { .. } => (RequestKind::Read, self.memory.take(len_bytes as usize)),
            Ask::Write {
                effect: Effect::Store(ZERO),
                fua,
            } => (RequestKind::WriteZeroes { fua }, Buf::EMPTY),
            Ask::Write {
                effect: Effect::Store(value),
                fua,
            } => {
                let buf = self.memory.take(len_bytes as usize);
                payload::fill(
                    self.memory.bytes_mut(buf),
                    range.volume,
                    range.sector,
                    value,
                );
                (RequestKind::Write { fua }, buf)
            }
            Ask::Write {
                effect: Effect::Discard,
                ..
            } => (RequestKind::Discard, Buf::EMPTY),
            Ask::Flush => unreachable!("a flush has no range"),
        };
        let submitted = match ask {
            Ask::Write { effect, .. } => self.model.write(range, effect),
            _ => self.model.begin(),
        };
        let id = self.register(Pending {
            ask,
            range,
            buf,
            submitted,
            parts: 1,
            failed: false,
            cache_tally: self.cache.tally,
            origin_tally: self.origins[usize::from(range.volume)].tally,
        });
        self.tell(|_| format!("ask {id} shard {shard} {ask:?} {range:?}"));
        let volume = VolumeSlot(range.volume);
        let request = Request {
            id: RequestId(id),
            volume,
            kind,
            offset_bytes,
            len_bytes,
            buf,
        };
        self.hash(offset_bytes, u64::from(len_bytes));
        self.engines[usize::from(shard)].submit(self.now, request, &mut self.memory);
        self.pump(shard)
    }

    fn ask_flush(&mut self, range: Range) -> Check {
        let submitted = self.model.begin();
        let id = self.register(Pending {
            ask: Ask::Flush,
            range,
            buf: Buf::EMPTY,
            submitted,
            parts: self.plan.config.geometry.shards,
            failed: false,
            cache_tally: self.cache.tally,
            origin_tally: self.origins[usize::from(range.volume)].tally,
        });
        self.tell(|_| format!("ask {id} flush volume {}", range.volume));
        for shard in 0..self.engines.len() as u16 {
            let request = Request {
                id: RequestId(id),
                volume: VolumeSlot(range.volume),
                kind: RequestKind::Flush,
                offset_bytes: 0,
                len_bytes: 0,
                buf: Buf::EMPTY,
            };
            self.engines[usize::from(shard)].submit(self.now, request, &mut self.memory);
            self.pump(shard)?;
        }
        Ok(())
    }

    fn register(&mut self, pending: Pending) -> u64 {
        let id = self.next_request;
        self.next_request += 1;
        self.outcome.operations += 1;
        self.requests.insert(id, pending);
        id
    }

    /// Takes an answer.
    pub(super) fn answered(&mut self, ack: Ack) -> Check {
        let Some(pending) = self.requests.get_mut(&ack.id.0) else {
            return Err(format!("request {} was answered twice", ack.id.0));
        };
        pending.parts -= 1;
        pending.failed |= ack.result.is_err();
        if pending.parts > 0 {
            return Ok(());
        }
        let pending = self.requests.remove(&ack.id.0).expect("just seen");
        self.hash(ack.id.0, u64::from(pending.failed));
        self.tell(|_| format!("answer {} {:?}", ack.id.0, ack.result));
        let ok = !pending.failed;
        if let Err(failure) = ack.result {
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
        if pending.buf != Buf::EMPTY {
            self.memory.give(pending.buf);
        }
        Ok(())
    }

    fn check_read(&mut self, pending: &Pending) -> Check {
        let Range {
            volume,
            sector,
            count,
        } = pending.range;
        for i in 0..count {
            let bytes =
                &self.memory.bytes(pending.buf)[i as usize * SECTOR_BYTES..][..SECTOR_BYTES];
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
                .read(volume, sector + i, pending.submitted, value)
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
        let given_up = self.engines.iter().any(|engine| {
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
