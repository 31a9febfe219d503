#!/usr/bin/env python3
"""How many repeats `fix` takes if a planted thread is to blame and the host's noise is much larger: by cause, and by the goal alone.

usage: fix_by_cause.py WHYLATE OUT [RUNS [CPU]]     (as root; RUNS searches of each kind, by default 3; one takes 1 to 3 minutes)

A SCHED_FIFO 98 thread named `thief` takes CPU for 150 to 300 us, 20 times a second at random moments, all the time. `fix` may lower
its priority or move it.
Searches for p99 and for the maximum, each with the ledger and with `--ignore-causes`. OUT keeps the run directories."""

import json
import os
import random
import signal
import subprocess
import sys
import time

PLAN = """name = "thief"
duration = "1s"
repeats = 8
settle = "50ms"
warmup = "20ms"
noise_floor = "0s"
[target]
cpus = "{cpu}"
[[probe]]
kind = "timer"
interval = "200us"
priority = 95
"""


def thief(cpu):
    os.sched_setaffinity(0, {cpu})
    os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(98))
    with open("/proc/self/comm", "w") as comm:
        comm.write("thief")
    while True:
        time.sleep(random.uniform(0.5, 1.5) / 20)
        end = time.monotonic_ns() + random.randrange(150_000, 300_000)
        while time.monotonic_ns() < end:
            pass


def search(whylate, plan, out, goal, seed, yes, more):
    if not os.path.exists(out):
        command = [whylate, "fix", plan, "--goal", goal, "--yes", yes, "--seed", str(seed), "--budget", "4m", "-q", "-o", out, *more]
        subprocess.run(command, stdout=subprocess.DEVNULL, check=False)
    shown = subprocess.run([whylate, "fix", "--show", out, "--json"], capture_output=True, text=True, check=False)
    return json.loads(shown.stdout)


def main():
    if sys.argv[1] == "thief":
        return thief(int(sys.argv[2]))
    whylate, out = os.path.abspath(sys.argv[1]), os.path.abspath(sys.argv[2])
    runs = int(sys.argv[3]) if len(sys.argv) > 3 else 3
    cpu = int(sys.argv[4]) if len(sys.argv) > 4 else max(os.sched_getaffinity(0))
    os.makedirs(out, exist_ok=True)
    plan = f"{out}/plan.toml"
    with open(plan, "w") as file:
        file.write(PLAN.format(cpu=cpu))
    planted = subprocess.Popen([sys.executable, os.path.abspath(__file__), "thief", str(cpu)])
    try:
        for goal in ("timer p99", "timer max"):
            for kind, more in (("cause", []), ("goal", ["--ignore-causes"])):
                for seed in range(1, runs + 1):
                    name = f"{goal.split()[1]}-{kind}-{seed}"
                    found = search(whylate, plan, f"{out}/{name}", goal, seed, "priority-thief,affinity-thief", more)
                    with open(f"{out}/{name}/fix.jsonl") as steps:
                        phases = [json.loads(line)["phase"] for line in steps]
                    screened = phases.index("confirm") if "confirm" in phases else len(phases)
                    proved = found["claims"] and found["claims"][0]["outcome"] == "proved"
                    first = f"{screened + 2 * len(found['claims'][0]['pairs'])}" if proved else "none"
                    print(
                        f"{name}: {found['answer']}, first proof after {first} of {found['repeats']} repeats, "
                        f"{found['recommended']}: {found['sentence']}",
                        flush=True,
                    )
    finally:
        planted.send_signal(signal.SIGKILL)
        planted.wait()


if __name__ == "__main__":
    main()
