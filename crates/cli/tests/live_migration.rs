//! A machine of QEMU moves to another host while it writes to a volume, by the steps and in the words of
//! the manual's page on virtual machines.
//!
//! `MOVE_DIRTY_MIB=1024 cargo test --release -p forebay --test live_migration -- --nocapture` prints how
//! long the machine was paused.

mod support;

use std::time::{Duration, Instant};

use serde_json::Value;

use support::moving::{dirty_mib, network_disk};
use support::moving_machine::{Hosts, part_of_page};
use support::writing_machine::Machine;
use support::{Scratch, installed, until};

fn is_possible() -> bool {
    installed("nbdkit") && installed("qemu-system-x86_64")
}

/// QEMU on a host, with the volume of its daemon.
fn machine_on_volume(host: &Scratch, more: &[&str]) -> Machine {
    let volume = format!(
        "driver=raw,node-name=disk,file.driver=nbd,file.export=guest,file.server.type=unix,file.server.path={}",
        host.text("nbd")
    );
    let disk = ["-blockdev", &volume, "-device", "virtio-blk-pci,drive=disk"];
    Machine::start(host, &[&disk[..], more].concat())
}

impl Hosts {
    /// The page with the names of this test.
    fn text(&self) -> String {
        let part = part_of_page("**Live migration**", "**With libvirt**");
        part.replace("536870912", &self.size_bytes().to_string())
            .replace(
                "tcp:192.0.2.2:4444",
                &format!("unix:{}", self.disk.text("move")),
            )
            .replace("/run/forebay/guest.sock", &self.there.text("nbd"))
    }

    /// The commands of the page for QEMU, in their order.
    fn commands(&self) -> Vec<Value> {
        let text = self.text();
        let lines = text.lines().filter(|line| line.starts_with('{'));
        lines
            .map(|line| serde_json::from_str(line).expect("JSON"))
            .collect()
    }

    fn machine_here(&self) -> Machine {
        machine_on_volume(&self.here, &[])
    }

    /// QEMU there, with the page's options.
    fn machine_there(&self) -> Machine {
        let text = self.text();
        let lines = text.lines().filter(|line| line.starts_with('-'));
        let options: Vec<&str> = lines
            .flat_map(|line| line.trim_end_matches('\\').split_whitespace())
            .collect();
        assert!(options.contains(&"-incoming"), "{options:?}");
        Machine::start(&self.there, &options)
    }
}

/// The page's way to write back while the machine writes.
fn drain_command() -> Vec<&'static str> {
    let command = part_of_page("Run `forebay ", "`");
    let arguments: Vec<&str> = command.split(' ').collect();
    assert_eq!(arguments[..2], ["drain", "guest"]);
    arguments
}

#[test]
fn a_machine_moves_while_it_writes() {
    if !is_possible() {
        return;
    }
    let hosts = Hosts::new(dirty_mib(16));
    let _network = network_disk(&hosts.disk, hosts.size_bytes());
    let commands = hosts.commands();
    let names: Vec<&str> = commands
        .iter()
        .map(|command| command["execute"].as_str().unwrap())
        .collect();
    let [awaits @ .., "blockdev-add", "blockdev-reopen", "cont"] = &names[..] else {
        panic!("{names:?}");
    };
    assert_eq!(
        awaits,
        [
            "migrate-set-capabilities",
            "migrate-incoming",
            "migrate-set-capabilities",
            "migrate",
            "migrate-continue",
        ]
    );
    let first = hosts.first_daemon();
    let mut machine = hosts.machine_here();
    machine.serial.writes(500);
    let mut other = hosts.machine_there();
    other.commands(&commands[..2]);
    // The machine goes on writing, so that nothing may ever be clean.
    hosts.drain(&first, &drain_command());
    machine.commands(&commands[2..4]);
    machine.until_move_is("pre-switchover");
    let paused = Instant::now();
    println!(
        "{}",
        first.command(&hosts.here, &["hand-over", "guest"]).trim()
    );
    let second = hosts.second_daemon();
    machine.command(&commands[4]);
    machine.until_move_is("completed");
    other.until_move_is("completed");
    other.commands(&commands[5..]);
    other.serial.writes(1);
    print_pause(paused.elapsed());
    other.serial.writes(500);
    other.ask("stop");
    hosts.assert_whole(machine.serial.said(), &other.serial.said());
    drop((machine, other));
    second.stop();
    first.stop();
}

fn print_pause(pause: Duration) {
    println!(
        "{:.2} s from the pause of the machine to its first write there",
        pause.as_secs_f64()
    );
}

/// At the pause the volume may turn out to be unable to go: the machine then goes on where it was.
#[test]
fn a_move_is_called_off_at_the_pause() {
    if !is_possible() {
        return;
    }
    let hosts = Hosts::new(0);
    let _network = network_disk(&hosts.disk, hosts.size_bytes());
    let commands = hosts.commands();
    let first = hosts.first_daemon();
    let mut machine = hosts.machine_here();
    machine.serial.writes(100);
    let mut other = hosts.machine_there();
    other.commands(&commands[..2]);
    machine.commands(&commands[2..4]);
    machine.until_move_is("pre-switchover");
    machine.ask("migrate_cancel");
    machine.until_move_is("cancelled");
    machine.serial.writes(100);
    drop((machine, other));
    first.stop();
}

/// As `virsh save` and `virsh restore` do.
#[test]
fn a_machine_that_is_saved_is_restored_on_another_host() {
    if !is_possible() {
        return;
    }
    let hosts = Hosts::new(0);
    let _network = network_disk(&hosts.disk, hosts.size_bytes());
    let first = hosts.first_daemon();
    let mut machine = hosts.machine_here();
    machine.serial.writes(500);
    machine.ask("stop");
    let saved = hosts.disk.text("saved");
    machine.command(&serde_json::json!({
        "execute": "migrate", "arguments": { "uri": format!("exec:cat > {saved}") },
    }));
    machine.until_move_is("completed");
    let said = machine.serial.said();
    drop(machine);
    first.command(&hosts.here, &["hand-over", "guest"]);
    first.stop();
    let second = hosts.second_daemon();
    let restore = format!("exec:cat {saved}");
    let mut other = machine_on_volume(&hosts.there, &["-incoming", &restore]);
    until("the machine to be there", || {
        other.ask("query-status")["status"] == "paused"
    });
    other.ask("cont");
    other.serial.writes(500);
    other.ask("stop");
    hosts.assert_whole(said, &other.serial.said());
    drop(other);
    second.stop();
}
