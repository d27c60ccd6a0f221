"""Processor time of the server per 4 KiB read hit, beside nbdkit without and with its cache filter.

Cache and origin are on tmpfs, so that only the servers' own work counts. Runs alternate, so that
whatever else the machine does meets all alike.
"""

import statistics

from lab import MIB, Forebay, Server, fio, Scratch

SIZE_MIB = 128
READS = 200_000
RUNS = 5
JOB = ["--rw=randread", "--bs=4k", "--iodepth=32", f"--size={SIZE_MIB}M",
       f"--io_size={READS * 4}k", "--norandommap", "--randrepeat=0"]
WARM = ["--rw=read", "--bs=128k", "--iodepth=4", f"--size={SIZE_MIB}M"]


class Nbdkit(Server):
    """`nbdkit` with its file plugin."""

    def __init__(self, scratch, name, filters, parameters):
        socket = scratch.path / f"nbdkit-{name}"
        command = ["nbdkit", "-f", "-U", socket, *filters, "file", "origin.img", *parameters]
        super().__init__(scratch, command, f"nbd+unix:///?socket={socket}", lambda _: socket.exists())


def cpu_us_per_read(server):
    before = server.cpu_s()
    job = fio(server, *JOB)["jobs"][0]["read"]
    return (server.cpu_s() - before) / job["total_ios"] * 1e6


def measure():
    with Scratch("/dev/shm", (3 * SIZE_MIB + 512) * MIB) as scratch:
        # Real data: the sparse parts of a file cost less to read.
        path = scratch.file("origin.img", 0)
        with open("/dev/urandom", "rb") as random, open(path, "wb") as file:
            for _ in range(SIZE_MIB):
                file.write(random.read(MIB))
        scratch.file("cache.img", 2 * SIZE_MIB * MIB)
        forebay = Forebay(scratch, "--origin", "origin.img", "--cache", "cache.img", "--create")
        plain = Nbdkit(scratch, "plain", [], [])
        cached = Nbdkit(scratch, "cache", ["--filter=cache"], ["cache=writeback", "cache-on-read=true"])
        servers = {"forebay": forebay, "nbdkit file": plain, "nbdkit --filter=cache file": cached}
        for server in servers.values():
            for _ in range(2):
                fio(server, *WARM)
        missed = forebay.status()["traffic"]["read_blocks_missed"]
        times = {name: [] for name in servers}
        for _ in range(RUNS):
            for name, server in servers.items():
                times[name].append(cpu_us_per_read(server))
        missed = forebay.status()["traffic"]["read_blocks_missed"] - missed
        medians = {name: statistics.median(values) for name, values in times.items()}
    ours, file, filtered = medians.values()
    detail = [f"{name}: {median:.2f} µs per read (runs: {', '.join(f'{t:.2f}' for t in times[name])})"
              for name, median in medians.items()]
    detail.append(f"reads of Forebay that missed: {missed} of {RUNS * READS}")
    return {
        "title": "Server CPU per 4 KiB read hit, depth 32, tmpfs",
        "commands": ["forebay serve --origin origin.img --cache cache.img --create",
                     "nbdkit -f -U SOCKET file origin.img",
                     "nbdkit -f -U SOCKET --filter=cache file origin.img cache=writeback cache-on-read=true",
                     "fio --ioengine=nbd " + " ".join(JOB)],
        "detail": detail,
        "rows": [("CPU, ratio to nbdkit file", ours / file, "at most", 1.2),
                 ("CPU, ratio to nbdkit's cache filter", ours / filtered, "at most", 0.5)],
    }
