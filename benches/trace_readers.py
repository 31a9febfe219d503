#!/usr/bin/env python3
"""Compares whylate's reading of traces as text and of perf.data with other tools on the same file, in alternating rounds,
by the CPU time that each takes (user and system, of all its children), and prints a Markdown table.

    benches/trace_readers.py [-b BINARY] [-r ROUNDS] [--text FILE]... [--perf FILE] [--dat FILE --report FILE]

BINARY is the example: cargo build --release -p whylate-trace --example read. Peers of text: `wc -l` (reads the lines and
does nothing else) and an awk that splits each line into fields, as scripts do. Peers of perf.data: `perf script` and
`perf sched timehist`. With --dat and --report, a trace.dat and the text of its `trace-cmd report`: the same events as
text, compared with the program that prints them.
"""

import argparse
import os
import resource
import statistics
import subprocess


def cpu_seconds(command):
    """CPU time of a command and its children."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    environment = dict(os.environ, LC_ALL="C")
    subprocess.run(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=True, env=environment)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def compare(name, count, unit, ours, peers, rounds):
    """A row for each peer: millions of things a CPU second, and the ratio round by round."""
    times = {label: [] for label in ["ours", *peers]}
    for _ in range(rounds):
        times["ours"].append(cpu_seconds(ours))
        for label, command in peers.items():
            times[label].append(cpu_seconds(command))
    rate = lambda label: count / statistics.median(times[label]) / 1e6
    low, high = count / max(times["ours"]) / 1e6, count / min(times["ours"]) / 1e6
    print(f"| {name} | {count} {unit} | whylate | {rate('ours'):.2f} ({low:.2f} to {high:.2f}) | |")
    for label in peers:
        ratios = sorted(theirs / mine for theirs, mine in zip(times[label], times["ours"]))
        middle = statistics.median(ratios)
        print(f"| | | {label} | {rate(label):.2f} | {middle:.1f} ({ratios[0]:.1f} to {ratios[-1]:.1f}) |")


def lines(path):
    return int(subprocess.run(["wc", "-l", path], stdout=subprocess.PIPE, check=True).stdout.split()[0])


def events(binary, path):
    output = subprocess.run([binary, "--time", path], stdout=subprocess.PIPE, check=True, text=True).stdout
    return int(output.splitlines()[-1].split()[0])


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("-b", "--binary", default="target/release/examples/read")
    parser.add_argument("-r", "--rounds", type=int, default=5)
    parser.add_argument("--text", action="append", default=[])
    parser.add_argument("--perf")
    parser.add_argument("--dat")
    parser.add_argument("--report")
    options = parser.parse_args()
    print("| file | size | program | million a CPU second (median, range) | times as fast (median, range) |")
    print("|---|---|---|---|---|")
    read = lambda path, *flags: [options.binary, "--time", *flags, path]
    for path in options.text:
        peers = {
            "`wc -l`": ["wc", "-l", path],
            "awk, fields split": ["awk", "{ seen[$4]++ } END { for (name in seen) print name, seen[name] }", path],
        }
        name = os.path.basename(path)
        compare(name, lines(path), "lines", read(path), peers, options.rounds)
        compare(f"{name}, wake-ups only", lines(path), "lines", read(path, "--wakeups"), {}, options.rounds)
    if options.perf:
        peers = {
            "`perf script`": ["perf", "script", "-i", options.perf],
            "`perf sched timehist`": ["perf", "sched", "timehist", "-i", options.perf],
        }
        name = os.path.basename(options.perf)
        compare(name, events(options.binary, options.perf), "events", read(options.perf), peers, options.rounds)
    if options.dat and options.report:
        peers = {"`trace-cmd report` of the trace.dat": ["trace-cmd", "report", options.dat]}
        name = os.path.basename(options.report)
        compare(name, lines(options.report), "lines", read(options.report), peers, options.rounds)


main()
