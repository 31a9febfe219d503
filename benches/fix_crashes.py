#!/usr/bin/env python3
"""Searches that are killed at random moments (SIGKILL), restored and resumed, on a machine made of files.

After each kill `whylate treat restore` has to bring back every file exactly, and `fix --resume` has to go on; a search that comes to
its end has to have restored everything, and its claims have to be those that `fix --show` computes again from its steps.

    benches/fix_crashes.py PROGRAM [KILLS] [SECONDS]
"""

import json
import os
import pathlib
import random
import subprocess
import sys
import tempfile
import time

FILES = {
    "proc/sys/kernel/random/boot_id": "one",
    "proc/sys/vm/swappiness": "60",
    "proc/sys/vm/stat_interval": "1",
    "proc/sys/kernel/numa_balancing": "1",
    "sys/kernel/mm/ksm/run": "1",
    "sys/devices/system/cpu/present": "0-1",
    "sys/devices/system/cpu/online": "0-1",
}
PLAN = """
name = "short"
duration = "20ms"
settle = "1ms"
warmup = "1ms"
noise_floor = "0s"
causes = false
[target]
cpus = "0"
[[probe]]
kind = "timer"
policy = "other"
"""
TREATMENTS = "ksm,numa-balancing,vm-stat-interval"


def main():
    program = os.path.abspath(sys.argv[1])
    wanted = int(sys.argv[2]) if len(sys.argv) > 2 else 200
    until = time.monotonic() + float(sys.argv[3] if len(sys.argv) > 3 else 600)
    draw = random.Random(1)
    kills = resumed = ended = claims = 0
    with tempfile.TemporaryDirectory(dir="/dev/shm") as name:
        folder = pathlib.Path(name)
        for path, text in FILES.items():
            file = folder / "root" / path
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(text + "\n")
        (folder / "plan.toml").write_text(PLAN)
        environment = dict(os.environ, WHYLATE_HOST_ROOT=str(folder / "root"), WHYLATE_STATE_DIR=str(folder / "state"))

        def values():
            files = sorted(path for path in (folder / "root").rglob("*") if path.is_file())
            return {str(path): path.read_text() for path in files}

        def whylate(*words):
            return subprocess.run([program, *words], env=environment, capture_output=True, text=True)

        before = values()
        while kills < wanted and time.monotonic() < until:
            search = str(folder / f"fix{ended}")
            begin = ["fix", str(folder / "plan.toml"), "-o", search, "--seed", str(ended), "--budget", "10m"]
            words = begin
            while True:
                child = subprocess.Popen(
                    [program, *words, "--yes", TREATMENTS, "-q", "--json"],
                    env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
                is_last = kills >= wanted or time.monotonic() >= until
                try:
                    said, wrong = child.communicate(timeout=None if is_last else draw.uniform(0.2, 4.0))
                except subprocess.TimeoutExpired:
                    child.kill()
                    child.communicate()
                    kills += 1
                    restored = whylate("treat", "restore")
                    now = values()
                    different = {path: text for path, text in now.items() if before.get(path) != text}
                    assert restored.returncode == 0, (kills, restored.stderr)
                    assert now == before, (kills, different)
                    if pathlib.Path(search, "run.json").exists():
                        words, resumed = ["fix", "--resume", search], resumed + 1
                    continue
                if not said and "is complete" in wrong:
                    # It was killed after its end and before its answer.
                    said = whylate("fix", "--show", search, "--json").stdout
                result = json.loads(said) if said else sys.exit(f"after {kills} kills, {child.returncode}: {wrong}")
                assert result["state"] == "complete" and result["restored"], (result["state"], wrong)
                assert values() == before
                again = json.loads(whylate("fix", "--show", search, "--json").stdout)
                for key in ("claims", "recommended", "results"):
                    assert again[key] == result[key], key
                for claim in result["claims"]:
                    if claim["outcome"] == "proved":
                        assert claim["evidence"][-1] >= claim["needed"], claim
                claims += len(result["recommended"])
                ended += 1
                break
    print(f"{kills} kills, each restored exactly; {resumed} resumed; {ended} searches came to their end, {claims} claims")


if __name__ == "__main__":
    main()
