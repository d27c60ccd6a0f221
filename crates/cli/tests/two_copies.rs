//! Dirty data on two devices of the cache, one of which fails while clients write: no request fails,
//! nothing is lost, and the device that was left behind is never believed (I28).

mod support;

use std::time::{Duration, Instant};

use forebay_faulty::{Fault, FaultyDevices, Operation};
use forebay_random::SplitMix64;
use serde_json::Value;
use support::faulty_devices::faulty_devices;
use support::hook::{until_called_times, writing};
use support::model::{Model, ORIGIN_BYTES, write_some};
use support::nbd::Client;
use support::{Daemon, MIB, Scratch, forebay, forebay_ok, forebay_says, send_signal, text, until};

const CACHE_BYTES: u64 = 64 * MIB;
/// Dirty data stays dirty, so that the loss of a device would cost some.
const DIRTY: [&str; 6] = ["--mode", "writeback", "--age", "3600", "--dirty-low", "60"];

/// Another with each round of a longer test.
fn seed() -> u64 {
    std::env::var("TWO_COPIES_SEED").map_or(29, |seed| seed.parse().unwrap())
}

/// Devices that fail when a test says so, and what clients were told.
struct World {
    // Unmounted before the directory is removed.
    devices: FaultyDevices,
    scratch: Scratch,
    random: SplitMix64,
    model: Model,
    version: u64,
}

impl World {
    /// None where devices that fail cannot be had.
    fn new() -> Option<World> {
        let scratch = Scratch::new();
        let names = ["one", "two", "three"];
        let caches = names.map(|name| (name, CACHE_BYTES));
        let devices = [[("origin", ORIGIN_BYTES)].as_slice(), &caches].concat();
        let devices = faulty_devices(&scratch, &devices)?;
        Some(World {
            devices,
            scratch,
            random: SplitMix64::new(seed()),
            model: Model::default(),
            version: 0,
        })
    }

    fn try_start(&self, caches: &[&str], more: &[&str]) -> Result<Daemon, String> {
        let caches: Vec<String> = caches
            .iter()
            .map(|name| format!("devices/{name}"))
            .collect();
        let caches = caches.iter().flat_map(|path| ["--cache", path]);
        let origin = ["--origin", "devices/origin", "--threads", "2"];
        let commit = ["flush", "write", "memory"][seed() as usize % 3];
        let commit = ["--commit", commit, "--memory-buffer", "1M"];
        let arguments: Vec<&str> = (origin.into_iter().chain(commit).chain(caches))
            .chain(DIRTY)
            .chain(more.iter().copied())
            .collect();
        Daemon::try_start(&self.scratch, &arguments)
    }

    fn start(&self, caches: &[&str], more: &[&str]) -> Daemon {
        self.try_start(caches, more)
            .unwrap_or_else(|said| panic!("the daemon did not start: {said}"))
    }

    fn client(&self) -> Client {
        Client::connect(&self.scratch.path("nbd")).unwrap()
    }

    fn write(&mut self, client: &mut Client, replies: u64) {
        let World {
            random,
            model,
            version,
            ..
        } = self;
        write_some(client, model, random, version, replies);
    }

    /// Waits for what the client was not told of yet, and makes it durable.
    fn settle(&mut self, client: &mut Client) {
        self.model.finish(client);
        client.flush();
    }

    /// Does something where nothing is known of the cache: on another host, or with a state directory
    /// that was lost. The own one is back afterwards.
    fn on_another_host<T>(&mut self, act: impl FnOnce(&mut World) -> T) -> T {
        let states = self.scratch.path("state");
        let away = self.scratch.path("away");
        std::fs::rename(&states, &away).unwrap();
        let done = act(self);
        std::fs::remove_dir_all(&states).unwrap();
        std::fs::rename(&away, &states).unwrap();
        done
    }

    /// Kills the daemon and takes its memory away, as a power cut does.
    fn cut_power(&self, daemon: Daemon) {
        daemon.kill();
        self.scratch.remove_shared_memory();
    }

    /// Fails what a dead device fails.
    fn break_device(&self, name: &str, operations: &[Operation]) {
        for operation in operations {
            self.devices.device(name).fail(Fault::of(*operation));
        }
    }

    fn paths(&self, names: &[&str]) -> Vec<String> {
        names.iter().map(|name| format!("devices/{name}")).collect()
    }
}

/// A cache of two devices that keeps two copies, with dirty data.
fn with_dirty_data(world: &mut World) -> Daemon {
    // On two threads, each of which reports the loss, or on one.
    let daemon = if seed() % 2 == 1 {
        forebay_ok(&world.scratch, &["create", "devices/one", "--shards", "2"]);
        let daemon = world.start(&["one"], &[]);
        daemon.command(&world.scratch, &["cache", "add", "devices/two"]);
        daemon.stop();
        world.start(&["one", "two"], &["--copies", "2"])
    } else {
        world.start(&["one", "two"], &["--create", "--copies", "2"])
    };
    assert_eq!(copies(&daemon, &world.scratch), "2");
    let mut client = world.client();
    world.write(&mut client, 500);
    world.settle(&mut client);
    until_on_two(&daemon, &world.scratch);
    daemon
}

fn copies(daemon: &Daemon, scratch: &Scratch) -> String {
    let said = daemon.command(scratch, &["get", "copies", "--json"]);
    let said: Value = serde_json::from_str(&said).unwrap();
    said["settings"]["copies"].as_str().unwrap().to_owned()
}

/// It is, and that is on record.
fn until_on_two(daemon: &Daemon, scratch: &Scratch) {
    until("dirty data to be on two devices", || {
        let cache = &daemon.status(scratch)["cache"];
        cache["exposed_bytes"] == 0 && cache["is_copying"] == false
    });
}

fn last(output: &str) -> Value {
    serde_json::from_str(output.lines().last().unwrap()).unwrap()
}

/// Everything dirty is on the device `name` alone, and a start with that serves it.
fn one_device_has_all(world: &mut World, name: &str) {
    let daemon = world.start(&[name], &[]);
    let mut client = world.client();
    world.model.check(&mut client);
    drop(client);
    daemon.command(&world.scratch, &["drain"]);
    daemon.stop();
    let origin = world.devices.device("origin").contents(0..ORIGIN_BYTES);
    world.model.check_image(&origin);
}

fn a_device_dies_under_load(operations: &[Operation]) {
    let Some(mut world) = World::new() else {
        return;
    };
    let daemon = with_dirty_data(&mut world);
    let mut client = world.client();
    world.break_device("two", operations);
    let mut longest = Duration::ZERO;
    for _ in 0..1000 {
        let began = Instant::now();
        world.write(&mut client, 1);
        longest = longest.max(began.elapsed());
    }
    world.settle(&mut client);
    until("the device to be out", || {
        daemon.log().contains("goes on without it")
    });
    world.write(&mut client, 500);
    world.settle(&mut client);
    println!("the longest wait for an answer was {longest:?}");
    world.model.check(&mut client);
    let status = daemon.status(&world.scratch);
    assert_eq!(status["cache"]["failure"], Value::Null);
    assert_eq!(
        status["cache"]["lost"][0]["path"]
            .as_str()
            .map(|path| path.ends_with("two")),
        Some(true),
        "{status}"
    );
    let kinds = status["trouble"].as_array().unwrap().iter();
    let kinds: Vec<&Value> = kinds.map(|trouble| &trouble["kind"]).collect();
    assert!(kinds.contains(&&Value::from("one-copy")), "{status}");
    let page = daemon.command(&world.scratch, &["status"]);
    assert!(page.contains("it may not die now"), "{page}");
    drop(client);
    world.cut_power(daemon);

    // The device is as it was when it died, and readable again.
    world.devices.device("two").heal();
    let alone = world.try_start(&["two"], &[]).err().unwrap();
    assert!(alone.contains("it is out of the cache"), "{alone}");
    let forced = world
        .try_start(&["two"], &["--without-missing"])
        .err()
        .unwrap();
    assert!(forced.contains("it is out of the cache"), "{forced}");
    let daemon = world.start(&["one", "two"], &[]);
    assert!(daemon.log().contains("it is not used"), "{}", daemon.log());
    world.model.check(&mut world.client());
    world.cut_power(daemon);
    let paths = world.paths(&["one", "two"]);
    let checked = forebay_ok(&world.scratch, &["check", &paths[0], &paths[1]]);
    assert!(checked.contains("2 copies of dirty data"), "{checked}");
    assert!(
        checked.contains("goes on without its device number 1"),
        "{checked}"
    );
    one_device_has_all(&mut world, "one");
}

#[test]
fn a_device_that_fails_writes_and_flushes_is_lost_and_nothing_else() {
    a_device_dies_under_load(&[Operation::Write, Operation::Flush]);
}

#[test]
fn a_device_that_fails_everything_is_lost_and_nothing_else() {
    a_device_dies_under_load(&[Operation::Read, Operation::Write, Operation::Flush]);
}

#[test]
fn a_flush_that_fails_costs_the_device_alone() {
    a_device_dies_under_load(&[Operation::Flush]);
}

/// The two of them die in turn, each replaced before the other dies.
#[test]
fn each_device_dies_and_is_replaced() {
    let Some(mut world) = World::new() else {
        return;
    };
    let daemon = with_dirty_data(&mut world);
    world.break_device("two", &[Operation::Write, Operation::Flush]);
    let mut client = world.client();
    world.write(&mut client, 300);
    world.settle(&mut client);
    let paths = world.paths(&["one", "two", "three"]);
    let replace = ["cache", "replace", &paths[1], &paths[2], "--json"];
    let replaced = last(&daemon.command(&world.scratch, &replace));
    assert!(replaced["seconds"].as_f64().is_some(), "{replaced}");
    let status = daemon.status(&world.scratch);
    assert_eq!(status["cache"]["lost"], serde_json::json!([]), "{status}");
    assert_eq!(status["cache"]["exposed_bytes"], 0, "{status}");
    world.write(&mut client, 300);
    world.break_device("one", &[Operation::Write, Operation::Flush]);
    world.write(&mut client, 300);
    world.settle(&mut client);
    world.model.check(&mut client);
    drop(client);
    world.cut_power(daemon);
    one_device_has_all(&mut world, "three");
}

/// A sound device leaves, and another takes its place.
#[test]
fn a_sound_device_is_replaced() {
    let Some(mut world) = World::new() else {
        return;
    };
    let daemon = with_dirty_data(&mut world);
    let paths = world.paths(&["one", "two", "three"]);
    let (one, three) = (paths[0].as_str(), paths[2].as_str());
    let refused = ["--force", "forebay cache replace", "forebay set copies 1"];
    daemon.says(&world.scratch, &["cache", "remove", one], 3, &refused[1..]);
    daemon.command(&world.scratch, &["cache", "replace", one, three]);
    let mut client = world.client();
    world.write(&mut client, 300);
    world.settle(&mut client);
    drop(client);
    world.cut_power(daemon);
    world.devices.device("two").lose();
    one_device_has_all(&mut world, "three");
}

/// A start with a device missing goes on if the state directory vouches for that, and not if nobody
/// does.
#[test]
fn a_start_goes_on_without_a_device_that_the_witness_vouches_for() {
    let Some(mut world) = World::new() else {
        return;
    };
    let daemon = with_dirty_data(&mut world);
    world.cut_power(daemon);
    let said = world.on_another_host(|world| world.try_start(&["one"], &[]).err().unwrap());
    assert!(said.contains("--without-missing"), "{said}");
    let daemon = world.start(&["one"], &[]);
    assert!(
        daemon.log().contains("goes on without it"),
        "{}",
        daemon.log()
    );
    let mut client = world.client();
    world.model.check(&mut client);
    world.write(&mut client, 300);
    world.settle(&mut client);
    drop(client);
    world.cut_power(daemon);
    // The other was left behind, and is not believed even where both are there.
    let said = world
        .try_start(&["two"], &["--without-missing"])
        .err()
        .unwrap();
    assert!(said.contains("it is out of the cache"), "{said}");
    let daemon = world.start(&["two", "one"], &[]);
    world.model.check(&mut world.client());
    // Nothing on it counts, as the cache knows itself: it is taken as an empty one, without --force.
    let two = world.paths(&["two"]).remove(0);
    daemon.command(&world.scratch, &["cache", "replace", &two, &two]);
    let status = daemon.status(&world.scratch);
    assert_eq!(status["cache"]["lost"], serde_json::json!([]), "{status}");
    world.model.check(&mut world.client());
    daemon.stop();
    one_device_has_all(&mut world, "two");
}

/// Two hosts went on, each with one of the devices: together they are refused, whichever is newer, and
/// none is taken for an empty one.
#[test]
fn devices_that_went_on_without_each_other_are_refused_together() {
    let Some(mut world) = World::new() else {
        return;
    };
    let daemon = with_dirty_data(&mut world);
    world.cut_power(daemon);
    // It was started more often, so that its device is the newer one.
    world.on_another_host(|world| {
        for _ in 0..3 {
            let daemon = world.start(&["two"], &["--without-missing"]);
            world.client().write(0, &[9; 4096]);
            daemon.stop();
        }
    });
    let daemon = world.start(&["one"], &[]);
    let mut client = world.client();
    world.write(&mut client, 300);
    world.settle(&mut client);
    drop(client);
    let paths = world.paths(&["one", "two"]);
    let replace = ["cache", "replace", &paths[1], &paths[1]];
    daemon.says(&world.scratch, &replace, 3, &["--force"]);
    daemon.stop();
    let words = "both went on, each without the other";
    for devices in [["one", "two"], ["two", "one"]] {
        let said = world.try_start(&devices, &[]).err().unwrap();
        assert!(said.contains(words), "{said}");
    }
    let both = [words, "devices/one and devices/two"];
    forebay_says(&world.scratch, &["check", &paths[0], &paths[1]], 3, &both);
    std::fs::remove_dir_all(world.scratch.path("state")).unwrap();
    let said = world.try_start(&["one", "two"], &[]).err().unwrap();
    assert!(said.contains(words), "{said}");
    let daemon = world.start(&["one"], &[]);
    world.model.check(&mut world.client());
    daemon.command(&world.scratch, &[&replace[..], &["--force"]].concat());
    daemon.stop();
    one_device_has_all(&mut world, "two");
}

/// Without a state directory the administrator may say that nothing went on without the others.
#[test]
fn the_administrator_vouches_where_the_state_directory_is_lost() {
    let Some(mut world) = World::new() else {
        return;
    };
    let daemon = with_dirty_data(&mut world);
    daemon.stop();
    std::fs::remove_dir_all(world.scratch.path("state")).unwrap();
    let daemon = world.start(&["two"], &["--without-missing"]);
    world.model.check(&mut world.client());
    daemon.stop();
    one_device_has_all(&mut world, "two");
}

#[test]
fn two_copies_need_two_devices_and_are_set_while_clients_write() {
    let Some(mut world) = World::new() else {
        return;
    };
    let said = world
        .try_start(&["one"], &["--create", "--copies", "2"])
        .err()
        .unwrap();
    assert!(said.contains("forebay cache add"), "{said}");
    let untouched = world.devices.device("one").contents(0..MIB);
    assert!(untouched.iter().all(|byte| *byte == 0), "a cache was made");
    let daemon = world.start(&["one"], &["--create"]);
    let set = ["set", "copies", "2"];
    daemon.says(&world.scratch, &set, 2, &["cannot be on two devices"]);
    let wrong = ["set", "copies", "3"];
    daemon.says(&world.scratch, &wrong, 2, &["copies is 1 or 2"]);
    daemon.command(&world.scratch, &["cache", "add", "devices/two"]);
    let mut client = world.client();
    world.write(&mut client, 500);
    daemon.command(&world.scratch, &set);
    world.write(&mut client, 500);
    until_on_two(&daemon, &world.scratch);
    world.settle(&mut client);
    let config = daemon.command(&world.scratch, &["config"]);
    assert!(config.contains("copies = 2"), "{config}");
    daemon.command(&world.scratch, &["set", "copies", "1"]);
    assert_eq!(copies(&daemon, &world.scratch), "1");
    daemon.command(&world.scratch, &set);
    until_on_two(&daemon, &world.scratch);
    drop(client);
    world.cut_power(daemon);
    world.devices.device("one").lose();
    one_device_has_all(&mut world, "two");
}

/// Ctrl-C leaves a cache that is whole, with both devices or as it was.
#[test]
fn a_replacement_that_is_interrupted_loses_nothing() {
    let Some(mut world) = World::new() else {
        return;
    };
    let daemon = with_dirty_data(&mut world);
    let paths = world.paths(&["one", "two", "three"]);
    world
        .devices
        .device("three")
        .delay(Operation::Write, Duration::from_millis(20));
    let replacing = daemon.begin(&world.scratch, &["cache", "replace", &paths[1], &paths[2]]);
    until("the new device to be added", || {
        daemon.log().contains("the cache has")
    });
    send_signal(replacing.id(), "-INT");
    let output = replacing.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(4), "{}", text(&output));
    world.devices.device("three").heal();
    let mut client = world.client();
    world.write(&mut client, 100);
    world.settle(&mut client);
    drop(client);
    daemon.stop();
    let daemon = world.start(&["one", "two", "three"], &[]);
    world.model.check(&mut world.client());
    daemon.stop();
    let wrong = forebay(&world.scratch, &["check", &paths[0]]);
    assert_eq!(wrong.status.code(), Some(3), "{}", text(&wrong));
    forebay_says(
        &world.scratch,
        &["check", &paths[0]],
        3,
        &["give all of them"],
    );
}

/// With one device left, volumes in write-back write through until there are two.
#[test]
fn volumes_write_through_while_one_device_is_left_if_that_is_wanted() {
    let Some(mut world) = World::new() else {
        return;
    };
    let daemon = with_dirty_data(&mut world);
    daemon.command(&world.scratch, &["set", "on-degraded", "writethrough"]);
    let mode = |daemon: &Daemon| daemon.status(&world.scratch)["volumes"][0]["mode"].clone();
    assert_eq!(mode(&daemon), "writeback");
    world.break_device("two", &[Operation::Write, Operation::Flush]);
    let mut client = world.client();
    client.begin_flush().unwrap();
    until("the volume to write through", || {
        mode(&daemon) == "writethrough"
    });
    let replace = ["cache", "replace", "devices/two", "devices/three"];
    daemon.command(&world.scratch, &replace);
    until("the volume to write back again", || {
        mode(&daemon) == "writeback"
    });
    let config = daemon.command(&world.scratch, &["config"]);
    assert!(
        config.contains("on-degraded = \"writethrough\""),
        "{config}"
    );
}

/// A device whose data may be on it alone is not left behind: the cache fails, and says what is lost.
#[test]
fn a_device_that_has_dirty_data_alone_takes_the_cache_with_it() {
    let Some(mut world) = World::new() else {
        return;
    };
    let daemon = with_dirty_data(&mut world);
    daemon.command(&world.scratch, &["set", "copies", "1"]);
    let mut client = world.client();
    world.write(&mut client, 300);
    world.model.finish(&mut client);
    world.break_device("two", &[Operation::Write, Operation::Flush]);
    client.begin_flush().unwrap();
    until("the cache to fail", || {
        daemon.log().contains("the cache failed")
    });
    assert!(
        daemon.log().contains("may be on it alone"),
        "{}",
        daemon.log()
    );
    let status = daemon.status(&world.scratch);
    assert_eq!(status["cache"]["lost"], serde_json::json!([]), "{status}");
}

/// A device that dies between two daemons is found at the start.
fn a_start_finds_a_device_dead(operations: &[Operation]) {
    let Some(mut world) = World::new() else {
        return;
    };
    let daemon = with_dirty_data(&mut world);
    world.cut_power(daemon);
    world.break_device("two", operations);
    let daemon = world.start(&["one", "two"], &[]);
    let mut client = world.client();
    world.model.check(&mut client);
    world.write(&mut client, 300);
    world.settle(&mut client);
    let status = daemon.status(&world.scratch);
    assert_eq!(status["cache"]["lost"][0]["number"], 1, "{status}");
    drop(client);
    daemon.stop();
    world.devices.device("two").heal();
    one_device_has_all(&mut world, "one");
}

#[test]
fn a_start_goes_on_without_a_device_that_cannot_be_read() {
    a_start_finds_a_device_dead(&[Operation::Read, Operation::Write, Operation::Flush]);
}

#[test]
fn a_start_goes_on_without_a_device_that_cannot_be_written() {
    a_start_finds_a_device_dead(&[Operation::Write, Operation::Flush]);
}

/// The configuration still names a device that is gone from the machine.
#[test]
fn a_path_that_is_gone_is_no_obstacle_after_a_loss() {
    let scratch = Scratch::new();
    scratch.file("origin", 64 * MIB);
    for name in ["one", "two", "three"] {
        scratch.file(name, CACHE_BYTES);
    }
    let both = ["--origin", "origin", "--cache", "one", "--cache", "two"];
    let first = [&both[..], &["--create", "--copies", "2"], &DIRTY].concat();
    let daemon = Daemon::start(&scratch, &first);
    let mut client = Client::connect(&scratch.path("nbd")).unwrap();
    client.write(0, &[7; 4096]);
    client.flush();
    drop(client);
    daemon.stop();
    std::fs::remove_file(scratch.path("two")).unwrap();
    for said in ["is not there", "the cache does without it"] {
        let daemon = Daemon::start(&scratch, &both);
        assert!(daemon.log().contains(said), "{}", daemon.log());
        daemon.stop();
    }
    let daemon = Daemon::start(&scratch, &both);
    let replaced = daemon.command(&scratch, &["cache", "replace", "two", "three"]);
    assert!(replaced.contains("in the place of two"), "{replaced}");
    let mut client = Client::connect(&scratch.path("nbd")).unwrap();
    assert_eq!(client.read(0, 4096), [7; 4096]);
    drop(client);
    daemon.stop();
    // All devices but one are gone: it is not known which, and nothing is believed.
    std::fs::remove_file(scratch.path("one")).unwrap();
    let daemon = Daemon::start(&scratch, &["--origin", "origin", "--cache", "three"]);
    daemon.stop();
}

#[test]
fn a_cache_is_made_on_two_devices_and_served_with_two_copies() {
    let scratch = Scratch::new();
    scratch.file("origin", 8 * MIB);
    scratch.file("one", 64 * MIB);
    scratch.pattern("two", 64 * MIB);
    let create = |more: &[&'static str]| [&["create", "one"], more].concat();
    forebay_says(
        &scratch,
        &create(&["--copies", "2"]),
        2,
        &["only one", "name another"],
    );
    forebay_says(&scratch, &create(&["./one"]), 2, &["same device"]);
    let before = std::fs::read(scratch.path("two")).unwrap();
    let both = ["two", "--copies", "2", "--json"];
    forebay_says(&scratch, &create(&both), 3, &["two holds", "--force"]);
    assert!(
        std::fs::read(scratch.path("two")).unwrap() == before,
        "nothing was written"
    );
    let is_blank = |name: &str| {
        std::fs::read(scratch.path(name))
            .unwrap()
            .iter()
            .all(|byte| *byte == 0)
    };
    assert!(
        is_blank("one"),
        "nothing was written to the blank device either"
    );
    let words = "data of an unknown kind";
    let forced = [&both[..], &["--force", "--yes-lose", words]].concat();
    let made: Value = serde_json::from_str(&forebay_ok(&scratch, &create(&forced))).unwrap();
    assert_eq!(
        (&made["copies"], &made["size_bytes"]),
        (&2.into(), &(128 * MIB).into())
    );
    let check = forebay_ok(&scratch, &["check", "one", "two"]);
    assert!(check.contains("2 copies"), "{check}");
    forebay_says(&scratch, &["check", "one"], 3, &["2 devices"]);
    let serve = [
        "--origin",
        "origin",
        "--cache",
        "one",
        "--cache",
        "two",
        "--mode",
        "writeback",
    ];
    let daemon = Daemon::try_start(&scratch, &serve).unwrap();
    let status = daemon.status(&scratch);
    assert_eq!(status["cache"]["copies"], 2, "{status}");
    daemon.stop();
    // Made anew over itself: both devices say what they were.
    let held = "one of the 2 devices of a Forebay cache";
    forebay_says(&scratch, &create(&["two", "--force"]), 3, &[held]);
    let words = format!("{held} and {held}");
    forebay_ok(
        &scratch,
        &[&create(&["two", "--force", "--yes-lose"])[..], &[&words]].concat(),
    );
    let check = forebay_ok(&scratch, &["check", "one", "two"]);
    assert!(!check.contains("copies"), "{check}");
}

#[test]
fn files_of_a_cache_that_cannot_be_made_go_again() {
    let scratch = Scratch::new();
    scratch.file("two", MIB);
    let create = ["create", "one", "two", "--size", "64M", "--copies", "2"];
    forebay_says(&scratch, &create, 3, &["two exists already"]);
    assert!(!scratch.path("one").exists());
    assert!(scratch.path("two").exists());
    forebay_ok(
        &scratch,
        &["create", "one", "three", "--size", "64M", "--copies", "2"],
    );
}

/// A file that is read again has dirty data on two devices. The hook hears when that is so, when a
/// device is lost, and when another has taken its place.
#[test]
fn a_reload_raises_the_copies_and_the_hook_hears_of_a_loss_and_its_end() {
    let Some(mut world) = World::new() else {
        return;
    };
    let hook = writing(&world.scratch, "hook", "");
    let configure = |scratch: &Scratch, copies: u8| {
        let nbd = scratch.text("nbd");
        let file = format!(
            "[cache]\ndevice = [\"devices/one\", \"devices/two\"]\ncreate = true\ncopies = {copies}\n\
             [nbd]\nlisten = [\"unix:{nbd}\"]\n[http]\nlisten = \"off\"\n[daemon]\nhook = \"{hook}\"\n\
             [settings]\nage = 3600\ndirty-low = 60\n\
             [[volume]]\norigin = \"devices/origin\"\nmode = \"writeback\"\n"
        );
        std::fs::write(scratch.path("f.toml"), file).unwrap();
    };
    configure(&world.scratch, 1);
    let daemon = Daemon::start(&world.scratch, &["--config", "f.toml"]);
    assert_eq!(copies(&daemon, &world.scratch), "1");
    let mut client = world.client();
    world.write(&mut client, 500);
    world.settle(&mut client);

    configure(&world.scratch, 2);
    let said = daemon.command(&world.scratch, &["reload"]);
    assert!(said.contains("copies"), "{said}");
    assert_eq!(copies(&daemon, &world.scratch), "2");
    until_called_times(&world.scratch, "hook", "copies-whole|", 1..=1);
    until_on_two(&daemon, &world.scratch);

    world.break_device("one", &[Operation::Write, Operation::Flush]);
    world.write(&mut client, 300);
    world.settle(&mut client);
    until_called_times(&world.scratch, "hook", "device-lost|", 1..=1);
    let paths = world.paths(&["one", "three"]);
    daemon.command(&world.scratch, &["cache", "replace", &paths[0], &paths[1]]);
    until_called_times(&world.scratch, "hook", "copies-whole|", 2..=2);
    world.model.check(&mut client);
    drop(client);
    world.cut_power(daemon);
    world.devices.device("two").lose();
    one_device_has_all(&mut world, "three");
}
