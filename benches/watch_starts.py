#!/usr/bin/env python3
"""How much starting, running and ending `whylate watch` adds to a watched SCHED_FIFO task's wake-up latency.

    benches/watch_starts.py [--whylate target/release/whylate] [--starts 20] [--seconds 3] [--cpus 0,1]

cyclictest (SCHED_FIFO 80, each millisecond) is watched on each CPU in turn. An arm "watch" has one start, `--seconds` and an end of a watch, with a
second before and after; an arm "nothing" takes as long. Both alternate. Prints p50, p99.99 and the largest latency of each arm, over all starts.
Needs root and cyclictest.
"""

import argparse
import collections
import os
import re
import subprocess
import tempfile
import time


def latencies(text):
    found = collections.Counter()
    for line in text.splitlines():
        if match := re.match(r"(\d+)\s+(\d+)$", line):
            found[int(match[1])] += int(match[2])
    over = re.search(r"Histogram Overflows: (\d+)", text)
    found[10**9] += int(over[1]) if over else 0
    most = re.search(r"Max Latencies: (\d+)", text)
    return +found, int(most[1]) if most else 0


def quantile(found, q):
    total, seen = sum(found.values()), 0
    for value in sorted(found):
        seen += found[value]
        if seen >= q * total:
            return value


def round_of(options, cpu, with_watch):
    seconds = options.seconds + 4
    loop = subprocess.Popen(
        ["cyclictest", "-q", "-m", "-t1", "-p80", "-i1000", f"-a{cpu}", "-h20000", f"-D{seconds}"],
        stdout=subprocess.PIPE, text=True,
    )
    time.sleep(1)
    if with_watch:
        with tempfile.TemporaryDirectory() as folder:
            environment = {**os.environ, "WHYLATE_STATE_DIR": folder + "/state"}
            words = [options.whylate, "watch", "-q", "-o", folder + "/run", "-D", f"{options.seconds}s", "--pid", str(loop.pid)]
            subprocess.run(words, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    return latencies(loop.communicate()[0])


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--whylate", default="target/release/whylate")
    parser.add_argument("--starts", type=int, default=20)
    parser.add_argument("--seconds", type=int, default=3)
    parser.add_argument("--cpus", default="0,1")
    options = parser.parse_args()
    for cpu in map(int, options.cpus.split(",")):
        arms = {arm: (collections.Counter(), []) for arm in ("nothing", "watch")}
        for start in range(options.starts):
            for arm in ("nothing", "watch") if start % 2 else ("watch", "nothing"):
                found, most = round_of(options, cpu, arm == "watch")
                arms[arm][0].update(found)
                arms[arm][1].append(most)
        for arm, (found, most) in arms.items():
            most.sort()
            print(
                f"CPU {cpu} {arm:8} {sum(found.values())} wake-ups: p50 {quantile(found, 0.5)} us, "
                f"p99.99 {quantile(found, 0.9999)} us, largest of a start: median {most[len(most) // 2]} us, most {most[-1]} us"
            )


if __name__ == "__main__":
    main()
