//! A machine of libvirt's moves to another host while it writes to a volume, and its volume after it, by
//! the steps of the manual's page on virtual machines.
//!
//! `MOVE_DIRTY_MIB=1024 cargo test --release -p forebay --test libvirt -- --nocapture` prints how long
//! the machine was paused.

mod support;

use std::io::{Read as _, Write as _};
use std::net::Shutdown;
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Instant;

use support::libvirt::{Libvirt, group_of_machines};
use support::moving::{dirty_mib, network_disk};
use support::moving_machine::{Hosts, PAGE, part_of_page};
use support::writing_machine::Serial;
use support::{Daemon, installed, until};

fn is_possible() -> bool {
    let programs = [
        "nbdkit",
        "qemu-system-x86_64",
        "libvirtd",
        "virsh",
        "setpriv",
    ];
    programs.iter().all(|program| installed(program))
}

/// The page's part on libvirt.
fn part() -> &'static str {
    part_of_page("**With libvirt**", "**A snapshot**")
}

/// The commands of the page, in their order.
fn commands() -> Vec<&'static str> {
    let fences = part().split("```sh\n").skip(1);
    let lines = fences.flat_map(|fence| fence.split("```").next().unwrap().lines());
    lines.collect()
}

/// The machine, with the disk of the page, on a host.
fn domain(libvirt: &Libvirt, socket: &str) -> String {
    let disk = part_of_page("<disk ", "</disk>");
    let driver = |text: &'static str| {
        let lines = text.lines().map(str::trim);
        let mut drivers = lines.filter(|line| line.starts_with("<driver "));
        drivers.next().expect("a driver")
    };
    let disk = disk
        .replace(driver(PAGE), driver(part()))
        .replace("/run/forebay/guest.sock", socket);
    let serial = libvirt.path("data/serial");
    format!(
        "<domain type='qemu'>
          <name>guest</name>
          <uuid>33333333-3333-4333-8333-333333333333</uuid>
          <memory unit='MiB'>16</memory>
          <os><type arch='x86_64' machine='pc'>hvm</type></os>
          <devices>
            <emulator>/usr/bin/qemu-system-x86_64</emulator>
            <disk {disk}</disk>
            <serial type='file'><source path='{serial}'/></serial>
            <controller type='usb' model='none'/>
            <memballoon model='none'/>
          </devices>
        </domain>"
    )
}

fn let_everyone_connect(socket: &Path) {
    std::fs::set_permissions(socket, std::fs::Permissions::from_mode(0o777)).unwrap();
}

/// A socket of one host that leads to that of another, as `ssh -L` makes one.
struct Way {
    socket: PathBuf,
    ends: Arc<AtomicBool>,
    thread: JoinHandle<()>,
}

impl Way {
    fn new(socket: PathBuf, to: PathBuf) -> Way {
        let listener = UnixListener::bind(&socket).unwrap();
        let_everyone_connect(&socket);
        let ends = Arc::new(AtomicBool::new(false));
        let at_end = Arc::clone(&ends);
        let thread = std::thread::spawn(move || {
            for client in listener.incoming() {
                if at_end.load(Ordering::SeqCst) {
                    return;
                }
                let client = client.unwrap();
                // A socket that nobody listens at is a connection that ends at once.
                let Ok(server) = UnixStream::connect(&to) else {
                    continue;
                };
                let (there, back) = (client.try_clone().unwrap(), server.try_clone().unwrap());
                std::thread::spawn(move || carry(client, server));
                std::thread::spawn(move || carry(back, there));
            }
        });
        Way {
            socket,
            ends,
            thread,
        }
    }

    /// Nobody listens any more. The socket stays behind.
    fn end(self) {
        self.ends.store(true, Ordering::SeqCst);
        drop(UnixStream::connect(&self.socket));
        self.thread.join().unwrap();
    }
}

fn carry(mut from: UnixStream, mut to: UnixStream) {
    let mut buffer = vec![0; 1 << 16];
    while let Ok(len @ 1..) = from.read(&mut buffer)
        && to.write_all(&buffer[..len]).is_ok()
    {}
    let _ = from.shutdown(Shutdown::Both);
    let _ = to.shutdown(Shutdown::Both);
}

/// Two hosts with libvirt, and what their machine says.
struct Machines {
    here: Libvirt,
    there: Libvirt,
    /// Dropped last: the others live in its directories.
    hosts: Hosts,
}

impl Machines {
    fn new(dirty_mib: u64) -> Machines {
        let hosts = Hosts::new(dirty_mib);
        let (here, there) = (
            Libvirt::start(&hosts.here, 1),
            Libvirt::start(&hosts.there, 2),
        );
        Machines { here, there, hosts }
    }

    /// Starts the machine here. Returns what it says, and its description there.
    fn start(&self) -> (Serial, String) {
        let socket = self.hosts.here.path("nbd");
        let_everyone_connect(&socket);
        let domain_here = domain(&self.here, socket.to_str().unwrap());
        self.here
            .virsh(&["create", &self.here.describe(&domain_here)]);
        let domain_there = domain(&self.there, &self.hosts.there.text("nbd"));
        let described = self.there.describe(&domain_there);
        (Serial(self.here.path("data/serial").into()), described)
    }

    fn serial_there(&self) -> Serial {
        Serial(self.there.path("data/serial").into())
    }

    /// Serves the volume there, by the page's options.
    fn serve_there(&self, options: &[&str]) -> Daemon {
        let (hosts, disk) = (&self.hosts, self.hosts.disk.text("server"));
        hosts.there.file("cache", hosts.cache_bytes);
        let origin = format!("nbd+unix:///disk?socket={disk}");
        let group = group_of_machines();
        let own = |option: &str| match option {
            "nbd://storage/guest" => origin.clone(),
            "/dev/nvme0n1" => "cache".to_owned(),
            "kvm" => group.clone(),
            other => other.to_owned(),
        };
        let [
            rest @ ..,
            "--nbd",
            "unix:/run/forebay/guest.sock",
            "--socket-group",
            "kvm",
        ] = options
        else {
            panic!("{options:?}");
        };
        let options = [rest, &["--socket-group", "kvm"]].concat();
        let options: Vec<String> = options.into_iter().map(own).collect();
        let options: Vec<&str> = options.iter().map(String::as_str).collect();
        Daemon::start(&hosts.there, &options)
    }

    /// Has the machine there go on, as often as it takes.
    fn resume(&self) {
        until("the machine to go on", || {
            self.there.virsh(&["resume", "guest"]);
            let before = self.serial_there().said().len();
            until("the machine to write, or to be paused", || {
                self.serial_there().said().len() > before || self.state() != "running"
            });
            self.state() == "running"
        });
    }

    fn state(&self) -> String {
        self.there.virsh(&["domstate", "guest"]).trim().to_owned()
    }
}

#[test]
fn a_machine_of_libvirt_moves_and_its_volume_follows() {
    if !is_possible() {
        return;
    }
    let machines = Machines::new(dirty_mib(16));
    let hosts = &machines.hosts;
    let _network = network_disk(&hosts.disk, hosts.size_bytes());
    let first = hosts.first_daemon();
    let (machine, domain_there) = machines.start();
    machine.writes(500);
    let commands = commands();
    let begin = |at: usize, with: &str| {
        let command: &str = commands[at];
        let arguments = command
            .strip_prefix(with)
            .unwrap_or_else(|| panic!("{command}"));
        arguments.split_whitespace().collect::<Vec<_>>()
    };

    begin(0, "install -d ");
    begin(1, "ssh -fNM ");
    begin(2, "chgrp kvm ");
    let way = Way::new(hosts.there.path("nbd"), hosts.here.path("nbd"));

    let there = machines.there.uri();
    let to = format!("unix:{}", machines.there.path("run/move"));
    let mut arguments = begin(3, "virsh ");
    assert_eq!(arguments.pop(), Some("qemu+ssh://host2/system"));
    arguments.extend([&there, "--migrateuri", &to, "--xml", &domain_there]);
    machines.here.virsh(&arguments);
    let other = machines.serial_there();
    other.writes(500);

    hosts.drain(&first, &begin(4, "forebay "));

    let paused = Instant::now();
    machines.there.virsh(&begin(5, "virsh "));
    println!(
        "{}",
        first.command(&hosts.here, &begin(6, "forebay ")).trim()
    );
    begin(7, "ssh -S /run/forebay/to-host1 -O exit");
    way.end();
    let second = machines.serve_there(&begin(8, "forebay serve "));
    assert_eq!(begin(9, "virsh "), ["resume", "guest"]);
    assert_eq!(commands.len(), 10, "{commands:?}");
    machines.resume();
    println!(
        "{:.2} s from the pause of the machine to its first write on its own host",
        paused.elapsed().as_secs_f64()
    );
    other.writes(500);
    machines.there.virsh(&["suspend", "guest"]);
    hosts.assert_whole(machine.said(), &other.said());
    machines.there.virsh(&["destroy", "guest"]);
    second.stop();
    first.stop();
}

#[test]
fn a_machine_of_libvirt_is_saved_and_restored_on_another_host() {
    if !is_possible() {
        return;
    }
    let machines = Machines::new(0);
    let hosts = &machines.hosts;
    let _network = network_disk(&hosts.disk, hosts.size_bytes());
    let first = hosts.first_daemon();
    let (machine, domain_there) = machines.start();
    machine.writes(500);
    let saved = machines.here.path("data/saved");
    machines.here.virsh(&["save", "guest", &saved]);
    first.command(&hosts.here, &["hand-over", "guest"]);
    first.stop();
    let second = hosts.second_daemon();
    let_everyone_connect(&hosts.there.path("nbd"));
    machines
        .there
        .virsh(&["restore", &saved, "--xml", &domain_there]);
    let other = machines.serial_there();
    other.writes(500);
    machines.there.virsh(&["suspend", "guest"]);
    hosts.assert_whole(machine.said(), &other.said());
    machines.there.virsh(&["destroy", "guest"]);
    second.stop();
}
