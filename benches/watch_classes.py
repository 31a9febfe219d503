#!/usr/bin/env python3
"""Kinds of lateness under `whylate watch`, judged by the programs' own logs.

    benches/watch_classes.py --whylate target/release/whylate [--kinds thief,boosted,...] [--cycles 200] [--json FOLDER]

For each kind that `watch_classes/` plants: late cycles of the log, missed deadlines of the watch, and the first cause of each explained activation,
right or wrong by what was planted; wrong causes with a confidence above 0.6 are counted apart. At the end the sums.
Needs root and cc; c++, rustc, javac, go and python3 for their kinds, which are left out without them.
"""

import argparse
import collections
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile

from watch_random import begun

FOLDER = os.path.join(os.path.dirname(os.path.abspath(__file__)), "watch_classes")
IN_C = "thief raiser boosted owner deadline own plan trim mutex log many faults map flock datagram quota throttle".split()
# What each kind's first cause has to be, as `said` gives it.
EXPECTED = {
    "thief": "thread thief",
    "raiser": "thread raiser|preempt_off raiser",
    "boosted": "thread owner",
    "owner": "lock owner",
    "deadline": "own_work|throttled",
    "own": "own_work",
    "plan": "own_work.* replan",
    "trim": "own_work.*(trim|malloc|free|memset|munmap)",
    "mutex": "wait holder .*futex|lock holder",
    "log": "wait reader .*write",
    "many": "own_work",
    "faults": "own_work|page_fault",
    "map": "wait mapper",
    "flock": "wait holder .*flock",
    "datagram": "wait server .*recv",
    "quota": "quota",
    "throttle": "throttled|thread hog",
    "gil": "wait hog .*futex",
    "java": "wait|lock",
    "go-stop": "wait",
    "go-gc": "wait",
    "c++": "own_work.* Planner::replan",
    "rust": "own_work.* .*Planner>?::replan",
    "go": r"own_work.* main\.\(\*planner\)\.replan",
    "python": "own_work",
    "java-own": "own_work.* .*replan",
}
WRONG_LEAST = 0.6
PERIOD_NS = 10_000_000
# SCHED_DEADLINE: 3 ms of runtime in 10 ms, so a cycle whose runtime is used up takes more than 10 ms.
DEADLINES = {"deadline": "8ms", "quota": "8ms"}


def programs(folder, options):
    """The command of each kind that can run here."""
    found = {}
    if shutil.which("cc"):
        subprocess.run(["cc", "-O1", "-g", "-pthread", "-o", f"{folder}/classes", f"{FOLDER}/classes.c"], check=True)
        found |= {kind: [f"{folder}/classes", kind, str(options.cycles), str(options.cpu)] for kind in IN_C}
    where = [str(options.cycles), str(options.cpu)]
    if shutil.which("c++"):
        subprocess.run(["c++", "-O1", "-g", "-pthread", "-o", f"{folder}/own-cpp", f"{FOLDER}/own.cpp"], check=True)
        found["c++"] = [f"{folder}/own-cpp", *where]
    if shutil.which("rustc"):
        subprocess.run(["rustc", "-O", "-g", "-o", f"{folder}/own-rust", f"{FOLDER}/own.rs"], check=True)
        found["rust"] = ["taskset", "-c", str(options.cpu), "chrt", "-f", "50", f"{folder}/own-rust", str(options.cycles)]
    found["python"] = [sys.executable, f"{FOLDER}/own.py", *where]
    found["gil"] = [sys.executable, f"{FOLDER}/gil.py", "gil", str(options.cycles)]
    if shutil.which("javac"):
        subprocess.run(["javac", "-d", folder, f"{FOLDER}/Gc.java", f"{FOLDER}/Cycles.java"], check=True)
        subprocess.run(["javac", "-d", folder, f"{FOLDER}/Own.java", f"{FOLDER}/Cycles.java"], check=True)
        found["java-own"] = ["chrt", "-f", "50", "java", "-XX:+PreserveFramePointer", "-cp", folder, "Own", str(options.cycles)]
        found["java"] = ["java", "-XX:+UseSerialGC", "-Xmx64m", "-cp", folder, "Gc", "java", str(options.cycles)]
    if shutil.which("go"):
        subprocess.run(["go", "build", "-o", f"{folder}/stw", f"{FOLDER}/stw.go", f"{FOLDER}/common.go"], check=True)
        subprocess.run(["go", "build", "-o", f"{folder}/own-go", f"{FOLDER}/own.go", f"{FOLDER}/common.go"], check=True)
        found["go"] = [f"{folder}/own-go", *where]
        found |= {kind: [f"{folder}/stw", kind, str(options.cycles)] for kind in ("go-stop", "go-gc")}
    return found


def watched(options, command, deadline, folder):
    run = os.path.join(folder, "run")
    shutil.rmtree(run, ignore_errors=True)
    with open(os.path.join(folder, "out"), "w+") as out:
        words = [options.whylate, "watch", "--json", "--task", "control", "--deadline", deadline, "-o", run]
        watch = begun(words, out, folder)
        program = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        log = []
        for line in program.stdout:
            if line.strip() == "done":
                break
            log = [int(word) for word in line.split()[2:]]
        watch.send_signal(signal.SIGINT)
        watch.wait()
        program.wait()
        out.seek(0)
        return json.loads(out.read().splitlines()[-1]), log


def late_ones(log, deadline_ns):
    """How many activations are late. A cycle that begins before the one before ended belongs to the same activation: the thread did not sleep."""
    late, begin, end = 0, 0, None
    for nth, took in enumerate([*log, None]):
        due = nth * PERIOD_NS
        if end is not None and (took is None or due >= end):
            late += end - begin > deadline_ns
            end = None
        if took is not None:
            begin = due if end is None else begin
            end = due + took
    return late


def said(spike):
    cause = spike.get("cause") or {}
    actor = cause.get("actor") or {}
    words = [cause.get("kind", "none"), actor.get("name", "") if isinstance(actor, dict) else str(actor), cause.get("function") or ""]
    return " ".join(word for word in words if word) + f" ({cause.get('confidence', 0):.2f})"


def main():
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--whylate", default="target/release/whylate")
    arguments.add_argument("--kinds", help="comma-separated")
    arguments.add_argument("--cycles", type=int, default=200)
    arguments.add_argument("--cpu", type=int, default=1)
    arguments.add_argument("--json", help="a folder that gets the result of each watch")
    options = arguments.parse_args()
    sums = collections.Counter()
    with tempfile.TemporaryDirectory(prefix="watch-classes-") as folder:
        found = programs(folder, options)
        for kind in options.kinds.split(",") if options.kinds else found:
            deadline = DEADLINES.get(kind, "2ms")
            result, log = watched(options, found[kind], deadline, folder)
            deadline_ns = int(deadline[:-2]) * 1_000_000
            late = late_ones(log, deadline_ns)
            probe = result["cells"][0]["probes"][0] if result["cells"] else {"cpus": [], "spikes": []}
            missed = sum(row.get("overruns") or 0 for row in probe["cpus"])
            explained = [spike for spike in probe["spikes"] or [] if spike["latency_ns"] > deadline_ns]
            causes = collections.Counter(said(spike) for spike in explained)
            is_right = [bool(re.match(EXPECTED[kind], said(spike))) for spike in explained]
            accused = [spike["cause"].get("confidence") or 0 for spike, right in zip(explained, is_right) if not right]
            here = {"late": late, "missed": missed, "explained": len(explained), "right": sum(is_right), "accused": sum(one > WRONG_LEAST for one in accused)}
            sums.update(here)
            print(f"{kind}: {late} late in the log of {len(log)} cycles, {missed} missed, {sum(is_right)} of {len(explained)} right; " + "; ".join(f"{count} × {cause}" for cause, count in causes.most_common()), flush=True)
            if options.json:
                os.makedirs(options.json, exist_ok=True)
                with open(f"{options.json}/{kind}.json", "w") as file:
                    json.dump({"log": log, "result": result}, file)
    print(f"all: {sums['late']} late, {sums['missed']} missed, {sums['right']} of {sums['explained']} first causes right, {sums['accused']} wrong ones above {WRONG_LEAST}")


if __name__ == "__main__":
    main()
