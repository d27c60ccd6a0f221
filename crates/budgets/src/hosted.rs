//! A driver of a whole host that answers at once, as `rig` does for an engine. Its cache is on one device,
//! or keeps two copies of dirty data on two.

use std::sync::Arc;

use forebay_cache::{ClientRequest, Host, Order, Shard, Shared};
use forebay_engine::{
    Buf, CacheId, Device, Geometry, Joined, Memory, Mode, Nanos, OpId, RequestKind, Settings,
    Superblock, VolumeSlot,
};
use forebay_virtual::Blank;

use crate::rig::{Ram, attached, volume_of};

const VOLUME: VolumeSlot = VolumeSlot(0);

pub(crate) struct HostRig {
    host: Host<u32>,
    ram: Ram,
    now: Nanos,
    buf: Buf,
}

impl HostRig {
    /// A cache of `cache_bytes` on each of so many devices, one or two.
    pub(crate) fn new(
        devices: u8,
        cache_bytes: u64,
        origin_bytes: u64,
        settings: Settings,
    ) -> HostRig {
        let geometry = Geometry::for_device(cache_bytes, 4096, Some(1), 1).expect("large enough");
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
        let (engine, mut ram) = attached(&mut storage, settings);
        let mut host = Host::new((0, 1), vec![0], geometry, Arc::new(Shared::default()));
        (0..devices).for_each(|number| host.add_cache_device(number));
        if devices > 1 {
            host.keep_two(0);
        }
        host.add_shard(0, Shard::Cached(Box::new(engine)));
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
                    Ordered::Transfer(op) => {
                        engine_call_host_complete(&mut self.host, self.now, op, &mut self.ram);
                    }
                    Ordered::Flush(device) => {
                        engine_call_host_flushed(&mut self.host, self.now, device, &mut self.ram);
                    }
                }
            }
            while engine_call_host_answer(&mut self.host) {}
            if !did {
                return;
            }
        }
    }
}

enum Ordered {
    Transfer(OpId),
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

#[inline(never)]
fn engine_call_host_next(host: &mut Host<u32>) -> Option<Ordered> {
    Some(match host.next_order()? {
        Order::Transfer(_, action) => Ordered::Transfer(action.op),
        Order::Flush(device) => Ordered::Flush(device),
    })
}

#[inline(never)]
fn engine_call_host_complete(host: &mut Host<u32>, now: Nanos, op: OpId, memory: &mut Ram) {
    host.complete(now, 0, op, Ok(()), memory);
}

#[inline(never)]
fn engine_call_host_flushed(host: &mut Host<u32>, now: Nanos, device: Device, memory: &mut Ram) {
    host.flushed(now, device, Ok(()), memory);
}

#[inline(never)]
fn engine_call_host_answer(host: &mut Host<u32>) -> bool {
    host.next_answer().is_some()
}
