#!/usr/bin/env python3
"""How far `forebay advise`'s sampled miss-ratio curve is from the exact one, trace by trace.

usage: bench/advise.py [--samples N,N] FORMAT:FILE...
"""

import json
import os
import subprocess
import sys

FOREBAY = os.environ.get("FOREBAY", "target/release/forebay")


def run(*arguments):
    answer = subprocess.run([FOREBAY, *arguments, "--json"], check=True, capture_output=True, text=True)
    return json.loads(answer.stdout)


def main():
    arguments = sys.argv[1:]
    samples = ["131072", "16384"]
    if arguments[:1] == ["--samples"]:
        samples = arguments[1].split(",")
        arguments = arguments[2:]
    for trace in arguments:
        form, name = trace.split(":", 1)
        for most in samples:
            advice = run("advise", name, "--format", form, "--samples", most)
            points = advice["curve"] + [advice["recommendation"]["expected"]]
            sizes = ",".join(str(point["size_blocks"]) for point in points)
            exact = run("trace", "simulate", name, "--format", form, "--policies", "lru", "--sizes", sizes)
            errors = [
                (abs(point["miss_ratio"] - result["miss_ratio"]), point["size_blocks"])
                for point, result in zip(points, exact["results"])
            ]
            worst, size = max(errors)
            mean = sum(error for error, _ in errors) / len(errors)
            print(f"{name} --samples {most}: {advice['sampled_blocks']} blocks followed, worst {worst:.4f} "
                  f"(at {size} blocks), mean {mean:.4f}, {len(errors)} sizes")


if __name__ == "__main__":
    main()
