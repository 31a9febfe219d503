#!/usr/bin/env python3
"""What `whylate watch` costs a thread that it watches, and one that it does not, compared with perf and bpftrace, in alternating rounds.

    benches/watch_peers.py [--binary target/release/whylate] [--before OTHER_BINARY] [--rounds 9] [--seconds 2]

Two pinned SCHED_FIFO threads of one process (benches/roundtrip_peer.c) pass a byte to and fro by pipes on the last CPU: a
round trip is two wake-ups and two switches, and the CPU never idles, so what it takes longer with a tool is what the tool costs.
The arms: nothing, `watch` of the process, `watch` of another one, `perf sched record`, and bpftrace's tools runqlat and
offcputime in one script (by tracepoints; stacks as offcputime keeps them). `--before` adds another build of whylate.

Prints each round (mean of a round trip in microseconds), then for each tool the median of what it adds to "none" of the same
round, for one activation (half a round trip). Needs root; perf and bpftrace if they are installed; `--also NAME=COMMAND` adds a tool.

    benches/watch_peers.py latency [--binary …] [--rounds 30] [--seconds 3] [--threads 1] [--busy] [--traced] [--before OTHER_BINARY]

Instead: cyclictest at 1 kHz, each thread on a CPU of its own, with and without a watch of it, in rounds whose order is drawn; the
ratios of p50 and p99 with the interval that holds their median with 95 %. `--busy`: an ordinary loop (nice 19) has each of these CPUs
meanwhile, so that none idles, as with `idle=poll`. `--traced` adds a round with the kernel's own trace buffer taking
wake-ups and switches alone: less than that no tool can attach.
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
TRACEFS = Path("/sys/kernel/tracing")
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


def trip_with(command, program, seconds, folder):
    if not command:
        return round_trip_us(program, seconds)
    with open(folder / "tool", "w") as output:
        tool = subprocess.Popen(command, stdout=output, stderr=output)
        time.sleep(4 if command[0] == "bpftrace" else 2.5)
        if tool.poll() is not None:
            sys.exit(f"{command} ended: {(folder / 'tool').read_text()}")
        found = round_trip_us(program, seconds)
        tool.send_signal(signal.SIGINT)
        tool.wait(60)
    return found


def quantiles_us(seconds, threads):
    """p50 and p99 of each thread of cyclictest, one on each of the last CPUs."""
    last = os.cpu_count() - 1
    where = ["-t", str(threads), "-a", f"{last - threads + 1}-{last}"]
    command = ["cyclictest", "-q", "-m", *where, "-p80", "-i1000", "-d0", f"-D{seconds}", "-N", "-h300000"]
    text = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    rows = [[int(word) for word in line.split()] for line in text.splitlines() if re.match(r"\d+\s+\d", line)]
    longer = [int(word) for word in re.search(r"^# Histogram Overflows:(.*)$", text, re.M)[1].split()]
    found = []
    for thread in range(1, threads + 1):
        counts = [(row[0], row[thread]) for row in sorted(rows) if row[thread]] + [(300_000, longer[thread - 1])]
        total, seen, quantiles = sum(count for _, count in counts), 0, []
        for value, count in counts:
            seen += count
            while len(quantiles) < 2 and seen >= [0.5, 0.99][len(quantiles)] * total:
                quantiles.append(value / 1000)
        found.append(quantiles)
    return found


def switch_events(on):
    """The kernel's own trace buffer takes wake-ups and switches, as `trace-cmd start` would."""
    for event in ["sched_waking", "sched_switch"]:
        (TRACEFS / "events/sched" / event / "enable").write_text(str(int(on)))


def latency(options, folder):
    """The rounds, with busy CPUs if asked for."""
    binaries = {"watched": options.binary, "before": options.before}
    last = os.cpu_count()
    cpus = range(last - options.threads, last) if options.busy else []
    loops = [subprocess.Popen(["taskset", "-c", str(cpu), "nice", "-n", "19", "sh", "-c", "while :; do :; done"]) for cpu in cpus]
    try:
        in_rounds(options, folder, binaries)
    finally:
        for loop in loops:
            loop.kill()


def in_rounds(options, folder, binaries):
    """The ratios of p50 and p99 to those of cyclictest alone, of rounds: of each round the median of its threads."""
    arms, rounds = ["alone", "watched"] + ["before"] * bool(options.before) + ["traced"] * options.traced, []
    for number in range(options.rounds):
        found = {}
        for arm in random.sample(arms, len(arms)):
            if arm in binaries:
                run = str(folder / f"run-{arm}-{number}")
                command = [binaries[arm], "watch", "-q", "-D", "600s", "--task", "cyclictest", "-o", run]
                with open(folder / "tool", "w") as output:
                    tool = subprocess.Popen(command, stdout=output, stderr=output)
                    time.sleep(2.5)
                    found[arm] = quantiles_us(options.seconds, options.threads)
                    tool.send_signal(signal.SIGINT)
                    tool.wait(60)
                continue
            try:
                if arm == "traced":
                    switch_events(True)
                found[arm] = quantiles_us(options.seconds, options.threads)
            finally:
                if arm == "traced":
                    switch_events(False)
        rounds.append(found)
        print(number + 1, {arm: [round(statistics.median(of_one), 2) for of_one in zip(*found[arm])] for arm in arms}, flush=True)
    for arm in arms[1:]:
        for which, name in enumerate(["p50", "p99"]):
            ratio = lambda found: statistics.median(one[which] / alone[which] for one, alone in zip(found[arm], found["alone"]))
            ratios = sorted(map(ratio, rounds))
            # The order statistics that the sign test keeps at 5 %.
            count, outside, chance = len(ratios), 0, 0.0
            while chance + math.comb(count, outside) / 2**count <= 0.025:
                chance += math.comb(count, outside) / 2**count
                outside += 1
            low, high = ratios[max(outside - 1, 0)], ratios[count - max(outside, 1)]
            alone, other = (statistics.median(one[which] for found in rounds for one in found[it]) for it in ["alone", arm])
            middle = statistics.median(ratios)
            print(f"{arm} {name}: {alone:.2f} us alone, {other:.2f} us (medians); ratio {middle:.3f}, 95 % {low:.3f} to {high:.3f}")


def main():
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("what", nargs="?", choices=["cost", "latency"], default="cost")
    arguments.add_argument("--binary", default="target/release/whylate")
    arguments.add_argument("--before")
    arguments.add_argument("--rounds", type=int, default=9)
    arguments.add_argument("--seconds", type=int, default=2)
    arguments.add_argument("--threads", type=int, default=1)
    arguments.add_argument("--busy", action="store_true")
    arguments.add_argument("--traced", action="store_true")
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
                tools[f"{name}, of another"] = lambda binary=binary: watch(binary, "absent")
        peers = [name for name, program in [("perf sched record", "perf"), ("bpftrace", "bpftrace")] if shutil.which(program)]
        tools["perf sched record"] = lambda: ["perf", "sched", "record", "-a", "-o", str(folder / "perf.data")]
        tools["bpftrace"] = lambda: ["bpftrace", str(script)]
        tools = {name: tool for name, tool in tools.items() if name in peers or name not in ["perf sched record", "bpftrace"]}
        for name, command in (one.split("=", 1) for one in options.also):
            tools[name] = lambda command=command: shlex.split(command)
        seen = {name: [] for name in tools}
        for number in range(options.rounds):
            for name in random.sample(list(tools), len(tools)):
                seen[name].append(trip_with(tools[name](), program, options.seconds, folder))
            print(number + 1, {name: round(values[-1], 2) for name, values in seen.items()}, flush=True)
    none = seen["none"]
    print(f"none: median {statistics.median(none):.2f} us for a round trip")
    cost = {name: statistics.median((one - alone) / 2 for one, alone in zip(values, none)) for name, values in seen.items()}
    for name, adds in cost.items():
        of_peers = ", ".join(f"{adds / cost[peer]:.2f} of {peer}" for peer in peers)
        if name != "none":
            print(f"{name}: {adds:.2f} us for an activation ({of_peers})")


main()
