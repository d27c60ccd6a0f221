"""Measures what the README promises about a running daemon; writes docs/measurements.md.

    bench/measure.py [server_cpu] [request_cpu] [first_read] [stream_write] [recovery]
"""

import datetime
import importlib
import pathlib
import platform
import subprocess
import sys

sys.dont_write_bytecode = True

from lab import ROOT, Failed, main, need

ALL = ["server_cpu", "request_cpu", "first_read", "stream_write", "recovery"]
PAGE = ROOT / "docs/measurements.md"


def is_ok(value, relation, limit):
    return {"at most": value <= limit, "at least": value >= limit, "equal to": value == limit}[relation]


def line(row):
    name, value, relation, limit = row
    return f"| {name} | {value:.3f} | {relation} {limit} | {'ok' if is_ok(*row[1:]) else '**missed**'} |"


def machine():
    cpus = pathlib.Path("/proc/cpuinfo").read_text().splitlines()
    models = [text.split(":")[1].strip() for text in cpus if text.startswith("model name")]
    versions = [subprocess.run([name, "--version"], capture_output=True, text=True, check=False).stdout.strip()
                for name in ("fio", "nbdkit")]
    commit = subprocess.run(["git", "-C", str(ROOT), "rev-parse", "--short", "HEAD"],
                            capture_output=True, text=True, check=False).stdout.strip()
    return (f"{len(models)} x {models[0] if models else platform.machine()}, Linux {platform.release()}, "
            f"{', '.join(versions)}, commit {commit}, {datetime.date.today()}")


def page(results):
    parts = ["# Measurements of a running daemon", "",
             "Written by `make bench`, which runs the commands below in pairs beside each other, so that "
             "the ratios hold\non a busy machine; absolute figures are this machine's: "
             f"{machine()}.", ""]
    parts += ["| measurement | value | target | |", "|---|---|---|---|"]
    parts += [line(row) for result in results for row in result["rows"]]
    for result in results:
        parts += ["", f"## {result['title']}", "", "```", *result["commands"], "```", ""]
        parts += [f"- {text}" for text in result["detail"]]
    return "\n".join(parts) + "\n"


def run():
    names = sys.argv[1:] or ALL
    if not set(names) <= set(ALL):
        raise Failed(f"choose among {', '.join(ALL)}")
    need("fio", *(["nbdkit"] if "server_cpu" in names else []))
    results = []
    for name in names:
        print(f"{name} ...", flush=True)
        result = importlib.import_module(name).measure()
        results.append(result)
        for text in [*result["detail"], *(line(row) for row in result["rows"])]:
            print(f"    {text}", flush=True)
    # A part of the measurements would make a page that looks whole.
    if names == ALL:
        PAGE.write_text(page(results))
        print(f"written: {PAGE}")
    missed = [row[0] for result in results for row in result["rows"] if not is_ok(*row[1:])]
    if missed:
        raise Failed(f"missed: {', '.join(missed)}")


main(run)
