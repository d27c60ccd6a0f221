"""Endless sequential writing in write-back, after the cache is full, for four times its size."""

import statistics

from lab import MIB, Forebay, Scratch, fio

CACHE_MIB = 128
# What fills the cache first does not count.
FILL_MIB = 2 * CACHE_MIB
COUNTED_MIB = 4 * CACHE_MIB
RUNS = 3
JOB = ["--rw=write", "--bs=128k", "--iodepth=4", f"--size={FILL_MIB + COUNTED_MIB}M",
       "--write_lat_log=writes", "--log_offset=1"]
DISK = ["--origin", "disk.img", "--origin-emulate", "hdd"]
CACHE = ["--cache", "cache.img", "--create", "--mode", "writeback"]


def speed(scratch, *options):
    """MiB/s of the counted part, from the log of every completion."""
    server = Forebay(scratch, *DISK, *options)
    fio(server, *JOB)
    traffic = server.status()["traffic"]
    server.stop()
    (log,) = scratch.path.glob("writes_clat*.log")
    times = {}
    for line in log.read_text().splitlines():
        time_ms, _, _, _, offset = (int(field) for field in line.split(",")[:5])
        times[offset] = time_ms
    began = max(time for offset, time in times.items() if offset < FILL_MIB * MIB)
    for old in scratch.path.glob("writes_*.log"):
        old.unlink()
    return COUNTED_MIB / (max(times.values()) - began) * 1000, traffic


def measure():
    pairs, detail = [], []
    with Scratch(None, 2048 * MIB) as scratch:
        scratch.file("disk.img", 1024 * MIB)
        for _ in range(RUNS):
            plain, _ = speed(scratch)
            scratch.file("cache.img", CACHE_MIB * MIB)
            cached, traffic = speed(scratch, *CACHE)
            pairs.append((plain, cached))
            around = sum(entry["blocks"] for entry in traffic["bypassed"])
            detail.append(f"disk {plain:.1f} MiB/s, with the cache {cached:.1f} MiB/s: "
                          f"{cached / plain:.3f} ({around * 4096 // MIB} MiB went around the cache)")
    return {
        "title": f"Write-back under sequential writing of 128 KiB, {COUNTED_MIB} MiB after a "
                 f"{CACHE_MIB} MiB cache is full",
        "commands": ["forebay serve " + " ".join(DISK), "forebay serve " + " ".join(DISK + CACHE),
                     "fio --ioengine=nbd " + " ".join(JOB)],
        "detail": detail,
        "rows": [("endless sequential write, ratio to the disk",
                  statistics.median(cached / plain for plain, cached in pairs), "at least", 0.97)],
    }
