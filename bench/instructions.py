"""Holds the instructions of a whole guest for each request to the budgets in instructions.json: kernel 7.3, one
processor, disk and SSD in memory. Other work on the host changes nothing; three minutes a system.

    bench/instructions.py [SYSTEM…]     runs the lab's experiment, then looks; all systems of the budget without one
    bench/instructions.py --take        writes what the last runs found as the new budgets
"""

import json
import subprocess
import sys

sys.dont_write_bytecode = True

from lab import ROOT, Failed, main

BUDGETS = ROOT / "bench/instructions.json"
RESULTS = ROOT / "target/lab/linux-7.3/results/instructions"
KERNEL = "7.3"
# Builds that are the same on the way of a request differ by less: by where things lie in memory, and by a wake-up here
# and there.
ROOM = 1.025


def found(system):
    """Instructions by row, of the system's last run."""
    path = RESULTS / f"{system}.1.json"
    try:
        result = json.loads(path.read_text())
    except FileNotFoundError:
        raise Failed(f"{path} is not there: the experiment found nothing of {system}") from None
    if result["outcome"] != "complete":
        raise Failed(f"the run of {system} was not complete: {'; '.join(result['failures'])}")
    return {row: values[0] for row, values in result["values"].items() if "depth" in row}


def measure(systems):
    command = ["make", "lab", "EXPERIMENT=instructions", f"SYSTEMS={','.join(systems)}",
               f"LAB_OPTIONS=--kernel {KERNEL}"]
    if subprocess.run(command, cwd=ROOT).returncode != 0:
        raise Failed(f"this failed: {' '.join(command)}")


def look(system, budgets):
    """Prints each row beside its budget; returns the rows that are over."""
    values = found(system)
    over = []
    for row, budget in budgets.items():
        value = values.get(row)
        if value is None:
            raise Failed(f"the run of {system} has no row {row}")
        is_over = value > budget * ROOM
        over += [f"{system} {row}"] * is_over
        verdict = "over" if is_over else "ok" if value > budget / ROOM else "ok, less: lower it with --take"
        print(f"{system:<14} {row:<38} {value:>10.0f} {budget:>10} {verdict}")
    return over


def run():
    budgets = json.loads(BUDGETS.read_text())
    arguments = sys.argv[1:]
    if arguments == ["--take"]:
        taken = {system: {row: round(value) for row, value in sorted(found(system).items())} for system in budgets}
        BUDGETS.write_text(json.dumps(taken, indent=2) + "\n")
        return
    unknown = [system for system in arguments if system not in budgets]
    if unknown:
        raise Failed(f"no budget for {', '.join(unknown)}; there are {', '.join(budgets)}")
    systems = arguments or list(budgets)
    measure(systems)
    over = [row for system in systems for row in look(system, budgets[system])]
    if over:
        raise Failed(f"over its budget: {', '.join(over)}")


main(run)
