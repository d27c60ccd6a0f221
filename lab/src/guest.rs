//! A life of the guest: QEMU from its start to its end, or to the moment the power is cut.

use std::io::{BufRead as _, BufReader, Write as _};
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail};

use crate::clock::Clock;
use crate::device::{DeviceSpec, Traffic};
use crate::event::Event;
use crate::lab::Lab;
use crate::realtime;

/// Below the devices, above everything else: QEMU's I/O thread stands for the host's hardware.
const IO_PRIORITY: u8 = 4;

/// While it boots nothing is measured, so the clock may run faster; not at the host's rate, or the
/// kernel would measure its timers while its processors are behind.
const BOOT_DILATION: f64 = 2.0;

/// Emulated string instructions go byte by byte: with them a copy of 128 KiB costs as much as a
/// hundred should. Without these flags kernel and C library copy by words and vectors.
const EMULATED_PROCESSOR: &str = "max,-erms,-fsrm";

/// Execution of a guest.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Accelerator {
    /// Emulated, with its clock slowed by this factor.
    Emulated {
        /// Factor by which its clock is slower.
        dilation: f64,
        /// Whether time in which nothing happens is skipped.
        skip_idle: bool,
    },
    /// Emulated, with a clock that moves by a nanosecond for each instruction.
    Counted,
    /// With the host's processor, in real time.
    Kvm,
}

impl Accelerator {
    /// The factor by which the guest's clock is slower.
    #[must_use]
    pub fn dilation(self) -> f64 {
        match self {
            Accelerator::Emulated { dilation, .. } => dilation,
            Accelerator::Counted | Accelerator::Kvm => 1.0,
        }
    }

    /// The rate of the guest's time stamp counter.
    fn time_stamp_khz(self) -> u32 {
        match self {
            Accelerator::Counted => 1_000_000,
            Accelerator::Emulated { .. } | Accelerator::Kvm => 2_000_000,
        }
    }
}

/// For the kernel, beside what each of the lab's has: a panic ends the guest.
pub const USUAL_ARGUMENTS: &str = "panic=-1";

/// Boot options.
#[derive(Debug)]
pub struct Boot<'a> {
    /// The lab.
    pub lab: &'a Lab,
    /// The first file system.
    pub initrd: PathBuf,
    /// More for the kernel's command line.
    pub arguments: String,
    /// The file system of its root, which keeps nothing of what is written to it.
    pub system: Option<&'a Path>,
    /// Folder shared with the guest, with `run.sh`.
    pub share: &'a Path,
    /// Where the devices' contents are.
    pub images: &'a Path,
    /// The devices.
    pub devices: &'a [DeviceSpec],
    /// Its execution.
    pub accelerator: Accelerator,
    /// Virtual processors.
    pub cpus: usize,
    /// Its memory, in MiB.
    pub memory_mib: u64,
    /// The longest it may take, in seconds of the host's.
    pub limit: Duration,
    /// Set by Ctrl-C.
    pub interrupted: &'a AtomicBool,
}

/// When to cut the power.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PowerCut {
    /// Time after the guest's first report of synced writes, on the host's clock.
    pub after: Duration,
    /// Which unflushed writes survive.
    pub seed: u64,
}

/// Result of a life.
#[derive(Clone, Debug, Default)]
pub struct Life {
    /// Traffic of each device.
    pub traffic: Vec<(String, Traffic)>,
    /// Host time from the start of QEMU to its end.
    pub wall: Duration,
    /// The number of times that idle time was skipped, and its sum in nanoseconds.
    pub skipped: (u64, u64),
}

/// A running QEMU that does not outlive its owner.
struct Qemu(Child);

impl Drop for Qemu {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _gone = self.0.kill();
        let _reaped = self.0.wait();
    }
}

/// Boots a guest and tells each event as it comes.
///
/// # Errors
/// If the guest cannot be started, ends otherwise than in order, takes too long, or Ctrl-C is
/// pressed.
pub fn live(
    boot: &Boot<'_>,
    cut: Option<PowerCut>,
    mut on_event: impl FnMut(Event),
) -> anyhow::Result<Life> {
    let sockets = tempdir(boot.images)?;
    let (rate, skip) = match boot.accelerator {
        Accelerator::Emulated {
            dilation,
            skip_idle,
        } => (dilation.min(BOOT_DILATION), skip_idle),
        Accelerator::Counted | Accelerator::Kvm => (1.0, false),
    };
    let clock = Arc::new(Clock::start(&sockets, rate, boot.devices.len(), skip)?);
    let mut running = Vec::new();
    for (index, device) in boot.devices.iter().enumerate() {
        running.push(device.start(index, boot.images, Arc::clone(&clock))?);
    }
    let began = Instant::now();
    let outcome = start(boot, &clock).and_then(|mut qemu| {
        let console = console_of(&mut qemu, boot.share)?;
        let ended = follow(boot, &clock, &mut qemu, &console, cut, &mut on_event);
        drop(qemu);
        ended
    });
    // Devices that nobody connected to wait for someone to come and go.
    for device in boot.devices {
        let _gone = UnixStream::connect(device.socket_path(&sockets));
    }
    let mut traffic = Vec::new();
    for (device, name) in running.into_iter().zip(boot.devices) {
        let seed = cut.map(|cut| cut.seed);
        traffic.push((name.name.clone(), device.finish(seed)?));
    }
    outcome?;
    let life = Life {
        traffic,
        wall: began.elapsed(),
        skipped: clock.skipped(),
    };
    std::fs::remove_dir_all(&sockets)
        .with_context(|| format!("cannot remove {}", sockets.display()))?;
    Ok(life)
}

fn tempdir(images: &Path) -> anyhow::Result<PathBuf> {
    let path = images.join("sockets");
    if path.exists() {
        std::fs::remove_dir_all(&path)?;
    }
    std::fs::create_dir_all(&path).with_context(|| format!("cannot make {}", path.display()))?;
    Ok(path)
}

fn start(boot: &Boot<'_>, clock: &Clock) -> anyhow::Result<Qemu> {
    let mut command = Command::new("qemu-system-x86_64");
    command.args(["-name", "forebay-lab,debug-threads=on"]);
    match boot.accelerator {
        Accelerator::Emulated { .. } => {
            command
                .args(["-accel", "tcg,thread=multi", "-cpu", EMULATED_PROCESSOR])
                .env("LD_PRELOAD", boot.lab.shim())
                .env("FOREBAY_LAB_CLOCK", clock.directory())
                .env("FOREBAY_LAB_CPUS", boot.cpus.to_string())
                // The main loop and the one I/O thread.
                .env("FOREBAY_LAB_LOOPS", "2");
        }
        Accelerator::Counted => {
            command
                .args(["-accel", "tcg,thread=single", "-cpu", EMULATED_PROCESSOR])
                .args(["-icount", "shift=0"]);
        }
        Accelerator::Kvm => {
            command.args(["-accel", "kvm", "-cpu", "host"]);
        }
    }
    command
        .args(["-smp", &boot.cpus.to_string()])
        .args(["-m", &format!("{}M", boot.memory_mib)])
        .args(["-nographic", "-no-reboot", "-nic", "none", "-vga", "none"])
        .arg("-kernel")
        .arg(boot.lab.vmlinuz())
        .arg("-initrd")
        .arg(&boot.initrd)
        .arg("-append")
        // Without nohz=off a guest that has no deeper sleep to choose stops its tick each time it
        // is idle, and starts it again: two accesses to an emulated timer at each hand-over.
        .arg(format!(
            "console=ttyS0 quiet mitigations=off nohz=off no_timer_check tsc_early_khz={} clearcpuid=erms,fsrm,rep_good {}",
            boot.accelerator.time_stamp_khz(), boot.arguments
        ))
        .arg("-virtfs")
        .arg(format!(
            "local,path={},mount_tag=lab,security_model=none",
            boot.share.display()
        ))
        .args(["-object", "iothread,id=io,poll-max-ns=0"]);
    if let Some(system) = boot.system {
        command
            .arg("-drive")
            .arg(format!(
                "file={},format=raw,if=none,id=system,snapshot=on",
                system.display()
            ))
            .args(["-device", "virtio-blk-pci,drive=system,serial=system"]);
    }
    for device in boot.devices {
        let (name, socket) = (&device.name, device.socket_path(clock.directory()));
        command
            .arg("-drive")
            .arg(format!(
                "file=nbd:unix:{},format=raw,if=none,id={name},cache=none,discard=unmap",
                socket.display()
            ))
            .arg("-device")
            .arg(format!(
                "virtio-blk-pci,drive={name},iothread=io,serial={name},num-queues=1"
            ));
    }
    let child = command
        // Ctrl-C is for the lab, which ends the guest itself.
        .process_group(0)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::inherit())
        .spawn()
        .context("cannot run qemu-system-x86_64")?;
    Ok(Qemu(child))
}

/// The guest's console, line by line, also kept in a file.
fn console_of(qemu: &mut Qemu, share: &Path) -> anyhow::Result<Receiver<String>> {
    let output = qemu.0.stdout.take().context("QEMU has no console")?;
    let path = share.join("console.log");
    let mut log = std::fs::File::options()
        .create(true)
        .append(true)
        .open(&path)
        .with_context(|| format!("cannot write {}", path.display()))?;
    let (sender, receiver) = channel();
    std::thread::Builder::new()
        .name("console".to_owned())
        .spawn(move || {
            for line in BufReader::new(output).split(b'\n') {
                let Ok(line) = line else { break };
                let line = String::from_utf8_lossy(&line).into_owned();
                let kept = writeln!(log, "{line}");
                if sender.send(line).is_err() || kept.is_err() {
                    break;
                }
            }
        })
        .context("cannot start the thread that reads the console")?;
    Ok(receiver)
}

fn follow(
    boot: &Boot<'_>,
    clock: &Clock,
    qemu: &mut Qemu,
    console: &Receiver<String>,
    cut: Option<PowerCut>,
    on_event: &mut impl FnMut(Event),
) -> anyhow::Result<()> {
    let began = Instant::now();
    let mut cut_at = None;
    let mut done = false;
    let mut raised = false;
    loop {
        if boot.interrupted.load(Ordering::Relaxed) {
            bail!("interrupted");
        }
        if cut_at.is_some_and(|at| Instant::now() >= at) {
            return power_off(qemu, console, on_event);
        }
        if began.elapsed() > boot.limit {
            bail!(
                "the guest took longer than {} s; its console is in {}",
                boot.limit.as_secs(),
                boot.share.join("console.log").display()
            );
        }
        raised = raised || raise_io_thread(qemu.0.id());
        let line = match console.recv_timeout(Duration::from_millis(50)) {
            Ok(line) => line,
            Err(RecvTimeoutError::Timeout) => continue,
            Err(RecvTimeoutError::Disconnected) => break,
        };
        let Some(event) = Event::parse(&line) else {
            continue;
        };
        match event {
            Event::Up(_) => clock.set_rate(boot.accelerator.dilation()),
            // Before something was synced there would be nothing to check.
            Event::Synced { .. } => {
                cut_at = cut_at.or_else(|| cut.map(|cut| Instant::now() + cut.after));
            }
            Event::Done(_) => done = true,
            _ => {}
        }
        on_event(event);
    }
    let status = qemu.0.wait()?;
    if !done {
        bail!(
            "the guest stopped ({status}) before it was done; its console is in {}",
            boot.share.join("console.log").display()
        );
    }
    Ok(())
}

/// Kills the guest in mid-flight; its messages until then count.
fn power_off(
    qemu: &mut Qemu,
    console: &Receiver<String>,
    on_event: &mut impl FnMut(Event),
) -> anyhow::Result<()> {
    qemu.0.kill().context("cannot kill QEMU")?;
    qemu.0.wait()?;
    while let Ok(line) = console.recv() {
        if let Some(event) = Event::parse(&line) {
            on_event(event);
        }
    }
    Ok(())
}

/// Whether the thread was there to be raised.
fn raise_io_thread(process: u32) -> bool {
    let Ok(threads) = std::fs::read_dir(format!("/proc/{process}/task")) else {
        return false;
    };
    for thread in threads.flatten() {
        let name = std::fs::read_to_string(thread.path().join("comm")).unwrap_or_default();
        let id = thread.file_name().to_string_lossy().parse();
        if let (true, Ok(id)) = (name.starts_with("IO "), id) {
            realtime::raise(id, IO_PRIORITY);
            return true;
        }
    }
    false
}
