//! What `serve` is to do, from arguments or from a TOML file.

mod claims;
mod difference;
mod faults;
mod file;
mod http;
mod keys;
mod of_file;
mod profile;

use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use forebay_engine::{Mode, Settings};
use forebay_frontend::nbd::TlsServer;
use forebay_io::DirectIo;
use forebay_model::ModelOptions;

use crate::args::{Direct, ServeArgs, SettingArgs};
use crate::daemon::{Address, Tls};
use crate::failure::Usage;
use crate::profiles::Profile;
use crate::root_storage;
use crate::units::{Age, Budget, Cutoff, Limit};

const DEFAULT_MEMORY_BYTES: u64 = 256 << 20;
/// The least with which a thread can serve.
pub(crate) const LEAST_MEMORY_BYTES: u64 = 32 << 20;

pub(crate) use claims::{Claim, ClaimKind, conflicts};
pub(crate) use http::HttpPlan;
pub(crate) use keys::{KEYS, Key, change_setting};

/// Where the configuration files of services are, one per cache.
const DIRECTORY: &str = "/etc/forebay";

/// The files that are given, or else those of all services.
pub(crate) fn files_or_installed(given: &[PathBuf]) -> Result<Vec<PathBuf>> {
    let directory = Path::new(DIRECTORY);
    if !given.is_empty() {
        Ok(given.to_vec())
    } else if directory.exists() {
        files_in(directory)
    } else {
        Ok(Vec::new())
    }
}

/// The configuration files in a directory, in order of their names.
pub(crate) fn files_in(directory: &Path) -> Result<Vec<PathBuf>> {
    let entries = std::fs::read_dir(directory)
        .with_context(|| format!("cannot list {}", directory.display()))?;
    let mut files: Vec<PathBuf> = entries
        .flatten()
        .map(|entry| entry.path())
        .filter(|path| path.extension().is_some_and(|end| end == "toml"))
        .collect();
    files.sort();
    Ok(files)
}

/// Everything about one run of the daemon.
#[derive(Debug)]
pub(crate) struct Plan {
    pub(crate) cache: Option<CachePlan>,
    pub(crate) volumes: Vec<VolumePlan>,
    pub(crate) nbd: Vec<Address>,
    /// Volumes are block devices.
    pub(crate) ublk: bool,
    pub(crate) tls: Tls,
    pub(crate) http: HttpPlan,
    pub(crate) settings: Settings,
    /// Whose manner the settings are of.
    pub(crate) profile: Option<&'static Profile>,
    /// What an administrator should know who gave settings of another cache.
    pub(crate) notes: Vec<String>,
    pub(crate) memory_bytes: u64,
    pub(crate) threads: Option<usize>,
    pub(crate) direct: DirectIo,
    pub(crate) state_dir: Option<PathBuf>,
    pub(crate) control: Option<PathBuf>,
    pub(crate) record: Option<PathBuf>,
    /// It is to be served from the initramfs on, as the root file system is on one of its volumes.
    pub(crate) initramfs: bool,
    /// What to make it of again, if it was made of a file.
    pub(crate) source: Option<Box<ServeArgs>>,
}

impl Plan {
    /// Where in memory the daemon has all it needs of files, if the root file system is on one of
    /// its volumes.
    pub(crate) fn root_storage(&self) -> Option<&Path> {
        self.source.as_ref()?.root_storage.as_deref()
    }
}

/// The cache.
#[derive(Debug)]
pub(crate) struct CachePlan {
    /// Its devices, in any order.
    pub(crate) devices: Vec<PathBuf>,
    pub(crate) create: bool,
    pub(crate) emulate: Option<ModelOptions>,
}

impl PartialEq for CachePlan {
    fn eq(&self, other: &CachePlan) -> bool {
        let sorted = |plan: &CachePlan| {
            let mut devices = plan.devices.clone();
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
    pub(crate) emulate: Option<ModelOptions>,
}

/// The plan for these arguments.
pub(crate) fn plan(args: ServeArgs) -> Result<Plan> {
    let file = args.config.clone();
    plan_of(args, file.as_deref())
}

/// The same, for a daemon that may not read what is on its own volumes yet.
pub(crate) fn plan_at_start(args: ServeArgs) -> Result<Plan> {
    let copy = args
        .root_storage
        .as_deref()
        .map(root_storage::configuration);
    let file = copy.or_else(|| args.config.clone());
    plan_of(args, file.as_deref())
}

/// `file` holds what `args.config` says.
fn plan_of(args: ServeArgs, file: Option<&Path>) -> Result<Plan> {
    let plan = match (&args.config, file) {
        (Some(path), Some(file)) => {
            let text = std::fs::read_to_string(file)
                .with_context(|| format!("cannot read {}", file.display()))?;
            of_file::plan(path, &text, &args)?.0
        }
        _ => plan_of_args(args)?,
    };
    match limits(&plan).into_iter().next() {
        Some(fault) => Err(Usage(fault).into()),
        None => Ok(plan),
    }
}

/// What a configuration file asks for and claims for itself, without any arguments.
pub(crate) fn examine_file(path: &Path) -> Result<(Plan, Vec<Claim>)> {
    let text =
        std::fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))?;
    of_file::plan(path, &text, &ServeArgs::of_file(path.to_owned()))
}

/// What several files claim, each for itself. What is wrong with one alone is not said.
pub(crate) fn faults_between(files: &[PathBuf]) -> Vec<String> {
    let examined = files.iter().filter_map(|file| examine_file(file).ok());
    conflicts(&examined.flat_map(|(_, claims)| claims).collect::<Vec<_>>())
}

/// What of a plan is out of range, whoever says it.
fn limits(plan: &Plan) -> Vec<String> {
    let mut faults = Vec::new();
    faults.extend(plan.settings.validate().err());
    if let Some(threads) = plan.threads.filter(|threads| !(1..=256).contains(threads)) {
        faults.push(format!("--threads {threads} is not from 1 to 256"));
    }
    if plan.memory_bytes < LEAST_MEMORY_BYTES || plan.memory_bytes > 1 << 40 {
        faults.push(format!(
            "--memory {} is not from {} to 1 TiB",
            crate::units::size(plan.memory_bytes),
            crate::units::size(LEAST_MEMORY_BYTES)
        ));
    }
    if plan.nbd.is_empty() && !plan.ublk {
        faults.push(
            "nothing is exported: make it a block device with --ublk ([ublk] enabled = true in a file), or give \
             an address with --nbd unix:PATH or tcp:HOST:PORT ([nbd] listen = [\"unix:PATH\"])"
                .to_owned(),
        );
    }
    faults
}

fn plan_of_args(args: ServeArgs) -> Result<Plan> {
    let emulate = |text: Option<&String>| text.map(|text| model(text)).transpose();
    let Some(origin) = args.origin else {
        return Err(Usage("no origin device is given: name it with --origin".to_owned()).into());
    };
    let chosen = profile::of_args(&args.profile).map_err(|fault| Usage(fault.message))?;
    if chosen.profile.is_some() && args.cache.is_empty() {
        return Err(Usage("a profile needs a cache: --cache SSD".to_owned()).into());
    }
    let volume = VolumePlan {
        origin,
        name: args.name,
        mode: args.mode.or(chosen.mode),
        emulate: emulate(args.origin_emulate.as_ref())?,
    };
    let cache_emulation = emulate(args.cache_emulate.as_ref())?;
    let cache = (!args.cache.is_empty()).then(|| CachePlan {
        devices: args.cache.clone(),
        create: args.create,
        emulate: cache_emulation,
    });
    Ok(Plan {
        cache,
        volumes: vec![volume],
        nbd: args
            .nbd
            .iter()
            .map(|text| text.parse())
            .collect::<Result<_, Usage>>()?,
        ublk: args.ublk,
        tls: tls(
            args.tls_cert.as_deref(),
            args.tls_key.as_deref(),
            args.tls_ca.as_deref(),
            args.insecure,
        )?,
        settings: settings_over(chosen.settings, &args.settings),
        profile: chosen.profile,
        notes: chosen.notes,
        http: args.http.unwrap_or_default().permitted(args.insecure)?,
        memory_bytes: args.memory.unwrap_or(DEFAULT_MEMORY_BYTES),
        threads: args.threads,
        direct: direct(args.devices.direct),
        state_dir: args.devices.state_dir,
        control: args.control,
        record: args.record,
        initramfs: false,
        source: None,
    })
}

pub(crate) fn direct(wanted: Direct) -> DirectIo {
    match wanted {
        Direct::Required => DirectIo::Required,
        Direct::IfPossible => DirectIo::IfPossible,
    }
}

pub(crate) fn model(text: &str) -> Result<ModelOptions> {
    ModelOptions::parse(text).map_err(|error| Usage(error.to_string()).into())
}

/// The settings that arguments make of the defaults.
pub(crate) fn settings(args: &SettingArgs) -> Settings {
    settings_over(Settings::default(), args)
}

/// The settings that arguments make of others.
fn settings_over(mut settings: Settings, args: &SettingArgs) -> Settings {
    settings.commit = args.commit.unwrap_or(settings.commit);
    settings.read_admission = args.admission.unwrap_or(settings.read_admission);
    settings.write_admission = args.write_admission.unwrap_or(settings.write_admission);
    if let Some(Limit(time)) = args.congestion_read {
        settings.congestion_read = time;
    }
    if let Some(Limit(time)) = args.congestion_write {
        settings.congestion_write = time;
    }
    if let Some(Budget(bytes)) = args.write_budget {
        settings.write_budget_bytes_per_day = bytes;
    }
    if let Some(Cutoff(bytes)) = args.sequential_cutoff {
        settings.sequential_cutoff_bytes = bytes;
    }
    settings.memory_buffer_bytes = args.memory_buffer.unwrap_or(settings.memory_buffer_bytes);
    settings.replacement = args.replacement.unwrap_or(settings.replacement);
    settings.retain_percent = args.retain.unwrap_or(settings.retain_percent);
    settings.writeback_policy = args.writeback.unwrap_or(settings.writeback_policy);
    settings.dirty_low_percent = args.dirty_low.unwrap_or(settings.dirty_low_percent);
    settings.dirty_high_percent = args.dirty_high.unwrap_or(settings.dirty_high_percent);
    settings.dirty_limit_percent = args.dirty_limit.unwrap_or(settings.dirty_limit_percent);
    settings.age_limit = args.age.map_or(settings.age_limit, |Age(age)| age);
    settings
}

fn tls(
    cert: Option<&Path>,
    key: Option<&Path>,
    authority: Option<&Path>,
    insecure: bool,
) -> Result<Tls> {
    let read = |path: &Path| {
        std::fs::read(path).with_context(|| format!("cannot read {}", path.display()))
    };
    let server = match (cert, key) {
        (Some(cert), Some(key)) => {
            let authority = authority.map(read).transpose()?;
            Some(TlsServer::from_pem(
                &read(cert)?,
                &read(key)?,
                authority.as_deref(),
            )?)
        }
        (None, None) => None,
        _ => {
            return Err(Usage(
                "TLS needs both a certificate and its key: --tls-cert and --tls-key".to_owned(),
            )
            .into());
        }
    };
    Ok(Tls { server, insecure })
}

/// What a volume is called that is given no name.
fn name_of(origin: &Path) -> String {
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
