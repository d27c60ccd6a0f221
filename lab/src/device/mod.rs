//! Virtual devices: storage behind NBD that answers when the timing model of a real device would.

mod image;
mod serve;

use std::os::unix::net::{UnixDatagram, UnixListener};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread::JoinHandle;

use anyhow::Context as _;
use forebay_model::{DiskParameters, ModelOptions, SsdParameters};
use serde::{Deserialize, Serialize};

pub use image::Image;

use crate::clock::Clock;
use serve::Server;

/// A virtual device, as an experiment wants it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct DeviceSpec {
    /// Its serial number in the guest, by which scripts find it.
    pub name: String,
    /// Its size, in bytes.
    pub size_bytes: u64,
    /// The timing model and its settings, as [`ModelOptions::parse`] reads them.
    pub model: String,
    /// Whether a power cut may undo writes that were not flushed; remembering how costs time.
    pub forgets: bool,
}

/// Traffic of a device from the guest's boot on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Traffic {
    /// Read commands.
    pub reads: u64,
    /// Write commands.
    pub writes: u64,
    /// Flushes.
    pub flushes: u64,
    /// Discards and write-zeroes.
    pub discards: u64,
    /// Bytes read.
    pub read_bytes: u64,
    /// Bytes written.
    pub written_bytes: u64,
    /// Guest time between the end that the model gave a command and its answer, of all commands, in
    /// nanoseconds.
    #[serde(default)]
    pub late_ns: u64,
}

impl Traffic {
    /// Adds that of another life.
    pub fn add(&mut self, other: &Traffic) {
        self.reads += other.reads;
        self.writes += other.writes;
        self.flushes += other.flushes;
        self.discards += other.discards;
        self.read_bytes += other.read_bytes;
        self.written_bytes += other.written_bytes;
        self.late_ns += other.late_ns;
    }

    /// Time by which a command was answered late, on average, in nanoseconds of guest time.
    #[must_use]
    pub fn mean_late_ns(&self) -> f64 {
        let commands = self.reads + self.writes + self.flushes + self.discards;
        self.late_ns as f64 / commands.max(1) as f64
    }
}

/// A device whose guest is running.
#[derive(Debug)]
pub struct Running {
    name: String,
    thread: JoinHandle<anyhow::Result<(Image, Traffic)>>,
}

/// Bytes of a drive's contents that a power cut may take back.
const VOLATILE_BYTES: u64 = 64 << 20;

impl DeviceSpec {
    /// Where its contents are.
    #[must_use]
    pub fn image_path(&self, images: &Path) -> PathBuf {
        images.join(format!("{}.img", self.name))
    }

    /// Where QEMU connects.
    #[must_use]
    pub fn socket_path(&self, directory: &Path) -> PathBuf {
        directory.join(format!("{}.sock", self.name))
    }

    /// All parameters of its timing model.
    #[must_use]
    pub fn parameters(&self) -> String {
        let size_bytes = self.size_bytes;
        match ModelOptions::parse(&self.model) {
            Ok(ModelOptions::Disk(parameters)) => {
                format!(
                    "{:?}",
                    DiskParameters {
                        size_bytes,
                        ..parameters
                    }
                )
            }
            Ok(ModelOptions::Ssd(parameters)) => {
                format!(
                    "{:?}",
                    SsdParameters {
                        size_bytes,
                        ..parameters
                    }
                )
            }
            Err(error) => error.to_string(),
        }
    }

    /// Starts serving; ends when the guest closes the connection.
    ///
    /// # Errors
    /// If the image, the sockets or the thread cannot be had.
    pub fn start(&self, index: usize, images: &Path, clock: Arc<Clock>) -> anyhow::Result<Running> {
        let options = ModelOptions::parse(&self.model)
            .with_context(|| format!("the model of device {} is not understood", self.name))?;
        let path = self.image_path(images);
        let volatile = self.forgets.then_some(VOLATILE_BYTES);
        let image = Image::open(&path, self.size_bytes, volatile)
            .with_context(|| format!("cannot open the image {}", path.display()))?;
        let socket = self.socket_path(clock.directory());
        let listener = UnixListener::bind(&socket)
            .with_context(|| format!("cannot listen on {}", socket.display()))?;
        let wake_path = clock.wake_path(index);
        let wakes = UnixDatagram::bind(&wake_path)
            .with_context(|| format!("cannot listen on {}", wake_path.display()))?;
        let model = options.build(self.size_bytes);
        let server = Server::new(index, model, image, clock, wakes);
        let thread = std::thread::Builder::new()
            .name(format!("device-{}", self.name))
            .spawn(move || server.run(&listener))
            .with_context(|| format!("cannot start the thread of device {}", self.name))?;
        Ok(Running {
            name: self.name.clone(),
            thread,
        })
    }
}

impl Running {
    /// Waits until the guest has gone; says what it did. With a seed the power failed.
    ///
    /// # Errors
    /// If the device failed, or its image could not be written.
    pub fn finish(self, power_cut: Option<u64>) -> anyhow::Result<Traffic> {
        let name = self.name;
        let Ok(outcome) = self.thread.join() else {
            anyhow::bail!("the virtual device {name} panicked; its message is above");
        };
        let (mut image, traffic) =
            outcome.with_context(|| format!("the virtual device {name} failed"))?;
        if let Some(seed) = power_cut {
            image
                .cut_power(seed)
                .with_context(|| format!("cannot cut the power of {name}"))?;
        }
        Ok(traffic)
    }
}
