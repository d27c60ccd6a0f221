//! A volume behind Forebay: the engine that ships, driven in virtual time as the daemon's loop
//! drives it, over a model of an SSD and one of a disk.

use std::collections::{HashMap, VecDeque};

use forebay_engine::{
    Action, Buf, Device, DeviceTimes, Engine, Geometry, MAX_REQUEST_BYTES, Memory, Mode, Nanos,
    OpId, Operation, Request, RequestId, RequestKind, Settings, Stripe, VolumeSlot,
};
use forebay_model::{Command, DeviceModel};

use crate::cpu::CpuCost;
use crate::memory::ZeroMemory;
use crate::shard::new_shard;
use crate::system::{Access, Answer, System};

/// The longest discard or write-zeroes the engine is given at once, as by the daemon.
const MAX_RANGE_BYTES: u32 = 64 << 20;

/// Bytes moved on the two devices, metadata included.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Traffic {
    /// Read from the cache device.
    pub cache_read_bytes: u64,
    /// Written to the cache device.
    pub cache_write_bytes: u64,
    /// Read from the origin device.
    pub origin_read_bytes: u64,
    /// Written to the origin device.
    pub origin_write_bytes: u64,
    /// Of what was written to the cache device, headers and summaries.
    pub metadata_bytes: u64,
}

impl Traffic {
    /// The traffic since `earlier`.
    #[must_use]
    pub fn since(&self, earlier: &Traffic) -> Traffic {
        Traffic {
            cache_read_bytes: self.cache_read_bytes - earlier.cache_read_bytes,
            cache_write_bytes: self.cache_write_bytes - earlier.cache_write_bytes,
            origin_read_bytes: self.origin_read_bytes - earlier.origin_read_bytes,
            origin_write_bytes: self.origin_write_bytes - earlier.origin_write_bytes,
            metadata_bytes: self.metadata_bytes - earlier.metadata_bytes,
        }
    }
}

/// Parts of a cached volume.
pub struct Setup {
    /// The cache device.
    pub ssd: Box<dyn DeviceModel>,
    /// Its size, in bytes.
    pub cache_bytes: u64,
    /// The origin device.
    pub disk: Box<dyn DeviceModel>,
    /// Its size, in bytes.
    pub origin_bytes: u64,
    /// The stripe of the origin device, if it is a RAID with parity.
    pub stripe: Option<Stripe>,
    /// The volume's mode.
    pub mode: Mode,
    /// The cache's settings.
    pub settings: Settings,
    /// Charges for processor time.
    pub cpu: CpuCost,
}

/// A request longer than the engine takes is several of its requests.
#[derive(Clone, Copy, Debug)]
struct Client {
    parts: u32,
    access: Access,
}

/// A shard with its devices.
pub struct Cached {
    engine: Engine,
    memory: ZeroMemory,
    volume: VolumeSlot,
    ssd: Box<dyn DeviceModel>,
    disk: Box<dyn DeviceModel>,
    cpu: CpuCost,
    cpu_free_ns: u64,
    /// Sent and not yet looked at, in order of time.
    inbox: VecDeque<(u64, u64)>,
    clients: HashMap<u64, Client>,
    /// All clients' data: it is zeroes.
    data: Buf,
    traffic: Traffic,
}

impl Cached {
    /// A new cache, attached, in front of a volume.
    ///
    /// # Errors
    /// If the cache is too small or the settings are not valid.
    pub fn new(setup: Setup) -> Result<Cached, String> {
        let geometry = Geometry::for_device(setup.cache_bytes, 4096, Some(1), 1)
            .map_err(|error| error.to_string())?;
        let (mut engine, volume, mut memory) =
            new_shard(geometry, setup.settings, setup.origin_bytes, setup.mode)?;
        engine.set_stripe(volume, setup.stripe);
        engine.set_origin_answers_hits(volume, true);
        let data = memory
            .alloc(MAX_REQUEST_BYTES as usize)
            .ok_or("no memory for requests")?;
        Ok(Cached {
            engine,
            memory,
            volume,
            ssd: setup.ssd,
            disk: setup.disk,
            cpu: setup.cpu,
            cpu_free_ns: 0,
            inbox: VecDeque::new(),
            clients: HashMap::new(),
            data,
            traffic: Traffic::default(),
        })
    }

    /// The traffic so far.
    #[must_use]
    pub fn traffic(&self) -> Traffic {
        Traffic {
            metadata_bytes: self.engine.stats().cache_metadata_written_bytes,
            ..self.traffic
        }
    }

    /// Dirty data, in bytes.
    #[must_use]
    pub fn dirty_bytes(&self) -> u64 {
        self.engine.stats().dirty_blocks * 4096
    }

    /// The engine's counters.
    #[must_use]
    pub fn stats(&self) -> &forebay_engine::Stats {
        self.engine.stats()
    }

    /// The engine's model of the cache device, and of the origin.
    #[must_use]
    pub fn times(&self) -> (DeviceTimes, DeviceTimes) {
        (
            self.engine.cache_times(),
            self.engine.origin_times(self.volume),
        )
    }

    /// Says whether the origin may answer hits; it may at first, as a block device's in the daemon.
    pub fn set_origin_answers_hits(&mut self, may: bool) {
        self.engine.set_origin_answers_hits(self.volume, may);
    }

    /// Starts or stops the drain of the volume.
    pub fn set_draining(&mut self, draining: bool) {
        self.engine.set_draining(self.volume, draining);
    }

    fn charge(&mut self, time_ns: u64) -> Nanos {
        self.cpu_free_ns += time_ns;
        Nanos(self.cpu_free_ns)
    }

    /// Takes what the devices finished by `now_ns`.
    fn finished(&mut self, now_ns: u64) -> Vec<OpId> {
        let mut finished = Vec::new();
        for device in [&mut self.ssd, &mut self.disk] {
            while let Some((id, _)) = device.pop_done(now_ns) {
                finished.push(OpId(u32::try_from(id).expect("named by the engine")));
            }
        }
        finished
    }

    /// Hands in what clients sent by `now_ns`.
    fn submit(&mut self, now_ns: u64) {
        while let Some(&(at_ns, id)) = self.inbox.front() {
            if at_ns > now_ns {
                break;
            }
            self.inbox.pop_front();
            let access = self.clients[&id].access;
            let received_ns = if access.writes() {
                u64::from(access.len_bytes) * self.cpu.write_kib_ns / 1024
            } else {
                0
            };
            let now = self.charge(self.cpu.request_ns / 2 + received_ns);
            for (offset_bytes, len_bytes) in parts(access) {
                let request = Request {
                    id: RequestId(id),
                    volume: self.volume,
                    kind: access.kind,
                    offset_bytes,
                    len_bytes,
                    buf: match access.kind {
                        RequestKind::Read | RequestKind::Write { .. } => {
                            self.data.slice(0, len_bytes as usize)
                        }
                        _ => Buf::EMPTY,
                    },
                };
                self.engine.submit(now, request, &mut self.memory);
            }
        }
    }

    /// Sends on what the engine wants done.
    fn issue(&mut self) {
        while let Some(Action {
            op,
            device,
            operation,
        }) = self.engine.next_action()
        {
            let command = self.command(device, &operation);
            let blocks = match device {
                Device::Cache(_) => 0,
                Device::Origin(_) => command.len_bytes.div_ceil(4096),
            };
            let now_ns = self
                .charge(self.cpu.operation_ns + blocks * self.cpu.block_ns)
                .0;
            match device {
                Device::Cache(_) => self.ssd.submit(now_ns, u64::from(op.0), command),
                Device::Origin(_) => self.disk.submit(now_ns, u64::from(op.0), command),
            }
        }
    }

    /// The operation as the device sees it, counted.
    fn command(&mut self, device: Device, operation: &Operation) -> Command {
        let on_cache = matches!(device, Device::Cache(_));
        match operation {
            Operation::Read { offset_bytes, bufs } => {
                let len_bytes = bufs.iter().map(|buf| u64::from(buf.len_bytes)).sum();
                if on_cache {
                    self.traffic.cache_read_bytes += len_bytes;
                } else {
                    self.traffic.origin_read_bytes += len_bytes;
                }
                Command::read(*offset_bytes, len_bytes)
            }
            Operation::Write { offset_bytes, bufs } => {
                let len_bytes = bufs.iter().map(|buf| u64::from(buf.len_bytes)).sum();
                self.count_write(on_cache, len_bytes);
                Command::write(*offset_bytes, len_bytes)
            }
            Operation::WriteZeroes {
                offset_bytes,
                len_bytes,
            } => {
                self.count_write(on_cache, *len_bytes);
                Command::write(*offset_bytes, *len_bytes)
            }
            Operation::Flush => Command::flush(),
            Operation::ReadEither { .. } | Operation::WriteBoth(_) => {
                unreachable!("its cache keeps one copy")
            }
            Operation::Discard {
                offset_bytes,
                len_bytes,
            } => Command::discard(*offset_bytes, *len_bytes),
        }
    }

    fn count_write(&mut self, on_cache: bool, len_bytes: u64) {
        if on_cache {
            self.traffic.cache_write_bytes += len_bytes;
        } else {
            self.traffic.origin_write_bytes += len_bytes;
        }
    }

    fn answer(&mut self, answers: &mut Vec<Answer>) {
        while let Some(ack) = self.engine.next_ack() {
            assert_eq!(ack.result, Ok(()), "nothing fails here");
            let id = ack.id.0;
            let client = self.clients.get_mut(&id).expect("asked for");
            client.parts -= 1;
            if client.parts > 0 {
                continue;
            }
            let access = client.access;
            self.clients.remove(&id);
            let sent_ns = if access.kind == RequestKind::Read {
                u64::from(access.len_bytes) * self.cpu.read_kib_ns / 1024
            } else {
                0
            };
            let at_ns = self.charge(self.cpu.request_ns / 2 + sent_ns).0;
            answers.push(Answer { id, at_ns });
        }
    }
}

/// The engine's requests for one of a client's.
fn parts(access: Access) -> impl Iterator<Item = (u64, u32)> {
    let longest = match access.kind {
        RequestKind::Discard | RequestKind::WriteZeroes { .. } => MAX_RANGE_BYTES,
        _ => MAX_REQUEST_BYTES,
    };
    // A flush has no length and is one request all the same.
    (0..access.len_bytes.div_ceil(longest).max(1)).map(move |part| {
        let skip = part * longest;
        (
            access.offset_bytes + u64::from(skip),
            (access.len_bytes - skip).min(longest),
        )
    })
}

impl System for Cached {
    fn send(&mut self, at_ns: u64, id: u64, access: Access) {
        let parts = parts(access).count() as u32;
        self.clients.insert(id, Client { parts, access });
        self.inbox.push_back((at_ns, id));
    }

    fn next_ns(&self) -> Option<u64> {
        let events = [
            self.inbox.front().map(|(at_ns, _)| *at_ns),
            self.ssd.next_event_ns(),
            self.disk.next_event_ns(),
            self.engine.next_deadline().map(|at| at.0),
        ];
        let next_ns = events.into_iter().flatten().min()?;
        Some(next_ns.max(self.cpu_free_ns))
    }

    fn run(&mut self, now_ns: u64, answers: &mut Vec<Answer>) {
        self.ssd.advance(now_ns);
        self.disk.advance(now_ns);
        let finished = self.finished(now_ns);
        let arrived = self
            .inbox
            .front()
            .is_some_and(|(at_ns, _)| *at_ns <= now_ns);
        let due = self.engine.next_deadline().is_some_and(|at| at.0 <= now_ns);
        if finished.is_empty() && !arrived && !due {
            return;
        }
        // The thread slept only if it had nothing to do.
        if now_ns > self.cpu_free_ns {
            self.cpu_free_ns = now_ns;
            self.charge(self.cpu.wake_ns);
        }
        let now = Nanos(self.cpu_free_ns);
        for op in finished {
            self.engine.complete(now, op, Ok(()), &mut self.memory);
        }
        self.submit(now_ns);
        let now = Nanos(self.cpu_free_ns);
        self.engine.advance(now, &mut self.memory);
        self.issue();
        self.answer(answers);
    }
}
