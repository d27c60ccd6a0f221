//! The methods of the control socket.

use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::Arc;
use std::sync::mpsc::channel;
use std::time::Duration;

use anyhow::{Context, Result};
use forebay_engine::Mode;
use serde::Deserialize;
use serde_json::{Value, json};

use super::answer::{drained, emptying_message, error_reply, progress_message, resized, send};
use super::volumes::Progress;
use super::who::Who;
use crate::accounts;
use crate::config::{self, VolumePlan};
use crate::daemon::data::ublk::in_use;
use crate::daemon::notice::{Devices, Notice};
use crate::daemon::state::{Daemon, VolumeSide};
use crate::failure::{Interrupted, Usage};
use crate::network::hang_up::has_hung_up;
use crate::settings::OwnSettings;

/// The parameters of all methods; each takes its own.
#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(super) struct Parameters {
    pub(super) name: Option<String>,
    pub(super) new_name: Option<String>,
    pub(super) mode: Option<String>,
    pub(super) origin: Option<String>,
    pub(super) emulate: Option<String>,
    pub(super) format: Option<String>,
    pub(super) key: Option<String>,
    pub(super) size_bytes: Option<u64>,
    pub(super) seconds: Option<f64>,
    pub(super) since_unix_seconds: Option<f64>,
    pub(super) after: Option<u64>,
    pub(super) value: Option<String>,
    pub(super) device: Option<String>,
    pub(super) new_device: Option<String>,
    pub(super) shard: u16,
    pub(super) from: u32,
    pub(super) force: bool,
    pub(super) drain: bool,
    pub(super) keep_devices: bool,
    pub(super) left_bytes: Option<u64>,
}

/// A call, and who waits for its answer.
pub(super) struct MethodCall<'a> {
    pub(super) daemon: &'a Arc<Daemon>,
    pub(super) stream: &'a UnixStream,
    /// The client hears how far it is.
    pub(super) more: bool,
    pub(super) given: &'a Parameters,
}

impl MethodCall<'_> {
    /// Does what the method says.
    pub(super) fn carry_out(&self, method: &str) -> Result<Value> {
        let MethodCall { daemon, given, .. } = self;
        match method {
            "org.forebay.Status" => Ok(serde_json::to_value(daemon.status()?)?),
            "org.forebay.History" => {
                let since = given.since_unix_seconds.unwrap_or(0.0);
                Ok(serde_json::to_value(daemon.history.after(since))?)
            }
            "org.forebay.Events" => {
                let events = daemon.events.after(given.after.unwrap_or(0));
                Ok(json!({ "events": events }))
            }
            "org.forebay.Volumes" => Ok(json!({ "volumes": daemon.volume_views()? })),
            "org.forebay.Mode" => self.mode(),
            "org.forebay.Set" => {
                let (key, value) = (need(&given.key, "key")?, need(&given.value, "value")?);
                match &given.name {
                    Some(name) => daemon.set_of_volume(name, key, value, &self.who()),
                    None => daemon.set(key, value, &self.who()),
                }
            }
            "org.forebay.Get" => match &given.name {
                Some(name) => daemon.get_of_volume(name, given.key.as_deref()),
                None => daemon.get(given.key.as_deref()),
            },
            "org.forebay.Config" => daemon.running_config(),
            "org.forebay.Drain" => {
                let volume = self.volume()?;
                let left_bytes = given.left_bytes.unwrap_or(0);
                Ok(drained(&volume.name, self.drain(&volume, left_bytes)?))
            }
            "org.forebay.Advise" => self.advise(),
            "org.forebay.Attach" => self.attach(),
            "org.forebay.Detach" => {
                if let Some(away) = given
                    .name
                    .as_deref()
                    .and_then(|name| daemon.away_volume(name))
                {
                    return daemon.forget(&away, given.force);
                }
                let volume = self.volume()?;
                daemon.detach(&volume, &mut |progress| {
                    self.tell(&progress_message(progress))
                })?;
                Ok(json!({ "name": volume.name }))
            }
            "org.forebay.Freeze" => {
                let most = given.seconds.map(Duration::try_from_secs_f64).transpose();
                let most =
                    most.map_err(|_| Usage("seconds: a time that is too long".to_owned()))?;
                let mut tell = |progress| self.tell(&progress_message(progress));
                daemon.freeze(&self.volume()?, most, &mut tell)
            }
            "org.forebay.Thaw" => daemon.thaw(&self.volume()?),
            "org.forebay.HandOver" => {
                let mut tell = |progress| self.tell(&progress_message(progress));
                daemon.hand_over(&self.volume()?, &mut tell)
            }
            "org.forebay.DirtyBlocks" => {
                let name = need(&given.name, "name")?;
                daemon.dirty_blocks(name, given.shard, given.from)
            }
            "org.forebay.Rename" => {
                daemon.check_may_leave_file()?;
                daemon.rename(
                    need(&given.name, "name")?,
                    need(&given.new_name, "new_name")?,
                )
            }
            "org.forebay.Resize"
            | "org.forebay.AddCacheDevice"
            | "org.forebay.RemoveCacheDevice"
            | "org.forebay.ReplaceCacheDevice" => self.change_space(method),
            "org.forebay.Reload" => daemon.reload(&self.who()),
            "org.forebay.Stop" => self.stop(),
            other => Err(Usage(format!("there is no method `{other}`")).into()),
        }
    }

    /// Says how far it is; false if nobody waits for the answer any more.
    fn tell(&self, message: &Value) -> bool {
        !has_hung_up(self.stream) && (!self.more || send(self.stream, message))
    }

    fn who(&self) -> Who {
        // Of a daemon that the root file system is on, the file of users may be on its own volume.
        let is_own = self.daemon.is_under_root();
        let users = (!is_own).then(|| std::fs::read_to_string(accounts::USERS).ok());
        Who::at(self.stream, &users.flatten().unwrap_or_default())
    }

    fn volume(&self) -> Result<VolumeSide> {
        self.daemon.find_volume(self.given.name.as_deref())
    }

    fn drain(&self, volume: &VolumeSide, left_bytes: u64) -> Result<Progress> {
        let mut tell = |progress| self.tell(&progress_message(progress));
        self.daemon.drain(volume, left_bytes, &mut tell)
    }

    /// Sets the mode of a volume, or says it where none is given.
    fn mode(&self) -> Result<Value> {
        let name = need(&self.given.name, "name")?;
        if self.given.mode.is_none() {
            let volume = self.daemon.find_volume(Some(name))?;
            let mode = self.daemon.admin().mode_of(&volume.name);
            return Ok(json!({ "name": volume.name, "mode": mode.map_or("uncached", Mode::name) }));
        }
        let mode = mode(need(&self.given.mode, "mode")?)?;
        self.daemon.set_mode(name, mode, &self.who())?;
        Ok(json!({ "name": name, "mode": mode.name() }))
    }

    fn advise(&self) -> Result<Value> {
        let volume = self.volume()?;
        let advised = self.daemon.advise(&volume, self.given.size_bytes)?;
        Ok(json!({
            "name": volume.name,
            "block_size_bytes": advised.block_bytes,
            "missed_requests": advised.missed,
            "findings": advised.findings,
        }))
    }

    fn attach(&self) -> Result<Value> {
        let MethodCall { daemon, given, .. } = self;
        daemon.check_may_leave_file()?;
        let origin = need(&given.origin, "origin")?;
        let mode = given.mode.as_deref().map(mode).transpose()?;
        let format = given.format.as_deref().map(str::parse).transpose();
        let planned = VolumePlan {
            origin: origin.into(),
            name: given.name.clone(),
            mode,
            own: OwnSettings::default(),
            format: format.map_err(Usage)?,
            emulate: given.emulate.as_deref().map(config::model).transpose()?,
        };
        let mut opened = daemon.open_new_origin(&planned)?;
        let exports = daemon.attach(&mut opened, planned.emulate)?;
        Ok(json!({ "origin": origin, "exports": exports }))
    }

    fn change_space(&self, method: &str) -> Result<Value> {
        let MethodCall { daemon, given, .. } = self;
        if has_hung_up(self.stream) {
            // It may be over before anybody looks whether the client is still there.
            return Err(Interrupted("nothing was begun".to_owned()).into());
        }
        let mut tell = |emptying| self.tell(&emptying_message(emptying));
        if method == "org.forebay.Resize" {
            let device = given.device.as_deref().map(Path::new);
            return Ok(resized(&daemon.resize(
                device,
                given.size_bytes,
                &mut tell,
            )?));
        }
        if method != "org.forebay.ReplaceCacheDevice" {
            daemon.check_may_leave_file()?;
        }
        let device = Path::new(need(&given.device, "device")?);
        let changed = match method {
            "org.forebay.AddCacheDevice" => daemon.add_cache_device(device, given.force)?,
            "org.forebay.RemoveCacheDevice" => {
                let number = daemon.number_of(device)?;
                daemon.remove_cache_device((number, device), &mut tell)?
            }
            _ => {
                let new = Path::new(need(&given.new_device, "new_device")?);
                daemon.replace_cache_device(device, new, given.force, &mut tell)?
            }
        };
        Ok(resized(&changed))
    }

    /// Ends with the process: the client is answered before.
    fn stop(&self) -> Result<Value> {
        let MethodCall {
            daemon,
            stream,
            given,
            ..
        } = self;
        let volumes = daemon.admin().volumes.clone();
        if !given.keep_devices {
            let instead = in_use::TAKE_OUT_OF_USE_OR_KEEP;
            volumes
                .iter()
                .try_for_each(|volume| daemon.check_unused(volume.slot, instead))?;
        }
        if given.drain {
            for volume in volumes {
                self.drain(&volume, 0)?;
            }
        }
        let (done, result) = channel();
        let (telling, told) = channel();
        let notice = Notice::Stop {
            done,
            told,
            devices: if given.keep_devices {
                Devices::Keep
            } else {
                Devices::KeepUsed
            },
        };
        daemon.notify(notice)?;
        let result = result
            .recv()
            .context("the daemon has stopped without saying how")?;
        let message = match result {
            Ok(()) => json!({ "parameters": { "stopped": true } }),
            Err(message) => error_reply(&anyhow::Error::msg(message)),
        };
        send(stream, &message);
        drop(telling);
        // The process ends now; the client has its answer.
        Ok(Value::Null)
    }
}

fn need<'a>(value: &'a Option<String>, what: &str) -> Result<&'a str> {
    let given = value.as_deref();
    given.ok_or_else(|| Usage(format!("the parameter `{what}` is missing")).into())
}

fn mode(text: &str) -> Result<Mode> {
    text.parse().map_err(|error| Usage(error).into())
}
