"""The demo: fio on an emulated disk without and with a cache, then a crash in the middle of writes."""

import argparse
import pathlib
import subprocess
import sys
import tempfile

sys.dont_write_bytecode = True
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "bench"))

from lab import FOREBAY, MIB, Failed, Forebay, Result, Scratch, fio, fio_command, main, need, report, until

DISK_MIB = 2048
CACHE_MIB = 512
DISK = ["--origin", "disk.img", "--origin-emulate", "hdd"]
CACHE = ["--cache", "cache.img", "--create", "--mode", "writeback"]
# The first 256 MiB are what the clients work with.
WORKING_SET = ["--size=256M", "--time_based", "--runtime=8"]
LOADS = [
    ("random reads, warm", "4k x32", ["--rw=randread", "--bs=4k", "--iodepth=32", *WORKING_SET]),
    ("random writes", "4k x32", ["--rw=randwrite", "--bs=4k", "--iodepth=32", *WORKING_SET]),
    ("70/30 reads/writes", "8k x32",
     ["--rw=randrw", "--rwmixread=70", "--bs=8k", "--iodepth=32", *WORKING_SET]),
    ("long sequential write", "128k x4",
     ["--rw=write", "--bs=128k", "--iodepth=4", "--offset=512M", f"--size={3 * CACHE_MIB}M",
      "--runtime=25"]),
]
# What is written before the kill, and where the kill will interrupt eight writers.
FINISHED = ["--rw=randwrite", "--bs=4k", "--iodepth=32", "--offset=256M", "--size=64M",
            "--verify=crc32c"]
WRITERS = 8
WRITER_MIB = 24


def say(text=""):
    print(text, flush=True)


def served_by_cache(before, after):
    """The share of blocks that the disk was not needed for."""
    traffic = {
        key: after["traffic"][key] - before["traffic"][key]
        for key in ("read_blocks_hit", "read_blocks_missed", "write_blocks_hit", "write_blocks_missed")
    }
    bypassed = sum(
        entry["blocks"] - old["blocks"]
        for entry, old in zip(after["traffic"]["bypassed"], before["traffic"]["bypassed"])
    )
    blocks = sum(traffic.values())
    return max(0.0, blocks - traffic["read_blocks_missed"] - bypassed) / blocks


def run_loads(server, has_cache):
    results = []
    for name, shape, options in LOADS:
        say(f"    {name} ({shape})")
        before = server.status()
        result = Result(fio(server, *options))
        result.cached = served_by_cache(before, server.status()) if has_cache else None
        results.append(result)
    return results


def table(without, with_cache):
    say(f"\n{'':22} {'':8} {'':>10} {'IOPS':>8} {'MiB/s':>8} {'mean ms':>9} {'p99 ms':>9} {'by cache':>9}")
    for (name, shape, _), plain, cached in zip(LOADS, without, with_cache):
        for label, result in (("disk", plain), ("forebay", cached)):
            share = "" if result.cached is None else f"{result.cached:.1%}"
            head = (name, shape) if label == "disk" else ("", "")
            say(f"{head[0]:22} {head[1]:8} {label:>10} {result.iops:8.0f} {result.mib_s:8.1f} "
                f"{result.mean_ms:9.2f} {result.p99_ms:9.2f} {share:>9}")
        say(f"{'':22} {'':8} {'ratio':>10} {cached.iops / plain.iops:7.2f}x "
            f"{cached.mib_s / plain.mib_s:7.2f}x {plain.mean_ms / cached.mean_ms:8.1f}x "
            f"{plain.p99_ms / cached.p99_ms:8.1f}x\n")
    say("by cache: blocks read from or written to the cache instead of the disk. The ratios of times "
        "say how\nmany times shorter. A long sequential write is what a disk does well: here the\ncache also has the "
        "random writes of before to bring to the disk, which costs the stream some speed.")


def writer(number, *more):
    offset = 512 + number * WRITER_MIB
    return ["--rw=write", "--bs=4k", "--iodepth=1", f"--offset={offset}M", "--verify=crc32c", *more]


def crash(scratch, server):
    """Kills the daemon under eight writers; returns what each had been told was written."""
    say("    writing 64 MiB with checksums, to the end")
    fio(server, *FINISHED, "--do_verify=0")
    say(f"    {WRITERS} writers write on; kill -9 of the daemon in the middle")
    before = server.status()["traffic"]["write_requests"]
    writers = []
    for number in range(WRITERS):
        output = scratch.path / f"writer-{number}.json"
        command = fio_command(server, *writer(number, f"--size={WRITER_MIB}M", "--do_verify=0"))
        # Slow enough that all of them are in the middle.
        command += ["--rate=5m", f"--output={output}"]
        quiet = {"cwd": scratch.path, "stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
        writers.append((subprocess.Popen(command, **quiet), output))
    try:
        def under_way():
            return server.status()["traffic"]["write_requests"] - before > 6000
        until("the writers to get going", under_way, 60)
        dirty = server.status()["cache"]["dirty_bytes"]
        server.kill()
        for process, _ in writers:
            process.wait(60)
    except subprocess.TimeoutExpired as error:
        raise Failed("a writer did not notice that its server is gone") from error
    finally:
        for process, _ in writers:
            process.kill()
    acknowledged = []
    for _, output in writers:
        done = report(output.read_text())["jobs"][0]["write"]["io_bytes"]
        if not 0 < done < WRITER_MIB * MIB:
            raise Failed(f"a writer was not interrupted in the middle but after {done} bytes")
        acknowledged.append(done // 4096 * 4096)
    say(f"    killed with {dirty / MIB:.0f} MiB in the cache that the disk does not have;")
    say(f"    {sum(acknowledged) // 4096} blocks of the interrupted writers were acknowledged")
    return acknowledged


def verify(server, acknowledged):
    fio(server, *FINISHED, "--verify_only")
    say("    verified: the 64 MiB written before")
    for number, done in enumerate(acknowledged):
        fio(server, *writer(number, f"--size={done}", "--verify_only"))
    say(f"    verified: every one of the {sum(acknowledged) // 4096} acknowledged blocks")


def demo():
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--keep", action="store_true", help="keep the images")
    keep = arguments.parse_args().keep
    need("fio")
    with Scratch(tempfile.gettempdir(), 3 * 1024 * MIB, keep) as scratch:
        scratch.file("disk.img", DISK_MIB * MIB)
        scratch.file("cache.img", CACHE_MIB * MIB)
        say(f"A {DISK_MIB // 1024} GiB image that behaves like a 7,200 rpm disk, a {CACHE_MIB} MiB file "
            f"as its cache, fio through NBD.\nAll files are in {scratch.path}.\n")
        say("1. The disk alone: forebay serve --origin disk.img --origin-emulate hdd")
        server = Forebay(scratch, *DISK)
        without = run_loads(server, has_cache=False)
        server.stop()
        say("2. With the cache: ... --cache cache.img --create --mode writeback")
        server = Forebay(scratch, *DISK, *CACHE)
        say("    warming: one sequential read of 256 MiB")
        fio(server, "--rw=read", "--bs=128k", "--iodepth=4", "--size=256M")
        with_cache = run_loads(server, has_cache=True)
        table(without, with_cache)
        say("\n3. A crash")
        acknowledged = crash(scratch, server)
        server = Forebay(scratch, *DISK, *CACHE)
        after = server.status()["cache"]
        say(f"    started again: {after['cached_bytes'] / MIB:.0f} MiB cached, "
            f"{after['dirty_bytes'] / MIB:.0f} MiB of it still to be written to the disk")
        verify(server, acknowledged)
        server.stop()
    say(f"""
Nothing that was acknowledged is lost. What to try next:

    {FOREBAY} serve --origin YOUR-DISK-OR-IMAGE --cache YOUR-SSD-PARTITION --create \\
        --mode writethrough --nbd unix:/tmp/forebay.sock     # the origin's data stays as it is

    forebay status --watch          what it is doing, from another terminal
    forebay mode NAME writeback     switched while clients go on
    forebay drain NAME              write everything back to the disk
    forebay check CACHE             look at a cache that nobody serves

All commands and options: docs/commands.md""")


main(demo)
