"""The first sequential read of data that is not cached: promotion must not slow the reader down."""

import statistics

from lab import MIB, Forebay, Result, Scratch, fio

SIZE_MIB = 384
RUNS = 5
JOB = ["--rw=read", "--bs=128k", "--iodepth=4", f"--size={SIZE_MIB}M"]
DISK = ["--origin", "disk.img", "--origin-emulate", "hdd"]
CACHE = ["--cache", "cache.img", "--create"]


def run(scratch, *options):
    server = Forebay(scratch, *DISK, *options)
    speed = Result(fio(server, *JOB)).mib_s
    promoted = server.status()["traffic"]["promoted_blocks"]
    server.stop()
    return speed, promoted


def measure():
    pairs, promoted = [], []
    with Scratch(None, 1024 * MIB) as scratch:
        scratch.file("disk.img", 1024 * MIB)
        for _ in range(RUNS):
            plain, _ = run(scratch)
            scratch.file("cache.img", 512 * MIB)
            cached, blocks = run(scratch, *CACHE)
            pairs.append((plain, cached))
            promoted.append(blocks)
    return {
        "title": f"First sequential read of {SIZE_MIB} MiB, 128 KiB, emulated 7,200 rpm disk",
        "commands": ["forebay serve " + " ".join(DISK), "forebay serve " + " ".join(DISK + CACHE),
                     "fio --ioengine=nbd " + " ".join(JOB)],
        "detail": [f"disk {plain:.1f} MiB/s, with a blank cache {cached:.1f} MiB/s: {cached / plain:.3f}"
                   for plain, cached in pairs]
        + [f"blocks promoted meanwhile: {min(promoted)} or more of {SIZE_MIB * 256}"],
        "rows": [("first sequential read, ratio to the disk",
                  statistics.median(cached / plain for plain, cached in pairs), "at least", 0.97)],
    }
