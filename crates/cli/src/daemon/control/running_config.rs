//! The state of a running daemon as a configuration file that serves the same again.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use forebay_engine::{Mode, Settings};
use serde_json::{Value, json};
use toml::Table;

use crate::config::{DEFAULT_MEMORY_BYTES, Plan};
use crate::daemon::state::{Admin, Daemon};
use crate::device::attach;
use crate::device::image_format::OriginFormat;
use crate::lock::lock;
use crate::network::http::HttpPlan;
use crate::network::nbd::Address;
use crate::settings::{self, ON_DEGRADED, OnDegraded, OwnSettings};
use crate::units;

impl Daemon {
    /// The configuration that serves the present volumes, devices and settings, as text and as
    /// JSON.
    pub(super) fn running_config(&self) -> Result<Value> {
        // In the order in which reload takes the two locks.
        let plan = lock(&self.plan);
        let admin = self.admin();
        let table = table(&plan, &admin)?;
        let notes = notes(&plan);
        let body = toml::to_string(&table).context("the configuration cannot be put into TOML")?;
        let comments: String = notes.iter().map(|note| format!("# {note}\n")).collect();
        Ok(json!({
            "configuration": table,
            "notes": notes,
            "toml": format!("{comments}{body}"),
        }))
    }
}

/// Parts of the daemon that the file does not say, or says otherwise.
fn notes(plan: &Plan) -> Vec<String> {
    let mut notes = Vec::new();
    if let Some(profile) = plan.profile {
        notes.push(format!(
            "Settings of the profile {} are spelled out in [settings].",
            profile.name
        ));
    }
    let cache = plan.cache.as_ref().and_then(|cache| cache.emulate.as_ref());
    let mut volumes = plan.volumes.iter();
    if cache.is_some() || volumes.any(|volume| volume.emulate.is_some()) {
        notes.push("The timing of emulated devices is left out.".to_owned());
    }
    if plan.record.is_some() {
        notes.push("The recording for tests is left out.".to_owned());
    }
    notes
}

fn table(plan: &Plan, admin: &Admin) -> Result<Table> {
    let mut sections = Table::new();
    if let Some(cache) = &admin.cache {
        let devices = cache.storage.devices();
        let paths = devices.map(|(_, storage)| path_text(storage.device().path()));
        let mut paths = paths.collect::<Result<Vec<_>>>()?;
        let device = match paths.len() {
            1 => paths.remove(0).into(),
            _ => paths.into(),
        };
        let copies = cache.superblock().copies;
        let copies = (copies > 1).then(|| i64::from(copies).into());
        let on_degraded = cache.on_degraded;
        let is_default = on_degraded == OnDegraded::default();
        let keys = section([
            ("device", Some(device)),
            ("copies", copies),
            (
                ON_DEGRADED,
                (!is_default).then(|| on_degraded.name().into()),
            ),
        ]);
        sections.insert("cache".to_owned(), keys);
    }
    put(&mut sections, "nbd", nbd(plan)?);
    let enabled = plan.ublk.then(|| true.into());
    put(&mut sections, "ublk", section([("enabled", enabled)]));
    put(&mut sections, "http", http(plan)?);
    put(&mut sections, "settings", changed_settings(&admin.settings));
    put(&mut sections, "daemon", daemon(plan)?);
    let served = admin.volumes.iter();
    let format = |name: &str| {
        let mut planned = plan.volumes.iter();
        planned.find(|planned| planned.called() == name)?.format
    };
    let served = served.map(|of| {
        let device = of.device.path();
        volume(admin, &of.name, device, &of.own, format(&of.name))
    });
    // The next start waits for these too: without their sections it would be refused.
    let away = plan.volumes.iter().filter(|planned| {
        let called = planned.called();
        admin.away.iter().any(|away| away.name == called)
    });
    let away = away.map(|of| volume(admin, &of.called(), &of.origin, &of.own, of.format));
    let volumes = served.chain(away).collect::<Result<Vec<_>>>()?;
    sections.insert("volume".to_owned(), volumes.into());
    Ok(sections)
}

fn volume(
    admin: &Admin,
    name: &str,
    origin: &Path,
    own: &OwnSettings,
    format: Option<OriginFormat>,
) -> Result<toml::Value> {
    let mode = admin.mode_of(name).map(|mode| mode.name().into());
    let mut keys = section([
        ("origin", Some(path_text(origin)?.into())),
        ("name", Some(name.into())),
        ("mode", mode),
        ("format", format.map(|format| format.name().into())),
    ]);
    let own = settings::shown_own(own).into_iter();
    if let Some(keys) = keys.as_table_mut() {
        keys.extend(own.map(|(name, value)| (name.to_owned(), value.into())));
    }
    Ok(keys)
}

impl Admin {
    /// The mode on record of a volume that has a cache.
    pub(super) fn mode_of(&self, name: &str) -> Option<Mode> {
        let cache = self.cache.as_ref()?;
        let mut known = attach::attached_volumes(cache.superblock());
        let record = known.find(|record| record.name == name)?;
        Mode::from_number(record.mode)
    }
}

fn nbd(plan: &Plan) -> Result<toml::Value> {
    let addresses = plan.nbd.iter().map(|address| match address {
        Address::Unix(path) => Ok(format!("unix:{}", path_text(path)?)),
        Address::Tcp(_) => Ok(address.to_string()),
    });
    let addresses = addresses.collect::<Result<Vec<_>>>()?;
    let tls = &plan.tls;
    let path = |path: &Option<PathBuf>| -> Result<Option<toml::Value>> {
        let text = path.as_deref().map(path_text).transpose()?;
        Ok(text.map(Into::into))
    };
    Ok(section([
        ("listen", (!addresses.is_empty()).then(|| addresses.into())),
        ("tls-cert", path(&tls.files.cert)?),
        ("tls-key", path(&tls.files.key)?),
        ("tls-ca", path(&tls.files.authority)?),
        ("insecure", tls.insecure.then(|| true.into())),
        (
            "socket-owner",
            plan.socket.owner.map(|owner| owner.0.to_string().into()),
        ),
        (
            "socket-group",
            plan.socket.group.map(|group| group.0.to_string().into()),
        ),
        (
            "socket-mode",
            (plan.socket.mode).map(|mode| format!("{:03o}", mode.0).into()),
        ),
    ]))
}

fn http(plan: &Plan) -> Result<toml::Value> {
    let (listen, others_reach) = match &plan.http {
        HttpPlan::Usual => (None, false),
        HttpPlan::Off => (Some("off".into()), false),
        HttpPlan::At(address) => (
            Some(address.to_string().into()),
            !address.ip().is_loopback(),
        ),
    };
    let token = plan.http_token.as_deref().map(path_text).transpose()?;
    Ok(section([
        ("listen", listen),
        // It was allowed, or the daemon would not run.
        ("insecure", others_reach.then(|| true.into())),
        ("token", token.map(toml::Value::from)),
    ]))
}

fn changed_settings(settings: &Settings) -> toml::Value {
    let changed = settings::differences(&Settings::default(), settings);
    let changed = changed.into_iter();
    let named: Table = changed
        .map(|changed| (changed.name.to_owned(), changed.after.into()))
        .collect();
    named.into()
}

fn daemon(plan: &Plan) -> Result<toml::Value> {
    let memory = plan.memory_bytes;
    let memory = (memory != DEFAULT_MEMORY_BYTES).then(|| exact_size(memory).into());
    let path = |path: &Option<PathBuf>| -> Result<Option<toml::Value>> {
        let text = path.as_deref().map(path_text).transpose()?;
        Ok(text.map(Into::into))
    };
    let required = plan.direct == forebay_io::DirectIo::Required;
    Ok(section([
        ("memory", memory),
        (
            "threads",
            plan.threads.map(|threads| (threads as i64).into()),
        ),
        ("hook", path(&plan.hook)?),
        ("control", path(&plan.control)?),
        (
            "control-group",
            plan.control_group.map(|group| group.0.to_string().into()),
        ),
        ("state-dir", path(&plan.state_dir)?),
        ("direct-required", required.then(|| true.into())),
        ("initramfs", plan.initramfs.then(|| true.into())),
    ]))
}

/// A size for the file, rounded nowhere.
fn exact_size(bytes: u64) -> String {
    let shown = units::size(bytes);
    if units::parse_size(&shown) == Ok(bytes) {
        shown
    } else {
        format!("{bytes}B")
    }
}

fn section<const N: usize>(keys: [(&str, Option<toml::Value>); N]) -> toml::Value {
    let given = keys
        .into_iter()
        .filter_map(|(key, value)| value.map(|value| (key.to_owned(), value)));
    given.collect::<Table>().into()
}

/// Puts a section into the file if there is anything in it.
fn put(sections: &mut Table, name: &str, section: toml::Value) {
    if section.as_table().is_some_and(|keys| !keys.is_empty()) {
        sections.insert(name.to_owned(), section);
    }
}

/// The absolute path, as the file may be read from another directory.
fn path_text(path: &Path) -> Result<String> {
    let absolute = std::path::absolute(path)
        .with_context(|| format!("cannot find the directory of {}", path.display()))?;
    let text = absolute.to_str().map(str::to_owned);
    text.with_context(|| {
        format!(
            "the path {} is no UTF-8, and a configuration file is; serve it under another name",
            path.display()
        )
    })
}
