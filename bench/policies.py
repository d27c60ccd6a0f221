#!/usr/bin/env python3
"""Compares `forebay trace simulate` with published miss ratios.

usage: bench/policies.py DIRECTORY

DIRECTORY holds miss-ratios.csv (trace, policy, cache_pct_of_footprint, cache_blocks, accesses,
miss_ratio) and traces/ as docs/policies.md names them. The traces are not part of the project.
"""

import bz2
import collections
import csv
import json
import lzma
import os
import pathlib
import subprocess
import sys
import tempfile

FOREBAY = os.environ.get("FOREBAY", "target/release/forebay")
NAMES = {"s3fifo": "s3-fifo", "wtinylfu": "w-tinylfu"}
KNOWN = ["s3-fifo", "lru", "fifo", "lfu", "clock", "2q", "arc", "lirs", "sieve", "w-tinylfu", "opt"]


def lis(path, unit):
    """Start and count a line; `unit` of them are one block."""
    text = subprocess.run(["zstdcat", path], check=True, capture_output=True, text=True).stdout
    for line in text.splitlines():
        start, count = map(int, line.split()[:2])
        if count:
            for block in range(start // unit, (start + count - 1) // unit + 1):
                yield f"{block}\n"


def main():
    directory = pathlib.Path(sys.argv[1])
    published = collections.defaultdict(dict)
    with open(directory / "miss-ratios.csv") as file:
        for row in csv.DictReader(file):
            key = NAMES.get(row["policy"], row["policy"]), int(row["cache_blocks"])
            published[row["trace"]][key] = float(row["miss_ratio"]), int(row["accesses"])
    traces = directory / "traces"
    inputs = {
        "cpio-4k": ("cloudphysics", lzma.open(traces / "cloudPhysicsIO.csv.xz", "rt")),
        "OLTP-asis": ("blocks", lis(traces / "OLTP.lis.zst", 1)),
        "P6-4k": ("blocks", lis(traces / "P6.lis.zst", 8)),
        "cbs-4k": ("tencent", bz2.open(traces / "tencent-cbs-sample.bz2", "rt")),
    }
    differences = collections.defaultdict(list)
    for name, (form, lines) in inputs.items():
        with tempfile.NamedTemporaryFile("w", suffix=".trace") as file:
            file.writelines(lines)
            file.flush()
            answer = subprocess.run(
                [FOREBAY, "trace", "simulate", file.name, "--format", form, "--json",
                 "--sizes", "1%,5%,10%,20%", "--policies", ",".join(KNOWN)],
                check=True, capture_output=True, text=True,
            )
        for result in json.loads(answer.stdout)["results"]:
            ratio, count = published[name][result["policy"], result["size_blocks"]]
            assert count == result["accesses"], (name, count, result)
            ours = round(result["miss_ratio"], 4)
            differences[result["policy"]].append((abs(ours - ratio), name, result["size_blocks"], ours, ratio))
    for policy, found in differences.items():
        worst = max(found)
        equal = sum(difference < 0.00005 for difference, *_ in found)
        where = "" if equal == len(found) else f", worst {worst[0]:.4f} ({worst[1]}, {worst[2]} blocks: {worst[3]} for {worst[4]})"
        print(f"{policy:10} {equal} of {len(found)} equal to four digits{where}")


if __name__ == "__main__":
    main()
