//! Talking to a daemon through its control socket.

use std::io::{BufRead, BufReader, ErrorKind, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, anyhow};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use crate::device::run_dir::{self, run_dir};
use crate::failure::{DamageFound, Interrupted, Refused, Usage, wrong_usage};
use crate::report::status::Status;

/// Greeting of an NBD server.
const NBD_GREETING: &[u8] = b"NBDMAGIC";

/// The longest wait for one of several daemons to say what it serves.
const TIMEOUT: Duration = Duration::from_secs(2);

/// The longest wait for a daemon that is asked for nothing but its status.
const LONE_DAEMON_TIMEOUT: Duration = Duration::from_secs(5);

/// The longest wait for a daemon while a word is completed.
const COMPLETION_TIMEOUT: Duration = Duration::from_millis(200);

/// Of an answer that makes no sense.
const OTHER_VERSION: &str = "the daemon is of another version than this command: restart it, or \
     use the program that it was started from";

/// A connection to a daemon.
pub(crate) struct Client {
    stream: BufReader<UnixStream>,
}

/// A connection that carries something else than messages from now on.
pub(crate) struct Upgraded {
    /// The last message.
    pub(crate) answer: Value,
    pub(crate) rest: BufReader<UnixStream>,
}

fn method_name(method: &str) -> String {
    format!("org.forebay.{method}")
}

impl Client {
    /// Connects to the daemon at this socket, or to the only one that this user runs.
    pub(crate) fn connect(control: Option<&Path>) -> Result<Client> {
        match control {
            Some(path) => {
                let socket = socket_called(path, &run_dir());
                // A path that was given is the user's choice; a name is looked up.
                if socket != path {
                    run_dir::check(&run_dir())?;
                }
                Client::at(&socket)
            }
            None => {
                let running = running_daemons()?;
                if running.len() > 1 {
                    return Err(several_run(running));
                }
                Ok(Client::of(the_only(running, &run_dir())?))
            }
        }
    }

    /// Connects to the socket given; without it, to the daemon that serves a volume with one of
    /// these names.
    pub(crate) fn serving(control: Option<&Path>, volumes: &[&str]) -> Result<Client> {
        let running = match control {
            Some(_) => return Client::connect(control),
            None => running_daemons()?,
        };
        if running.len() < 2 {
            return Ok(Client::of(the_only(running, &run_dir())?));
        }
        let clients = running
            .into_iter()
            .map(|(path, stream)| (path, Client::of(stream)));
        let serves = |client: &mut Client| {
            // A daemon of another version, or that does not answer, says so when it is meant.
            let status = client.status_soon().ok();
            let mut served = status.into_iter().flat_map(|status| status.volumes);
            served.any(|volume| volumes.contains(&volume.name.as_str()))
        };
        let mut serving: Vec<(PathBuf, Client)> = clients
            .filter_map(|(path, mut client)| serves(&mut client).then_some((path, client)))
            .collect();
        if serving.is_empty() {
            wrong_usage!(
                "none of the daemons that run serves a volume `{}`: `forebay status` shows what each serves",
                volumes.join("` or `")
            );
        }
        if serving.len() > 1 {
            wrong_usage!(
                "several daemons serve a volume `{}`; choose one with --control: {}",
                volumes.join("` or `"),
                joined(&serving)
            );
        }
        Ok(serving.remove(0).1)
    }

    /// Connects to the daemon at this socket, or to each that this user runs. None may keep the
    /// others waiting, nor the user for ever.
    pub(crate) fn each(control: Option<&Path>) -> Result<Vec<(PathBuf, Client)>> {
        if let Some(path) = control {
            let client = Client::connect(control)?;
            client.answers_within(Some(LONE_DAEMON_TIMEOUT))?;
            return Ok(vec![(path.to_owned(), client)]);
        }
        let running = running_daemons()?;
        if running.is_empty() {
            return Err(none_runs(&run_dir()));
        }
        let timeout = match running.len() {
            1 => LONE_DAEMON_TIMEOUT,
            _ => TIMEOUT,
        };
        let clients = running.into_iter().map(|(path, stream)| {
            let client = Client::of(stream);
            client.answers_within(Some(timeout))?;
            Ok((path, client))
        });
        clients.collect()
    }

    /// Connects to the daemon at this socket, and waits for each answer no longer than others who
    /// are asked beside it should.
    pub(crate) fn soon(socket: &Path) -> Result<Client> {
        let client = Client::at(socket)?;
        client.answers_within(Some(TIMEOUT))?;
        Ok(client)
    }

    /// Names of the volumes that the daemon at this socket serves, or that each which runs serves.
    /// A daemon that does not answer at once is passed over: somebody has pressed a key, and waits.
    pub(crate) fn volumes_at_once(control: Option<&Path>) -> Vec<String> {
        let streams: Vec<UnixStream> = match control {
            Some(path) => UnixStream::connect(path).into_iter().collect(),
            None => running_daemons()
                .unwrap_or_default()
                .into_iter()
                .map(|(_, stream)| stream)
                .collect(),
        };
        let volumes = streams.into_iter().flat_map(|stream| {
            let mut client = Client::of(stream);
            let set = client.answers_within(Some(COMPLETION_TIMEOUT));
            let status = set.and_then(|()| client.status()).ok();
            status.into_iter().flat_map(|status| status.volumes)
        });
        volumes.map(|volume| volume.name).collect()
    }

    fn at(path: &Path) -> Result<Client> {
        let stream = UnixStream::connect(path).map_err(|error| {
            let path = path.display();
            match why_nobody_answers(error.kind()) {
                Some(why) => anyhow!("no forebay daemon answers at {path}{why}"),
                None => anyhow::Error::new(error)
                    .context(format!("no forebay daemon answers at {path}")),
            }
        })?;
        Ok(Client::of(stream))
    }

    fn of(stream: UnixStream) -> Client {
        Client {
            stream: BufReader::new(stream),
        }
    }

    /// Calls a method; `progress` sees each answer but the last.
    pub(crate) fn call(
        &mut self,
        method: &str,
        parameters: &Value,
        progress: &mut dyn FnMut(&Value),
    ) -> Result<Value> {
        let call = json!({ "method": method_name(method), "parameters": parameters, "more": true });
        self.send(&call)?;
        loop {
            let (parameters, continues) = self.receive()?;
            if !continues {
                return Ok(parameters);
            }
            progress(&parameters);
        }
    }

    /// Calls a method whose answer is followed by something else than messages.
    pub(crate) fn upgrade(mut self, method: &str, parameters: &Value) -> Result<Upgraded> {
        let call =
            json!({ "method": method_name(method), "parameters": parameters, "upgrade": true });
        self.send(&call)?;
        let (answer, _) = self.receive()?;
        Ok(Upgraded {
            answer,
            rest: self.stream,
        })
    }

    fn send(&mut self, call: &Value) -> Result<()> {
        let mut bytes = call.to_string().into_bytes();
        bytes.push(0);
        self.stream
            .get_mut()
            .write_all(&bytes)
            .context("the daemon closed the connection; see its log")
    }

    /// The next answer, and whether another follows.
    fn receive(&mut self) -> Result<(Value, bool)> {
        let mut message = Vec::new();
        let received = self.stream.read_until(0, &mut message);
        if let Err(error) = &received
            && error.kind() == ErrorKind::WouldBlock
        {
            return Err(anyhow!(
                "it does not answer: it may still recover, or hang; see its log"
            ));
        }
        received.context("the daemon closed the connection; see its log")?;
        if message.starts_with(NBD_GREETING) {
            wrong_usage!(
                "that socket is an NBD export and takes no commands: --control wants the control socket \
                 (the one given to `serve` with --control, or else in {})",
                run_dir().display()
            );
        }
        if message.pop() != Some(0) {
            return Err(anyhow!("the daemon closed the connection; see its log"));
        }
        let mut answer: Value = serde_json::from_slice(&message).context(OTHER_VERSION)?;
        let parameters = answer["parameters"].take();
        let Some(error) = answer["error"].as_str() else {
            return Ok((parameters, answer["continues"] == true));
        };
        let message = parameters["message"].as_str().unwrap_or(error).to_owned();
        Err(match error {
            "org.forebay.Usage" => Usage(message).into(),
            "org.forebay.Refused" => Refused(message).into(),
            "org.forebay.Interrupted" => Interrupted(message).into(),
            "org.forebay.Damage" => DamageFound(message).into(),
            _ => anyhow!(message),
        })
    }

    /// Asks the daemon for its status.
    pub(crate) fn status(&mut self) -> Result<Status> {
        understood(self.ask("Status", &json!({}))?)
    }

    /// Asks for the status, and gives up early: a daemon that recovers, or hangs, must not delay
    /// the search.
    fn status_soon(&mut self) -> Result<Status> {
        self.answers_within(Some(TIMEOUT))?;
        let status = self.status();
        self.answers_within(None)?;
        status
    }

    /// Asks for the status, and waits no longer than a user should.
    pub(crate) fn status_in_time(&mut self) -> Result<Status> {
        self.answers_within(Some(LONE_DAEMON_TIMEOUT))?;
        self.status()
    }

    /// Limits the time that the daemon may take for each answer from now on.
    fn answers_within(&self, time: Option<Duration>) -> Result<()> {
        let stream = self.stream.get_ref();
        stream
            .set_read_timeout(time)
            .context("cannot limit the time for an answer")
    }

    /// Calls a method that answers once.
    pub(crate) fn ask(&mut self, method: &str, parameters: &Value) -> Result<Value> {
        self.call(method, parameters, &mut |_| {})
    }
}

/// An answer as what it should be.
pub(crate) fn understood<T: DeserializeOwned>(answer: Value) -> Result<T> {
    serde_json::from_value(answer).context(OTHER_VERSION)
}

/// A socket that is there and cannot be opened may be another user's, or of a daemon that died.
fn why_nobody_answers(error: ErrorKind) -> Option<&'static str> {
    match error {
        ErrorKind::PermissionDenied => Some(": it belongs to another user, use sudo"),
        ErrorKind::ConnectionRefused => {
            Some(": the one whose socket it was has ended; start it again with `forebay serve`")
        }
        ErrorKind::NotFound => {
            Some(": there is no such socket; is it the path given to `serve` with --control?")
        }
        _ => None,
    }
}

/// A name without a directory is that of a cache, if there is no such file: its socket is where a
/// service has it.
fn socket_called(control: &Path, directory: &Path) -> PathBuf {
    let is_name = control.components().count() == 1 && control.extension().is_none();
    if is_name && !control.exists() {
        directory.join(control).with_extension("sock")
    } else {
        control.to_owned()
    }
}

fn none_runs(directory: &Path) -> anyhow::Error {
    anyhow!(
        "no forebay daemon runs (none answers in {}); start one with `forebay serve`, name its socket with --control, or use sudo for one that root runs",
        directory.display()
    )
}

/// Several daemons run, and a command does not say which it means: with the volumes of each.
fn several_run(running: Vec<(PathBuf, UnixStream)>) -> anyhow::Error {
    let each = running.into_iter().map(|(path, stream)| {
        let status = Client::of(stream).status_soon();
        let volumes = status.map(|status| status.volumes).unwrap_or_default();
        let names: Vec<String> = volumes.into_iter().map(|volume| volume.name).collect();
        match names.as_slice() {
            [] => path.display().to_string(),
            [only] => format!("{} (volume {only})", path.display()),
            names => format!("{} (volumes {})", path.display(), names.join(", ")),
        }
    });
    let each: Vec<String> = each.collect();
    Usage(format!(
        "several daemons run; choose one with --control: {}",
        each.join(", ")
    ))
    .into()
}

/// The one that runs, of those that were found in this directory.
fn the_only<T>(mut running: Vec<(PathBuf, T)>, directory: &Path) -> Result<T> {
    match running.len() {
        0 => Err(none_runs(directory)),
        1 => Ok(running.remove(0).1),
        _ => wrong_usage!(
            "several daemons run; choose one with --control: {}",
            joined(&running)
        ),
    }
}

fn joined<T>(running: &[(PathBuf, T)]) -> String {
    let paths = running.iter().map(|(path, _)| path.display().to_string());
    paths.collect::<Vec<_>>().join(", ")
}

/// The control sockets of this user at which a daemon answers, in order of their names.
pub(crate) fn running_daemons() -> Result<Vec<(PathBuf, UnixStream)>> {
    run_dir::check(&run_dir())?;
    // Sockets that nobody answers at were left by daemons that died. One of another user's process
    // got there by a way that the check of the directory does not see.
    let running = sockets_in(&run_dir()).into_iter().filter_map(|path| {
        let stream = UnixStream::connect(&path).ok()?;
        run_dir::is_trusted(&stream).then_some((path, stream))
    });
    Ok(running.collect())
}

/// The sockets in a directory, in order of their names.
pub(crate) fn sockets_in(directory: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(directory).into_iter().flatten().flatten();
    let mut sockets: Vec<PathBuf> = entries
        .map(|entry| entry.path())
        .filter(|path| path.extension().is_some_and(|end| end == "sock"))
        .collect();
    sockets.sort();
    sockets
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::failure::{FAILURE, USAGE, describe, exit_code};

    #[test]
    fn without_a_choice_the_only_daemon_is_meant() {
        let found = |names: &[&str]| {
            let running = names.iter().map(|name| (PathBuf::from(name), *name));
            the_only(running.collect(), Path::new("/run/x")).map(str::to_owned)
        };
        assert_eq!(found(&["1.sock"]).unwrap(), "1.sock");
        let none = found(&[]).unwrap_err();
        assert_eq!(exit_code(&none), FAILURE);
        assert!(describe(&none).contains("none answers in /run/x"), "{none}");
        let several = found(&["1.sock", "2.sock"]).unwrap_err();
        assert_eq!(exit_code(&several), USAGE);
        assert!(describe(&several).contains("1.sock, 2.sock"), "{several}");
    }

    #[test]
    fn a_cache_can_be_meant_by_its_name() {
        let called = |control: &str| {
            let path = socket_called(Path::new(control), Path::new("/run/x"));
            path.display().to_string()
        };
        assert_eq!(called("ssd"), "/run/x/ssd.sock");
        assert_eq!(called("ssd.sock"), "ssd.sock");
        assert_eq!(called("./ssd"), "./ssd");
        assert_eq!(called("/run/y/ssd.sock"), "/run/y/ssd.sock");
    }
}
