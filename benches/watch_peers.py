#!/usr/bin/env python3
"""What `whylate watch` costs a thread that it watches, and one that it does not, beside perf and bpftrace, in alternating rounds.

    benches/watch_peers.py [--binary target/release/whylate] [--before OTHER_BINARY] [--rounds 9] [--seconds 2]

Two pinned SCHED_FIFO threads of one process (benches/roundtrip_peer.c) pass a byte to and fro by pipes on the last CPU: a
round trip is two wake-ups and two switches, and the CPU never idles, so what it takes longer beside a tool is what the tool costs.
Beside nothing, `watch` of the process, `watch` of another one, `perf sched record`, and bpftrace's tools runqlat and
offcputime in one script (by tracepoints; stacks as offcputime keeps them). `--before` adds another build of whylate.

Prints each round (mean of a round trip in microseconds), then for each tool the median of what it adds to "none" of the same
round, for one activation (half a round trip). Needs root; perf and bpftrace where they are installed; `--also NAME=COMMAND` adds a tool.

    benches/watch_peers.py latency [--binary …] [--rounds 30] [--seconds 3]

In place of that: cyclictest at 1 kHz with and without a watch of it, in pairs whose order is drawn; the ratios of p50 and p99 with
the interval that holds their median with 95 %.
"""

import argparse
import json
import math
import os
import random
import re
import shlex
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

HERE = Path(__file__).parent
SCRIPT = """
tracepoint:sched:sched_wakeup, tracepoint:sched:sched_wakeup_new { @queued[args->pid] = nsecs; }
tracepoint:sched:sched_switch {
    if (args->prev_state == 0) { @queued[args->prev_pid] = nsecs; }
    @left[args->prev_pid] = nsecs;
    $at = @queued[args->next_pid];
    if ($at) { @usecs = hist((nsecs - $at) / 1000); }
    delete(@queued[args->next_pid]);
    $since = @left[args->next_pid];
    if ($since) { @off[kstack, ustack, args->next_comm] = sum(nsecs - $since); }
    delete(@left[args->next_pid]);
}
END { clear(@queued); clear(@left); clear(@off); }
"""


def build_peer(folder):
    program = folder / "roundtrip_peer"
    command = ["cc", "-O2", "-pthread", "-o", str(program), str(HERE / "roundtrip_peer.c")]
    subprocess.run(command, check=True)
    return program


def round_trip_us(program, seconds):
    cpu = str(os.cpu_count() - 1)
    out = subprocess.run([program, "pipe", cpu, cpu, str(seconds)], capture_output=True, text=True, check=True).stdout
    return json.loads(out)["mean_ns"] / 1000


def beside(command, program, seconds, folder):
    if not command:
        return round_trip_us(program, seconds)
    with open(folder / "tool", "w") as told:
        tool = subprocess.Popen(command, stdout=told, stderr=told)
        time.sleep(4 if command[0] == "bpftrace" else 2.5)
        if tool.poll() is not None:
            sys.exit(f"{command} ended: {(folder / 'tool').read_text()}")
        found = round_trip_us(program, seconds)
        tool.send_signal(signal.SIGINT)
        tool.wait(60)
    return found


def quantiles_us(seconds):
    command = ["cyclictest", "-q", "-m", "-t1", "-a", str(os.cpu_count() - 1), "-p80", "-i1000", f"-D{seconds}", "-N", "-h3000000"]
    text = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    rows = sorted((int(value), int(count)) for value, count in re.findall(r"^(\d+)\s+(\d+)\s*$", text, re.M) if int(count))
    total = sum(count for _, count in rows)
    found = []
    for part in (0.5, 0.99):
        seen = 0
        for value, count in rows:
            seen += count
            if seen >= part * total:
                found.append(value / 1000)
                break
    return found


def latency(options, folder):
    """The ratios of p50 and p99, watched to not watched, of pairs of runs of cyclictest."""
    pairs = []
    for number in range(options.rounds):
        pair = {}
        for watched in random.sample([False, True], 2):
            if watched:
                command = [options.binary, "watch", "-q", "-D", "600s", "--task", "cyclictest", "-o", str(folder / f"run-{number}")]
                with open(folder / "tool", "w") as told:
                    tool = subprocess.Popen(command, stdout=told, stderr=told)
                    time.sleep(2.5)
                    pair[True] = quantiles_us(options.seconds)
                    tool.send_signal(signal.SIGINT)
                    tool.wait(60)
            else:
                pair[False] = quantiles_us(options.seconds)
        pairs.append(pair)
        print(number + 1, "alone", pair[False], "watched", pair[True], flush=True)
    for which, name in enumerate(["p50", "p99"]):
        ratios = sorted(pair[True][which] / pair[False][which] for pair in pairs)
        # The order statistics that the sign test keeps at 5 %.
        count, outside, chance = len(ratios), 0, 0.0
        while chance + math.comb(count, outside) / 2**count <= 0.025:
            chance += math.comb(count, outside) / 2**count
            outside += 1
        low, high = ratios[max(outside - 1, 0)], ratios[count - max(outside, 1)]
        alone = statistics.median(pair[False][which] for pair in pairs)
        watched = statistics.median(pair[True][which] for pair in pairs)
        middle = statistics.median(ratios)
        print(f"{name}: {alone:.2f} us alone, {watched:.2f} us watched (medians); ratio {middle:.3f}, 95 % {low:.3f} to {high:.3f}")


def main():
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("what", nargs="?", choices=["cost", "latency"], default="cost")
    arguments.add_argument("--binary", default="target/release/whylate")
    arguments.add_argument("--before")
    arguments.add_argument("--rounds", type=int, default=9)
    arguments.add_argument("--seconds", type=int, default=2)
    arguments.add_argument("--also", action="append", default=[], metavar="NAME=COMMAND")
    options = arguments.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        if options.what == "latency":
            return latency(options, folder)
        program = build_peer(folder)
        script = folder / "peers.bt"
        script.write_text(SCRIPT)

        def watch(binary, task):
            return [binary, "watch", "-q", "-D", "600s", "--task", task, "-o", str(folder / f"run-{time.time_ns()}")]

        tools = {"none": lambda: None}
        for name, binary in [("watch", options.binary), ("before", options.before)]:
            if binary:
                tools[f"{name}, of it"] = lambda binary=binary: watch(binary, "roundtrip_peer")
                tools[f"{name}, of another"] = lambda binary=binary: watch(binary, "nobody")
        peers = [name for name, program in [("perf sched record", "perf"), ("bpftrace", "bpftrace")] if shutil.which(program)]
        tools["perf sched record"] = lambda: ["perf", "sched", "record", "-a", "-o", str(folder / "perf.data")]
        tools["bpftrace"] = lambda: ["bpftrace", str(script)]
        tools = {name: tool for name, tool in tools.items() if name in peers or name not in ["perf sched record", "bpftrace"]}
        for name, command in (one.split("=", 1) for one in options.also):
            tools[name] = lambda command=command: shlex.split(command)
        seen = {name: [] for name in tools}
        for number in range(options.rounds):
            for name in random.sample(list(tools), len(tools)):
                seen[name].append(beside(tools[name](), program, options.seconds, folder))
            print(number + 1, {name: round(values[-1], 2) for name, values in seen.items()}, flush=True)
    none = seen["none"]
    print(f"none: median {statistics.median(none):.2f} us for a round trip")
    cost = {name: statistics.median((one - alone) / 2 for one, alone in zip(values, none)) for name, values in seen.items()}
    for name, adds in cost.items():
        beside_peers = ", ".join(f"{adds / cost[peer]:.2f} of {peer}" for peer in peers)
        if name != "none":
            print(f"{name}: {adds:.2f} us for an activation ({beside_peers})")


main()
