//! What `serve` is to do, from arguments or from a TOML file.

mod claims;
mod difference;
mod faults;
mod http;
mod profile;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use anyhow::{Context, Result};
use forebay_engine::{Admission, Commit, Mode, Nanos, Settings, WritebackPolicy};
use forebay_frontend::nbd::TlsServer;
use forebay_io::DirectIo;
use forebay_model::ModelOptions;
use serde::{Deserialize, Deserializer};
use toml::Spanned;

use crate::args::{Direct, ServeArgs, SettingArgs};
use crate::daemon::{Address, Tls};
use crate::failure::Usage;
use crate::profiles::Profile;
use crate::units::{Cutoff, Limit, parse_size};

const DEFAULT_MEMORY_BYTES: u64 = 256 << 20;
/// The least with which a thread can serve.
pub(crate) const LEAST_MEMORY_BYTES: u64 = 32 << 20;

pub(crate) use claims::{Claim, ClaimKind, conflicts};
pub(crate) use http::HttpPlan;

/// Where the configuration files of services are, one per cache.
const DIRECTORY: &str = "/etc/forebay";

/// The configuration files of all services, in order of their names.
pub(crate) fn installed_files() -> Result<Vec<PathBuf>> {
    let entries = match std::fs::read_dir(DIRECTORY) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(Vec::new()),
        entries => entries.with_context(|| format!("cannot list {DIRECTORY}"))?,
    };
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
    /// What to make it of again, if it was made of a file.
    pub(crate) source: Option<Box<ServeArgs>>,
}

/// The cache device.
#[derive(Debug, PartialEq)]
pub(crate) struct CachePlan {
    pub(crate) device: PathBuf,
    pub(crate) create: bool,
    pub(crate) emulate: Option<ModelOptions>,
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
    let plan = match &args.config {
        Some(path) => {
            let text = std::fs::read_to_string(path)
                .with_context(|| format!("cannot read {}", path.display()))?;
            plan_of_file(path, &text, &args)?.0
        }
        None => plan_of_args(args)?,
    };
    check_limits(&plan)?;
    Ok(plan)
}

/// What a configuration file asks for and claims for itself, without any arguments.
pub(crate) fn examine_file(path: &Path) -> Result<(Plan, Vec<Claim>)> {
    let text =
        std::fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))?;
    let (plan, claims) = plan_of_file(path, &text, &ServeArgs::of_file(path.to_owned()))?;
    check_limits(&plan).with_context(|| path.display().to_string())?;
    Ok((plan, claims))
}

fn check_limits(plan: &Plan) -> Result<()> {
    let usage = |message: String| Err(Usage(message).into());
    if let Err(message) = plan.settings.validate() {
        return usage(message);
    }
    if plan.threads == Some(0) || plan.threads.is_some_and(|threads| threads > 256) {
        return usage("the number of threads is not from 1 to 256".to_owned());
    }
    if plan.memory_bytes < LEAST_MEMORY_BYTES || plan.memory_bytes > 1 << 40 {
        return usage(format!(
            "--memory {} is not from {} to 1 TiB",
            crate::units::size(plan.memory_bytes),
            crate::units::size(LEAST_MEMORY_BYTES)
        ));
    }
    if plan.nbd.is_empty() && !plan.ublk {
        return usage(
            "nothing is exported: make it a block device with --ublk, or give an address with \
             --nbd unix:PATH or tcp:HOST:PORT"
                .to_owned(),
        );
    }
    Ok(())
}

fn plan_of_args(args: ServeArgs) -> Result<Plan> {
    let emulate = |text: Option<&String>| text.map(|text| model(text)).transpose();
    let Some(origin) = args.origin else {
        return Err(Usage("no origin device is given".to_owned()).into());
    };
    let chosen = profile::of_args(&args.profile).map_err(|fault| Usage(fault.message))?;
    if chosen.profile.is_some() && args.cache.is_none() {
        return Err(Usage("a profile needs a cache: --cache SSD".to_owned()).into());
    }
    let volume = VolumePlan {
        origin,
        name: args.name,
        mode: args.mode.or(chosen.mode),
        emulate: emulate(args.origin_emulate.as_ref())?,
    };
    let cache_emulation = emulate(args.cache_emulate.as_ref())?;
    let cache = args.cache.map(|device| CachePlan {
        device,
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
    if let Some(Cutoff(bytes)) = args.write_budget {
        settings.write_budget_bytes_per_day = bytes;
    }
    if let Some(Cutoff(bytes)) = args.sequential_cutoff {
        settings.sequential_cutoff_bytes = bytes;
    }
    settings.memory_buffer_bytes = args.memory_buffer.unwrap_or(settings.memory_buffer_bytes);
    settings.writeback_policy = args.writeback.unwrap_or(settings.writeback_policy);
    settings.dirty_low_percent = args.dirty_low.unwrap_or(settings.dirty_low_percent);
    settings.dirty_high_percent = args.dirty_high.unwrap_or(settings.dirty_high_percent);
    settings.dirty_limit_percent = args.dirty_limit.unwrap_or(settings.dirty_limit_percent);
    if let Some(seconds) = args.age {
        settings.age_limit = Nanos(seconds.saturating_mul(Nanos::SECOND.0));
    }
    settings
}

/// Changes one setting by name; all that can change while the cache runs.
pub(crate) fn change_setting(
    settings: &mut Settings,
    key: &str,
    value: &str,
) -> Result<(), String> {
    let percent = || {
        value
            .trim_end_matches('%')
            .parse::<u8>()
            .map_err(|_| format!("`{value}` is not a percentage"))
    };
    match key {
        "commit" => settings.commit = value.parse()?,
        "admission" => settings.read_admission = value.parse()?,
        "write-admission" => settings.write_admission = value.parse()?,
        "congestion-read" => settings.congestion_read = value.parse::<Limit>()?.0,
        "congestion-write" => settings.congestion_write = value.parse::<Limit>()?.0,
        "write-budget" => settings.write_budget_bytes_per_day = value.parse::<Cutoff>()?.0,
        "sequential-cutoff" => settings.sequential_cutoff_bytes = value.parse::<Cutoff>()?.0,
        "memory-buffer" => settings.memory_buffer_bytes = value.parse::<Size>()?.0,
        "writeback" => settings.writeback_policy = value.parse()?,
        "dirty-low" => settings.dirty_low_percent = percent()?,
        "dirty-high" => settings.dirty_high_percent = percent()?,
        "dirty-limit" => settings.dirty_limit_percent = percent()?,
        "age" => {
            let seconds: u64 = value
                .parse()
                .map_err(|_| format!("`{value}` is not a number of seconds"))?;
            settings.age_limit = Nanos(seconds.saturating_mul(Nanos::SECOND.0));
        }
        _ => {
            return Err(format!(
                "there is no setting `{key}`: known are commit, admission, write-admission, \
                 congestion-read, congestion-write, write-budget, sequential-cutoff, memory-buffer, writeback, dirty-low, \
                 dirty-high, dirty-limit, age"
            ));
        }
    }
    settings.validate()
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
        _ => return Err(Usage("TLS needs both a certificate and its key".to_owned()).into()),
    };
    Ok(Tls { server, insecure })
}

/// A value written as a string.
#[derive(Clone, Debug)]
struct Text<T>(T);

impl<'de, T> Deserialize<'de> for Text<T>
where
    T: FromStr,
    T::Err: std::fmt::Display,
{
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let text = String::deserialize(from)?;
        text.parse().map(Text).map_err(serde::de::Error::custom)
    }
}

#[derive(Clone, Debug)]
struct Model(ModelOptions);

impl FromStr for Model {
    type Err = String;

    fn from_str(text: &str) -> Result<Model, String> {
        ModelOptions::parse(text)
            .map(Model)
            .map_err(|error| error.to_string())
    }
}

#[derive(Clone, Copy, Debug)]
struct Size(u64);

impl FromStr for Size {
    type Err = String;

    fn from_str(text: &str) -> Result<Size, String> {
        parse_size(text).map(Size)
    }
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
struct File {
    cache: Option<FileCache>,
    #[serde(default)]
    nbd: FileNbd,
    #[serde(default)]
    ublk: FileUblk,
    profile: Option<profile::FileProfile>,
    #[serde(default)]
    http: FileHttp,
    #[serde(default)]
    settings: FileSettings,
    #[serde(default)]
    daemon: FileDaemon,
    volume: Vec<FileVolume>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
struct FileCache {
    device: Spanned<PathBuf>,
    #[serde(default)]
    create: bool,
    emulate: Option<Text<Model>>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
struct FileUblk {
    enabled: bool,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
struct FileNbd {
    #[serde(default)]
    listen: Vec<Spanned<Text<Address>>>,
    tls_cert: Option<PathBuf>,
    tls_key: Option<PathBuf>,
    tls_ca: Option<PathBuf>,
    #[serde(default)]
    insecure: bool,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
struct FileHttp {
    listen: Option<Spanned<Text<HttpPlan>>>,
    #[serde(default)]
    insecure: bool,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
struct FileSettings {
    commit: Option<Text<Commit>>,
    admission: Option<Text<Admission>>,
    write_admission: Option<Text<Admission>>,
    congestion_read: Option<Text<Limit>>,
    congestion_write: Option<Text<Limit>>,
    write_budget: Option<Text<Cutoff>>,
    sequential_cutoff: Option<Text<Cutoff>>,
    memory_buffer: Option<Text<Size>>,
    writeback: Option<Text<WritebackPolicy>>,
    dirty_low: Option<Spanned<u8>>,
    dirty_high: Option<Spanned<u8>>,
    dirty_limit: Option<Spanned<u8>>,
    age: Option<u64>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
struct FileDaemon {
    memory: Option<Text<Size>>,
    threads: Option<usize>,
    control: Option<Spanned<PathBuf>>,
    state_dir: Option<PathBuf>,
    record: Option<PathBuf>,
    #[serde(default)]
    direct_required: bool,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
struct FileVolume {
    origin: Spanned<PathBuf>,
    name: Option<Spanned<String>>,
    mode: Option<Spanned<Text<Mode>>>,
    emulate: Option<Text<Model>>,
}

impl FileVolume {
    /// Its name, and where that is said.
    fn called(&self) -> (String, std::ops::Range<usize>) {
        if let Some(name) = &self.name {
            return (name.get_ref().clone(), name.span());
        }
        (name_of(self.origin.get_ref()), self.origin.span())
    }
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

fn plan_of_file(path: &Path, text: &str, args: &ServeArgs) -> Result<(Plan, Vec<Claim>)> {
    let wrong = |message: String| Usage(format!("{}: {message}", path.display()));
    let file: File = toml::from_str(text).map_err(|error| wrong(faults::describe(text, &error)))?;
    let line = |span: std::ops::Range<usize>| text[..span.start].matches('\n').count() + 1;
    let at = |span, message: String| wrong(format!("line {}: {message}", line(span)));
    check_names(&file, at)?;
    let claims = claims::of_file(path, text, &file);
    if let Some(conflict) = conflicts(&claims).into_iter().next() {
        return Err(Usage(conflict).into());
    }
    let mode = file.volume.iter().find_map(|volume| volume.mode.as_ref());
    if let (None, Some(mode)) = (&file.cache, mode) {
        return Err(at(mode.span(), "a mode needs a [cache]".to_owned()).into());
    }
    let percent = |value: &Option<Spanned<u8>>| value.as_ref().map(|value| *value.get_ref());
    let given = SettingArgs {
        commit: file.settings.commit.map(|text| text.0),
        admission: file.settings.admission.map(|text| text.0),
        write_admission: file.settings.write_admission.map(|text| text.0),
        congestion_read: file.settings.congestion_read.map(|text| text.0),
        congestion_write: file.settings.congestion_write.map(|text| text.0),
        write_budget: file.settings.write_budget.map(|text| text.0),
        sequential_cutoff: file.settings.sequential_cutoff.map(|text| text.0),
        memory_buffer: file.settings.memory_buffer.map(|text| text.0.0),
        writeback: file.settings.writeback.map(|text| text.0),
        dirty_low: percent(&file.settings.dirty_low),
        dirty_high: percent(&file.settings.dirty_high),
        dirty_limit: percent(&file.settings.dirty_limit),
        age: file.settings.age,
    };
    let chosen = profile::of_file(&args.profile, file.profile.as_ref(), &|byte| {
        faults::line_number(text, byte)
    });
    let chosen = chosen.map_err(|fault| match fault.line {
        Some(line) => wrong(format!("line {line}: {}", fault.message)),
        None => Usage(fault.message),
    })?;
    if chosen.profile.is_some() && file.cache.is_none() {
        return Err(wrong("a profile needs a [cache]".to_owned()).into());
    }
    let of_file = settings_over(chosen.settings, &given);
    let settings = settings_over(of_file, &args.settings);
    if let Err(message) = settings.validate() {
        let limits = [
            &file.settings.dirty_limit,
            &file.settings.dirty_high,
            &file.settings.dirty_low,
        ];
        let span = limits.into_iter().flatten().next().map(Spanned::span);
        return Err(span
            .map_or_else(|| wrong(message.clone()), |span| at(span, message.clone()))
            .into());
    }
    let volume = |volume: FileVolume| VolumePlan {
        origin: volume.origin.into_inner(),
        name: volume.name.map(Spanned::into_inner),
        mode: volume.mode.map(|mode| mode.into_inner().0).or(chosen.mode),
        emulate: volume.emulate.map(|model| model.0.0),
    };
    let cache = |cache: FileCache| CachePlan {
        device: cache.device.into_inner(),
        create: cache.create,
        emulate: cache.emulate.map(|model| model.0.0),
    };
    let http = match (&args.http, &file.http.listen) {
        (Some(given), _) => given.clone().permitted(args.insecure)?,
        (None, None) => HttpPlan::default(),
        (None, Some(listen)) => listen
            .get_ref()
            .0
            .clone()
            .permitted(file.http.insecure)
            .map_err(|error| at(listen.span(), error.0))?,
    };
    let nbd = &file.nbd;
    let plan = Plan {
        tls: tls(
            nbd.tls_cert.as_deref(),
            nbd.tls_key.as_deref(),
            nbd.tls_ca.as_deref(),
            nbd.insecure,
        )?,
        nbd: file
            .nbd
            .listen
            .into_iter()
            .map(|text| text.into_inner().0)
            .collect(),
        ublk: args.ublk || file.ublk.enabled,
        cache: file.cache.map(cache),
        volumes: file.volume.into_iter().map(volume).collect(),
        http,
        settings,
        profile: chosen.profile,
        notes: chosen
            .notes
            .iter()
            .map(|note| format!("{}: {note}", path.display()))
            .collect(),
        memory_bytes: args
            .memory
            .or(file.daemon.memory.map(|size| size.0.0))
            .unwrap_or(DEFAULT_MEMORY_BYTES),
        threads: args.threads.or(file.daemon.threads),
        direct: if file.daemon.direct_required {
            DirectIo::Required
        } else {
            direct(args.devices.direct)
        },
        state_dir: args.devices.state_dir.clone().or(file.daemon.state_dir),
        control: args
            .control
            .clone()
            .or(file.daemon.control.map(Spanned::into_inner)),
        record: args.record.clone().or(file.daemon.record),
        source: Some(Box::new(args.clone())),
    };
    Ok((plan, claims))
}

fn check_names(
    file: &File,
    at: impl Fn(std::ops::Range<usize>, String) -> Usage,
) -> Result<(), Usage> {
    let mut names = BTreeMap::new();
    for volume in &file.volume {
        let (name, span) = volume.called();
        if names.insert(name.clone(), ()).is_some() {
            return Err(at(
                span,
                format!("two volumes are called `{name}`; give one another name"),
            ));
        }
    }
    Ok(())
}
