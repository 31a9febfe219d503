#!/usr/bin/env python3
"""Compares the dispatch and round-trip probes with other ways of getting the number, in alternating rounds.

    benches/series_peers.py [--binary target/release/whylate] [--rounds 7] [dispatch] [futex] [pipe] [one-cpu-pipe]

dispatch: `measure dispatch` (timerfd, 1 ms) against `measure timer --method timerfd`, and `measure dispatch --source
nanosleep` against cyclictest, both at 1 ms. futex, pipe: `measure roundtrip --cpus 1,0` against
benches/roundtrip_peer.c. one-cpu-pipe: `measure roundtrip --cpus 1,1 --method pipe` against
`taskset -c 1 chrt -f 95 perf bench sched pipe -T` (threads), whose operation is a round trip too.

Prints a Markdown table: each round, then the median of the ratios with their range. Needs root for SCHED_FIFO.
"""

import argparse
import json
import re
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path


def output_of(command):
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(f"{' '.join(command)} failed: {done.stderr.strip()}")
    return done.stdout


def whylate(binary, *arguments):
    figures = json.loads(output_of([binary, "measure", *arguments, "--json"]))["cpus"][0]
    return {"p50": figures["p50_ns"], "mean": figures["mean_ns"]}


def cyclictest(_binary):
    text = output_of(["cyclictest", "-m", "-t1", "-a1", "-p95", "-i1000", "-D3", "-q", "-N", "-h3000000"])
    rows = [(int(v), int(c)) for v, c in re.findall(r"^(\d+)\s+(\d+)\s*$", text, re.M) if int(c)]
    seen, total = 0, sum(count for _, count in rows)
    for value, count in sorted(rows):
        seen += count
        if seen >= total / 2:
            break
    return {"p50": value, "mean": float(re.search(r"Avg Latencies:\s*(\d+)", text).group(1))}


def peer(method):
    program = Path(tempfile.gettempdir()) / "roundtrip_peer"
    if not program.exists():
        output_of(["cc", "-O2", "-pthread", "-o", str(program), str(Path(__file__).parent / "roundtrip_peer.c")])
    figures = json.loads(output_of([str(program), method, "1", "0", "2"]))
    return {"p50": figures["p50_ns"], "mean": figures["mean_ns"]}


def perf_pipe(_binary):
    text = output_of(["taskset", "-c", "1", "chrt", "-f", "95", "perf", "bench", "-f", "simple", "sched", "pipe", "-T", "-l", "100000"])
    return {"mean": float(text.split()[0]) * 1e9 / 100000}


PAIRS = {
    "dispatch": [
        ("dispatch timerfd", lambda b: whylate(b, "dispatch", "--cpu", "1", "-D", "3"),
         "timer --method timerfd", lambda b: whylate(b, "timer", "-a", "1", "-i", "1ms", "--method", "timerfd", "-D", "3")),
        ("dispatch nanosleep", lambda b: whylate(b, "dispatch", "--cpu", "1", "--source", "nanosleep", "-D", "3"),
         "cyclictest", cyclictest),
    ],
    "futex": [("roundtrip futex", lambda b: whylate(b, "roundtrip", "--cpus", "1,0", "--method", "futex", "-D", "2"),
               "roundtrip_peer futex", lambda b: peer("futex"))],
    "pipe": [("roundtrip pipe", lambda b: whylate(b, "roundtrip", "--cpus", "1,0", "--method", "pipe", "-D", "2"),
              "roundtrip_peer pipe", lambda b: peer("pipe"))],
    "one-cpu-pipe": [("roundtrip pipe on one CPU",
                      lambda b: whylate(b, "roundtrip", "--cpus", "1,1", "--method", "pipe", "-D", "2"),
                      "perf bench sched pipe -T", perf_pipe)],
}


def compare(binary, rounds, ours, our_run, theirs, their_run):
    print(f"\n### {ours} against {theirs}\n")
    measured = []
    for number in range(rounds):
        order = [(0, our_run), (1, their_run)]
        figures = dict((place, run(binary)) for place, run in (order if number % 2 == 0 else order[::-1]))
        measured.append((figures[0], figures[1]))
    keys = [key for key in measured[0][0] if key in measured[0][1]]
    print("| round | " + " | ".join(f"{key} {ours} | {key} {theirs}" for key in keys) + " |")
    print("|--:|" + "--:|--:|" * len(keys))
    for number, (own, other) in enumerate(measured, 1):
        print(f"| {number} | " + " | ".join(f"{own[key]:.0f} | {other[key]:.0f}" for key in keys) + " |")
    for key in keys:
        ratios = [own[key] / other[key] for own, other in measured]
        print(f"\nratio of {key}: median {statistics.median(ratios):.3f}, {min(ratios):.3f} to {max(ratios):.3f}")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--binary", default="target/release/whylate")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("which", nargs="*", help=", ".join(PAIRS))
    arguments = parser.parse_args()
    for name in arguments.which or PAIRS:
        for pair in PAIRS[name]:
            compare(arguments.binary, arguments.rounds, *pair)


if __name__ == "__main__":
    main()
