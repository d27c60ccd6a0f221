//! Access of other users of the machine to what the commands make.

mod support;

use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::Path;
use std::process::{Command, Output};

use support::{Daemon, MIB, Scratch, text};

/// Runs `forebay` with a umask that keeps nobody out.
fn without_umask(scratch: &Scratch, arguments: &[&str]) -> Output {
    let script = "umask 0; exec \"$0\" \"$@\"";
    Command::new("sh")
        .args(["-c", script, env!("CARGO_BIN_EXE_forebay")])
        .args(arguments)
        .current_dir(scratch.path(""))
        .output()
        .unwrap()
}

fn mode(path: &Path) -> u32 {
    std::fs::metadata(path).unwrap().permissions().mode() & 0o777
}

/// A8: a cache file holds any data of the disk.
#[test]
fn a_cache_file_is_its_owners_alone() {
    let scratch = Scratch::new();
    let output = without_umask(&scratch, &["create", "cache", "--size", "16M"]);
    assert!(output.status.success(), "{}", text(&output));
    assert_eq!(mode(&scratch.path("cache")), 0o600);
}

/// A8: so does the log of all that is written to the devices.
#[test]
fn a_recording_is_its_owners_alone() {
    let scratch = Scratch::new();
    scratch.file("origin", 8 * MIB);
    scratch.file("cache", 16 * MIB);
    Daemon::cached(&scratch, "writeback", &["--record", "recording"]).stop();
    assert_eq!(mode(&scratch.path("recording")), 0o600);
}

/// The user nobody and its group, of every Debian.
const NOBODY: u32 = 65534;

fn as_nobody(scratch: &Scratch, arguments: &[&str]) -> Output {
    let own = format!("--reuid={NOBODY}");
    let group = format!("--regid={NOBODY}");
    Command::new("setpriv")
        .args([
            own.as_str(),
            &group,
            "--clear-groups",
            env!("CARGO_BIN_EXE_forebay"),
        ])
        .args(arguments)
        .current_dir(scratch.path(""))
        .output()
        .unwrap()
}

/// A4: QEMU of libvirt is not root.
#[test]
fn sockets_are_for_the_group_that_was_named() {
    if !rustix::process::getuid().is_root() {
        println!("skipped: only root can give a socket to another group");
        return;
    }
    let scratch = Scratch::new();
    std::fs::set_permissions(scratch.path(""), std::fs::Permissions::from_mode(0o755)).unwrap();
    scratch.file("origin", 16 * MIB);
    let control = scratch.text("control");
    let closed = Daemon::start(&scratch, &["--origin", "origin", "--socket-mode", "600"]);
    assert_eq!(mode(&scratch.path("nbd")), 0o600);
    let output = as_nobody(&scratch, &["status", "--control", &control]);
    assert!(!output.status.success(), "{}", text(&output));
    closed.stop();

    let nobody = NOBODY.to_string();
    let open = [
        "--origin",
        "origin",
        "--socket-group",
        &nobody,
        "--control-group",
        "nogroup",
    ];
    let daemon = Daemon::start(&scratch, &open);
    let socket = std::fs::metadata(scratch.path("nbd")).unwrap();
    assert_eq!((socket.gid(), mode(&scratch.path("nbd"))), (NOBODY, 0o660));
    let output = as_nobody(&scratch, &["status", "--control", &control]);
    assert!(output.status.success(), "{}", text(&output));
    daemon.stop();
    support::forebay_says(
        &scratch,
        &[
            "serve",
            "--origin",
            "origin",
            "--nbd",
            "unix:x",
            "--socket-group",
            "no-such-group",
        ],
        2,
        &["/etc/group has no `no-such-group`"],
    );
}

/// A4: the disk of libvirt's recipe, opened by a QEMU that is not root.
#[test]
fn a_qemu_that_is_not_root_uses_the_socket_of_its_group() {
    let qemu = "qemu-system-x86_64";
    if !rustix::process::getuid().is_root() || !support::installed(qemu) {
        println!("skipped: needs root, and {qemu}");
        return;
    }
    let scratch = Scratch::new();
    std::fs::set_permissions(scratch.path(""), std::fs::Permissions::from_mode(0o755)).unwrap();
    scratch.file("origin", 16 * MIB);
    let open = ["--origin", "origin", "--socket-group", "nogroup"];
    let daemon = Daemon::start(&scratch, &open);
    // A machine without a processor: only its disk is wanted.
    let disk = format!(
        "driver=raw,node-name=disk,cache.direct=on,discard=unmap,file.driver=nbd,file.export=origin,\
         file.server.type=unix,file.server.path={}",
        scratch.text("nbd")
    );
    let write = "qemu-io disk \"write -P 0x5a 1M 64k\"\nqemu-io disk flush\nquit\n";
    std::fs::write(scratch.path("monitor"), write).unwrap();
    let output = Command::new("setpriv")
        .args([
            "--reuid=65534",
            "--regid=65534",
            "--clear-groups",
            "timeout",
            "60",
            qemu,
        ])
        .args([
            "-machine",
            "none",
            "-display",
            "none",
            "-nodefaults",
            "-monitor",
            "stdio",
        ])
        .args(["-blockdev", &disk])
        .stdin(std::fs::File::open(scratch.path("monitor")).unwrap())
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", text(&output));
    daemon.stop();
    let origin = std::fs::read(scratch.path("origin")).unwrap();
    assert!(
        origin[1 << 20..(1 << 20) + (64 << 10)]
            .iter()
            .all(|byte| *byte == 0x5a)
    );
}

/// Runs with these capabilities of root and no others, as the service does.
fn with_capabilities(scratch: &Scratch, kept: &[&str]) -> Command {
    let mut set = "-all".to_owned();
    for capability in kept {
        set = format!("{set},+{capability}");
    }
    let mut command = Command::new("setpriv");
    command
        .args(["--bounding-set", &set, "--inh-caps", "-all"])
        .arg(env!("CARGO_BIN_EXE_forebay"))
        .current_dir(scratch.path(""));
    command
}

/// The capabilities that the service has, in the words of setpriv.
fn capabilities_of_the_service() -> Vec<String> {
    let unit = include_str!("../../../packaging/systemd/forebay@.service");
    let mut lines = unit.lines();
    let set = lines
        .find_map(|line| line.strip_prefix("CapabilityBoundingSet="))
        .unwrap();
    let names = set
        .split(' ')
        .map(|name| name.strip_prefix("CAP_").unwrap());
    names.map(str::to_lowercase).collect()
}

/// A6: an image of libvirt belongs to its own user.
#[test]
fn the_service_opens_what_belongs_to_others_and_others_are_told_why_not() {
    if !rustix::process::getuid().is_root() {
        println!("skipped: only root has capabilities to give up");
        return;
    }
    let scratch = Scratch::new();
    scratch.file("image", 16 * MIB);
    let image = scratch.path("image");
    std::os::unix::fs::chown(&image, Some(NOBODY), Some(NOBODY)).unwrap();
    std::fs::set_permissions(&image, std::fs::Permissions::from_mode(0o600)).unwrap();
    let serve = [
        "serve", "--origin", "image", "--nbd", "unix:nbd", "--http", "off",
    ];
    let refused = with_capabilities(&scratch, &["sys_admin"])
        .args(serve)
        .output()
        .unwrap();
    let said = text(&refused);
    assert!(!refused.status.success(), "{said}");
    assert!(
        said.contains("belongs to nobody:nogroup with mode 0600"),
        "{said}"
    );
    assert!(said.contains("CAP_DAC_OVERRIDE"), "{said}");

    let kept = capabilities_of_the_service();
    let kept: Vec<&str> = kept.iter().map(String::as_str).collect();
    let mut service = with_capabilities(&scratch, &kept)
        .args(serve)
        .args(["--control", "control", "--socket-owner", "nobody"])
        .args(["--socket-group", "nogroup"])
        .spawn()
        .unwrap();
    support::until("the image to be served", || {
        scratch.path("control").exists()
    });
    let socket = std::fs::metadata(scratch.path("nbd")).unwrap();
    assert_eq!((socket.uid(), socket.gid()), (NOBODY, NOBODY));
    support::until("the daemon to answer", || {
        let status = ["status", "--control", "control"];
        without_umask(&scratch, &status).status.success()
    });
    support::forebay_ok(&scratch, &["stop", "--control", "control"]);
    assert!(service.wait().unwrap().success());
}

/// Runs `forebay` as a user without a directory for the session, whose temporary files are in `tmp`.
fn without_session(scratch: &Scratch, user: u32, arguments: &[&str]) -> Command {
    let (own, group) = (format!("--reuid={user}"), format!("--regid={user}"));
    let mut command = Command::new("setpriv");
    command
        .args([own.as_str(), &group, "--clear-groups"])
        .arg(env!("CARGO_BIN_EXE_forebay"))
        .args(arguments)
        .current_dir(scratch.path("tmp"))
        .env_remove("XDG_RUNTIME_DIR")
        .env("TMPDIR", scratch.path("tmp"))
        .env("XDG_STATE_HOME", scratch.path("tmp").join(user.to_string()))
        .stdin(std::process::Stdio::null());
    command
}

/// S13: another user makes the directory of control sockets first, or gets a socket into it.
#[test]
fn commands_go_to_no_daemon_of_another_user() {
    if !rustix::process::getuid().is_root() {
        println!("skipped: only root can be two other users");
        return;
    }
    const OTHER: u32 = 12345;
    let scratch = Scratch::new();
    let everybody = std::fs::Permissions::from_mode(0o1777);
    let tmp = scratch.path("tmp");
    std::fs::create_dir(&tmp).unwrap();
    std::fs::set_permissions(scratch.path(""), std::fs::Permissions::from_mode(0o755)).unwrap();
    std::fs::set_permissions(&tmp, everybody).unwrap();
    let origin = tmp.join("origin");
    std::fs::File::create(&origin)
        .unwrap()
        .set_len(MIB)
        .unwrap();
    std::os::unix::fs::chown(&origin, Some(OTHER), None).unwrap();

    // The other user's directory.
    let directory = tmp.join(format!("forebay-{NOBODY}"));
    std::fs::create_dir(&directory).unwrap();
    std::os::unix::fs::chown(&directory, Some(OTHER), None).unwrap();
    let serve = ["serve", "--origin", "origin", "--nbd", "unix:nobody.nbd"];
    for arguments in [
        &["status"][..],
        &["stop"],
        &["status", "--control", "ssd"],
        &serve,
    ] {
        let output = without_session(&scratch, NOBODY, arguments)
            .output()
            .unwrap();
        assert_eq!(output.status.code(), Some(3), "{}", text(&output));
        assert!(
            text(&output).contains("belongs to user 12345"),
            "{}",
            text(&output)
        );
    }

    // The user's own, and a socket of the other's daemon in it.
    std::os::unix::fs::chown(&directory, Some(NOBODY), None).unwrap();
    let serve = [
        "serve",
        "--origin",
        "origin",
        "--nbd",
        "unix:other.nbd",
        "--control",
        "other.sock",
        "--control-group",
        "12345",
    ];
    let mut other = without_session(&scratch, OTHER, &serve)
        .stdout(std::process::Stdio::null())
        .stderr(std::process::Stdio::null())
        .spawn()
        .unwrap();
    support::until("the other user's daemon", || tmp.join("other.nbd").exists());
    support::until("its control socket", || {
        without_session(&scratch, OTHER, &["status", "--control", "other.sock"])
            .output()
            .is_ok_and(|output| output.status.success())
    });
    let socket = directory.join("other.sock");
    std::fs::rename(tmp.join("other.sock"), &socket).unwrap();
    std::fs::set_permissions(&socket, std::fs::Permissions::from_mode(0o666)).unwrap();
    let output = without_session(&scratch, NOBODY, &["status"])
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(1), "{}", text(&output));
    assert!(
        text(&output).contains("no forebay daemon runs"),
        "{}",
        text(&output)
    );
    support::send_signal(other.id(), "-TERM");
    other.wait().unwrap();
}
