//! A cluster of one monitor and one OSD on loopback, in a directory of its own, without
//! authentication.

use std::net::TcpListener;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use crate::support::{self, Scratch, installed, text, try_run, until};

/// The pool of all images.
pub(crate) const POOL: &str = "pool";

/// The time for which a killed client keeps the exclusive lock of its image. It is 30 seconds where
/// nobody has changed it, which is most of what a test of many kills would take.
const WATCH_TIMEOUT_S: u32 = 5;

/// A process that ends with its test.
#[derive(Debug)]
pub(crate) struct Process(Child);

impl Process {
    /// Sends SIGKILL and waits for the end.
    pub(crate) fn kill(&mut self) {
        self.0.kill().expect("a process that runs");
        self.0.wait().expect("its end");
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // It may have ended already.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// A cluster that ends with its test.
pub(crate) struct Cluster {
    osd: Option<Process>,
    _monitor: Process,
    pub(crate) scratch: Scratch,
}

impl Cluster {
    /// Starts a cluster with an empty pool; None, and a line that says why, where that cannot be.
    pub(crate) fn start() -> Option<Cluster> {
        if is_something_missing() {
            return None;
        }
        // The OSD wants direct I/O, which /dev/shm does not have.
        let scratch = Scratch::below(&std::env::temp_dir());
        let id = uuid();
        let address = free_address();
        write_configuration(&scratch, &id, &address);
        let tool = |program: &str, arguments: &[&str]| run(&scratch, program, arguments);
        let (map, keys) = (scratch.text("map"), scratch.text("keyring"));
        let place = format!("[v2:{address}]");
        tool(
            "monmaptool",
            &["--create", "--fsid", &id, "--addv", "a", &place, &map],
        );
        let new_key = ["--create-keyring", &keys, "--gen-key", "-n", "mon."];
        tool(
            "ceph-authtool",
            &[&new_key[..], &["--cap", "mon", "allow *"]].concat(),
        );
        let first = ["--mkfs", "-i", "a", "--monmap", &map, "--keyring", &keys];
        tool("ceph-mon", &first);
        let monitor = daemon(&scratch, "ceph-mon", &["-f", "-i", "a"]);
        let osd = uuid();
        tool("ceph", &["osd", "new", &osd]);
        let first = ["-i", "0", "--mkfs", "--osd-uuid", &osd, "--no-mon-config"];
        tool("ceph-osd", &first);
        let mut cluster = Cluster {
            osd: None,
            _monitor: monitor,
            scratch,
        };
        cluster.start_osd();
        cluster.run("ceph", &["osd", "pool", "create", POOL, "8"]);
        Some(cluster)
    }

    /// Starts the OSD. Clients wait until it serves.
    pub(crate) fn start_osd(&mut self) {
        self.osd = Some(daemon(&self.scratch, "ceph-osd", &["-f", "-i", "0"]));
    }

    /// Kills the OSD with SIGKILL.
    pub(crate) fn kill_osd(&mut self) {
        self.osd.take().expect("an OSD that runs").kill();
    }

    /// Runs a tool of Ceph, which must succeed; returns what it prints.
    pub(crate) fn run(&self, program: &str, arguments: &[&str]) -> String {
        run(&self.scratch, program, arguments)
    }

    /// Serves an image on a unix socket, as the manual's recipe does it.
    pub(crate) fn serve(&self, image: &str, socket: &Path) -> Process {
        self.serve_with(image, socket, "writeback", "")
    }

    /// Serves an image with a cache of QEMU's kinds and these options of librbd.
    pub(crate) fn serve_with(
        &self,
        image: &str,
        socket: &Path,
        cache: &str,
        options: &str,
    ) -> Process {
        // A killed server leaves it behind.
        let _ = std::fs::remove_file(socket);
        let mut command = on_this(&self.scratch, "setpriv");
        command
            .args(["--pdeathsig", "KILL", "qemu-nbd"])
            .args(["--persistent", "--shared", "8", "--format", "raw"])
            .args(["--export-name", image])
            .args(["--cache", cache, "--discard", "unmap", "--socket"])
            .arg(socket)
            .arg(format!("rbd:{POOL}/{image}{options}"));
        let server = spawn(&self.scratch, &mut command, "qemu-nbd");
        until("qemu-nbd to listen", || UnixStream::connect(socket).is_ok());
        server
    }

    /// Runs a command that stays, as somebody types it on a host of the cluster.
    pub(crate) fn shell(&self, command: &str, name: &str) -> Process {
        let mut shell = on_this(&self.scratch, "setpriv");
        let text = format!("exec {command}");
        shell.args(["--pdeathsig", "KILL", "bash", "-c", &text]);
        spawn(&self.scratch, &mut shell, name)
    }

    /// The bytes of an image, read by Ceph's own tool.
    pub(crate) fn export(&self, image: &str) -> Vec<u8> {
        let file = self.scratch.text("export");
        let _ = std::fs::remove_file(&file);
        let name = format!("{POOL}/{image}");
        self.run("rbd", &["export", "--no-progress", &name, &file]);
        std::fs::read(file).unwrap()
    }
}

/// Whether the test cannot be run here; says why.
fn is_something_missing() -> bool {
    let programs = [
        "ceph-mon", "ceph-osd", "ceph", "rbd", "qemu-nbd", "qemu-img", "mke2fs", "setpriv",
    ];
    if !programs.iter().all(|program| installed(program)) {
        return true;
    }
    let said = text(&try_run(
        "qemu-img",
        &["info", "rbd:no/image:conf=/dev/null"],
    ));
    if said.contains("Unknown protocol") {
        println!("skipped: qemu has no driver for RBD (package qemu-block-extra)");
        return true;
    }
    is_disk_full(&std::env::temp_dir())
}

/// Room that a cluster and its clients may take, in MiB: an OSD that is full, and as much again.
const ROOM_MIB: u64 = 8192;

/// Whether a directory's file system has no room for a cluster; says so if it has none.
fn is_disk_full(directory: &Path) -> bool {
    let said = support::run(
        "df",
        &["--output=avail", "-BM", directory.to_str().unwrap()],
    );
    let free = said.lines().last().unwrap().trim().trim_end_matches('M');
    let free: u64 = free.parse().expect("MiB");
    if free < ROOM_MIB {
        println!("skipped: {directory:?} has {free} MiB free, a cluster takes {ROOM_MIB}");
    }
    free < ROOM_MIB
}

fn configuration(scratch: &Scratch) -> PathBuf {
    scratch.path("ceph.conf")
}

fn write_configuration(scratch: &Scratch, id: &str, address: &str) {
    let here = scratch.text("");
    let here = here.trim_end_matches('/');
    for directory in ["mon", "osd"] {
        std::fs::create_dir(scratch.path(directory)).unwrap();
    }
    let text = format!(
        "[global]\n\
         fsid = {id}\n\
         mon host = v2:{address}\n\
         public network = 127.0.0.0/8\n\
         auth cluster required = none\n\
         auth service required = none\n\
         auth client required = none\n\
         mon allow pool size one = true\n\
         mon data avail warn = -1\n\
         mon data avail crit = -1\n\
         osd pool default size = 1\n\
         osd pool default min size = 1\n\
         osd pool default pg autoscale mode = off\n\
         osd crush chooseleaf type = 0\n\
         osd client watch timeout = {WATCH_TIMEOUT_S}\n\
         admin socket =\n\
         log file = {here}/$name.log\n\
         run dir = {here}\n\
         mon data = {here}/mon\n\
         osd data = {here}/osd\n\
         osd objectstore = bluestore\n\
         bluestore block size = 4294967296\n\
         osd memory target = 939524096\n"
    );
    std::fs::write(configuration(scratch), text).unwrap();
}

/// A port of loopback that nobody has.
fn free_address() -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    listener.local_addr().unwrap().to_string()
}

fn uuid() -> String {
    let text = std::fs::read_to_string("/proc/sys/kernel/random/uuid").unwrap();
    text.trim().to_owned()
}

/// A command whose cluster is this one.
fn on_this(scratch: &Scratch, program: &str) -> Command {
    let mut command = Command::new(program);
    command
        .env("CEPH_CONF", configuration(scratch))
        .stdin(Stdio::null());
    command
}

/// The time after which a command of Ceph's is given up, in seconds: on a machine that does much else
/// two minutes are not enough for the first pool.
const LONGEST_S: &str = "300";

fn run(scratch: &Scratch, program: &str, arguments: &[&str]) -> String {
    let output = on_this(scratch, "timeout")
        .args([LONGEST_S, program])
        .args(arguments)
        .output()
        .unwrap();
    let said = text(&output);
    assert!(
        output.status.success(),
        "{program} {arguments:?}: {said}\n{}",
        last_words(scratch)
    );
    String::from_utf8(output.stdout).unwrap()
}

/// The ends of what the cluster's daemons printed and logged: a command that waits for one that has
/// ended says nothing itself.
fn last_words(scratch: &Scratch) -> String {
    const LINES: usize = 15;
    let names = ["said-ceph-mon", "mon.a.log", "said-ceph-osd", "osd.0.log"];
    let end_of = |name: &str| {
        let whole = std::fs::read(scratch.path(name)).unwrap_or_default();
        let whole = String::from_utf8_lossy(&whole);
        let lines: Vec<_> = whole.lines().collect();
        let end = &lines[lines.len().saturating_sub(LINES)..];
        format!("{name}:\n{}\n", end.join("\n"))
    };
    names.map(end_of).concat()
}

/// Starts a daemon of Ceph. The kernel ends it if the test is killed.
fn daemon(scratch: &Scratch, program: &str, arguments: &[&str]) -> Process {
    let mut command = on_this(scratch, "setpriv");
    command
        .args(["--pdeathsig", "KILL", program])
        .args(arguments);
    spawn(scratch, &mut command, program)
}

fn spawn(scratch: &Scratch, command: &mut Command, name: &str) -> Process {
    let said = std::fs::File::create(scratch.path(&format!("said-{name}"))).unwrap();
    let child = command
        .stdout(said.try_clone().unwrap())
        .stderr(said)
        .spawn()
        .unwrap();
    Process(child)
}
