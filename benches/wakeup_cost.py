#!/usr/bin/env python3
"""How much CPU time a wake-up takes with whylate's programs and with bpftrace's runqlat script, without the kernel's own statistics.

    benches/wakeup_cost.py [--hold target/release/examples/hold] [--rounds 9] [--seconds 3] [--kib 0,8192]

cyclictest (SCHED_FIFO 95) wakes 1,000 and 5,000 times a second on the last CPU, and a loop of an ordinary thread there
(benches/gap_peer.c) notes each gap in which cyclictest ran: interrupt, switch, task, switch back, and what every tool adds to them. The
kernel's statistics (`benches/bpf_cost.sh`) count the time in programs alone, with some 30 ns of their own for each
run, and not how an event comes to a program: a bpftrace program at a tracepoint gets a copy of its fields. `--kib`: how much memory the
loop walks through meanwhile; with more than the caches hold, each event finds its code and data in none.

Arms in rounds whose order is drawn: nothing, histograms, histograms and causes (example `hold` of whylate-bpf), bpftrace. Each arm is measured in tenths of
a second; the figure is the one below which a tenth (a quarter, half) of them lie: a virtual machine's CPU is slower for seconds while its
host is busy. Prints what each arm adds to "nothing", and its share of what bpftrace adds. Needs root, cc, cyclictest and bpftrace.
"""

import argparse
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

HERE = Path(__file__).parent
PERIODS_US = [1000, 200]
GOALS = {1000: {"histograms": 0.5, "all": 0.6}, 200: {"histograms": 0.35, "all": 0.5}}


def gap(program, cpu, period_us, seconds, kib):
    """The median gap of each tenth of a second, in nanoseconds."""
    cyclic = ["cyclictest", "-q", "-m", "-t1", f"-a{cpu}", "-p95", f"-i{period_us}", "-D1h"]
    cyclic = subprocess.Popen(cyclic, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        time.sleep(0.3)
        out = subprocess.run([program, str(cpu), str(seconds), str(kib)], capture_output=True, text=True, check=True).stdout
    finally:
        cyclic.terminate()
        cyclic.wait()
    windows = [[int(word) for word in line.split()] for line in out.splitlines()]
    # One gap for each wake-up, and a few for other tasks: else the median is not one of a wake-up.
    wakeups = 100_000 / period_us
    return [median for count, median in windows if 0.9 * wakeups <= count <= 1.1 * wakeups]


def measured_with(command, measure, folder):
    if not command:
        return measure()
    with open(folder / "tool", "w") as output:
        tool = subprocess.Popen(command, stdout=output, stderr=output)
        time.sleep(3)
        if tool.poll() is not None:
            sys.exit(f"{command} ended: {(folder / 'tool').read_text()}")
        found = measure()
        tool.send_signal(signal.SIGINT)
        tool.wait(60)
    return found


def main():
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--hold", default="target/release/examples/hold")
    arguments.add_argument("--rounds", type=int, default=9)
    arguments.add_argument("--seconds", type=int, default=3)
    arguments.add_argument("--kib", default="0,8192")
    options = arguments.parse_args()
    cpu = os.cpu_count() - 1
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        program = folder / "gap_peer"
        subprocess.run(["cc", "-O2", "-o", str(program), str(HERE / "gap_peer.c")], check=True)
        hold = lambda what: [options.hold, "600", what, f"0-{cpu}", "uncounted"]
        arms = {"nothing": [], "histograms": hold("histograms"), "all": hold("all"), "bpftrace": ["bpftrace", str(HERE / "runqlat.bt")]}
        cases = [(period, int(kib)) for kib in options.kib.split(",") for period in PERIODS_US]
        seen = {case: {arm: [] for arm in arms} for case in cases}
        for number in range(options.rounds):
            for arm in random.sample(list(arms), len(arms)):
                measure = lambda: [gap(program, cpu, period, options.seconds, kib) for period, kib in cases]
                for case, value in zip(cases, measured_with(arms[arm], measure, folder)):
                    seen[case][arm] += value
            print("round", number + 1, flush=True)
    for period, kib in cases:
        of = {arm: sorted(windows) for arm, windows in seen[period, kib].items()}
        print(f"{1_000_000 // period} wake-ups a second, {kib} KiB walked")
        for share in [0.1, 0.25, 0.5]:
            gaps = {arm: windows[int(share * len(windows))] for arm, windows in of.items()}
            adds = {arm: value - gaps["nothing"] for arm, value in gaps.items()}
            ratios = {arm: f"{adds[arm] / adds['bpftrace']:.2f} of bpftrace (goal {goal})" for arm, goal in GOALS[period].items()}
            print(f"  quantile {share} of {len(of['nothing'])} windows: nothing {gaps['nothing']} ns; more: {adds}; {ratios}")


main()
