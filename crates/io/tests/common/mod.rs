//! Support for the tests: scratch files, and a thread's ring, arena and driver together.
#![allow(dead_code, reason = "each test binary uses its part")]

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use forebay_engine::{Action, Buf, Bufs, Device, DeviceError, Memory, OpId, Operation};
use forebay_io::{
    Arena, Carried, Completion, DirectIo, Done, Driver, DriverDevice, Emulation, OpenHow, Pool,
    RealDevice, Uring,
};

/// A path that is removed at the end of the test.
pub(crate) struct Scratch(pub(crate) PathBuf);

impl Scratch {
    pub(crate) fn new(directory: &str) -> Scratch {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        Scratch(Path::new(directory).join(format!("forebay-io-{}-{number}", std::process::id())))
    }

    /// A sparse file of this size.
    pub(crate) fn file(directory: &str, size_bytes: u64) -> Scratch {
        let scratch = Scratch::new(directory);
        let file = std::fs::File::create_new(&scratch.0).expect("a scratch file");
        file.set_len(size_bytes).expect("its size");
        scratch
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

pub(crate) const IF_POSSIBLE: OpenHow = OpenHow {
    direct: DirectIo::IfPossible,
    read_only: false,
};
pub(crate) const NAME: Device = Device::Cache(0);
pub(crate) const SHARD: u16 = 3;

/// A thread's part of the data path, with a device that shard 3 calls cache 0.
pub(crate) struct Rig {
    // Dropped first, so that nothing is on its way when the driver goes.
    pub(crate) ring: Uring,
    pub(crate) driver: Driver,
    pub(crate) arena: Arena,
    pub(crate) device: DriverDevice,
    pub(crate) done: Vec<Done>,
    next_op: u32,
}

impl Rig {
    pub(crate) fn new(path: &Path) -> Rig {
        Rig::with(
            RealDevice::open(path, IF_POSSIBLE).expect("a device"),
            None,
            64,
        )
    }

    pub(crate) fn with(
        device: Arc<RealDevice>,
        emulation: Option<&Emulation>,
        depth: usize,
    ) -> Rig {
        let mut arenas = Pool::new(64 << 20)
            .expect("a pool")
            .split(1)
            .expect("an arena");
        let arena = arenas.remove(0);
        let mut ring = Uring::new(128, arena.view().clone()).expect("a ring");
        let mut driver = Driver::new(depth);
        let device = driver.add_device(&mut ring, device, emulation);
        driver.route(SHARD, NAME, device);
        Rig {
            ring,
            driver,
            arena,
            device,
            done: Vec::new(),
            next_op: 0,
        }
    }

    /// Pins the pool where RLIMIT_MEMLOCK lets this user.
    pub(crate) fn register_memory(&mut self) {
        if let Err(error) = self.ring.register_memory() {
            println!("not registered: {error}");
        }
    }

    pub(crate) fn submit(&mut self, operation: Operation) -> OpId {
        let op = OpId(self.next_op);
        self.next_op += 1;
        let action = Action {
            op,
            device: NAME,
            operation,
        };
        self.driver
            .submit(&mut self.ring, SHARD, action, &mut self.done);
        op
    }

    /// Turns the loop until `count` operations are done; returns and forgets them.
    pub(crate) fn wait(&mut self, count: usize) -> Vec<Done> {
        let begin = Instant::now();
        let mut completions: Vec<Completion> = Vec::new();
        while self.done.len() < count {
            assert!(
                begin.elapsed() < Duration::from_secs(60),
                "the driver is stuck"
            );
            self.ring
                .submit_and_wait(1, Some(Duration::from_secs(1)))
                .expect("a working ring");
            self.ring.reap(&mut completions);
            for completion in completions.drain(..) {
                assert!(
                    self.driver
                        .complete(&mut self.ring, &completion, &mut self.done)
                );
            }
        }
        std::mem::take(&mut self.done)
    }

    pub(crate) fn run(&mut self, operation: Operation) -> Result<(), DeviceError> {
        let op = self.submit(operation);
        let done = self.wait(1);
        assert_eq!(done.len(), 1);
        assert_eq!(done[0].what, Carried::Transfer(SHARD, op));
        done[0].result
    }

    pub(crate) fn flush(&mut self) -> Result<(), DeviceError> {
        let device = self.device;
        self.driver.flush(&mut self.ring, device, &mut self.done);
        let done = self.wait(1);
        assert_eq!(done.len(), 1);
        assert_eq!(done[0].what, Carried::Flush(device));
        done[0].result
    }

    pub(crate) fn buf(&mut self, len_bytes: usize, fill: u8) -> Buf {
        let buf = self.arena.alloc(len_bytes).expect("buffer memory");
        self.arena.bytes_mut(buf).fill(fill);
        buf
    }

    pub(crate) fn write(&mut self, offset_bytes: u64, bufs: &[Buf]) -> Result<(), DeviceError> {
        self.run(Operation::Write {
            offset_bytes,
            bufs: Bufs::from_slice(bufs),
        })
    }

    pub(crate) fn read(&mut self, offset_bytes: u64, bufs: &[Buf]) -> Result<(), DeviceError> {
        self.run(Operation::Read {
            offset_bytes,
            bufs: Bufs::from_slice(bufs),
        })
    }
}
