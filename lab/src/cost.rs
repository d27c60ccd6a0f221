//! Costs of a processor for the five things of which storage software consists mostly: to compute,
//! to copy, to make checksums, to call the kernel, and to hand over from one thread to another.
//! Measured on the host and in the guest, on the guest's slow clock: the quotient says how much
//! more the guest's processor counts than a real one would.

use std::hint::black_box;
use std::io::{Read as _, Write as _};
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use anyhow::Context as _;
use forebay_random::SplitMix64;

/// Time for which each is repeated.
const WHILE: Duration = Duration::from_millis(100);

/// Nanoseconds for each.
#[derive(Clone, Copy, Debug)]
pub struct Costs {
    /// A thousand steps of a generator of random numbers.
    pub compute: f64,
    /// A copy of 64 KiB.
    pub copy: f64,
    /// A CRC32C of 64 KiB.
    pub checksum: f64,
    /// A read of one byte from /dev/zero.
    pub call: f64,
    /// A byte to another thread and back.
    pub hand_over: f64,
}

impl Costs {
    /// Measures them here and now.
    ///
    /// # Errors
    /// If there is no /dev/zero, socket or thread.
    pub fn measure() -> anyhow::Result<Costs> {
        let mut random = SplitMix64::new(1);
        let compute = each(|| {
            black_box((0..1000).fold(0, |sum: u64, _| sum.wrapping_add(random.bits())));
            Ok(())
        })?;
        let (from, mut to) = (vec![7_u8; 64 << 10], vec![0_u8; 64 << 10]);
        let copy = each(|| {
            black_box(&mut to).copy_from_slice(black_box(&from));
            Ok(())
        })?;
        let checksum = each(|| {
            black_box(forebay_engine::checksum::crc32c(black_box(&from)));
            Ok(())
        })?;
        let mut zeroes = std::fs::File::open("/dev/zero").context("there is no /dev/zero")?;
        let mut byte = [0];
        let call = each(|| Ok(zeroes.read_exact(&mut byte)?))?;
        Ok(Costs {
            compute,
            copy,
            checksum,
            call,
            hand_over: hand_over()?,
        })
    }

    /// By name.
    #[must_use]
    pub fn named(&self) -> [(&'static str, f64); 5] {
        [
            ("compute", self.compute),
            ("copy", self.copy),
            ("checksum", self.checksum),
            ("kernel-call", self.call),
            ("hand-over", self.hand_over),
        ]
    }
}

/// The mean time of a step, in nanoseconds.
fn each(mut step: impl FnMut() -> anyhow::Result<()>) -> anyhow::Result<f64> {
    let began = Instant::now();
    let mut steps = 0_u32;
    while began.elapsed() < WHILE {
        for _ in 0..16 {
            step()?;
        }
        steps += 16;
    }
    Ok(began.elapsed().as_nanos() as f64 / f64::from(steps))
}

fn hand_over() -> anyhow::Result<f64> {
    let (mut here, mut there) = UnixStream::pair().context("no pair of sockets")?;
    let other = std::thread::spawn(move || {
        let mut byte = [0];
        // It ends when this side closes.
        while there.read_exact(&mut byte).is_ok() && there.write_all(&byte).is_ok() {}
    });
    let mut byte = [0];
    let time = each(|| {
        here.write_all(&byte)?;
        Ok(here.read_exact(&mut byte)?)
    });
    drop(here);
    other
        .join()
        .map_err(|_| anyhow::anyhow!("the other thread panicked"))?;
    time
}
