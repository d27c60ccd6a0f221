//! libvirt on a host of its own: its daemon, with all that it keeps in a directory of its test.
//!
//! It serves the user `nobody` if the test runs as root: a daemon of root's is the machine's own.

use std::os::unix::fs::{MetadataExt as _, chown};
use std::path::PathBuf;
use std::process::{Child, Command, Output, Stdio};

use super::{Scratch, text, until};

const NOBODY: u32 = 65534;

/// The daemon, which ends with its test.
pub(crate) struct Libvirt {
    child: Child,
    directory: PathBuf,
}

impl Libvirt {
    /// Starts it, below the directory of its host. `number` tells the hosts apart.
    pub(crate) fn start(host: &Scratch, number: u8) -> Libvirt {
        let directory = host.path("libvirt");
        for name in ["home", "run", "config", "data", "cache"] {
            std::fs::create_dir_all(directory.join(name)).unwrap();
        }
        // Machines do not move within one host, which its number stands for.
        let settings = format!("host_uuid = \"11111111-1111-4111-8111-1111111111{number:02}\"\n");
        std::fs::write(directory.join("libvirtd.conf"), settings).unwrap();
        give_to_nobody(&directory);
        let child = as_nobody(&directory, "libvirtd")
            .arg("--config")
            .arg(directory.join("libvirtd.conf"))
            .stderr(Stdio::null())
            .spawn()
            .expect("libvirtd");
        let libvirt = Libvirt { child, directory };
        until("libvirtd to listen", || {
            libvirt.try_virsh(&["version"]).status.success()
        });
        libvirt
    }

    /// The name that its clients know it by.
    pub(crate) fn uri(&self) -> String {
        let socket = self.path("run/libvirt/libvirt-sock");
        format!("qemu+unix:///session?socket={socket}")
    }

    /// A file of its own.
    pub(crate) fn path(&self, name: &str) -> String {
        self.directory.join(name).to_str().unwrap().to_owned()
    }

    pub(crate) fn try_virsh(&self, arguments: &[&str]) -> Output {
        as_nobody(&self.directory, "virsh")
            .args(["--connect", &self.uri()])
            .args(arguments)
            .output()
            .unwrap()
    }

    /// Runs a command, which must succeed.
    pub(crate) fn virsh(&self, arguments: &[&str]) -> String {
        let output = self.try_virsh(arguments);
        assert!(output.status.success(), "{arguments:?}: {}", text(&output));
        String::from_utf8(output.stdout).unwrap()
    }

    /// Keeps a description of a machine where its commands read it.
    pub(crate) fn describe(&self, domain: &str) -> String {
        let path = self.path("domain.xml");
        std::fs::write(&path, domain).unwrap();
        path
    }
}

impl Drop for Libvirt {
    fn drop(&mut self) {
        // Its machines outlive it otherwise.
        let _ = self.try_virsh(&["destroy", "guest"]);
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The group that its machines are in.
pub(crate) fn group_of_machines() -> String {
    match is_root() {
        true => "nogroup".to_owned(),
        false => super::run("id", &["-gn"]).trim().to_owned(),
    }
}

fn is_root() -> bool {
    rustix::process::getuid().is_root()
}

fn give_to_nobody(directory: &PathBuf) {
    if !is_root() {
        return;
    }
    for entry in std::fs::read_dir(directory).unwrap() {
        chown(entry.unwrap().path(), Some(NOBODY), Some(NOBODY)).unwrap();
    }
    chown(directory, Some(NOBODY), Some(NOBODY)).unwrap();
    assert_eq!(std::fs::metadata(directory).unwrap().uid(), NOBODY);
}

/// A program whose libvirt is the one in this directory.
fn as_nobody(directory: &std::path::Path, program: &str) -> Command {
    let mut command = if is_root() {
        let mut command = Command::new("setpriv");
        let user = [NOBODY; 2].map(|id| id.to_string());
        command.args(["--reuid", &user[0], "--regid", &user[1], "--clear-groups"]);
        command.arg(program);
        command
    } else {
        Command::new(program)
    };
    let of = |name: &str| directory.join(name);
    command
        .env("HOME", of("home"))
        .env("XDG_RUNTIME_DIR", of("run"))
        .env("XDG_CONFIG_HOME", of("config"))
        .env("XDG_DATA_HOME", of("data"))
        .env("XDG_CACHE_HOME", of("cache"))
        .stdin(Stdio::null());
    command
}
