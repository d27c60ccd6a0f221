//! A database for guests: MariaDB's files with sysbench's tables in them, as an ext4 image. Made on
//! the host, where filling it takes a minute and not half an hour.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::Context as _;

use super::initramfs::{Tree, find};
use super::packages;
use crate::command::output;
use crate::lab::Lab;

const PACKAGES: &[&str] = &["mariadb-client-core", "mariadb-server-core", "sysbench"];

/// Tables, and rows in each: 260 MiB of data.
const TABLES: u32 = 4;
/// See [`TABLES`].
const ROWS: u32 = 250_000;
const IMAGE_MIB: u64 = 512;
const TIMEOUT: Duration = Duration::from_secs(120);

/// Folders that the guest needs beside programs.
const FOLDERS: &[&str] = &[
    "/usr/share/mysql/charsets",
    "/usr/share/mysql/english",
    "/usr/share/sysbench",
];

/// Makes the image the first time; returns where it is.
///
/// # Errors
/// If a package cannot be installed, or MariaDB or sysbench fails.
pub fn make(lab: &Lab) -> anyhow::Result<PathBuf> {
    packages::install(PACKAGES)?;
    let image = lab.root().join(format!("database-{TABLES}x{ROWS}.img"));
    if image.exists() {
        return Ok(image);
    }
    println!("lab: making a database of {TABLES} tables with {ROWS} rows each");
    let data = lab.root().join("database");
    if data.exists() {
        std::fs::remove_dir_all(&data)
            .with_context(|| format!("cannot remove {}", data.display()))?;
    }
    output(
        Command::new("mariadb-install-db")
            .args(["--no-defaults", "--user=root", "--skip-test-db"])
            .arg(format!("--datadir={}", data.display())),
    )?;
    let mut server = Server::start(&data)?;
    server.sql("create database sbtest")?;
    output(sysbench(&server.socket).arg("--threads=2").arg("prepare"))
        .context("sysbench cannot fill the tables")?;
    server.stop()?;
    let part = image.with_extension("part");
    let file =
        std::fs::File::create(&part).with_context(|| format!("cannot write {}", part.display()))?;
    file.set_len(IMAGE_MIB << 20)?;
    output(
        Command::new(find("mkfs.ext4")?)
            .args(["-q", "-F", "-E", "lazy_itable_init=0", "-d"])
            .arg(&data)
            .arg(&part),
    )?;
    std::fs::remove_dir_all(&data).with_context(|| format!("cannot remove {}", data.display()))?;
    std::fs::rename(&part, &image)?;
    Ok(image)
}

fn sysbench(socket: &Path) -> Command {
    let mut command = Command::new("sysbench");
    command
        .arg("/usr/share/sysbench/oltp_read_write.lua")
        .arg(format!("--mysql-socket={}", socket.display()))
        .arg("--mysql-user=root")
        .arg(format!("--tables={TABLES}"))
        .arg(format!("--table-size={ROWS}"));
    command
}

/// MariaDB on the host, reached by a socket in its own folder.
struct Server {
    child: Child,
    socket: PathBuf,
}

impl Server {
    fn start(data: &Path) -> anyhow::Result<Server> {
        let socket = data.join("socket");
        let child = Command::new(find("mariadbd")?)
            .args([
                "--no-defaults",
                "--user=root",
                "--skip-networking",
                "--skip-grant-tables",
                "--innodb-flush-log-at-trx-commit=0",
                "--innodb-buffer-pool-size=1G",
            ])
            .arg(format!("--datadir={}", data.display()))
            .arg(format!("--socket={}", socket.display()))
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .context("cannot start mariadbd")?;
        let mut server = Server { child, socket };
        let began = Instant::now();
        while server.sql("select 1").is_err() {
            if let Some(status) = server.child.try_wait()? {
                anyhow::bail!(
                    "mariadbd ended ({status}); its log is in {}",
                    data.display()
                );
            }
            anyhow::ensure!(began.elapsed() < TIMEOUT, "mariadbd does not answer");
            std::thread::sleep(Duration::from_millis(100));
        }
        Ok(server)
    }

    fn sql(&self, statement: &str) -> anyhow::Result<()> {
        let mut command = Command::new("mariadb");
        command.args(["--no-defaults", "-u", "root", "-e", statement, "-S"]);
        output(command.arg(&self.socket)).map(drop)
    }

    fn stop(&mut self) -> anyhow::Result<()> {
        self.sql("shutdown")?;
        let status = self.child.wait()?;
        anyhow::ensure!(status.success(), "mariadbd ended badly ({status})");
        Ok(())
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // After an error; a server that has ended is not there to be killed.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The programs and what they read.
pub(super) fn add<W: std::io::Write>(tree: &mut Tree<W>) -> anyhow::Result<()> {
    for program in ["mariadb", "mariadbd", "sysbench"] {
        tree.program(&find(program)?, &format!("/usr/bin/{program}"))?;
    }
    for folder in FOLDERS {
        let entries = std::fs::read_dir(folder).with_context(|| format!("cannot read {folder}"))?;
        for entry in entries {
            let path = entry?.path();
            if path.is_file() {
                tree.copy(&path, &path.to_string_lossy())?;
            }
        }
    }
    Ok(())
}
