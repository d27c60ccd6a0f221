//! A daemon with two shards on two threads, over devices that fail when a scenario says so.

use std::process::Output;

use forebay_faulty::{Fault, FaultyDevice, FaultyDevices, Operation};
use forebay_random::SplitMix64;

use crate::ledger::{Kept, Ledger, value_of};
use crate::support::faulty_devices::faulty_devices;
use crate::support::nbd::Client;
use crate::support::{Daemon, MIB, Scratch, forebay_ok, start, text, until};

pub(crate) const BLOCK: u64 = 4096;
pub(crate) const ORIGIN_BYTES: u64 = 32 * MIB;
pub(crate) const BLOCKS: u64 = ORIGIN_BYTES / BLOCK;
/// Blocks are dealt to shards by regions of 8 MiB: block 0 is the first shard's, this one the
/// second's.
pub(crate) const REGION_BLOCKS: u64 = 8 * MIB / BLOCK;
const CACHE_BYTES: u64 = 32 * MIB;

/// The devices of every scenario, though not each uses all.
const DEVICES: [&str; 4] = ["origin", "cache", "second", "other"];
pub(crate) const COMMITS: [&str; 3] = ["write", "flush", "memory"];

/// A run of a scenario.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Case {
    pub(crate) commit: &'static str,
    pub(crate) mode: &'static str,
    pub(crate) seed: u64,
}

/// Runs a scenario in each of these modes and with each commit, `FAULTS_ROUNDS` times with other
/// seeds.
pub(crate) fn in_each(modes: &[&'static str], scenario: impl Fn(Case, &mut World)) {
    in_each_of(1, modes, scenario);
}

/// Runs a scenario with a cache of so many devices.
pub(crate) fn in_each_of(
    devices: usize,
    modes: &[&'static str],
    scenario: impl Fn(Case, &mut World),
) {
    let rounds = std::env::var("FAULTS_ROUNDS").map_or(1, |rounds| rounds.parse().unwrap());
    for seed in 1..=rounds {
        for (mode, commit) in modes
            .iter()
            .flat_map(|mode| COMMITS.map(|commit| (*mode, commit)))
        {
            let case = Case { commit, mode, seed };
            println!("{case:?}");
            let Some(mut world) = World::new(case, devices) else {
                return;
            };
            scenario(case, &mut world);
        }
    }
}

/// The devices, what clients know, and how a daemon is started.
pub(crate) struct World {
    // Unmounted before the directory is removed.
    devices: FaultyDevices,
    pub(crate) scratch: Scratch,
    pub(crate) random: SplitMix64,
    pub(crate) ledger: Ledger,
    /// Options of the daemon besides its devices.
    pub(crate) options: Vec<String>,
    caches: Vec<&'static str>,
}

impl World {
    fn new(case: Case, count: usize) -> Option<World> {
        let scratch = Scratch::new();
        let names = ["cache", "second"];
        let sizes = [
            ("origin", ORIGIN_BYTES),
            (names[0], CACHE_BYTES),
            (names[1], CACHE_BYTES),
            ("other", ORIGIN_BYTES),
        ];
        let devices = faulty_devices(&scratch, &sizes)?;
        let options = [
            "--mode",
            case.mode,
            "--commit",
            case.commit,
            "--threads",
            "2",
            "--memory-buffer",
            "1M",
        ];
        let mut world = World {
            devices,
            scratch,
            random: SplitMix64::new(case.seed),
            ledger: Ledger::default(),
            options: options.map(str::to_owned).to_vec(),
            caches: names[..1].to_vec(),
        };
        forebay_ok(
            &world.scratch,
            &["create", "devices/cache", "--shards", "2"],
        );
        if count == 2 {
            let daemon = world.start();
            daemon.command(&world.scratch, &["cache", "add", "devices/second"]);
            daemon.stop();
            world.caches = names.to_vec();
        }
        Some(world)
    }

    /// More options of the daemon.
    pub(crate) fn with(&mut self, options: &[&str]) {
        self.options
            .extend(options.iter().map(|option| (*option).to_owned()));
    }

    /// Keeps dirty data dirty.
    pub(crate) fn dirty_stays(&mut self) {
        self.with(&[
            "--age",
            "3600",
            "--dirty-low",
            "60",
            "--dirty-high",
            "80",
            "--dirty-limit",
            "90",
        ]);
    }

    pub(crate) fn device(&self, name: &str) -> &FaultyDevice {
        self.devices.device(name)
    }

    pub(crate) fn origin(&self) -> &FaultyDevice {
        self.device("origin")
    }

    pub(crate) fn cache(&self) -> &FaultyDevice {
        self.device("cache")
    }

    fn paths(&self) -> Vec<String> {
        let caches = self.caches.iter();
        let caches = caches.flat_map(|name| ["--cache".to_owned(), format!("devices/{name}")]);
        let origin = ["--origin".to_owned(), "devices/origin".to_owned()];
        origin.into_iter().chain(caches).collect()
    }

    pub(crate) fn try_start(&self) -> Result<Daemon, String> {
        let arguments = [self.paths(), self.options.clone()].concat();
        let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
        Daemon::try_start(&self.scratch, &arguments)
    }

    pub(crate) fn start(&self) -> Daemon {
        self.try_start()
            .unwrap_or_else(|said| panic!("the daemon did not start: {said}"))
    }

    pub(crate) fn client(&self) -> Client {
        Client::connect(&self.scratch.path("nbd")).unwrap()
    }

    /// `forebay drain --offline`, which knows this state directory.
    pub(crate) fn drain_offline(&self, state: &str) -> Output {
        let paths = self.paths();
        let drain = ["drain", "--offline", "--state-dir", state];
        let paths = paths.iter().map(String::as_str);
        let arguments: Vec<&str> = drain.into_iter().chain(paths).collect();
        let drain = start(&self.scratch, &arguments);
        drain.wait_with_output().unwrap()
    }

    /// Has writes of the first shard fail from now on: in the only extent of a new cache the first
    /// half of the segments is its own.
    pub(crate) fn break_first_shard(&self) {
        let segments = MIB..CACHE_BYTES / 2;
        (self.cache()).fail(Fault::of(Operation::Write).within(segments));
    }

    /// Where on a cache device a block with this value is, in bytes.
    pub(crate) fn place_on(&self, device: usize, value: u64) -> u64 {
        let found = self.find_on(device, value);
        found.unwrap_or_else(|| panic!("value {value} is not on the cache"))
    }

    /// Finds a value on a device of the cache, if it is there.
    pub(crate) fn find_on(&self, device: usize, value: u64) -> Option<u64> {
        let contents = self.device(self.caches[device]).contents(0..CACHE_BYTES);
        let wanted = crate::ledger::contents(value);
        let found = contents
            .chunks(BLOCK as usize)
            .position(|block| block == wanted);
        found.map(|block| block as u64 * BLOCK)
    }

    pub(crate) fn wait_for_failure(&self, daemon: &Daemon) {
        until("the cache to fail", || {
            daemon.log().contains("the cache failed")
        });
    }

    /// Kills the daemon and cuts the power of all devices. Nothing of memory is left.
    pub(crate) fn cut_power(&mut self, daemon: Daemon) {
        daemon.kill();
        self.cut_power_of_devices();
    }

    /// Cuts the power of the devices when no daemon runs any more.
    pub(crate) fn cut_power_of_devices(&mut self) {
        self.scratch.remove_shared_memory();
        let survives = [0, 50, 100][self.random.below(3) as usize];
        for name in DEVICES {
            // Blocks are whole: an origin has no checksums against a device that tears them.
            let device = self.devices.device(name);
            device.cut_power(BLOCK as usize, survives, &mut self.random);
        }
    }

    /// Reads all that was written; it must be what was promised, but for these blocks, which may
    /// fail to be read.
    pub(crate) fn check(&self, client: &mut Client, kept: Kept, unreadable: &[u64]) {
        for block in self.ledger.blocks() {
            client.begin_read(block * BLOCK, BLOCK as u32).unwrap();
            let reply = client.reply().unwrap();
            if reply.error != 0 {
                assert!(unreadable.contains(&block), "block {block} cannot be read");
                continue;
            }
            let fault = self.ledger.fault(block, value_of(block, &reply.data), kept);
            assert_eq!(fault, None, "read from the volume");
        }
    }

    /// Values of each block on the origin.
    pub(crate) fn on_origin(&self, durably: bool) -> Vec<(u64, u64)> {
        let all = 0..ORIGIN_BYTES;
        let data = if durably {
            self.origin().durable_contents(all)
        } else {
            self.origin().contents(all)
        };
        let value = |block: u64| {
            let at = (block * BLOCK) as usize;
            value_of(block, &data[at..at + BLOCK as usize])
        };
        let blocks = self.ledger.blocks();
        blocks
            .into_iter()
            .map(|block| (block, value(block)))
            .collect()
    }

    /// The origin durably holds all that was promised, but for these blocks.
    pub(crate) fn check_origin(&self, kept: Kept, without: &[u64]) {
        for (block, value) in self.on_origin(true) {
            if !without.contains(&block) {
                assert_eq!(self.ledger.fault(block, value, kept), None, "on the origin");
            }
        }
    }

    /// After the end of a daemon: either the next one serves all that was promised, or it refuses
    /// a cache that failed, and what is newer in it is written out. Then the origin has all.
    pub(crate) fn recover(&mut self, kept: Kept) {
        self.recover_without(kept, &[]);
    }

    /// Recovers, with blocks that a device has lost.
    pub(crate) fn recover_without(&mut self, kept: Kept, lost: &[u64]) {
        if self.random.below(2) == 0 {
            // A start while the device still fails must not make it worse.
            drop(self.try_start());
        }
        self.heal();
        match self.try_start() {
            Ok(daemon) => {
                self.check(&mut self.client(), kept, lost);
                let drain = daemon.begin(&self.scratch, &["drain"]);
                drain.wait_with_output().unwrap();
                self.check_origin(kept, lost);
                daemon.kill();
            }
            Err(said) => self.write_out(&said, kept),
        }
        self.check_origin(kept, lost);
    }

    /// A load in the midst of which something happens.
    pub(crate) fn load_and(
        &mut self,
        client: &mut Client,
        requests: u64,
        moment: u64,
        happens: impl Fn(&World),
    ) {
        let (mut ledger, mut random) = (std::mem::take(&mut self.ledger), self.random.clone());
        ledger.load(client, &mut random, requests, |number| {
            if number == moment {
                happens(self);
            }
        });
        (self.ledger, self.random) = (ledger, random);
    }

    /// Checks that promised data can be read now. Data that was not durable yet may be lost to the
    /// flush that failed.
    pub(crate) fn check_running(&self, client: &mut Client) {
        self.check(client, Kept::Acknowledged, &self.ledger.not_durable());
    }

    /// No block of the origin is older than it was.
    pub(crate) fn nothing_is_older(&self, before: &[(u64, u64)]) {
        for ((block, before), (_, now)) in before.iter().zip(self.on_origin(false)) {
            assert!(
                *before <= now,
                "block {block} of the origin was {before} and is {now}"
            );
        }
    }

    /// Ends all faults of all devices.
    pub(crate) fn heal(&self) {
        for name in DEVICES {
            self.device(name).heal();
        }
    }

    /// Writes out the dirty data of a cache that failed, as the refusal says. All of it can
    /// be read, unless a device lost its volatile cache.
    pub(crate) fn write_out(&self, refusal: &str, kept: Kept) {
        assert!(refusal.contains("was abandoned"), "{refusal}");
        if !refusal.contains("are newer in it") {
            assert!(refusal.contains("nothing is lost"), "{refusal}");
            return;
        }
        let drained = self.drain_offline("state");
        let all = drained.status.success();
        assert!(all || kept == Kept::Durable, "{}", text(&drained));
    }
}
