"""What the demo and the benchmarks share: a scratch directory, daemons, fio, waiting with limits."""

import json
import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time

MIB = 1 << 20
ROOT = pathlib.Path(__file__).resolve().parent.parent
FOREBAY = os.path.abspath(os.environ.get("FOREBAY", ROOT / "target/release/forebay"))


class Failed(Exception):
    """Something that should have worked did not; the message says what."""


def need(*programs):
    """Refuses to begin without the programs that will be needed."""
    missing = [program for program in programs if not shutil.which(program)]
    if missing:
        raise Failed(f"please install: {' '.join(missing)}")
    if not os.access(FOREBAY, os.X_OK):
        raise Failed(f"{FOREBAY} is not there: build it with `cargo build --release` or set FOREBAY")


def until(what, is_so, limit_s=30.0):
    """Waits for a condition and returns its value."""
    end = time.monotonic() + limit_s
    while not (value := is_so()):
        if time.monotonic() > end:
            raise Failed(f"waited {limit_s:.0f} s in vain for {what}")
        time.sleep(0.02)
    return value


class Scratch:
    """A directory that disappears at the end, with everything that still runs in it."""

    def __init__(self, parent=None, room_bytes=0, keep=False):
        self.path = pathlib.Path(tempfile.mkdtemp(prefix="forebay-", dir=parent))
        self.keep = keep
        self.daemons = []
        free = shutil.disk_usage(self.path).free
        if free < room_bytes:
            self.path.rmdir()
            raise Failed(
                f"{self.path.parent} has {free // MIB} MiB free, {room_bytes // MIB} are needed: "
                "choose another place with TMPDIR"
            )

    def __enter__(self):
        return self

    def __exit__(self, *_):
        for daemon in self.daemons:
            daemon.kill()
            daemon.remove_shared_memory()
        if self.keep:
            print(f"kept: {self.path}")
        else:
            shutil.rmtree(self.path, ignore_errors=True)

    def file(self, name, size_bytes):
        """A sparse file."""
        path = self.path / name
        with open(path, "wb") as file:
            file.truncate(size_bytes)
        return path


class Server:
    """A process that serves NBD on a unix socket in the scratch directory."""

    def __init__(self, scratch, command, uri, is_up):
        self.scratch, self.uri = scratch, uri
        self.log = scratch.path / f"log-{len(scratch.daemons)}"
        with open(self.log, "w") as log:
            self.process = subprocess.Popen(
                [str(word) for word in command],
                cwd=scratch.path,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env=os.environ | {"XDG_RUNTIME_DIR": str(scratch.path)},
            )
        scratch.daemons.append(self)

        def up():
            if self.process.poll() is not None:
                raise Failed(f"{command[0]} ended at once:\n{self.log.read_text()}")
            return is_up(self)

        until(f"{command[0]} to serve", up)

    def cpu_s(self):
        """Processor time so far, user and system."""
        fields = pathlib.Path(f"/proc/{self.process.pid}/stat").read_text().rsplit(")", 1)[1].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def kill(self):
        """As a crash would end it."""
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGKILL)
        self.process.wait()

    def stop(self):
        """In order."""
        self.process.send_signal(signal.SIGTERM)
        try:
            self.process.wait(60)
        except subprocess.TimeoutExpired as error:
            raise Failed(f"the server did not stop:\n{self.log.read_text()}") from error

    def remove_shared_memory(self):
        """A killed daemon leaves its shared memory behind for the next one, which will not come."""
        for cache in re.findall(r"cache ([0-9a-f-]{36})", self.log.read_text()):
            for journal in pathlib.Path("/dev/shm").glob(f"forebay-*/{cache}-*"):
                journal.unlink(missing_ok=True)


class Forebay(Server):
    """`forebay serve`."""

    def __init__(self, scratch, *options):
        # A socket of its own, so that no client of a killed daemon is in the way.
        name = f"nbd-{len(scratch.daemons)}"
        self.control = scratch.path / f"control-{len(scratch.daemons)}"
        command = [FOREBAY, "serve", *options, "--nbd", f"unix:{scratch.path / name}"]
        command += ["--control", self.control, "--state-dir", scratch.path / "state"]
        self.command = command
        super().__init__(scratch, command, None, Forebay._is_up)

    def _is_up(self):
        found = re.search(r"^nbd\+unix://\S+", self.log.read_text(), re.MULTILINE)
        self.uri = found.group(0) if found else None
        return self.uri

    def run(self, *words, limit_s=60):
        """A command for this daemon; returns what it prints."""
        done = subprocess.run(
            [FOREBAY, *words, "--control", str(self.control)],
            capture_output=True, text=True, timeout=limit_s, check=False,
        )
        if done.returncode:
            raise Failed(f"forebay {' '.join(words)}: {done.stderr}")
        return done.stdout

    def status(self):
        return json.loads(self.run("status", "--json"))


def fio_command(server, *options):
    return ["fio", "--name=job", "--ioengine=nbd", f"--uri={server.uri}", "--output-format=json",
            "--verify_state_save=0", *options]


def fio(server, *options, limit_s=120):
    """Runs one fio job to its end; returns the whole report."""
    command = fio_command(server, *options)
    try:
        done = subprocess.run(
            command, cwd=server.scratch.path, capture_output=True, text=True, timeout=limit_s, check=False
        )
    except subprocess.TimeoutExpired as error:
        raise Failed(f"not done after {limit_s} s: {' '.join(command)}") from error
    if done.returncode:
        raise Failed(f"fio failed: {' '.join(command)}\n{done.stderr}{done.stdout[-2000:]}")
    return report(done.stdout)


def report(text):
    """The JSON in fio's output, which may have notes before it."""
    return json.loads(text[text.index("{"):])


class Result:
    """Reads and writes of a fio job together."""

    def __init__(self, fio_report):
        sides = [job[side] for job in fio_report["jobs"] for side in ("read", "write")]
        sides = [side for side in sides if side["total_ios"]]
        ios = sum(side["total_ios"] for side in sides)
        seconds = max(side["runtime"] for side in sides) / 1000
        self.ios = ios
        self.iops = ios / seconds
        self.mib_s = sum(side["io_bytes"] for side in sides) / MIB / seconds
        self.mean_ms = sum(side["clat_ns"]["mean"] * side["total_ios"] for side in sides) / ios / 1e6
        # Of two sides the slower: percentiles cannot be added.
        self.p99_ms = max(side["clat_ns"]["percentile"]["99.000000"] for side in sides) / 1e6


def main(run):
    """Runs a script; failures are one message, not a stack."""
    try:
        run()
    except Failed as failure:
        print(f"\nFAILED: {failure}", file=sys.stderr)
        sys.exit(1)
    except KeyboardInterrupt:
        sys.exit(130)
