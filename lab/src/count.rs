//! In a guest that counts instructions: requests at a fixed depth, and the clock around them. An
//! instruction takes a nanosecond of that guest's clock, whoever computes it: this client, the
//! kernel, a daemon.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail, ensure};
use forebay_engine::{Action, Buf, Bufs, Device, Memory as _, OpId, Operation};
use forebay_io::{Arena, Carried, DirectIo, Done, Driver, OpenHow, Pool, RealDevice, Uring};

/// A stretch of a device, and the requests that go to it.
#[derive(Debug, clap::Args)]
pub struct CountArgs {
    /// The figure's name.
    name: String,
    /// The device.
    device: PathBuf,
    /// Write, and do not read.
    #[arg(long)]
    write: bool,
    /// Length of a request, in KiB.
    #[arg(long)]
    kib: u64,
    /// Requests in flight.
    #[arg(long)]
    depth: usize,
    /// Beginning of the stretch, in MiB.
    #[arg(long)]
    offset_mib: u64,
    /// Length of the stretch, in MiB.
    #[arg(long)]
    size_mib: u64,
    /// Requests that are counted.
    #[arg(long)]
    requests: u64,
    /// Requests before them.
    #[arg(long)]
    warm: u64,
}

/// Instructions for each request.
///
/// # Errors
/// If the device cannot be used, a request fails, or the stretch is too short.
pub fn count(args: &CountArgs) -> anyhow::Result<f64> {
    let places = Places::of(args)?;
    let mut client = Client::open(&args.device, args.kib << 10, args.depth, args.write)?;
    client.run(&mut (0..args.warm).map(|number| places.of_request(number)))?;
    let numbers = args.warm..args.warm + args.requests;
    let began = Instant::now();
    client.run(&mut numbers.map(|number| places.of_request(number)))?;
    Ok(began.elapsed().as_nanos() as f64 / args.requests as f64)
}

impl CountArgs {
    /// The figure's name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }
}

/// Offsets in an order in which each place comes once before any comes again.
struct Places {
    offset_bytes: u64,
    request_bytes: u64,
    count: u64,
    stride: u64,
}

impl Places {
    fn of(args: &CountArgs) -> anyhow::Result<Places> {
        let request_bytes = args.kib << 10;
        ensure!(
            args.kib >= 4 && args.depth > 0 && args.requests > 0,
            "a request has at least 4 KiB, and there is at least one"
        );
        let count = (args.size_mib << 20) / request_bytes;
        ensure!(
            count >= args.depth as u64,
            "{} MiB have no room for {} requests of {} KiB",
            args.size_mib,
            args.depth,
            args.kib
        );
        // Near the golden ratio neighbours in time are far apart.
        let near = (count as f64 * 0.618) as u64;
        let stride = (near.max(1)..).find(|stride| gcd(*stride, count) == 1);
        Ok(Places {
            offset_bytes: args.offset_mib << 20,
            request_bytes,
            count,
            stride: stride.unwrap_or(1),
        })
    }

    fn of_request(&self, number: u64) -> u64 {
        let place = u128::from(number) * u128::from(self.stride) % u128::from(self.count);
        self.offset_bytes + place as u64 * self.request_bytes
    }
}

fn gcd(a: u64, b: u64) -> u64 {
    if b == 0 { a } else { gcd(b, a % b) }
}

/// A device, and a buffer for each request in flight.
struct Client {
    ring: Uring,
    driver: Driver,
    buffers: Vec<Buf>,
    write: bool,
    /// Keeps the buffers' memory.
    _arena: Arena,
}

impl Client {
    fn open(path: &Path, request_bytes: u64, depth: usize, write: bool) -> anyhow::Result<Client> {
        let pool = Pool::new(request_bytes as usize * depth).context("no memory for requests")?;
        let mut arena = pool.split(1)?.remove(0);
        let buffers = (0..depth)
            .map(|_| arena.alloc(request_bytes as usize))
            .collect::<Option<Vec<Buf>>>()
            .context("no memory for requests")?;
        let mut ring = Uring::new(64, arena.view().clone())?;
        let how = OpenHow {
            direct: DirectIo::IfPossible,
            read_only: !write,
        };
        let device = RealDevice::open(path, how)?;
        let mut driver = Driver::new(depth);
        let added = driver.add_device(&mut ring, device, None);
        driver.route(0, Device::Cache(0), added);
        Ok(Client {
            ring,
            driver,
            buffers,
            write,
            _arena: arena,
        })
    }

    /// Carries requests out, as many at once as there are buffers.
    fn run(&mut self, offsets: &mut dyn Iterator<Item = u64>) -> anyhow::Result<()> {
        let (mut done, mut completions) = (Vec::new(), Vec::new());
        for buffer in 0..self.buffers.len() {
            self.submit(buffer, offsets, &mut done);
        }
        while self.driver.in_flight() > 0 {
            self.ring
                .submit_and_wait(1, Some(Duration::from_secs(60)))?;
            self.ring.reap(&mut completions);
            for completion in completions.drain(..) {
                self.driver.complete(&mut self.ring, &completion, &mut done);
            }
            while let Some(ended) = done.pop() {
                let buffer = buffer_of(&ended)?;
                self.submit(buffer, offsets, &mut done);
            }
        }
        Ok(())
    }

    fn submit(
        &mut self,
        buffer: usize,
        offsets: &mut dyn Iterator<Item = u64>,
        done: &mut Vec<Done>,
    ) {
        let Some(offset_bytes) = offsets.next() else {
            return;
        };
        let bufs = Bufs::from_iter([self.buffers[buffer]]);
        let operation = if self.write {
            Operation::Write { offset_bytes, bufs }
        } else {
            Operation::Read { offset_bytes, bufs }
        };
        let action = Action {
            op: OpId(buffer as u32),
            device: Device::Cache(0),
            operation,
        };
        self.driver.submit(&mut self.ring, 0, action, done);
    }
}

fn buffer_of(ended: &Done) -> anyhow::Result<usize> {
    match (&ended.what, &ended.result) {
        (Carried::Transfer(_, op), Ok(())) => Ok(op.0 as usize),
        (_, result) => bail!("a request failed: {result:?}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn args(kib: u64, size_mib: u64, depth: usize) -> CountArgs {
        CountArgs {
            name: "a".to_owned(),
            device: PathBuf::from("/dev/null"),
            write: false,
            kib,
            depth,
            offset_mib: 1,
            size_mib,
            requests: 1,
            warm: 0,
        }
    }

    #[test]
    fn each_place_comes_once_before_any_comes_again() {
        let places = Places::of(&args(4, 1, 32)).unwrap();
        let mut seen: Vec<u64> = (0..256).map(|number| places.of_request(number)).collect();
        assert_eq!(places.of_request(256), seen[0]);
        seen.sort_unstable();
        seen.dedup();
        assert_eq!(seen.len(), 256);
        assert_eq!((seen[0], seen[255]), (1 << 20, (2 << 20) - 4096));
    }

    #[test]
    fn a_stretch_without_room_for_the_requests_is_refused() {
        assert!(Places::of(&args(128, 1, 32)).is_err());
        assert!(Places::of(&args(128, 4, 32)).is_ok());
    }

    #[test]
    fn requests_of_a_file_are_all_carried_out() {
        let path = std::env::temp_dir().join(format!("forebay-lab-count-{}", std::process::id()));
        std::fs::write(&path, vec![0; 2 << 20]).unwrap();
        let mut client = Client::open(&path, 4096, 8, false);
        if let Ok(client) = &mut client {
            client
                .run(&mut (0..100).map(|number| number * 4096))
                .unwrap();
            client.write = true;
            let refused = client.run(&mut std::iter::once(0));
            assert!(refused.is_err(), "the file was opened for reading");
        }
        std::fs::remove_file(&path).unwrap();
        client.unwrap();
    }
}
