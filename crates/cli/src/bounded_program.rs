//! Other people's programs, run beside the daemon: without a shell, with little of its environment,
//! for a limited time, with limited output.

use std::ffi::OsStr;
use std::io::{ErrorKind, PipeReader, Read};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use rustix::fs::OFlags;
use rustix::process::{Pid, Signal, kill_process_group};

/// Interval between looks at a program that runs.
const LOOK: Duration = Duration::from_millis(10);
/// The search path where the daemon has none.
const USUAL_PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

/// A program that is to be run.
pub(crate) struct Program {
    command: Command,
    /// Its standard error is output too.
    with_errors: bool,
}

/// A program that was run.
#[derive(Debug)]
pub(crate) struct Ran {
    /// None if it was killed at its limit.
    pub(crate) status: Option<ExitStatus>,
    /// Its output, as far as that was wanted.
    pub(crate) output: Vec<u8>,
}

impl Program {
    /// The program of this name or path.
    pub(crate) fn new(name: impl AsRef<OsStr>) -> Program {
        let mut command = Command::new(name);
        // Whatever concerns the daemon alone stays with it: its sockets to systemd, its keys.
        command.env_clear().env("LC_ALL", "C").env(
            "PATH",
            std::env::var_os("PATH").unwrap_or_else(|| USUAL_PATH.into()),
        );
        command
            .current_dir("/")
            .stdin(Stdio::null())
            .process_group(0);
        Program {
            command,
            with_errors: true,
        }
    }

    pub(crate) fn argument(mut self, argument: impl AsRef<OsStr>) -> Program {
        self.command.arg(argument);
        self
    }

    pub(crate) fn variable(mut self, name: &str, value: impl AsRef<OsStr>) -> Program {
        // No variable holds a NUL, and none is wanted for it.
        let value = value.as_ref().to_string_lossy().replace('\0', "");
        self.command.env(name, value);
        self
    }

    /// Leaves out what it prints on standard error.
    pub(crate) fn without_errors(mut self) -> Program {
        self.with_errors = false;
        self
    }

    /// Runs it to its end, and no longer than the limit: it is killed then, with all that it
    /// started.
    pub(crate) fn run(mut self, limit: Duration, most_bytes: usize) -> std::io::Result<Ran> {
        let (reader, writer) = std::io::pipe()?;
        rustix::fs::fcntl_setfl(&reader, OFlags::NONBLOCK)?;
        let errors = if self.with_errors {
            writer.try_clone()?.into()
        } else {
            Stdio::null()
        };
        self.command.stdout(writer).stderr(errors);
        let mut child = self.command.spawn()?;
        // The command keeps the other end of the pipe as long as it lives.
        drop(self.command);
        let mut output = Output {
            reader,
            kept: Vec::new(),
            most_bytes,
        };
        let began = Instant::now();
        loop {
            output.take();
            if let Some(status) = child.try_wait()? {
                output.take();
                return Ok(Ran {
                    status: Some(status),
                    output: output.kept,
                });
            }
            if began.elapsed() >= limit {
                kill(&mut child);
                output.take();
                return Ok(Ran {
                    status: None,
                    output: output.kept,
                });
            }
            std::thread::sleep(LOOK);
        }
    }
}

struct Output {
    reader: PipeReader,
    kept: Vec<u8>,
    most_bytes: usize,
}

impl Output {
    /// Takes what is there, so that the program does not wait; keeps its beginning.
    fn take(&mut self) {
        let mut part = [0; 8192];
        // A program that prints without end must not keep its limit from being looked at.
        for _ in 0..64 {
            match self.reader.read(&mut part) {
                Ok(0) => return,
                Ok(length) => {
                    let room = self.most_bytes.saturating_sub(self.kept.len());
                    self.kept.extend_from_slice(&part[..length.min(room)]);
                }
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(_) => return,
            }
        }
    }
}

fn kill(child: &mut Child) {
    // It may have ended meanwhile.
    if let Some(group) = i32::try_from(child.id()).ok().and_then(Pid::from_raw) {
        let _ = kill_process_group(group, Signal::KILL);
    }
    let _ = child.kill();
    let _ = child.wait();
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shell(script: &str) -> Program {
        Program::new("/bin/sh").argument("-c").argument(script)
    }

    #[test]
    fn output_is_cut_and_the_environment_is_small() {
        let long = shell("yes | head -c 100000; echo end").run(Duration::from_secs(30), 1000);
        let ran = long.unwrap();
        assert!(ran.status.unwrap().success());
        assert_eq!(ran.output.len(), 1000);
        let told = shell("echo $GIVEN; env | grep -c .").variable("GIVEN", "a b;c\0$d");
        let ran = told.run(Duration::from_secs(30), 1000).unwrap();
        let text = String::from_utf8(ran.output).unwrap();
        assert!(text.starts_with("a b;c$d\n"), "{text}");
        assert!(
            text.lines().last().unwrap().parse::<u32>().unwrap() < 9,
            "{text}"
        );
    }

    #[test]
    fn at_its_limit_a_program_goes_with_all_it_started() {
        let ran = shell("echo begun; sleep 300 & sleep 300").run(Duration::from_millis(200), 1000);
        let ran = ran.unwrap();
        assert!(ran.status.is_none());
        assert_eq!(ran.output, b"begun\n");
        assert!(Program::new("/nowhere/at/all").run(LOOK, 10).is_err());
    }
}
