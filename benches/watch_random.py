#!/usr/bin/env python3
"""Random programs under `whylate watch`, judged by their own logs.

The programs are those of `crates/cli/tests/cli/watch_cycles.rs`: the same seed gives the same programs. For each program
whose log and verdict differ this shows the longest responses of the watch beside the cycles of the log in that time.

    benches/watch_random.py --whylate target/release/whylate --programs 500 --seed 7 [--json FILE]
"""

import argparse
import collections
import json
import os
import signal
import subprocess
import sys
import tempfile

AT_ONCE = 6
# A program takes some seconds; one that waits for itself is ended, and left out with those beside it.
PATIENCE_S = 120
DEADLINE_NS = 2_000_000
# The log calls a cycle late from here on: its begin and its end are not quite those of the watch.
LATE_NS = DEADLINE_NS * 21 // 20
RELEASES = "absolute relative timerfd epoll signal pipe condition socket eventfd word".split()
MIDDLES = (
    "none rwlock mutex inherit semaphore condition pipe write fcntl flock pause until socket faults file eventfd word same".split()
)


class Random:
    def __init__(self, seed):
        self.state = seed

    def one_of(self, values):
        self.state = (self.state * 6_364_136_223_846_793_005 + 1) % 2**64
        return values[(self.state >> 33) % len(values)]


def random_words(random, nth):
    period = random.one_of(["4000", "5000", "10000", "20000"])
    count = int(random.one_of(["1", "1", "1", "2", "3"]))
    middles = "+".join(random.one_of(MIDDLES) for _ in range(count))
    values = {
        "release": random.one_of(RELEASES),
        "middle": middles,
        "every": random.one_of(["1", "2", "3", "10", "30", "100"]),
        "hold": random.one_of(["300", "800", "3000", "6000"]),
        "period": period,
        "jitter": random.one_of(["0", "0", "0", "1000", period]),
        "helper": random.one_of(["0", "0", "1"]),
        "work": random.one_of(["20", "100", "300"]),
        "thief": random.one_of(["0", "0", "0", "500", "3000"]),
        "cpu": random.one_of(["0", "1"]),
        "priority": str(50 + nth),
        "cycles": str(2_000_000 // int(period)),
    }
    return [f"{key}={value}" for key, value in values.items()]


def begun(words, out, folder):
    """A watch that has printed its first line, which shows that it watches."""
    environment = dict(os.environ, WHYLATE_STATE_DIR=os.path.join(folder, "state"))
    errors = open(os.path.join(folder, "errors"), "w")
    watch = subprocess.Popen(words, stdout=out, stderr=errors, env=environment)
    while watch.poll() is None and os.path.getsize(out.name) == 0:
        try:
            watch.wait(0.05)
        except subprocess.TimeoutExpired:
            pass
    return watch


def watched(whylate, program, programs, folder):
    """The result of the watch, and the log of each program: its thread, and of each cycle when it began, how long it took from
    then, and when its work was handed in (for a release by a timer: when it expired)."""
    run = os.path.join(folder, "run")
    subprocess.run(["rm", "-rf", run], check=True)
    out = open(os.path.join(folder, "out"), "w+")
    watch = begun([whylate, "watch", "--json", "--task", "victim", "--deadline", "2ms", "-o", run], out, folder)
    started = [subprocess.Popen([program, *words, "stamps=1"], stdout=subprocess.PIPE, text=True) for words in programs]
    logs = []
    for words, victim in zip(programs, started):
        try:
            lines = victim.communicate(timeout=PATIENCE_S)[0].splitlines()
        except subprocess.TimeoutExpired:
            print(f"hung: {' '.join(words)}", flush=True)
            for one in [*started, watch]:
                one.kill()
                one.wait()
            return None, None, []
        begins, dues = ([int(word) for word in line.split()] for line in lines[:2])
        numbers = [int(word) for word in lines[2].split()[1:]]
        logs.append((numbers[0], begins, numbers[3:], dues))
    watch.send_signal(signal.SIGINT)
    code = watch.wait()
    out.seek(0)
    result = json.loads(out.read().splitlines()[-1])
    if "cells" not in result:
        print(f"no result, exit code {code}: {open(os.path.join(folder, 'errors')).read().strip()}", flush=True)
    return code, result, logs


def judge(result, log):
    thread = log[0]
    if "cells" not in result:
        return "no result", None, []
    probe = result["cells"][0]["probes"][0]
    row = next((row for row in probe["cpus"] if row.get("task", {}).get("thread") == thread), None)
    if row is None:
        return "no row", None, []
    in_doubt = max(row.get("doubt_max_ns", 0), row.get("unseen_max_ns", 0)) > DEADLINE_NS
    verdict = "missed" if row["overruns"] else "cannot tell" if in_doubt else "kept"
    return verdict, row, probe["spikes"]


def never_waits(log):
    """Whether nearly each cycle begins when the one before ends. Where such a thread sleeps in the middle of its work, the kernel
    shows the same as of one that waits there for its work."""
    _, begins, took, _ = log
    waits = sum(after > before + length + 100_000 for before, after, length in zip(begins, begins[1:], took))
    return waits * 10 <= len(took)


def main():
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--whylate", default="target/release/whylate")
    arguments.add_argument("--programs", type=int, default=60)
    arguments.add_argument("--seed", type=int, default=1)
    arguments.add_argument("--only", type=int, help="run the programs that are started together with this one, and no others")
    arguments.add_argument("--json", help="a file that gets a line of JSON for each program")
    options = arguments.parse_args()
    source = os.path.join(os.path.dirname(__file__), "../crates/cli/tests/victims/cycle.c")
    folder = tempfile.mkdtemp(prefix="watch-random-")
    program = os.path.join(folder, "cycle")
    subprocess.run(["cc", "-O1", "-pthread", "-o", program, source], check=True)
    random = Random(options.seed)
    counts = collections.Counter()
    wrong = 0
    lines = open(options.json, "a") if options.json else None
    done = 0
    while done < options.programs:
        programs = [random_words(random, nth) for nth in range(min(AT_ONCE, options.programs - done))]
        if options.only is not None and options.only // AT_ONCE * AT_ONCE != done:
            done += len(programs)
            continue
        code, result, logs = watched(options.whylate, program, programs, folder)
        for nth, (words, log) in enumerate(zip(programs, logs)):
            verdict, row, spikes = judge(result, log)
            late = sum(took > LATE_NS for took in log[2])
            between = sum(DEADLINE_NS < took <= LATE_NS for took in log[2])
            counts[(late > 0, verdict)] += 1
            passed = late > 0 and (verdict in ("kept", "no row", "no result") or code == 0)
            is_wrong = passed and not never_waits(log)
            wrong += is_wrong
            missed = row["overruns"] if row else None
            # From when its work was handed in, and where cycles follow each other without a pause.
            since_due = sum(begin + took - due > DEADLINE_NS for begin, took, due in zip(log[1], log[2], log[3]))
            print(f"{done + nth} {verdict}: {late} of {len(log[2])} late ({between} within 5 %, {since_due} from when it was due), {missed} missed; {' '.join(words)}",
                  "WRONG" if is_wrong else "never waits for its work" if passed else "", flush=True)
            if lines:
                entry = {"nth": done + nth, "words": words, "verdict": verdict, "code": code, "late": late, "between": between, "since_due": since_due,
                         "row": row, "begins": log[1], "took": log[2], "dues": log[3], "spikes": spikes, "warnings": result.get("warnings")}
                if options.only is not None or late == 0 or is_wrong or missed is None or abs(missed - late) > max(2, late // 10):
                    print(json.dumps(entry), file=lines, flush=True)
        done += len(programs)
    print(f"{done} programs, seed {options.seed}; (late in the log, verdict): {dict(counts)}; {wrong} wrong")
    sys.exit(wrong > 0)


if __name__ == "__main__":
    main()
