//! The stripe of a RAID with parity, as the kernel tells it.
//!
//! `optimal_io_size` is the data of a stripe, `minimum_io_size` a chunk. RAID0 and RAID10 say them
//! too, and write a part of a stripe as fast as a whole one. LVM and partitions pass them on, and
//! do not say the level: they count as if there was parity.

use std::path::Path;

use forebay_engine::Stripe;

use super::read_line;

const SECTOR_BYTES: u64 = 512;
/// md's levels without parity.
const PLAIN_LEVELS: [&str; 6] = ["linear", "raid0", "raid1", "raid10", "multipath", "faulty"];
/// A chunk is a page at least.
const LEAST_CHUNK_BYTES: u64 = 4096;

/// The stripe of the device with this directory in sysfs, whose queue is in that of its disk.
pub(super) fn find(own: &Path, disk: &Path) -> Option<Stripe> {
    let level = read_line(&disk.join("md/level"));
    if level.is_some_and(|level| PLAIN_LEVELS.contains(&level.as_str())) {
        return None;
    }
    let number = |path: &Path| -> Option<u64> { read_line(path)?.parse().ok() };
    let stripe_bytes = number(&disk.join("queue/optimal_io_size"))?;
    let chunk_bytes = number(&disk.join("queue/minimum_io_size"))?;
    let chunks = stripe_bytes.checked_div(chunk_bytes)?;
    if chunk_bytes < LEAST_CHUNK_BYTES || chunks < 2 || !stripe_bytes.is_multiple_of(chunk_bytes) {
        return None;
    }
    // -1: the device lies askew on those below it.
    let askew_bytes = match read_line(&disk.join("alignment_offset")) {
        Some(text) => text.parse::<u64>().ok()?,
        None => 0,
    };
    let start_bytes = match own.join("partition").exists() {
        true => number(&own.join("start"))?.checked_mul(SECTOR_BYTES)?,
        false => 0,
    };
    // A stripe begins `askew_bytes` into the disk, and after each stripe's length.
    let within = start_bytes % stripe_bytes;
    let begins_bytes = (askew_bytes % stripe_bytes + stripe_bytes - within) % stripe_bytes;
    Stripe::new(stripe_bytes, begins_bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    const KIB: u64 = 1 << 10;

    /// A directory of sysfs with these files.
    struct Sysfs(std::path::PathBuf);

    impl Sysfs {
        fn new(name: &str, files: &[(&str, &str)]) -> Sysfs {
            let path = std::env::temp_dir().join(format!("stripe-{}-{name}", std::process::id()));
            std::fs::remove_dir_all(&path).ok();
            for (file, text) in files {
                let file = path.join(file);
                std::fs::create_dir_all(file.parent().expect("in the directory")).expect("made");
                std::fs::write(file, text).expect("written");
            }
            Sysfs(path)
        }

        fn stripe(&self) -> Option<Stripe> {
            find(&self.0, &self.0)
        }
    }

    impl Drop for Sysfs {
        fn drop(&mut self) {
            std::fs::remove_dir_all(&self.0).ok();
        }
    }

    fn of_sizes(name: &str, optimal: &str, minimum: &str) -> Option<Stripe> {
        let sizes = [
            ("queue/optimal_io_size", optimal),
            ("queue/minimum_io_size", minimum),
        ];
        Sysfs::new(name, &sizes).stripe()
    }

    #[test]
    fn a_raid_with_parity_has_a_stripe() {
        let stripe = of_sizes("plain", "1572864\n", "524288\n").expect("a stripe");
        assert_eq!((stripe.len_bytes(), stripe.first_bytes()), (1536 * KIB, 0));
        let level = |name, level: &str| {
            let files = [
                ("md/level", level),
                ("queue/optimal_io_size", "1572864"),
                ("queue/minimum_io_size", "524288"),
            ];
            Sysfs::new(name, &files).stripe().is_some()
        };
        assert!(level("raid5", "raid5\n") && level("raid6", "raid6\n"));
        assert!(!level("raid0", "raid0\n") && !level("raid10", "raid10\n"));
    }

    #[test]
    fn a_partition_begins_within_a_stripe() {
        let files = [
            ("partition", "1\n"),
            ("start", "2048\n"),
            ("queue/optimal_io_size", "1572864\n"),
            ("queue/minimum_io_size", "524288\n"),
        ];
        let stripe = Sysfs::new("partition", &files).stripe().expect("a stripe");
        assert_eq!(stripe.first_bytes(), 512 * KIB);
        let broken = [
            ("start", "-1"),
            ("start", ""),
            ("start", "99999999999999999999"),
        ];
        for (at, start) in broken.into_iter().enumerate() {
            let files = [files[0], start, files[2], files[3]];
            assert_eq!(Sysfs::new(&format!("start-{at}"), &files).stripe(), None);
        }
    }

    #[test]
    fn what_makes_no_sense_is_no_stripe() {
        let huge = u64::MAX.to_string();
        let sizes = [
            ("0", "512"),
            ("0", "0"),
            ("1572864", "0"),
            ("524288", "524288"),
            ("1572865", "524288"),
            ("33553920", "512"),
            ("2048", "1024"),
            ("67108864", "524288"),
            (&huge, "4096"),
            ("18446744073709551616", "4096"),
            ("-1", "4096"),
            ("much", "4096"),
            ("", ""),
            ("1572864", "512 KiB"),
        ];
        for (at, (optimal, minimum)) in sizes.into_iter().enumerate() {
            let name = format!("nonsense-{at}");
            assert_eq!(
                of_sizes(&name, optimal, minimum),
                None,
                "{optimal} {minimum}"
            );
        }
        let askew = [
            ("alignment_offset", "-1\n"),
            ("queue/optimal_io_size", "1572864"),
            ("queue/minimum_io_size", "524288"),
        ];
        assert_eq!(Sysfs::new("askew", &askew).stripe(), None);
        assert_eq!(
            Sysfs::new("nothing", &[("queue/rotational", "1")]).stripe(),
            None
        );
    }
}
