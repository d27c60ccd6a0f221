//! The experiments: devices, settings, power cuts. The guest's part of each is in
//! `lab/guest/experiments`.

use crate::device::DeviceSpec;
use crate::name::Named;

/// An experiment.
#[derive(Clone, Copy, Debug)]
pub struct Experiment {
    name: &'static str,
    summary: &'static str,
    /// The guest's script.
    pub script: &'static str,
    /// Systems it compares unless told otherwise.
    pub systems: &'static str,
    /// The size of the SSD, in MiB.
    pub ssd_mib: u64,
    /// The number of SSDs.
    pub ssds: usize,
    /// Origin devices, and the size of each, in MiB.
    pub disks: (usize, u64),
    /// Power cuts unless told otherwise.
    pub cuts: u32,
    /// Starts of the guest, where power cuts do not decide that.
    pub lives: u32,
    /// Duration of a timed job, in seconds of the guest's.
    pub seconds_per_job: f64,
    /// The longest that one life of a guest may take, in seconds of the host's.
    pub limit_seconds: u64,
    /// Whether the guest counts instructions, and time means nothing.
    pub counts_instructions: bool,
}

/// Defaults that most share: an SSD of 2 GiB before a disk of 16 GiB, and no power cut.
const USUAL: Experiment = Experiment {
    name: "",
    summary: "",
    script: "",
    systems: "",
    ssd_mib: 2048,
    ssds: 1,
    disks: (1, 16_384),
    cuts: 0,
    lives: 1,
    seconds_per_job: 1.0,
    limit_seconds: 1500,
    counts_instructions: false,
};

/// Devices of a recipe: an SSD with three partitions before a disk.
const RECIPE: Experiment = Experiment {
    systems: "forebay-ublk",
    ssd_mib: 512,
    disks: (1, 1024),
    limit_seconds: 600,
    ..USUAL
};

/// All of them.
pub const EXPERIMENTS: &[Experiment] = &[
    Experiment {
        name: "smoke",
        summary: "boots each system, runs two short jobs and cuts the power once",
        script: include_str!("../guest/experiments/smoke.sh"),
        systems: "hdd,forebay-nbd,forebay-ublk",
        cuts: 1,
        seconds_per_job: 0.5,
        limit_seconds: 150,
        ..USUAL
    },
    Experiment {
        name: "jobs22",
        summary: "the 22 jobs of a comparison of 2015, sizes scaled to a cache of 2 GiB",
        script: include_str!("../guest/experiments/jobs22.sh"),
        systems: "hdd,ssd,bcache,bcache-all,dm-cache,dm-writecache,nbdkit-cache,forebay-nbd,forebay-ublk",
        seconds_per_job: 2.5,
        ..USUAL
    },
    Experiment {
        name: "mail",
        summary: "the EnhanceIO announcement's test of 2012: 90 % reads, skewed, over data five times the cache",
        script: include_str!("../guest/experiments/mail.sh"),
        systems: "hdd,ssd,bcache-all,bcache-wt,dm-cache,dm-cache-wt,dm-writecache,nbdkit-cache,forebay-nbd,forebay-nbd-wt,forebay-ublk,forebay-ublk-wt",
        ssd_mib: 410,
        seconds_per_job: 10.0,
        ..USUAL
    },
    Experiment {
        name: "powercut",
        summary: "power cuts under synced writes and a busy file system: nothing synced is missing, and how warm the cache still is",
        script: include_str!("../guest/experiments/powercut.sh"),
        systems: "hdd,bcache-all,dm-cache,dm-writecache,forebay-nbd,forebay-ublk",
        cuts: 5,
        limit_seconds: 600,
        ..USUAL
    },
    Experiment {
        name: "ext2-sync",
        summary: "synced writes of 4 to 512 KiB to ext2, write-through and write-back, and a live switch between them",
        script: include_str!("../guest/experiments/ext2-sync.sh"),
        systems: "hdd,ssd,bcache-all,forebay-nbd,forebay-ublk",
        seconds_per_job: 3.0,
        ..USUAL
    },
    Experiment {
        name: "clients",
        summary: "partitions, ext4, xfs, fsx, verified load, trim, discard and LVM on the block device",
        script: include_str!("../guest/experiments/clients.sh"),
        systems: "forebay-ublk",
        ssd_mib: 1024,
        disks: (1, 4096),
        limit_seconds: 900,
        ..USUAL
    },
    Experiment {
        name: "kills",
        summary: "the daemon killed 50 times under a mounted, loaded ext4: no error, no lost byte",
        script: include_str!("../guest/experiments/kills.sh"),
        systems: "forebay-ublk",
        ssd_mib: 1024,
        disks: (1, 4096),
        ..USUAL
    },
    Experiment {
        name: "straight",
        summary: "verified load on what is not copied (Linux 6.16 or newer), with kills: for --kernel 7.3",
        script: include_str!("../guest/experiments/straight.sh"),
        systems: "forebay-ublk",
        ssd_mib: 1024,
        disks: (1, 4096),
        limit_seconds: 900,
        ..USUAL
    },
    Experiment {
        name: "frozen",
        summary: "a frozen volume over ublk: writes beyond the daemon's memory wait, reads go on, and a hand-over beside a raw writer ends",
        script: include_str!("../guest/experiments/frozen.sh"),
        systems: "forebay-ublk",
        ssd_mib: 1024,
        disks: (1, 4096),
        ..USUAL
    },
    Experiment {
        name: "bench-nvme",
        summary: "bench/nvme.sh, which others run on their machines, over all systems",
        script: include_str!("../guest/experiments/bench-nvme.sh"),
        systems: "hdd",
        ssd_mib: 1024,
        disks: (1, 4096),
        limit_seconds: 900,
        ..USUAL
    },
    Experiment {
        name: "two-ssds",
        summary: "dirty data on two SSDs, pulled in turns 100 times under verified load on ext4 and xfs, and power cuts meanwhile",
        script: include_str!("../guest/experiments/two-ssds.sh"),
        systems: "forebay-ublk",
        ssd_mib: 512,
        ssds: 2,
        disks: (1, 4096),
        cuts: 3,
        ..USUAL
    },
    Experiment {
        name: "mirrors",
        summary: "the 22 jobs and hits of 4 KiB with dirty data on two SSDs, beside one SSD, two without copies, and dm-cache on a mirror",
        script: concat!(
            include_str!("../guest/experiments/jobs22.sh"),
            include_str!("../guest/experiments/mirrors.sh")
        ),
        systems: "dm-cache-md,forebay-ublk,forebay-ublk-two,forebay-ublk-copies",
        ssds: 2,
        seconds_per_job: 2.5,
        ..USUAL
    },
    Experiment {
        name: "copies",
        summary: "hits of 4 KiB and writes of 128 KiB with dirty data on one SSD and on two: for a large dilation",
        script: include_str!("../guest/experiments/copies.sh"),
        systems: "forebay-ublk,forebay-ublk-copies",
        ssds: 2,
        seconds_per_job: 0.4,
        ..USUAL
    },
    Experiment {
        name: "raid",
        summary: "random reads and writes of 64 KiB to 4 MiB on one disk and on RAID0 and RAID10 of four, with one SSD and four",
        script: include_str!("../guest/experiments/raid.sh"),
        systems: "hdd,ssd,bcache-all,dm-cache,forebay-ublk",
        ssd_mib: 256,
        ssds: 4,
        disks: (4, 1536),
        lives: 5,
        seconds_per_job: 1.0,
        limit_seconds: 900,
        ..USUAL
    },
    Experiment {
        name: "oltp",
        summary: "MariaDB with sysbench's mix, five times MariaDB's memory and all in the cache: transactions over time, written back above a threshold and by age",
        script: include_str!("../guest/experiments/oltp.sh"),
        systems: "hdd,ssd,bcache-all,dm-cache,dm-writecache,forebay-ublk",
        seconds_per_job: 10.0,
        ..USUAL
    },
    Experiment {
        name: "processor",
        summary: "processor time per request: hits of 4 KiB, disk and SSD in memory",
        script: include_str!("../guest/experiments/processor.sh"),
        systems: "hdd,bcache-all,dm-cache,dm-writecache,forebay-nbd,forebay-ublk",
        ssd_mib: 64,
        disks: (1, 64),
        seconds_per_job: 2.0,
        limit_seconds: 600,
        ..USUAL
    },
    Experiment {
        name: "scaling",
        summary: "hits of 4 KiB with one thread on one processor and two on two, disk and SSD in memory",
        script: include_str!("../guest/experiments/scaling.sh"),
        systems: "forebay-ublk",
        ssd_mib: 64,
        disks: (1, 64),
        seconds_per_job: 1.0,
        limit_seconds: 900,
        ..USUAL
    },
    Experiment {
        name: "instructions",
        summary: "instructions of the whole guest for each request: hits, misses and what bypasses, disk and SSD in memory",
        script: include_str!("../guest/experiments/instructions.sh"),
        systems: "hdd,bcache-all,dm-cache,dm-writecache,forebay-nbd,forebay-ublk,forebay-ublk-copies",
        ssd_mib: 64,
        disks: (1, 64),
        counts_instructions: true,
        ..USUAL
    },
    Experiment {
        name: "network",
        summary: "instructions of the whole guest for each 4 KiB from an NBD server: by the kernel's client, by Forebay over it, by Forebay's own",
        script: include_str!("../guest/experiments/network.sh"),
        systems: "forebay-ublk",
        ssd_mib: 64,
        disks: (1, 64),
        counts_instructions: true,
        ..USUAL
    },
    Experiment {
        name: "far",
        summary: "an image 1 ms away over NBD: what is read again, and synced writes",
        script: include_str!("../guest/experiments/far.sh"),
        systems: "hdd,bcache-all,dm-cache,dm-writecache,forebay-ublk",
        ssd_mib: 512,
        disks: (1, 64),
        seconds_per_job: 2.0,
        limit_seconds: 600,
        ..USUAL
    },
    Experiment {
        name: "boot",
        summary: "a file system on a volume in fstab: booted after a power cut, beside a cache without its device, and without the cache's device",
        script: include_str!("../guest/experiments/boot.sh"),
        systems: "forebay-ublk",
        ssd_mib: 512,
        disks: (1, 1024),
        lives: 3,
        limit_seconds: 600,
        ..USUAL
    },
    Experiment {
        name: "root",
        summary: "the root file system on a volume, from Debian's own initramfs on: killed daemons, power off, a power cut, a cache that is missing",
        script: concat!(
            include_str!("../guest/experiments/root-machine.sh"),
            include_str!("../guest/experiments/root.sh")
        ),
        systems: "forebay-ublk",
        ssd_mib: 576,
        disks: (1, 1024),
        lives: 5,
        limit_seconds: 600,
        ..USUAL
    },
    Experiment {
        name: "root-two",
        summary: "the root file system on a volume with dirty data on two SSDs: the power goes, and one of them with it",
        script: concat!(
            include_str!("../guest/experiments/root-machine.sh"),
            include_str!("../guest/experiments/root-two.sh")
        ),
        systems: "forebay-ublk",
        ssd_mib: 576,
        ssds: 2,
        disks: (1, 1024),
        lives: 5,
        limit_seconds: 600,
        ..USUAL
    },
    Experiment {
        name: "migrate",
        summary: "the guides of docs/migrate, command by command: from bcache, dm-cache, dm-writecache and LVM's two to Forebay, and back",
        script: include_str!("../guest/experiments/migrate.sh"),
        systems: "bcache,dm-cache,dm-writecache,hdd",
        ssd_mib: 1024,
        disks: (1, 4096),
        limit_seconds: 900,
        ..USUAL
    },
    Experiment {
        name: "package",
        summary: "the Debian package under systemd: installed, upgraded under a mounted, loaded ext4, refused with dirty data, removed, purged",
        script: include_str!("../guest/experiments/package.sh"),
        systems: "forebay-ublk",
        ssd_mib: 1024,
        disks: (1, 4096),
        limit_seconds: 900,
        ..USUAL
    },
    Experiment {
        name: "recipe-start",
        summary: "the manual's first volume on real devices, and its data got back from a rescue system",
        script: include_str!("../guest/recipes/start.sh"),
        lives: 2,
        ..RECIPE
    },
    Experiment {
        name: "recipe-database",
        summary: "the manual's recipe for a database: PostgreSQL on a volume, through a kill of the daemon",
        script: include_str!("../guest/recipes/database.sh"),
        ..RECIPE
    },
    Experiment {
        name: "recipe-mdadm",
        summary: "the manual's recipe for an array: RAID5 behind a service, restarted and killed in use, and the way back",
        script: include_str!("../guest/recipes/mdadm.sh"),
        disks: (3, 512),
        ..RECIPE
    },
    Experiment {
        name: "recipe-proxmox",
        summary: "the manual's recipe for Proxmox VE, as far as it is Debian's: the service, LVM-thin and a directory on a volume",
        script: include_str!("../guest/recipes/proxmox.sh"),
        disks: (1, 2048),
        ..RECIPE
    },
    Experiment {
        name: "recipe-container",
        summary: "the manual's image for containers: built by podman, and a container of it serves, is killed and serves again",
        script: include_str!("../guest/recipes/container.sh"),
        ..RECIPE
    },
    Experiment {
        name: "recipe-migrate",
        summary: "the manual's guides from dm-cache, lvmcache and dm-writecache, as they are written",
        script: include_str!("../guest/recipes/migrate.sh"),
        lives: 3,
        ..RECIPE
    },
    Experiment {
        name: "recipe-root",
        summary: "the manual's recipe for the root file system: a machine gets Forebay before its root, boots with it, and goes back",
        script: concat!(
            include_str!("../guest/recipes/machine.sh"),
            include_str!("../guest/recipes/root.sh")
        ),
        disks: (1, 2048),
        lives: 4,
        ..RECIPE
    },
    Experiment {
        name: "recipe-iscsi",
        summary: "the manual's recipe for an iSCSI disk: its target is away, the machine is shut down and loses its power, another host has the data",
        script: concat!(
            include_str!("../guest/recipes/machine.sh"),
            include_str!("../guest/recipes/iscsi.sh")
        ),
        disks: (2, 2048),
        lives: 4,
        ..RECIPE
    },
];

/// The experiments that run blocks of the manual, by the name of them all.
pub const RECIPES: &str = "recipes";

impl Experiment {
    /// Whether its guest needs fsx, which Debian does not have.
    #[must_use]
    pub fn exercises_files(&self) -> bool {
        self.script.contains("fsx ")
    }

    /// Whether its guest is a small Debian with the package at hand, in two versions.
    #[must_use]
    pub fn installs_package(&self) -> bool {
        self.script.contains("dpkg ")
    }

    /// Whether its guest makes an initramfs, and boots with it.
    #[must_use]
    pub fn makes_initramfs(&self) -> bool {
        self.script.contains("mkinitramfs ")
    }

    /// The blocks of the manual that its script runs, each as a page and a number from 1 on.
    pub fn blocks(&self) -> impl Iterator<Item = (&'static str, usize)> {
        self.script.lines().filter_map(|line| {
            let mut words = line.split_whitespace();
            let page = words
                .next()
                .filter(|word| *word == "block")
                .and(words.next())?;
            Some((page, words.next()?.parse().ok()?))
        })
    }

    /// Whether its guest is a whole Debian, in which it runs blocks of the manual.
    #[must_use]
    pub fn follows_manual(&self) -> bool {
        self.blocks().next().is_some()
    }

    /// Whether its guest needs what is published beside the package.
    #[must_use]
    pub fn unpacks_tarball(&self) -> bool {
        self.script.contains(".tar.gz")
    }

    /// Whether its guest runs MariaDB and sysbench.
    #[must_use]
    pub fn runs_database(&self) -> bool {
        self.script.contains("mariadbd ")
    }

    /// The devices for a system: the bare SSD must be large enough to do the disk's work.
    #[must_use]
    pub fn devices(&self, system: &str, models: &Models) -> Vec<DeviceSpec> {
        let (count, disk_mib) = self.disks;
        let ssd_mib = if system == "ssd" {
            disk_mib
        } else {
            self.ssd_mib
        };
        let forgets = self.cuts > 0;
        let device = |name: String, mib: u64, model: &str| DeviceSpec {
            name,
            size_bytes: mib << 20,
            model: model.to_owned(),
            forgets,
        };
        let disks = (0..count).map(|index| device(numbered("hdd", index), disk_mib, &models.disk));
        let ssds = (0..self.ssds).map(|index| device(numbered("ssd", index), ssd_mib, &models.ssd));
        disks.chain(ssds).collect()
    }
}

/// `hdd`, `hdd2`, `hdd3`.
fn numbered(kind: &str, index: usize) -> String {
    match index {
        0 => kind.to_owned(),
        _ => format!("{kind}{}", index + 1),
    }
}

/// The timing models of both kinds of device, in the words of [`forebay_model::ModelOptions`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Models {
    /// The disk's.
    pub disk: String,
    /// The SSD's.
    pub ssd: String,
}

impl Named for Experiment {
    fn name(&self) -> &'static str {
        self.name
    }

    fn summary(&self) -> &'static str {
        self.summary
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::name::choose;
    use crate::systems::SYSTEMS;

    #[test]
    fn blocks_are_read_from_a_script() {
        let script =
            "block a.md 1\nx\n    block b/c.md 12 /etc/fstab\nblock a.md\nunblock a.md 3\n";
        let found: Vec<_> = Experiment { script, ..USUAL }.blocks().collect();
        assert_eq!(found, [("a.md", 1), ("b/c.md", 12)]);
        assert!(EXPERIMENTS.iter().any(Experiment::follows_manual));
    }

    #[test]
    fn default_systems_exist() {
        for experiment in EXPERIMENTS {
            assert!(
                !choose("system", experiment.systems, SYSTEMS)
                    .unwrap()
                    .is_empty()
            );
        }
    }
}
