#!/usr/bin/env python3
"""Whether the measured loops are as fast with overflow checks in the rest of the program: two binaries, in alternating rounds.

    benches/overflow_checks.py WITHOUT WITH [ROUNDS]

WITHOUT was built with `--config profile.release.overflow-checks=false`, WITH as the workspace says. Prints the ratio
WITH/WITHOUT of each figure: median, least and largest of the rounds.
"""
import json
import statistics
import subprocess
import sys

FIGURES = {
    "stall: a turn of the loop": (["stall", "-D", "600ms"], lambda cpu: cpu["loop_ns"]),
    "timer: least latency": (["timer", "-i", "200us", "-D", "600ms"], lambda cpu: cpu["min_ns"]),
    "timer: median latency": (["timer", "-i", "200us", "-D", "600ms"], lambda cpu: cpu["p50_ns"]),
}


def figure(binary, arguments, read):
    command = [binary, "measure", *arguments, "--json", "--quiet"]
    said = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    return read(json.loads(said)["cpus"][0])


def main():
    without, with_checks = sys.argv[1:3]
    rounds = int(sys.argv[3]) if len(sys.argv) > 3 else 15
    for name, (arguments, read) in FIGURES.items():
        pairs = []
        for number in range(rounds):
            order = [without, with_checks] if number % 2 == 0 else [with_checks, without]
            found = {binary: figure(binary, arguments, read) for binary in order}
            pairs.append((found[without], found[with_checks]))
        ratios = sorted(b / a for a, b in pairs)
        middle = [statistics.median(values) for values in zip(*pairs)]
        print(
            f"{name}: {middle[0]:.2f} ns without, {middle[1]:.2f} ns with; ratio {statistics.median(ratios):.3f} "
            f"({ratios[0]:.3f} to {ratios[-1]:.3f})"
        )


main()
