//! Plan of a daemon, once arguments and file are read.

use std::path::{Path, PathBuf};

use forebay_engine::{Mode, Settings};
use forebay_io::DirectIo;
use forebay_model::ModelOptions;

use crate::args::ServeArgs;
use crate::device::image_format::OriginFormat;
use crate::device::network::uri;
use crate::device::same_device::Identity;
use crate::network::access::{Group, SocketAccess};
use crate::network::http::HttpPlan;
use crate::network::nbd::{Address, Tls};
use crate::profiles::Profile;
use crate::settings::{OnDegraded, OwnSettings};

pub(crate) const DEFAULT_MEMORY_BYTES: u64 = 256 << 20;
/// The least with which a thread can serve.
pub(crate) const LEAST_MEMORY_BYTES: u64 = 32 << 20;

/// Everything about one run of the daemon.
#[derive(Debug)]
pub(crate) struct Plan {
    pub(crate) cache: Option<CachePlan>,
    pub(crate) volumes: Vec<VolumePlan>,
    pub(crate) nbd: Vec<Address>,
    /// The program that hears of each event.
    pub(crate) hook: Option<PathBuf>,
    /// Access to the unix sockets among them.
    pub(crate) socket: SocketAccess,
    /// The group that may give the daemon commands.
    pub(crate) control_group: Option<Group>,
    /// Volumes are block devices.
    pub(crate) ublk: bool,
    pub(crate) tls: Tls,
    pub(crate) http: HttpPlan,
    /// The file with the token of those who read there.
    pub(crate) http_token: Option<PathBuf>,
    pub(crate) settings: Settings,
    /// Whose manner the settings are of.
    pub(crate) profile: Option<&'static Profile>,
    /// Notes for an administrator who gave settings of another cache.
    pub(crate) notes: Vec<String>,
    pub(crate) memory_bytes: u64,
    pub(crate) threads: Option<usize>,
    pub(crate) direct: DirectIo,
    pub(crate) state_dir: Option<PathBuf>,
    pub(crate) control: Option<PathBuf>,
    pub(crate) record: Option<PathBuf>,
    /// It is to be served from the initramfs on, as the root file system is on one of its volumes.
    pub(crate) initramfs: bool,
    /// Arguments for making the plan again, if it was made of a file.
    pub(crate) source: Option<Box<ServeArgs>>,
}

impl Plan {
    /// Where in memory the daemon has all it needs of files, if the root file system is on one of
    /// its volumes.
    pub(crate) fn root_storage(&self) -> Option<&Path> {
        self.source.as_ref()?.root_storage.as_deref()
    }

    /// A name for the cache among those of the machine: of its control socket, of its file, else of
    /// its device.
    pub(crate) fn cache_name(&self) -> String {
        let stem = |path: &Path| {
            path.file_stem()
                .map(|stem| stem.to_string_lossy().into_owned())
        };
        let control = self.control.as_deref().and_then(stem);
        let file = || stem(self.source.as_ref()?.config.as_deref()?);
        let device = || Some(name_of(self.cache.as_ref()?.devices.first()?));
        let volume = || Some(self.volumes.first()?.called());
        let name = control.or_else(file).or_else(device).or_else(volume);
        name.filter(|name| !name.is_empty())
            .unwrap_or_else(|| "cache".to_owned())
    }

    /// Faults of values that are out of range, from file and arguments alike.
    pub(super) fn out_of_range(&self) -> Vec<String> {
        let mut faults = Vec::new();
        faults.extend(self.settings.validate().err());
        faults.extend(self.hook.as_deref().and_then(fault_of_hook));
        if let Some(threads) = self.threads.filter(|threads| !(1..=256).contains(threads)) {
            faults.push(format!("--threads {threads} is not from 1 to 256"));
        }
        if self.memory_bytes < LEAST_MEMORY_BYTES || self.memory_bytes > 1 << 40 {
            faults.push(format!(
                "--memory {} is not from {} to 1 TiB",
                crate::units::size(self.memory_bytes),
                crate::units::size(LEAST_MEMORY_BYTES)
            ));
        }
        if self.nbd.is_empty() && !self.ublk {
            faults.push(
                "nothing is exported: make it a block device with --ublk ([ublk] enabled = true in a file), or give \
                 an address with --nbd unix:PATH or tcp:HOST:PORT ([nbd] listen = [\"unix:PATH\"])"
                    .to_owned(),
            );
        }
        faults
    }
}

/// Why a program cannot be the hook, if it cannot.
fn fault_of_hook(program: &Path) -> Option<String> {
    use std::os::unix::fs::PermissionsExt;
    let shown = program.display();
    if !program.is_absolute() {
        return Some(format!(
            "the hook {shown} is no absolute path: write it from `/` on"
        ));
    }
    let found = match std::fs::metadata(program) {
        Ok(found) => found,
        Err(error) => {
            let why = crate::failure::in_words(&error);
            return Some(format!("cannot find the hook {shown}: {why}"));
        }
    };
    if !found.is_file() || rustix::fs::access(program, rustix::fs::Access::EXEC_OK).is_err() {
        return Some(format!(
            "the hook {shown} is no program that can be run; is it executable (`chmod +x`)?"
        ));
    }
    if found.permissions().mode() & 0o002 != 0 {
        return Some(format!(
            "everybody can write to the hook {shown}, which this daemon would run: `chmod o-w` it"
        ));
    }
    None
}

/// The cache.
#[derive(Debug)]
pub(crate) struct CachePlan {
    /// Its devices, in any order.
    pub(crate) devices: Vec<PathBuf>,
    pub(crate) create: bool,
    pub(crate) emulate: Option<ModelOptions>,
    /// The number of devices that each dirty block is to be on, if it is given. It can change while
    /// the cache is served, so that it is not compared.
    pub(crate) copies: Option<u8>,
    /// Conduct while dirty data is to be on two devices and can be on one alone. As `copies`.
    pub(crate) on_degraded: OnDegraded,
    /// A device may be missing that nobody vouches for.
    pub(crate) without_missing: bool,
}

impl PartialEq for CachePlan {
    fn eq(&self, other: &CachePlan) -> bool {
        let sorted = |plan: &CachePlan| {
            let devices = plan.devices.iter();
            let mut devices: Vec<Identity> = devices.map(|path| Identity::of(path)).collect();
            devices.sort();
            devices
        };
        (self.create, &self.emulate) == (other.create, &other.emulate)
            && sorted(self) == sorted(other)
    }
}

/// A volume.
#[derive(Clone, Debug)]
pub(crate) struct VolumePlan {
    pub(crate) origin: PathBuf,
    pub(crate) name: Option<String>,
    pub(crate) mode: Option<Mode>,
    /// Settings of its own.
    pub(crate) own: OwnSettings,
    /// The format that its origin is said to have.
    pub(crate) format: Option<OriginFormat>,
    pub(crate) emulate: Option<ModelOptions>,
}

/// Name of a volume that is given none.
pub(super) fn name_of(origin: &Path) -> String {
    if let Some(name) = uri::volume_name(origin) {
        return name;
    }
    origin
        .file_name()
        .map(|name| name.to_string_lossy().into_owned())
        .unwrap_or_default()
}

impl VolumePlan {
    /// Its name, given or not.
    pub(crate) fn called(&self) -> String {
        self.name.clone().unwrap_or_else(|| name_of(&self.origin))
    }
}
