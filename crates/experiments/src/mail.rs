//! The test of the EnhanceIO mail: four clients of depth 8, nine reads to a write, 4 KiB by
//! Zipf's law, after a read of nine tenths of the file.

use forebay_engine::{Commit, Mode, Settings};
use forebay_model::{DeviceModel, Disk, DiskParameters, Ssd, SsdParameters};

use crate::load::{Limit, Load, Order, Outcome};
use forebay_virtual::CpuCost;
use forebay_virtual::{Bare, System};
use forebay_virtual::{Cached, Setup};

const GB: u64 = 1_000_000_000;
/// The mail does not say how long it ran; this is long enough for the disk alone to answer
/// hundreds of thousands of requests.
const RUN_NS: u64 = 600 * 1_000_000_000;

/// Result of an arrangement.
#[derive(Clone, Debug, PartialEq)]
pub struct MailResult {
    /// `writethrough`, `writeback` or `baseline`.
    pub mode: &'static str,
    /// The system measured, in words.
    pub system: &'static str,
    /// The clients' results.
    pub outcome: Outcome,
}

/// The load after the warm-up, over a file `scale` times smaller.
fn load(scale: u64) -> Load {
    Load {
        offset_bytes: 0,
        span_bytes: 20 * GB / scale / 4096 * 4096,
        request_bytes: 4096,
        depth: 32,
        read_percent: 90,
        order: Order::Zipf {
            theta: 1.2,
            seed: 1,
        },
        limit: Limit::Time(RUN_NS / scale),
    }
}

fn warm_up(scale: u64) -> Load {
    let span_bytes = (18 * GB / scale) >> 17 << 17;
    Load {
        span_bytes,
        request_bytes: 128 << 10,
        depth: 1,
        read_percent: 100,
        order: Order::Sequential,
        limit: Limit::Bytes(span_bytes),
        ..load(scale)
    }
}

fn disk(scale: u64) -> Box<dyn DeviceModel> {
    Box::new(Disk::new(DiskParameters::sata_7200rpm(100 * GB / scale)))
}

fn ssd(scale: u64) -> Box<dyn DeviceModel> {
    Box::new(Ssd::new(SsdParameters {
        size_bytes: 20 * GB / scale,
        ..SsdParameters::sata_850pro()
    }))
}

/// Runs every arrangement, with everything `scale` times smaller; `progress` hears of each.
///
/// # Errors
/// If a cache cannot be made.
pub fn run(
    scale: u64,
    cpu: CpuCost,
    mut progress: impl FnMut(&MailResult),
) -> Result<Vec<MailResult>, String> {
    let scale = scale.max(1);
    let mut results = Vec::new();
    let mut add = |mode, system, target: &mut dyn System| {
        let warm = warm_up(scale).run(target, 0);
        let outcome = load(scale).run(target, warm.end_ns);
        let result = MailResult {
            mode,
            system,
            outcome,
        };
        progress(&result);
        results.push(result);
    };
    add("baseline", "HDD", &mut Bare::new(disk(scale)));
    add("baseline", "SSD", &mut Bare::new(ssd(scale)));
    for (name, mode, system, commit) in [
        ("writethrough", Mode::Writethrough, "Forebay", Commit::Flush),
        (
            "writeback",
            Mode::Writeback,
            "Forebay, commit = flush",
            Commit::Flush,
        ),
        (
            "writeback",
            Mode::Writeback,
            "Forebay, commit = write",
            Commit::Write,
        ),
    ] {
        let mut cached = Cached::new(Setup {
            ssd: ssd(scale),
            cache_bytes: 20 * GB / scale,
            disk: disk(scale),
            origin_bytes: (100 * GB / scale).next_multiple_of(4096),
            stripe: None,
            mode,
            settings: Settings {
                commit,
                ..Settings::default()
            },
            cpu,
        })?;
        add(name, system, &mut cached);
    }
    Ok(results)
}
