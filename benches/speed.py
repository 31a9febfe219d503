#!/usr/bin/env python3
"""Measures every headline figure of speed and size in one go, prints one table, and compares it with the reference in
speed.json in this folder: a figure that is more than 1.3 times worse is flagged, and the exit status is 1.

    benches/speed.py [-b WHYLATE] [-r ROUNDS] [--copies N] [--only WORD] [--store]

| figure | what it is |
|---|---|
| read functions, read scheduler | `explain` of a trace.dat of the function tracer (16 copies of fixtures/traces/functions-rt-6.1.dat, 128 MB) and of scheduler events (73 of events-rt-6.1.dat, 45 MB): how many times less CPU time than `trace-cmd report` |
| functions as text, scheduler as text | `explain` of what `trace-cmd report` prints of them: million lines a CPU second |
| overlong windows | `explain` of a trace whose ten latest wake-ups are late by nearly all of it, in CPU seconds |
| counts every record | whether `explain` counts as many events in each form as `trace-cmd report` prints lines |
| report, compare | of a run directory, in CPU milliseconds |
| help | `whylate --help`, in CPU milliseconds |
| binary size | of the program, in MB |
| BPF, a wake-up | what the programs for histograms and causes take for a wake-up, in ns (root, a kernel with BPF) |

CPU time is user and system time of the program and its children: the least of the rounds, the programs in turn. Needs
trace-cmd. --store writes the reference. Ratios hold on any machine; of the others, only the machine of the reference says
something.
"""

import argparse
import json
import os
import resource
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

BENCHES = Path(__file__).resolve().parent
ROOT = BENCHES.parent
REFERENCE = BENCHES / "speed.json"
WORSE = 1.3
# A difference of less than this is the clock's.
CLOCK_MS = 2


def cpu_seconds(command, output=subprocess.DEVNULL):
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    done = subprocess.run([str(word) for word in command], stdout=output, stderr=subprocess.DEVNULL, check=False)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    if done.returncode not in (0, 1, 2, 3):
        raise SystemExit(f"speed: {command} ended with {done.returncode}")
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def least(commands, rounds):
    """The least CPU time of each command, the commands in turn."""
    times = [[] for _ in commands]
    for _ in range(rounds):
        for command, found in zip(commands, times):
            found.append(cpu_seconds(command))
    return [max(min(found), 0.001) for found in times]


class Bench:
    def __init__(self, options, scratch):
        self.options, self.scratch, self.figures = options, scratch, []

    def add(self, name, value, unit, better):
        self.figures.append((name, value, unit, better))

    def least(self, *commands):
        return least(commands, self.options.rounds)

    def explain(self, trace):
        return [self.options.binary, "explain", trace]

    def made(self, fixture, copies):
        """A long trace.dat of a fixture, and its text."""
        short, long, text = (self.scratch / f"{fixture}.{end}" for end in ("6.dat", "dat", "txt"))
        source = ROOT / "fixtures" / "traces" / f"{fixture}.dat"
        subprocess.run(["trace-cmd", "convert", "-i", source, "--file-version", "6", "-o", short], check=True,
                       stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        subprocess.run([sys.executable, BENCHES / "long_trace.py", str(copies), short, long], check=True)
        with open(text, "wb") as out:
            subprocess.run(["trace-cmd", "report", "-i", long], stdout=out, stderr=subprocess.DEVNULL, check=True)
        return long, text

    def count(self, trace):
        output = subprocess.run([*self.explain(trace), "--json"], stdout=subprocess.PIPE, check=False).stdout
        return json.loads(output)["events"]

    def traces(self):
        exact = []
        for name, fixture, copies in (("functions", "functions-rt-6.1", 16), ("scheduler", "events-rt-6.1", 73)):
            copies = max(1, round(copies * self.options.scale))
            trace, text = self.made(fixture, copies)
            ours, report, raw = self.least(
                self.explain(trace), ["trace-cmd", "report", "-i", trace], ["trace-cmd", "report", "-R", "-i", trace]
            )
            self.add(f"read {name}", min(report, raw) / ours, "times as fast as trace-cmd report", "more")
            with open(text, "rb") as file:
                lines = sum(1 for line in file if not line.startswith((b"cpus=", b"version")))
            (ours,) = self.least(self.explain(text))
            self.add(f"{name} as text", lines / ours / 1e6, "million lines a CPU second", "more")
            exact += [abs(self.count(trace) - lines) <= 1, abs(self.count(text) - lines) <= 1]
            trace.unlink()
            text.unlink()
        self.add("counts every record", float(all(exact)), "1 is yes", "more")

    def window(self):
        """A task waits from the start to the end, ten times, while others run."""
        trace = self.scratch / "window.txt"
        switch = "c{0}-{0} [000] d..2. {1}.{2:06}: sched_switch: prev_comm=c{0} prev_pid={0} prev_prio=49 prev_state=S ==> next_comm=c{3} next_pid={3} next_prio=49\n"
        count = max(1000, round(300_000 * self.options.scale))
        with open(trace, "w", encoding="ascii") as out:
            for task in range(10):
                out.write(f"<idle>-0 [000] d.h2. 99.{task:06}: sched_waking: comm=late pid={5000 + task} prio=9 target_cpu=000\n")
            for number in range(count):
                at = 100_000_000 + number * 3
                out.write(switch.format(100 + number % 300, at // 10**6, at % 10**6, 101 + number % 300))
            for task in range(10):
                out.write(switch.format(7, 300, task, 5000 + task).replace(f"next_comm=c{5000 + task}", "next_comm=late").replace("next_prio=49", "next_prio=9"))
        (ours,) = self.least([*self.explain(trace), "--task", "late"])
        self.add("overlong windows", ours, "CPU seconds", "less")

    def run_directory(self):
        run = ROOT / "fixtures" / "runs" / "format-1"
        report, compare = self.least([self.options.binary, "report", run], [self.options.binary, "compare", run, run])
        self.add("report", report * 1000, "CPU ms", "less")
        self.add("compare", compare * 1000, "CPU ms", "less")

    def program(self):
        (start,) = self.least([self.options.binary, "--help"])
        self.add("help", start * 1000, "CPU ms", "less")
        self.add("binary size", os.path.getsize(self.options.binary) / 1e6, "MB", "less")

    def bpf(self):
        """With the example `hold` of whylate-bpf, where it is built and may load programs."""
        hold = self.options.hold
        if not hold or os.geteuid() != 0:
            return
        done = subprocess.run([hold, "4", "causes"], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, check=False)
        words = [line.split() for line in done.stdout.splitlines()]
        sums = [(int(line[line.index("runs") + 1]), float(line[line.index("mean_ns") + 1])) for line in words if "mean_ns" in line]
        wakes = max((runs for runs, _ in sums), default=0)
        if wakes:
            self.add("BPF, a wake-up", sum(runs * mean for runs, mean in sums) / wakes, "ns", "less")


def worse(value, reference, better, unit):
    """How many times worse than the reference; 1 for what is as good."""
    if unit == "CPU ms" and abs(value - reference) < CLOCK_MS:
        return 1.0
    ratio = reference / value if better == "more" else value / reference
    return ratio if value else float("inf")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    target = Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target"))
    parser.add_argument("-b", "--binary", default=target / "release" / "whylate")
    parser.add_argument("--hold", help="the example `hold` of whylate-bpf")
    parser.add_argument("-r", "--rounds", type=int, default=5)
    parser.add_argument("--scale", type=float, default=1.0, help="a part of the traces' length, to try the script")
    parser.add_argument("--only", choices=["traces", "window", "run_directory", "program", "bpf"])
    parser.add_argument("--store", action="store_true")
    options = parser.parse_args()
    if not shutil.which("trace-cmd"):
        raise SystemExit("speed: trace-cmd is missing")
    with tempfile.TemporaryDirectory() as scratch:
        bench = Bench(options, Path(scratch))
        for part in ["traces", "window", "run_directory", "program", "bpf"]:
            if options.only in (None, part):
                getattr(bench, part)()
    known = json.loads(REFERENCE.read_text()) if REFERENCE.exists() else {}
    print("| figure | now | reference | |")
    print("|---|---|---|---|")
    flagged = False
    for name, value, unit, better in bench.figures:
        reference = known.get(name)
        verdict = "no reference"
        if reference is not None:
            ratio = worse(value, reference, better, unit)
            verdict = f"**{ratio:.1f} times worse**" if ratio > WORSE else ""
            flagged |= ratio > WORSE
        shown = "" if reference is None else f"{reference:.3g}"
        print(f"| {name} ({unit}) | {value:.3g} | {shown} | {verdict} |")
    if options.store:
        known.update({name: round(value, 4) for name, value, *_ in bench.figures})
        REFERENCE.write_text(json.dumps(known, indent=2) + "\n")
    sys.exit(1 if flagged and not options.store else 0)


main()
