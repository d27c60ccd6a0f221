//! All caches whose daemons share the address: this daemon's own, and those that answer at the
//! control sockets beside its own.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::Mutex;

use anyhow::{Context, Result};
use serde::Serialize;
use serde_json::{Value, json};

use super::address::shared_directory;
use crate::client::{Client, sockets_in};
use crate::daemon::state::Daemon;
use crate::failure::{self, USAGE};
use crate::lock::lock;
use crate::report::metrics::{Named, told_apart};
use crate::report::status::Status;
use crate::report::trouble::Trouble;
use crate::units::ratio;

/// A cache, and the way to its daemon.
pub(super) struct Cache {
    pub(super) name: String,
    /// None is this daemon.
    pub(super) socket: Option<PathBuf>,
    /// None if the daemon does not answer.
    pub(super) status: Option<Status>,
}

/// A line of the overview.
#[derive(Debug, Serialize)]
pub(super) struct CacheLine {
    name: String,
    up: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    now: Option<Now>,
}

/// An overview of a cache.
#[derive(Debug, Serialize)]
struct Now {
    version: String,
    uptime_seconds: f64,
    device: Option<String>,
    volumes: Vec<String>,
    capacity_bytes: u64,
    cached_bytes: u64,
    dirty_bytes: u64,
    read_hit_ratio: Option<f64>,
    trouble: Vec<Trouble>,
}

/// Other daemons, as far as they were met.
#[derive(Debug, Default)]
pub(super) struct Met(Mutex<Memory>);

#[derive(Debug, Default)]
struct Memory {
    /// By the socket: what a daemon is called that does not answer any more.
    names: BTreeMap<PathBuf, String>,
    /// Sockets of exports, which are not to be disturbed again.
    exports: BTreeSet<PathBuf>,
}

impl Met {
    fn memory(&self) -> std::sync::MutexGuard<'_, Memory> {
        lock(&self.0)
    }

    /// The control sockets of other daemons that share the address.
    fn others(&self, daemon: &Daemon) -> Vec<PathBuf> {
        let Some(directory) = shared_directory(&daemon.control_path) else {
            return Vec::new();
        };
        let mut sockets = sockets_in(&directory);
        let own = daemon.control_path.file_name();
        let mut memory = self.memory();
        memory.exports.retain(|path| sockets.contains(path));
        memory.names.retain(|path, _| sockets.contains(path));
        sockets.retain(|path| path.file_name() != own && !memory.exports.contains(path));
        sockets
    }

    /// All caches, by name. Their daemons are asked at a time, so that one that hangs costs no more
    /// than its own wait.
    pub(super) fn all(&self, daemon: &Daemon) -> Vec<Cache> {
        let others = self.others(daemon);
        let ask = |socket: &PathBuf| Client::soon(socket)?.status();
        let asked: Vec<Result<Status>> = std::thread::scope(|scope| {
            let asking: Vec<_> = others
                .iter()
                .map(|socket| {
                    let named = std::thread::Builder::new().name("forebay-ask".to_owned());
                    named.spawn_scoped(scope, move || ask(socket))
                })
                .collect();
            let asking = asking.into_iter().zip(&others);
            let answers = asking.map(|(thread, socket)| match thread {
                Ok(thread) => (thread.join())
                    .unwrap_or_else(|_| Err(anyhow::anyhow!("the thread that asked has ended"))),
                // No more threads can be had: one after the other, then.
                Err(_) => ask(socket),
            });
            answers.collect()
        });
        let mut caches = vec![Cache {
            name: daemon.name.clone(),
            socket: None,
            // Of a daemon that stops there is none any more, and the others go on.
            status: daemon.status().ok(),
        }];
        for (socket, answer) in others.into_iter().zip(asked) {
            caches.extend(self.other(socket, answer));
        }
        let own = stem(&daemon.control_path);
        let stems = caches
            .iter()
            .map(|cache| cache.socket.as_deref().map_or(own.clone(), stem));
        let names: Vec<(String, String)> = caches
            .iter()
            .map(|cache| cache.name.clone())
            .zip(stems)
            .collect();
        for (cache, name) in caches.iter_mut().zip(told_apart(&names)) {
            cache.name = name;
        }
        caches.sort_by(|a, b| a.name.cmp(&b.name));
        caches
    }

    /// Another daemon's cache by its answer; none if it is no daemon.
    fn other(&self, socket: PathBuf, answer: Result<Status>) -> Option<Cache> {
        let mut memory = self.memory();
        let (name, status) = match answer {
            Ok(status) if !status.name.is_empty() => {
                memory.names.insert(socket.clone(), status.name.clone());
                (status.name.clone(), Some(status))
            }
            // Of a version that has no names.
            Ok(status) => (stem(&socket), Some(status)),
            Err(error) if failure::exit_code(&error) == USAGE => {
                memory.exports.insert(socket);
                return None;
            }
            Err(_) => {
                let known = memory.names.get(&socket).cloned();
                (known.unwrap_or_else(|| stem(&socket)), None)
            }
        };
        Some(Cache {
            name,
            socket: Some(socket),
            status,
        })
    }

    /// The way to the cache of this name, if no other daemon must be asked for it.
    pub(super) fn known(&self, daemon: &Daemon, name: &str) -> Option<Option<PathBuf>> {
        let others = self.others(daemon);
        match others.into_iter().find(|socket| stem(socket) == name) {
            Some(socket) => {
                let is_met = self
                    .memory()
                    .names
                    .get(&socket)
                    .is_some_and(|met| met == name);
                is_met.then_some(Some(socket))
            }
            None => (daemon.name == name).then_some(None),
        }
    }

    /// Whether there is just one cache, this daemon's.
    pub(super) fn only(&self, daemon: &Daemon) -> bool {
        self.others(daemon).is_empty() || self.all(daemon).len() == 1
    }
}

fn stem(socket: &Path) -> String {
    let stem = socket.file_stem().unwrap_or_default();
    stem.to_string_lossy().into_owned()
}

impl Cache {
    /// As the metrics have it.
    pub(super) fn named(self) -> Named {
        Named {
            name: self.name,
            status: self.status,
        }
    }

    /// Its line of the overview.
    pub(super) fn line(self) -> CacheLine {
        CacheLine {
            up: self.status.is_some(),
            name: self.name,
            now: self.status.map(Now::of),
        }
    }
}

impl Now {
    fn of(status: Status) -> Now {
        let late = &status.lately;
        let of_cache = |get: fn(&crate::report::status::CacheStatus) -> u64| {
            status.cache.as_ref().map_or(0, get)
        };
        Now {
            read_hit_ratio: ratio(
                late.read_blocks_hit,
                late.read_blocks_hit + late.read_blocks_missed,
            ),
            capacity_bytes: of_cache(|cache| cache.capacity_bytes),
            cached_bytes: of_cache(|cache| cache.cached_bytes),
            dirty_bytes: of_cache(|cache| cache.dirty_bytes),
            device: status.cache.map(|cache| cache.device),
            volumes: status
                .volumes
                .into_iter()
                .map(|volume| volume.name)
                .collect(),
            version: status.version,
            uptime_seconds: status.uptime_seconds,
            trouble: status.trouble,
        }
    }
}

/// Something that a page asks of a cache.
#[derive(Clone, Copy, Debug)]
pub(super) enum StatusQuery {
    Status,
    History { since: f64 },
    Events { after: u64 },
    Volumes,
    Settings,
}

/// The answer of another daemon, over its control socket.
pub(super) fn ask(socket: &Path, question: StatusQuery) -> Result<Value> {
    let (method, parameters, part) = match question {
        StatusQuery::Status => ("Status", json!({}), None),
        StatusQuery::History { since } => {
            let parameters = json!({ "since_unix_seconds": since });
            ("History", parameters, None)
        }
        StatusQuery::Events { after } => ("Events", json!({ "after": after }), Some("events")),
        StatusQuery::Volumes => ("Volumes", json!({}), Some("volumes")),
        StatusQuery::Settings => ("Get", json!({}), Some("settings")),
    };
    let asked = Client::soon(socket).and_then(|mut client| client.ask(method, &parameters));
    let mut answer =
        asked.with_context(|| format!("cannot ask the daemon at {}", socket.display()))?;
    Ok(match part {
        Some(part) => answer[part].take(),
        None => answer,
    })
}
