//! Support for the tests: scratch directories, daemons, a small NBD client, other people's tools.
#![allow(dead_code, reason = "each test binary uses its part")]

pub(crate) mod browser;
pub(crate) mod certificates;
pub(crate) mod faulty_devices;
pub(crate) mod fio;
pub(crate) mod hook;
pub(crate) mod http;
pub(crate) mod libvirt;
pub(crate) mod machine;
pub(crate) mod manager;
pub(crate) mod model;
pub(crate) mod moving;
pub(crate) mod moving_machine;
pub(crate) mod nbd;
pub(crate) mod nbdkit;
pub(crate) mod openmetrics;
pub(crate) mod power;
pub(crate) mod server;
pub(crate) mod smartctl;
pub(crate) mod versions;
pub(crate) mod writing_machine;

use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::{Duration, Instant};

use serde_json::Value;

pub(crate) const MIB: u64 = 1 << 20;
/// Nothing a test waits for takes longer.
pub(crate) const LIMIT: Duration = Duration::from_secs(90);

/// A directory that disappears at the end of its test.
pub(crate) struct Scratch(PathBuf);

impl Scratch {
    /// In memory, where direct I/O is not possible but everything is quick.
    pub(crate) fn new() -> Scratch {
        Scratch::below(Path::new("/dev/shm"))
    }

    pub(crate) fn below(parent: &Path) -> Scratch {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let path = parent.join(format!("fb-test-{}-{number}", std::process::id()));
        std::fs::create_dir_all(&path).unwrap();
        Scratch(path)
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }

    pub(crate) fn text(&self, name: &str) -> String {
        self.path(name).to_str().unwrap().to_owned()
    }

    /// A sparse file.
    pub(crate) fn file(&self, name: &str, size_bytes: u64) -> PathBuf {
        let path = self.path(name);
        std::fs::File::create(&path)
            .unwrap()
            .set_len(size_bytes)
            .unwrap();
        path
    }

    /// A cache of that size, in blocks of another size than the usual.
    pub(crate) fn cache_in_blocks(&self, block_size: &str, size: &str) {
        let arguments = ["create", "cache", "--size", size, "--block-size"];
        forebay_ok(self, &[&arguments[..], &[block_size]].concat());
    }

    /// A file of a pattern that repeats nowhere near.
    pub(crate) fn pattern(&self, name: &str, size_bytes: u64) -> PathBuf {
        let path = self.path(name);
        let words = (0..size_bytes / 8)
            .flat_map(|word| (word.wrapping_mul(0x9e37_79b9_7f4a_7c15)).to_le_bytes());
        std::fs::write(&path, words.collect::<Vec<u8>>()).unwrap();
        path
    }
}

impl Scratch {
    /// Removes the shared memory that killed daemons of this test left behind.
    pub(crate) fn remove_shared_memory(&self) {
        let logs = std::fs::read_dir(&self.0).into_iter().flatten().flatten();
        let texts = logs
            .filter(|entry| entry.file_name().to_string_lossy().starts_with("log-"))
            .filter_map(|entry| std::fs::read_to_string(entry.path()).ok());
        for text in texts {
            let after = text.split_once("cache ").map_or("", |(_, after)| after);
            let Some(id) = after.split(' ').next().filter(|id| id.len() == 36) else {
                continue;
            };
            for path in shared_memory(id) {
                let _ = std::fs::remove_file(path);
            }
        }
    }
}

/// The files of a cache's shared memory.
pub(crate) fn shared_memory(cache: &str) -> Vec<PathBuf> {
    let entries = |path: &Path| std::fs::read_dir(path).into_iter().flatten().flatten();
    let places = entries(Path::new("/dev/shm"))
        .map(|entry| entry.path())
        .filter(|path| path.to_string_lossy().starts_with("/dev/shm/forebay-"));
    places
        .flat_map(|place| {
            entries(&place)
                .map(|entry| entry.path())
                .collect::<Vec<_>>()
        })
        .filter(|path| path.to_string_lossy().contains(cache))
        .collect()
}

impl Drop for Scratch {
    fn drop(&mut self) {
        self.remove_shared_memory();
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// Runs `forebay` to its end.
pub(crate) fn forebay(scratch: &Scratch, arguments: &[&str]) -> Output {
    command(scratch).args(arguments).output().unwrap()
}

/// Begins a command.
pub(crate) fn start(scratch: &Scratch, arguments: &[&str]) -> Child {
    command(scratch)
        .args(arguments)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap()
}

/// Begins a command that says what it does in a file, `log-` and that name.
pub(crate) fn start_logging(
    scratch: &Scratch,
    arguments: &[&str],
    environment: &[(&str, &str)],
    name: &str,
) -> Child {
    let log = std::fs::File::create(scratch.path(&format!("log-{name}"))).unwrap();
    command(scratch)
        .args(arguments)
        .envs(environment.iter().copied())
        .stdout(Stdio::null())
        .stderr(log)
        .spawn()
        .unwrap()
}

/// Runs `forebay`, which must succeed; returns what it prints.
pub(crate) fn forebay_ok(scratch: &Scratch, arguments: &[&str]) -> String {
    let output = forebay(scratch, arguments);
    assert!(output.status.success(), "{arguments:?}: {}", text(&output));
    String::from_utf8(output.stdout).unwrap()
}

/// Runs `forebay`, which must end with this code and say all of these words.
pub(crate) fn forebay_says(scratch: &Scratch, arguments: &[&str], code: i32, words: &[&str]) {
    ended_with(&forebay(scratch, arguments), arguments, code, words);
}

fn ended_with(output: &Output, arguments: &[&str], code: i32, words: &[&str]) {
    let said = text(output);
    assert_eq!(output.status.code(), Some(code), "{arguments:?}: {said}");
    for word in words {
        assert!(
            said.contains(word),
            "{arguments:?} does not say {word:?}: {said}"
        );
    }
}

pub(crate) fn text(output: &Output) -> String {
    String::from_utf8_lossy(&[output.stdout.as_slice(), &output.stderr].concat()).into_owned()
}

fn command(scratch: &Scratch) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_forebay"));
    command
        .env("XDG_RUNTIME_DIR", &scratch.0)
        .env("XDG_STATE_HOME", scratch.0.join("state"))
        .current_dir(&scratch.0)
        .stdin(Stdio::null());
    command
}

/// A daemon; killed at the end of its test if it still runs.
pub(crate) struct Daemon {
    child: Child,
    pub(crate) uris: Vec<String>,
    control: String,
    log: PathBuf,
    // A daemon that nobody listens to must go on all the same, but not in every test.
    _stdout: BufReader<std::process::ChildStdout>,
}

impl Daemon {
    /// Starts a daemon that exports on the unix socket `nbd` and waits until it serves.
    pub(crate) fn start(scratch: &Scratch, arguments: &[&str]) -> Daemon {
        Daemon::try_start(scratch, arguments)
            .unwrap_or_else(|said| panic!("the daemon did not start: {said}"))
    }

    /// Starts a daemon with a cache `cache` over an origin `origin`.
    pub(crate) fn cached(scratch: &Scratch, mode: &str, more: &[&str]) -> Daemon {
        let mut arguments = vec![
            "--origin", "origin", "--cache", "cache", "--create", "--mode", mode,
        ];
        arguments.extend(more);
        Daemon::start(scratch, &arguments)
    }

    /// Starts a daemon, or returns what it said when it ended.
    pub(crate) fn try_start(scratch: &Scratch, arguments: &[&str]) -> Result<Daemon, String> {
        Daemon::try_start_in(scratch, arguments, &[])
    }

    /// Tries to start a daemon with these variables in its environment.
    pub(crate) fn try_start_in(
        scratch: &Scratch,
        arguments: &[&str],
        environment: &[(&str, &str)],
    ) -> Result<Daemon, String> {
        Daemon::begin_start(scratch, arguments, environment).started()
    }

    /// Starts a daemon that is stopped again and again meanwhile, each time for a moment.
    pub(crate) fn start_haltingly(scratch: &Scratch, arguments: &[&str]) -> Daemon {
        let daemon = Daemon::begin_start(scratch, arguments, &[]);
        let (id, has_started) = (daemon.id(), AtomicBool::new(false));
        std::thread::scope(|threads| {
            threads.spawn(|| {
                while !has_started.load(Ordering::Relaxed) {
                    for signal in ["-STOP", "-CONT"] {
                        send_signal(id, signal);
                        std::thread::sleep(Duration::from_millis(5));
                    }
                }
            });
            let started = daemon.started();
            has_started.store(true, Ordering::Relaxed);
            started
        })
        .unwrap_or_else(|said| panic!("the daemon did not start: {said}"))
    }

    fn started(mut self) -> Result<Daemon, String> {
        let mut line = String::new();
        self._stdout.read_line(&mut line).unwrap();
        if line.is_empty() {
            let code = self.child.wait().unwrap().code();
            return Err(format!("exit code {code:?}: {}", self.log()));
        }
        self.uris.push(line.trim().to_owned());
        Ok(self)
    }

    /// Starts a daemon none of whose volumes is there, and waits until it takes commands.
    pub(crate) fn start_without_volumes(scratch: &Scratch, arguments: &[&str]) -> Daemon {
        let daemon = Daemon::begin_start(scratch, arguments, &[]);
        until("the daemon to take commands", || {
            std::os::unix::net::UnixStream::connect(&daemon.control).is_ok()
        });
        daemon
    }

    fn begin_start(scratch: &Scratch, arguments: &[&str], environment: &[(&str, &str)]) -> Daemon {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let log = scratch.path(&format!("log-{number}"));
        let control = scratch.text("control");
        let nbd = format!("unix:{}", scratch.text("nbd"));
        let mut child = command(scratch)
            .envs(environment.iter().copied())
            .arg("serve")
            .args(arguments)
            .args([
                "--nbd",
                &nbd,
                "--control",
                &control,
                "--state-dir",
                &scratch.text("state"),
            ])
            .stdout(Stdio::piped())
            .stderr(std::fs::File::create(&log).unwrap())
            .spawn()
            .unwrap();
        Daemon {
            _stdout: BufReader::new(child.stdout.take().unwrap()),
            child,
            uris: Vec::new(),
            control,
            log,
        }
    }

    pub(crate) fn uri(&self) -> &str {
        &self.uris[0]
    }

    pub(crate) fn id(&self) -> u32 {
        self.child.id()
    }

    pub(crate) fn log(&self) -> String {
        std::fs::read_to_string(&self.log).unwrap()
    }

    /// Runs a command for this daemon.
    pub(crate) fn command(&self, scratch: &Scratch, arguments: &[&str]) -> String {
        let arguments: Vec<&str> = arguments
            .iter()
            .copied()
            .chain(["--control", &self.control])
            .collect();
        forebay_ok(scratch, &arguments)
    }

    /// Begins a command for this daemon.
    pub(crate) fn begin(&self, scratch: &Scratch, arguments: &[&str]) -> Child {
        command(scratch)
            .args(arguments)
            .args(["--control", &self.control])
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap()
    }

    /// A command for this daemon ends with this code and says all of these words.
    pub(crate) fn says(&self, scratch: &Scratch, arguments: &[&str], code: i32, words: &[&str]) {
        let output = self.begin(scratch, arguments).wait_with_output().unwrap();
        ended_with(&output, arguments, code, words);
    }

    pub(crate) fn status(&self, scratch: &Scratch) -> Value {
        serde_json::from_str(&self.command(scratch, &["status", "--json"])).unwrap()
    }

    pub(crate) fn signal(&self, signal: &str) {
        send_signal(self.id(), signal);
    }

    pub(crate) fn kill(mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    /// Waits for the daemon to end by itself; returns its exit code.
    pub(crate) fn wait(&mut self) -> Option<i32> {
        let began = Instant::now();
        loop {
            if let Some(status) = self.child.try_wait().unwrap() {
                return status.code();
            }
            assert!(began.elapsed() < LIMIT, "the daemon hangs: {}", self.log());
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    /// Stops it in order.
    pub(crate) fn stop(mut self) {
        self.signal("-TERM");
        assert_eq!(self.wait(), Some(0), "{}", self.log());
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        if std::thread::panicking() {
            println!("the daemon's log:\n{}", self.log());
        }
    }
}

/// Sends a signal to a process of this test.
pub(crate) fn send_signal(process: u32, signal: &str) {
    let sent = Command::new("kill")
        .args([signal, &process.to_string()])
        .status()
        .unwrap();
    assert!(sent.success());
}

/// Waits until something is so.
pub(crate) fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    let began = Instant::now();
    while !is_so() {
        assert!(began.elapsed() < LIMIT, "waited in vain for {what}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// Whether a tool is there; says so if not.
pub(crate) fn installed(program: &str) -> bool {
    let found = std::env::var_os("PATH").is_some_and(|path| {
        std::env::split_paths(&path).any(|directory| directory.join(program).exists())
    });
    if !found {
        println!("skipped: {program} is not installed");
    }
    found
}

/// Runs a tool to its end.
pub(crate) fn try_run(program: &str, arguments: &[&str]) -> Output {
    Command::new("timeout")
        .args(["120", program])
        .args(arguments)
        .output()
        .unwrap()
}

/// Runs a tool that must succeed.
pub(crate) fn run(program: &str, arguments: &[&str]) -> String {
    let output = try_run(program, arguments);
    assert!(
        output.status.success(),
        "{program} {arguments:?}: {}",
        text(&output)
    );
    text(&output)
}

/// A process that is waited for at the end of its test.
pub(crate) fn spawn(program: &str, arguments: &[&str]) -> Child {
    Command::new("timeout")
        .args(["120", program])
        .args(arguments)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap()
}

/// The end of such a process, which must have succeeded.
pub(crate) fn finish(mut child: Child) -> String {
    let mut said = String::new();
    child
        .stdout
        .take()
        .unwrap()
        .read_to_string(&mut said)
        .unwrap();
    child
        .stderr
        .take()
        .unwrap()
        .read_to_string(&mut said)
        .unwrap();
    assert!(child.wait().unwrap().success(), "{said}");
    said
}
