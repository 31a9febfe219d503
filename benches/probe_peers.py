#!/usr/bin/env python3
"""Compares the timer probe with cyclictest and the stall probe with oslat, in alternating rounds on one CPU.

    benches/probe_peers.py [--binary target/release/whylate] [--cpu 1] [--rounds 10] [--seconds 10] [timer|stall ...]

timer: `cyclictest -m -t1 -p95 -i200` (clock_nanosleep is its default; -N -h give nanoseconds) against
`whylate measure timer -p 95 -i 200us`. Both sleep until the next period and read CLOCK_MONOTONIC.
stall: `oslat -f 95` against `whylate measure stall --threshold 1us` (oslat counts whole microseconds). A turn is the
time over the number of turns, for both.

Prints a Markdown table: each round, then the median of the ratios with their range. Every round runs both, and which
one goes first alternates. Needs root for SCHED_FIFO.
"""

import argparse
import json
import re
import shutil
import statistics
import subprocess
import sys


def output_of(command):
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(f"{' '.join(command)} failed: {done.stderr.strip()}")
    return done.stdout


def quantile(histogram, share):
    """The value below which at least `share` of the samples lie; histogram is [(value, count)]."""
    total = sum(count for _, count in histogram)
    seen = 0
    for value, count in sorted(histogram):
        seen += count
        if seen >= share * total:
            return value
    return None


def cyclictest(cpu, seconds):
    text = output_of(["cyclictest", "-m", "-t1", f"-a{cpu}", "-p95", "-i200", f"-D{seconds}", "-q", "-N", "-h1000000"])
    histogram = [(int(v), int(c)) for v, c in re.findall(r"^(\d+)\s+(\d+)\s*$", text, re.M) if int(c)]
    mean = float(re.search(r"Avg Latencies:\s*(\d+)", text).group(1))
    return {"p50": quantile(histogram, 0.5), "p99": quantile(histogram, 0.99), "mean": mean}


def whylate_timer(binary, cpu, seconds):
    command = [binary, "measure", "timer", f"-a{cpu}", "-p95", "-i200us", f"-D{seconds}s", "--json"]
    figures = json.loads(output_of(command))["cpus"][0]
    return {"p50": figures["p50_ns"], "p99": figures["p99_ns"], "mean": figures["mean_ns"]}


def oslat(cpu, seconds):
    text = output_of(["oslat", "-c", str(cpu), "-f", "95", "-D", str(seconds), "-q", "-b", "32"])
    turns = sum(int(count) for count in re.findall(r"^\s+\d{3} \(us\):\s*(\d+)", text, re.M))
    duration = float(re.search(r"Duration:\s*([\d.]+)", text).group(1))
    return {"turn": duration * 1e9 / turns}


def whylate_stall(binary, cpu, seconds):
    command = [binary, "measure", "stall", f"-a{cpu}", "-p95", "--threshold", "1us", f"-D{seconds}s", "--json"]
    figures = json.loads(output_of(command))["cpus"][0]
    return {"turn": seconds * 1e9 / figures["samples"]}


def compare(name, ours, theirs, rounds):
    rows = []
    for number in range(rounds):
        pair = {}
        order = [("ours", ours), ("peer", theirs)]
        for who, measure in order if number % 2 == 0 else reversed(order):
            pair[who] = measure()
        rows.append(pair)
    print(f"\n### {name}\n\n| round | figure | whylate ns | peer ns | ratio |\n|---|---|---|---|---|")
    figures = rows[0]["ours"].keys()
    for number, pair in enumerate(rows, 1):
        for figure in figures:
            mine, other = pair["ours"][figure], pair["peer"][figure]
            print(f"| {number} | {figure} | {mine:.1f} | {other:.1f} | {mine / other:.3f} |")
    print("\n| figure | median ratio | range |\n|---|---|---|")
    for figure in figures:
        ratios = [pair["ours"][figure] / pair["peer"][figure] for pair in rows]
        print(f"| {figure} | {statistics.median(ratios):.3f} | {min(ratios):.3f} to {max(ratios):.3f} |")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--binary", default="target/release/whylate")
    parser.add_argument("--cpu", type=int, default=1)
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--seconds", type=int, default=10)
    parser.add_argument("probes", nargs="*", default=["timer", "stall"])
    options = parser.parse_args()
    binary, cpu, seconds = options.binary, options.cpu, options.seconds
    for tool in ["cyclictest", "oslat", binary]:
        if shutil.which(tool) is None:
            sys.exit(f"{tool} is missing (apt-get install rt-tests; cargo build --release)")
    if "timer" in options.probes:
        compare(
            f"timer against cyclictest, {options.rounds} x {seconds} s",
            lambda: whylate_timer(binary, cpu, seconds),
            lambda: cyclictest(cpu, seconds),
            options.rounds,
        )
    if "stall" in options.probes:
        compare(
            f"stall against oslat, {options.rounds} x {seconds} s",
            lambda: whylate_stall(binary, cpu, seconds),
            lambda: oslat(cpu, seconds),
            options.rounds,
        )


main()
