"""Processor time of the daemon per request served from the cache, by size, direction and depth.

From these the constants of `crates/virtual/src/cpu.rs` come. Cache and origin are on tmpfs, so the
copy that a device would do by itself is counted too.
"""

import statistics

from lab import MIB, Forebay, Scratch, fio

SIZE_MIB = 128
RUNS = 3
SHAPES = [("randread", 4, 1, 30_000), ("randread", 4, 32, 100_000), ("randread", 128, 1, 10_000),
          ("randwrite", 4, 1, 30_000), ("randwrite", 4, 32, 100_000), ("randwrite", 128, 1, 10_000)]


def job(rw, size_kib, depth, requests):
    return [f"--rw={rw}", f"--bs={size_kib}k", f"--iodepth={depth}", f"--size={SIZE_MIB}M",
            f"--io_size={requests * size_kib}k", "--norandommap", "--randrepeat=0"]


def measure():
    with Scratch("/dev/shm", 3 * 1024 * MIB) as scratch:
        scratch.file("origin.img", SIZE_MIB * MIB)
        scratch.file("cache.img", 1024 * MIB)
        server = Forebay(scratch, "--origin", "origin.img", "--cache", "cache.img", "--create",
                         "--mode", "writeback")
        fio(server, "--rw=write", "--bs=128k", "--iodepth=4", f"--size={SIZE_MIB}M")
        detail = []
        for rw, size_kib, depth, requests in SHAPES:
            times = []
            for _ in range(RUNS):
                before = server.cpu_s()
                fio(server, *job(rw, size_kib, depth, requests))
                times.append((server.cpu_s() - before) / requests * 1e6)
            detail.append(f"{rw} {size_kib} KiB depth {depth}: {statistics.median(times):.2f} µs per request "
                          f"(runs: {', '.join(f'{time:.2f}' for time in times)})")
    return {
        "title": "Server CPU per request served from the cache, tmpfs",
        "commands": ["forebay serve --origin origin.img --cache cache.img --create --mode writeback",
                     *("fio --ioengine=nbd " + " ".join(job(*shape)) for shape in SHAPES)],
        "detail": detail,
        "rows": [],
    }
