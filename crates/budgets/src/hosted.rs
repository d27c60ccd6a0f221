//! A driver of a whole host that answers at once, as `rig` does for an engine. Its cache is on one device,
//! or keeps two copies of dirty data on two, and has one shard or more.

use std::sync::Arc;

use forebay_cache::{ClientRequest, Host, Order, Shard, Shared};
use forebay_engine::{
    Buf, CacheId, Device, Engine, Geometry, Joined, Memory, Mode, Nanos, OpId, RequestKind,
    Settings, Superblock, VolumeSlot,
};
use forebay_virtual::Blank;

use crate::rig::{BOOT, Ram, recovered, volume_of};

const VOLUME: VolumeSlot = VolumeSlot(0);

pub(crate) struct HostRig {
    host: Host<u32>,
    ram: Ram,
    now: Nanos,
    buf: Buf,
}

impl HostRig {
    /// A cache of `cache_bytes` on each of so many devices, one or two, of so many shards.
    pub(crate) fn new(
        (devices, shards): (u8, u16),
        cache_bytes: u64,
        origin_bytes: u64,
        settings: Settings,
    ) -> HostRig {
        let geometry =
            Geometry::for_device(cache_bytes, 4096, Some(shards), 1).expect("large enough");
        let numbered = (0..devices).map(|number| (number, Blank::new(cache_bytes)));
        let mut storage = Joined::new(numbered.collect());
        let mut superblock = Superblock::new(CacheId([3; 16]), geometry, cache_bytes);
        for _ in 1..devices {
            let number = superblock.add_device(cache_bytes).expect("room for two");
            superblock.grow(number, cache_bytes).expect("room for two");
        }
        superblock.set_copies(devices);
        superblock
            .write(&mut storage)
            .expect("memory does not fail");
        let mut ram = Ram::new(4096, 48);
        let owners = vec![0; usize::from(shards)];
        let mut host = Host::new((0, 1), owners, geometry, Arc::new(Shared::default()));
        (0..devices).for_each(|number| host.add_cache_device(number));
        if devices > 1 {
            host.keep_two(0);
        }
        for (number, shard) in (0..).zip(recovered(&mut storage)) {
            let engine = Engine::new(settings.clone(), shard, BOOT, &mut ram);
            host.add_shard(number, Shard::Cached(Box::new(engine)));
        }
        host.add_volume(VOLUME, volume_of(origin_bytes, Mode::Writeback));
        let buf = ram.alloc(1 << 20).expect("memory for one request");
        HostRig {
            host,
            ram,
            now: Nanos(1_000_000),
            buf,
        }
    }

    /// Serves requests that come together, and the work that follows at once.
    pub(crate) fn batch(
        &mut self,
        kind: RequestKind,
        offsets_bytes: impl Iterator<Item = u64>,
        len_bytes: u32,
    ) {
        for (i, offset_bytes) in offsets_bytes.enumerate() {
            let buf = self.buf.slice(i * len_bytes as usize, len_bytes as usize);
            let request = ClientRequest {
                volume: VOLUME,
                kind,
                offset_bytes,
                len_bytes,
                flush_after: false,
                is_of_daemon: false,
            };
            engine_call_host_submit(&mut self.host, self.now, request, buf, &mut self.ram);
            self.now.0 += 5_000;
        }
        self.turn();
    }

    fn turn(&mut self) {
        loop {
            engine_call_host_advance(&mut self.host, self.now, &mut self.ram);
            let mut did = false;
            while let Some(order) = engine_call_host_next(&mut self.host) {
                did = true;
                match order {
                    Ordered::Transfer(shard, op) => {
                        let (host, ram) = (&mut self.host, &mut self.ram);
                        engine_call_host_complete(host, self.now, shard, op, ram);
                    }
                    Ordered::Flush(device) => {
                        engine_call_host_flushed(&mut self.host, self.now, device, &mut self.ram);
                    }
                }
            }
            while engine_call_host_answer(&mut self.host) {}
            if !did {
                std::hint::black_box(engine_call_host_deadline(&self.host));
                return;
            }
        }
    }
}

enum Ordered {
    Transfer(u16, OpId),
    Flush(Device),
}

// As in `rig`: only these are counted.

#[inline(never)]
fn engine_call_host_submit(
    host: &mut Host<u32>,
    now: Nanos,
    request: ClientRequest,
    buf: Buf,
    memory: &mut Ram,
) {
    host.submit(now, 1, request, [buf], memory);
}

#[inline(never)]
fn engine_call_host_advance(host: &mut Host<u32>, now: Nanos, memory: &mut Ram) {
    host.advance(now, memory);
}

/// A driver asks before it waits.
#[inline(never)]
fn engine_call_host_deadline(host: &Host<u32>) -> Option<Nanos> {
    host.next_deadline()
}

#[inline(never)]
fn engine_call_host_next(host: &mut Host<u32>) -> Option<Ordered> {
    Some(match host.next_order()? {
        Order::Transfer(shard, action) => Ordered::Transfer(shard, action.op),
        Order::Flush(device) => Ordered::Flush(device),
    })
}

#[inline(never)]
fn engine_call_host_complete(
    host: &mut Host<u32>,
    now: Nanos,
    shard: u16,
    op: OpId,
    memory: &mut Ram,
) {
    host.complete(now, shard, op, Ok(()), memory);
}

#[inline(never)]
fn engine_call_host_flushed(host: &mut Host<u32>, now: Nanos, device: Device, memory: &mut Ram) {
    host.flushed(now, device, Ok(()), memory);
}

#[inline(never)]
fn engine_call_host_answer(host: &mut Host<u32>) -> bool {
    host.next_answer().is_some()
}
