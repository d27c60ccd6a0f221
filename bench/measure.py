"""Measures a running daemon beside nbdkit and beside the bare emulated disk, in turn, so that ratios hold on a busy
machine. docs/measurements.md keeps results.

    bench/measure.py [server_cpu] [request_cpu] [first_read] [stream_write]
"""

import statistics
import sys

sys.dont_write_bytecode = True

from lab import MIB, Failed, Forebay, Result, Scratch, Server, fio, main, need

DISK = ["--origin", "disk.img", "--origin-emulate", "hdd"]
CACHE = ["--cache", "cache.img", "--create"]
# On tmpfs only the servers' own work counts, with the copy that a device would do by itself.
MEMORY = "/dev/shm"
MEMORY_MIB = 128


def job(rw, size_kib, depth, *more):
    return [f"--rw={rw}", f"--bs={size_kib}k", f"--iodepth={depth}", *more]


def some(rw, size_kib, depth, requests):
    return job(rw, size_kib, depth, f"--size={MEMORY_MIB}M", f"--io_size={requests * size_kib}k",
               "--norandommap", "--randrepeat=0")


def cpu_us(server, requests, options):
    """Processor time of the server for each request."""
    before = server.cpu_s()
    fio(server, *options)
    return (server.cpu_s() - before) / requests * 1e6


def show(name, times):
    print(f"    {name}: {statistics.median(times):.2f} µs ({', '.join(f'{time:.2f}' for time in times)})")


class Nbdkit(Server):
    """`nbdkit` with its file plugin."""

    def __init__(self, scratch, name, filters, parameters):
        socket = scratch.path / f"nbdkit-{name}"
        command = ["nbdkit", "-f", "-U", socket, *filters, "file", "origin.img", *parameters]
        super().__init__(scratch, command, f"nbd+unix:///?socket={socket}", lambda _: socket.exists())


def server_cpu():
    """Server CPU per 4 KiB read hit, depth 32."""
    reads = 200_000
    with Scratch(MEMORY, (3 * MEMORY_MIB + 512) * MIB) as scratch:
        # Real data: the sparse parts of a file cost less to read.
        with open("/dev/urandom", "rb") as random, open(scratch.path / "origin.img", "wb") as file:
            for _ in range(MEMORY_MIB):
                file.write(random.read(MIB))
        scratch.file("cache.img", 2 * MEMORY_MIB * MIB)
        servers = {
            "forebay": Forebay(scratch, "--origin", "origin.img", *CACHE),
            "nbdkit file": Nbdkit(scratch, "plain", [], []),
            "nbdkit --filter=cache file":
                Nbdkit(scratch, "cache", ["--filter=cache"], ["cache=writeback", "cache-on-read=true"]),
        }
        for server in servers.values():
            for _ in range(2):
                fio(server, *job("read", 128, 4, f"--size={MEMORY_MIB}M"))
        times = {name: [] for name in servers}
        for _ in range(5):
            for name, server in servers.items():
                times[name].append(cpu_us(server, reads, some("randread", 4, 32, reads)))
    for name, all_times in times.items():
        show(name, all_times)
    ours, file, filtered = map(statistics.median, times.values())
    return [("CPU, ratio to nbdkit file", ours / file, "at most", 1.2),
            ("CPU, ratio to nbdkit's cache filter", ours / filtered, "at most", 0.5)]


def request_cpu():
    """Server CPU per request served from the cache; the constants of crates/virtual/src/cpu.rs come from it."""
    shapes = [("randread", 4, 1, 30_000), ("randread", 4, 32, 100_000), ("randread", 128, 1, 10_000),
              ("randwrite", 4, 1, 30_000), ("randwrite", 4, 32, 100_000), ("randwrite", 128, 1, 10_000)]
    with Scratch(MEMORY, 3 * 1024 * MIB) as scratch:
        scratch.file("origin.img", MEMORY_MIB * MIB)
        scratch.file("cache.img", 1024 * MIB)
        server = Forebay(scratch, "--origin", "origin.img", *CACHE, "--mode", "writeback")
        fio(server, *job("write", 128, 4, f"--size={MEMORY_MIB}M"))
        for rw, size_kib, depth, requests in shapes:
            times = [cpu_us(server, requests, some(rw, size_kib, depth, requests)) for _ in range(3)]
            show(f"{rw} {size_kib} KiB depth {depth}", times)
    return []


def beside_the_disk(cache_mib, runs, measured, *options):
    """The median of a speed with a blank cache to that of the disk alone."""
    ratios = []
    with Scratch(None, 2048 * MIB) as scratch:
        scratch.file("disk.img", 1024 * MIB)
        for _ in range(runs):
            speeds = []
            for more in ([], [*CACHE, *options]):
                scratch.file("cache.img", cache_mib * MIB)
                server = Forebay(scratch, *DISK, *more)
                speeds.append(measured(server))
                server.stop()
            ratios.append(speeds[1] / speeds[0])
            print(f"    disk {speeds[0]:.1f} MiB/s, with the cache {speeds[1]:.1f}: {ratios[-1]:.3f}")
    return statistics.median(ratios)


def first_read():
    """First sequential read of 384 MiB: promotion must not slow the reader down."""
    def speed(server):
        return Result(fio(server, *job("read", 128, 4, "--size=384M"))).mib_s

    return [("first sequential read, ratio to the disk", beside_the_disk(512, 5, speed), "at least", 0.97)]


def stream_write():
    """Sequential writing in write-back for four times the size of a cache, after it is full."""
    cache_mib = 128
    # What fills the cache first does not count.
    fill_mib, counted_mib = 2 * cache_mib, 4 * cache_mib

    def speed(server):
        fio(server, *job("write", 128, 4, f"--size={fill_mib + counted_mib}M", "--write_lat_log=writes",
                         "--log_offset=1"))
        (log,) = server.scratch.path.glob("writes_clat*.log")
        completions = [[int(field) for field in line.split(",")] for line in log.read_text().splitlines()]
        began = max(line[0] for line in completions if line[4] < fill_mib * MIB)
        ended = max(line[0] for line in completions)
        for old in server.scratch.path.glob("writes_*.log"):
            old.unlink()
        return counted_mib / (ended - began) * 1000

    ratio = beside_the_disk(cache_mib, 3, speed, "--mode", "writeback")
    return [("endless sequential write, ratio to the disk", ratio, "at least", 0.97)]


ALL = {measure.__name__: measure for measure in (server_cpu, request_cpu, first_read, stream_write)}


def run():
    names = sys.argv[1:] or list(ALL)
    if not set(names) <= set(ALL):
        raise Failed(f"choose among {', '.join(ALL)}")
    need("fio", *(["nbdkit"] if "server_cpu" in names else []))
    missed = []
    for name in names:
        print(f"{name}: {ALL[name].__doc__}", flush=True)
        for what, value, relation, limit in ALL[name]():
            is_ok = value <= limit if relation == "at most" else value >= limit
            print(f"    {what}: {value:.3f}, {relation} {limit}: {'ok' if is_ok else 'MISSED'}", flush=True)
            missed += [] if is_ok else [what]
    if missed:
        raise Failed(f"missed: {', '.join(missed)}")


main(run)
