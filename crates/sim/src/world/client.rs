//! The clients: their requests, and checks of the answers.

use std::collections::BTreeSet;

use forebay_cache::{ClientRequest, Joined};
use forebay_engine::{
    BlockKey, Buf, Device as DeviceName, Failure, MAX_REQUEST_BYTES, RequestKind, VolumeSlot,
};

use super::touched::Block;
use super::{Check, Kind, Life, Pending, World};
use crate::device::How;
use crate::model::{Effect, Event, Range};
use crate::payload::{self, SECTOR_BYTES, Value, ZERO};

impl World<'_> {
    /// A new value for a write.
    pub(super) fn fresh(&mut self) -> Value {
        self.next_value += 1;
        self.next_value
    }

    /// Submits what a client asks, on some thread; nothing of a volume that is not there.
    pub(super) fn request(&mut self, range: Range, kind: Kind) -> Check {
        let depth = self.plan.config.depth;
        self.wait_for_requests(depth - 1)?;
        let state = &self.volumes[usize::from(range.volume)];
        if range.sector + range.count > state.served_sectors() {
            return Ok(());
        }
        match self.volumes[usize::from(range.volume)].life {
            Life::Served => self.submit(range, kind, None).map(drop),
            Life::Away => self.misses(range.volume),
            Life::Refusing | Life::Detached => Ok(()),
        }
    }

    /// Submits a request, a client's or a command's; says which it is.
    pub(super) fn submit(&mut self, range: Range, kind: Kind, command: Option<u32>) -> Check<u64> {
        let host = match self.hosts.len() as u64 {
            1 => 0,
            hosts => self.rng.below(hosts) as usize,
        };
        let (_, offset_bytes, len_bytes) = request_of(range, kind);
        let bufs = self.buffers(host, range, kind);
        let submitted = match kind {
            Kind::Write { effect, .. } => self.model.write(range, effect),
            _ => self.model.begin(),
        };
        let mut pending = Pending {
            host,
            kind,
            range,
            bufs: bufs.clone(),
            submitted,
            command,
            leaving: self.is_leaving(range.volume),
            untold: self.has_untold_failure(range.volume),
            since: self.touched.now(),
            heard: self.volumes[usize::from(range.volume)].heard,
            met_dirty: self.meets_dirty_of_failed(range, kind),
            found_dirty: self.two_lost && self.any_dirty(&self.blocks_of(range)),
            on_origin: 0,
            is_owed: false,
        };
        self.asks_of_origin(&mut pending);
        let id = self.register(pending);
        if self.plan.config.buffer_bytes > 0 && matches!(kind, Kind::Write { .. }) {
            let blocks = self.blocks_of(range);
            self.touched.written.push(blocks);
        }
        self.tell(|_| format!("ask {id} on thread {host} {kind:?} {range:?}"));
        if kind != Kind::Flush {
            self.hash(offset_bytes, u64::from(len_bytes));
        }
        self.send(host, id, (range, kind), &bufs);
        self.pump(host)?;
        Ok(id)
    }

    /// Gives a request to the thread that has it.
    fn send(&mut self, host: usize, id: u64, (range, kind): (Range, Kind), bufs: &[(Range, Buf)]) {
        let (kind, offset_bytes, len_bytes) = request_of(range, kind);
        let pending = self.requests.get(&id);
        let is_of_daemon = pending.is_some_and(|pending| pending.command.is_some());
        let request = ClientRequest {
            volume: VolumeSlot(range.volume),
            kind,
            offset_bytes,
            len_bytes,
            flush_after: false,
            is_of_daemon,
        };
        let bufs = bufs.iter().map(|(_, buf)| *buf);
        self.hosts[host].submit(self.now, id, request, bufs, &mut self.memory);
    }

    /// Buffers for what is read or written, one for each piece it is cut into, with the data.
    fn buffers(&mut self, host: usize, range: Range, kind: Kind) -> Vec<(Range, Buf)> {
        let carries_data = matches!(
            kind,
            Kind::Read { prefetch: false }
                | Kind::Write {
                    effect: Effect::Store(_),
                    ..
                }
        );
        let is_zero = matches!(
            kind,
            Kind::Write {
                effect: Effect::Store(ZERO),
                ..
            }
        );
        if !carries_data || is_zero {
            return Vec::new();
        }
        if let Some(buf) = self.memory_of_client(host, range, kind) {
            self.fill_for(kind, range, buf);
            return vec![(range, buf)];
        }
        self.copies(host, range, kind)
    }

    /// The driver's own buffers for what is read or written, likewise.
    fn copies(&mut self, host: usize, range: Range, kind: Kind) -> Vec<(Range, Buf)> {
        let (volume, offset, len) = (
            VolumeSlot(range.volume),
            range.sector * 512,
            (range.count * 512) as u32,
        );
        let pieces = self.hosts[host].pieces(volume, offset, len, MAX_REQUEST_BYTES);
        let mut bufs = Vec::new();
        for (_, offset_bytes, len_bytes) in pieces.into_iter().flatten() {
            let piece = Range {
                sector: offset_bytes / 512,
                count: u64::from(len_bytes) / 512,
                ..range
            };
            let buf = self.memory.take(len_bytes as usize);
            self.fill_for(kind, piece, buf);
            bufs.push((piece, buf));
        }
        bufs
    }

    /// Puts the data of a write into a buffer.
    fn fill_for(&mut self, kind: Kind, piece: Range, buf: Buf) {
        if let Kind::Write {
            effect: Effect::Store(value),
            ..
        } = kind
        {
            let bytes = self.memory.landing(buf);
            payload::fill(bytes, piece.volume, piece.sector, value);
        }
    }

    /// The client's own memory, if its data goes straight; now and then if it does not, as where
    /// something happens in between.
    fn memory_of_client(&mut self, host: usize, range: Range, kind: Kind) -> Option<Buf> {
        let is_read = matches!(kind, Kind::Read { .. });
        if !self.plan.config.straight || matches!(kind, Kind::Write { fua: true, .. }) {
            return None;
        }
        let (volume, offset) = (VolumeSlot(range.volume), range.sector * 512);
        let len = (range.count * 512) as u32;
        let mut pieces = self.hosts[host].pieces(volume, offset, len, MAX_REQUEST_BYTES)?;
        let is_one = pieces.next().is_some() && pieces.next().is_none();
        let may = match is_read {
            true => self.hosts[host].may_read_straight(volume),
            false => self.hosts[host].may_write_straight(volume),
        };
        let may = may || self.rng.percent(10);
        (is_one && may).then(|| self.memory.take_of_client(len))
    }

    /// A request did not go straight: it is made again, with memory of the driver's.
    fn ask_again(&mut self, mut pending: Pending) {
        self.outcome
            .counts
            .add("requests that did not go straight", 1);
        for (_, buf) in pending.bufs.drain(..) {
            self.memory.give(buf);
        }
        let (host, range, kind) = (pending.host, pending.range, pending.kind);
        let bufs = self.copies(host, range, kind);
        pending.bufs.clone_from(&bufs);
        let id = self.register(pending);
        self.send(host, id, (range, kind), &bufs);
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
    pub(super) fn answered(&mut self, host: usize, answer: Joined<u64>) -> Check {
        let Joined {
            payload: id,
            result,
            bypassed,
            unheard,
        } = answer;
        if let Some(unheard) = unheard {
            self.hosts[host].heard(unheard);
        }
        let Some(pending) = self.requests.remove(&id) else {
            return Err(format!("request {id} was answered twice"));
        };
        if result == Err(Failure::NotStraight) {
            self.tell(|_| format!("answer {id}: not straight"));
            self.ask_again(pending);
            return Ok(());
        }
        let ok = result.is_ok();
        if pending.bufs.iter().any(|(_, buf)| buf.is_of_client()) {
            let what = match pending.kind {
                Kind::Read { .. } => "reads that went straight",
                _ => "writes that went straight",
            };
            self.counts().add(what, 1);
        }
        if let Some(command) = pending.command {
            self.flush_answered(command, ok);
        }
        self.hash(id, u64::from(!ok));
        self.changed_origin(&pending, ok, bypassed);
        self.tell(|_| format!("answer {id} {result:?}"));
        if let Err(failure) = result {
            self.counts().add("failed requests", 1);
            self.explained(&pending, failure)?;
        }
        let range = pending.range;
        match pending.kind {
            Kind::Read { prefetch } => {
                if ok && !prefetch {
                    self.check_read(&pending)?;
                }
            }
            Kind::Write { effect, fua } => {
                self.model
                    .written(range, effect, pending.submitted, ok, fua);
                if !ok {
                    self.volumes[usize::from(range.volume)].through = false;
                }
            }
            Kind::Flush => {
                let is_of_daemon = pending.command.is_some();
                if !pending.untold && !is_of_daemon {
                    // The answer has told of failures before the request.
                    let heard = &mut self.volumes[usize::from(range.volume)].heard;
                    *heard = pending.since.max(*heard);
                }
                // No client hears of a failure that a command is told.
                if ok || !is_of_daemon {
                    self.model.flushed(range.volume, pending.submitted, ok);
                }
                // Blocks that a failed flush leaves in doubt are whole in the log, not on the
                // origin.
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
            let bytes = &self.memory.landed(buf)[i as usize * SECTOR_BYTES..][..SECTOR_BYTES];
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

    /// Whether injected faults explain that a request failed: faults of its own blocks, or what the
    /// contract says of a cache that failed. Each explanation is counted.
    fn explained(&mut self, pending: &Pending, failure: Failure) -> Check {
        self.look_at_harm();
        let explanation = match failure {
            Failure::Detached => pending
                .leaving
                .then_some("explained: its volume is detached"),
            Failure::Invalid | Failure::NotStraight => None,
            Failure::Io | Failure::NoSpace => self.explanation(pending),
        };
        if let Some(explanation) = explanation {
            self.counts().add(explanation, 1);
            let is_read = matches!(pending.kind, Kind::Read { .. });
            return match is_read && self.two_lost && failure == Failure::Io {
                true => self.read_met_what_is_lost(pending),
                false => Ok(()),
            };
        }
        let key = BlockKey(self.block_of(pending.range.sector));
        Err(format!(
            "{:?} {:?} (block {}) failed with `{failure}`, and no fault of its own explains it",
            pending.kind, pending.range, key.0
        ))
    }

    fn explanation(&self, pending: &Pending) -> Option<&'static str> {
        if self.is_strict() {
            return None;
        }
        if self.two_lost && matches!(pending.kind, Kind::Read { .. }) {
            // A device that is lost is not asked, so that no fault of it need show.
            return Some("explained: no device that has it is left");
        }
        let touched = &self.touched;
        let blocks = self.blocks_of(pending.range);
        let faults = &touched.faults[pending.since..];
        let own = |on_cache: bool, how: How| {
            let mut faults = faults.iter();
            faults.any(|fault| {
                (fault.on_cache, fault.how) == (on_cache, Some(how))
                    && !fault.blocks.is_disjoint(&blocks)
                    && (fault.is_single || fault.blocks.is_subset(&blocks))
            })
        };
        if own(false, How::Read) {
            return Some("explained: read of the origin");
        }
        if own(true, How::Read) {
            return Some("explained: read of the cache");
        }
        if !touched.lasting.is_disjoint(&blocks) {
            return Some("explained: damage to the cache");
        }
        if !touched.late.is_disjoint(&blocks) {
            return Some("explained: what memory holds cannot be stored");
        }
        let in_memory = self.plan.config.buffer_bytes > 0 && touched.any_failed;
        if in_memory && self.any_dirty(&blocks) {
            // It was answered from memory, and what it would replace cannot be written back.
            return Some("explained: what memory holds cannot be stored");
        }
        if self.two_lost && self.cuts_what_is_lost(pending.range) {
            return Some("explained: no device has the rest of its block");
        }
        match pending.kind {
            Kind::Read { .. } => None,
            Kind::Write { .. } => self.explanation_of_write(pending, &blocks, &own),
            Kind::Flush => self.explanation_of_flush(pending),
        }
    }

    fn explanation_of_write(
        &self,
        pending: &Pending,
        blocks: &BTreeSet<Block>,
        own: &dyn Fn(bool, How) -> bool,
    ) -> Option<&'static str> {
        if own(false, How::Write) {
            return Some("explained: write to the origin");
        }
        if own(true, How::Write) {
            return Some("explained: write to the cache");
        }
        if pending.untold || self.flush_failed_since(pending.range.volume, pending.since) {
            return Some("explained: flush of the origin");
        }
        self.explanation_of_failed(pending, self.any_dirty(blocks))
    }

    fn explanation_of_flush(&self, pending: &Pending) -> Option<&'static str> {
        let volume = pending.range.volume;
        let is_owed = pending.is_owed || self.has_changes_on_origin(volume);
        if is_owed && self.flush_failed_since(volume, pending.heard) {
            return Some("explained: flush of the origin");
        }
        if self.touched.late.iter().any(|(late, _)| *late == volume) {
            return Some("explained: what memory holds cannot be stored");
        }
        self.explanation_of_failed(pending, self.dirty_blocks(volume) > 0)
    }

    fn flush_failed_since(&self, volume: u16, since: usize) -> bool {
        let mut faults = self.touched.faults[since..].iter();
        faults.any(|fault| fault.how == Some(How::Flush) && fault.volume == Some(volume))
    }

    /// Explains a failure by the cache that failed: the request was in progress then, or
    /// meets dirty blocks.
    fn explanation_of_failed(&self, pending: &Pending, meets_dirty: bool) -> Option<&'static str> {
        if !self.touched.any_failed {
            return None;
        }
        let by_all = self.touched.all_failed;
        if by_all.is_none_or(|by_all| by_all >= pending.since) {
            Some("explained: the cache failed")
        } else {
            (meets_dirty || pending.met_dirty).then_some("explained: dirty in a cache that failed")
        }
    }

    /// Notes for each request in progress that a block of it is dirty in a cache that failed. A
    /// write that was on its way then can make it so, and write-back clean again, before the
    /// answer.
    pub(super) fn note_dirty_met(&mut self) {
        if !self.touched.any_failed {
            return;
        }
        let met = self.requests.iter().filter(|(_, pending)| {
            !pending.met_dirty && self.meets_dirty_of_failed(pending.range, pending.kind)
        });
        for id in met.map(|(id, _)| *id).collect::<Vec<_>>() {
            if let Some(pending) = self.requests.get_mut(&id) {
                pending.met_dirty = true;
            }
        }
    }

    /// Whether a request comes upon dirty data in a cache that failed.
    fn meets_dirty_of_failed(&self, range: Range, kind: Kind) -> bool {
        self.touched.any_failed
            && match kind {
                Kind::Flush => self.dirty_blocks(range.volume) > 0,
                _ => self.any_dirty(&self.blocks_of(range)),
            }
    }
}

/// A request as a client's thread takes it: its kind, its start and its length, in bytes.
fn request_of(range: Range, kind: Kind) -> (RequestKind, u64, u32) {
    let kind = match kind {
        Kind::Flush => return (RequestKind::Flush, 0, 0),
        Kind::Read { prefetch: true } => RequestKind::Prefetch,
        Kind::Read { .. } => RequestKind::Read,
        Kind::Write {
            effect: Effect::Store(ZERO),
            fua,
        } => RequestKind::WriteZeroes { fua },
        Kind::Write {
            effect: Effect::Store(_),
            fua,
        } => RequestKind::Write { fua },
        Kind::Write {
            effect: Effect::Discard,
            ..
        } => RequestKind::Discard,
    };
    (kind, range.sector * 512, (range.count * 512) as u32)
}
