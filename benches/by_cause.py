#!/usr/bin/env python3
"""Verdicts by cause with and without a planted cause, on this machine's own noise.

usage: by_cause.py WHYLATE OUT [RUNS [CPU]]     (as root; a run takes about 25 s; RUNS of each kind, by default 10)

Each run has two cells of 8 repeats of 1 s. In `null` runs they are the same: the load sleeps. In `plant` runs the load is a
SCHED_FIFO 98 thread named `thief` that takes the CPU for 150 us, 20 times a second at random moments. The script counts the runs
that claim a cause, that find the thief, and that claim a difference of p99 or of the maximum. OUT keeps the run directories.
Called again with the same OUT it judges the existing runs and makes only the missing ones."""

import json
import os
import random
import subprocess
import sys
import time

PLAN = """name = "{name}"
duration = "1s"
repeats = 8
primary = "timer p99"
causes = true
settle = "50ms"
warmup = "20ms"
noise_floor = "0s"
[target]
cpus = "{cpu}"
[[probe]]
kind = "timer"
interval = "200us"
priority = 95
[[load]]
name = "x"
kind = "exec"
command = {command}
[[cell]]
loads = []
[[cell]]
loads = ["x"]
"""


def thief(cpu):
    os.sched_setaffinity(0, {cpu})
    os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(98))
    with open("/proc/self/comm", "w") as comm:
        comm.write("thief")
    while True:
        time.sleep(random.uniform(0.5, 1.5) / 20)
        end = time.monotonic_ns() + 150_000
        while time.monotonic_ns() < end:
            pass


def report(whylate, run):
    found = subprocess.run([whylate, "report", run, "--json"], capture_output=True, text=True, check=False)
    return json.loads(found.stdout)


def main():
    if sys.argv[1] == "thief":
        return thief(int(sys.argv[2]))
    whylate, out = os.path.abspath(sys.argv[1]), os.path.abspath(sys.argv[2])
    runs = int(sys.argv[3]) if len(sys.argv) > 3 else 10
    cpu = int(sys.argv[4]) if len(sys.argv) > 4 else max(os.sched_getaffinity(0))
    os.makedirs(out, exist_ok=True)
    commands = {
        "null": ["sleep", "100000"],
        "plant": [sys.executable, os.path.abspath(__file__), "thief", str(cpu)],
    }
    for name, command in commands.items():
        with open(f"{out}/{name}.toml", "w") as plan:
            plan.write(PLAN.format(name=name, cpu=cpu, command=json.dumps(command)))
    for nth in range(1, runs + 1):
        for name in commands:
            run = f"{out}/{name}{nth}"
            if not os.path.exists(run):
                subprocess.run([whylate, "run", f"{out}/{name}.toml", "-o", run, "-q"], stdout=subprocess.DEVNULL, check=False)
    is_claim = lambda row: row["change"] not in ("same", "cannot_tell")
    for name in commands:
        total = found = others = 0
        by_statistic = {"p99": 0, "max": 0}
        for nth in range(1, runs + 1):
            try:
                result = report(whylate, f"{out}/{name}{nth}")
            except json.JSONDecodeError:
                continue
            total += 1
            claims = [row for row in result.get("cause_contrasts", []) if is_claim(row)]
            own = [row for row in claims if row["cause"] == "thread: thief"]
            found += bool(own)
            others += len(own) < len(claims)
            for row in (row for row in claims if row not in own):
                print(f"{name}{nth}: {row['cause']}: {row['change']}, p {row['p_value']:.4f}")
            for row in result["comparisons"]:
                if row["statistic"] in by_statistic and row["outcome"] in ("worse", "better"):
                    by_statistic[row["statistic"]] += 1
        print(
            f"{name}: {total} runs; the thief is claimed in {found}, something else in {others}; "
            f"p99 differs in {by_statistic['p99']}, the maximum in {by_statistic['max']}"
        )


if __name__ == "__main__":
    main()
