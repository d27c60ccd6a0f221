//! Recent samples and events of the daemon.

use std::collections::BTreeMap;

use anyhow::Result;
use serde::Deserialize;
use serde_json::json;

use super::view::Sort;
use crate::client::{Client, understood};
use crate::daemon::Event;
use crate::report::status::{Status, VolumeStatus};

/// Samples that are kept: more than a terminal has columns.
const KEPT: usize = 600;

/// The answer to `History`.
#[derive(Debug, Default, Deserialize)]
struct News {
    unix_seconds: Vec<f64>,
    columns: BTreeMap<String, Vec<Option<f64>>>,
}

/// The present, and some of the past.
#[derive(Debug)]
pub(super) struct Recent {
    pub(super) status: Status,
    pub(super) columns: BTreeMap<String, Vec<Option<f64>>>,
    pub(super) events: Vec<Event>,
    last_unix_seconds: f64,
}

impl Recent {
    pub(super) fn of(status: Status) -> Recent {
        Recent {
            status,
            columns: BTreeMap::new(),
            events: Vec::new(),
            last_unix_seconds: 0.0,
        }
    }

    pub(super) fn ask(client: &mut Client) -> Result<Recent> {
        let mut recent = Recent::of(client.status()?);
        recent.refresh(client)?;
        Ok(recent)
    }

    pub(super) fn refresh(&mut self, client: &mut Client) -> Result<()> {
        self.status = client.status()?;
        let since = json!({ "since_unix_seconds": self.last_unix_seconds });
        let news: News = understood(client.ask("History", &since)?)?;
        self.last_unix_seconds = news
            .unix_seconds
            .last()
            .copied()
            .unwrap_or(self.last_unix_seconds);
        for (name, values) in news.columns {
            let column = self.columns.entry(name).or_default();
            column.extend(values);
            column.drain(..column.len().saturating_sub(KEPT));
        }
        let after = self.events.last().map_or(0, |last| last.number);
        let mut events = client.ask("Events", &json!({ "after": after }))?;
        let events: Vec<Event> = understood(events["events"].take())?;
        self.events.extend(events);
        self.events.drain(..self.events.len().saturating_sub(KEPT));
        Ok(())
    }

    /// The last value of a column, if it is known.
    pub(super) fn latest(&self, name: &str) -> Option<f64> {
        *self.columns.get(name)?.last()?
    }

    /// The volumes in this order.
    pub(super) fn volumes(&self, sort: Sort) -> Vec<&VolumeStatus> {
        let mut volumes: Vec<&VolumeStatus> = self.status.volumes.iter().collect();
        match sort {
            Sort::Name => volumes.sort_by(|a, b| a.name.cmp(&b.name)),
            Sort::Cached => volumes.sort_by_key(|volume| std::cmp::Reverse(volume.cached_bytes)),
            Sort::Dirty => volumes.sort_by_key(|volume| std::cmp::Reverse(volume.dirty_bytes)),
        }
        volumes
    }
}
