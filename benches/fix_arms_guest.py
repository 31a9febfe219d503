#!/usr/bin/env python3
"""Runs in a guest of the lab (`WHYLATE_FIX_ARMS=FOLDER` of lab/tests/lab/fix.rs), where a trouble is planted: measures twelve
treatments many times, each repeat with one of them or with none, in shuffled blocks. First those that `whylate fix` proposes,
in its order, then others that are possible there.

    fix_arms_guest.py PLAN GOAL REPEATS CURE… >measured.txt

benches/fix_ablation.py reads its output: how many of the first treatments answer causes, which are the cures, and a
line of values for each.
"""

import json
import subprocess
import sys

ARMS = 12
# As the table of `whylate fix` has them (crates/explain/src/advice/table.rs).
OTHERS = {
    "shield": {"kind": "shield"},
    "vm-stat-interval": {"kind": "sysctl", "key": "vm.stat_interval", "value": "120"},
    "timer-migration": {"kind": "sysctl", "key": "kernel.timer_migration", "value": "0"},
    "workqueue-mask": {"kind": "workqueue"},
    "rt-throttling": {"kind": "rt-throttling"},
    "watchdog": {"kind": "watchdog"},
    "thp": {"kind": "thp", "enabled": "never"},
    "irq-affinity": {"kind": "irq-affinity"},
    "softirq-priority": {"kind": "priority", "thread": "ksoftirqd/*", "policy": "fifo", "priority": 1},
    "ksm": {"kind": "ksm"},
    "numa-balancing": {"kind": "numa-balancing"},
    "swappiness": {"kind": "sysctl", "key": "vm.swappiness", "value": "1"},
    "dirty-ratio": {"kind": "sysctl", "key": "vm.dirty_ratio", "value": "10"},
}
# Why a treatment is proposed, in addition to the treatment itself.
REASONS = ("reason", "answers", "service")


def whylate(*words):
    done = subprocess.run(["whylate", *words], capture_output=True, text=True)
    if done.returncode > 1:
        sys.exit(f"whylate {' '.join(words)}: {done.returncode}\n{done.stderr}")
    return json.loads(done.stdout)


def is_possible(plan, arm):
    """Whether its cell would be measured."""
    with open("/tmp/one.toml", "w") as file:
        file.write(plan + section(arm))
    done = subprocess.run(["whylate", "run", "/tmp/one.toml", "--dry-run"], capture_output=True, text=True)
    return done.returncode == 0 and "skipped" not in done.stdout


def section(arm):
    lines = [f"{key} = {json.dumps(value)}" for key, value in arm.items() if key not in REASONS]
    cell = f"[[cell]]\ntreatments = [{json.dumps(arm['name'])}]\n"
    return "[[treatment]]\n" + "\n".join(lines) + "\n" + cell


def main():
    path, goal, repeats, *cures = sys.argv[1:]
    plan = open(path).read()
    advice = whylate("fix", path, "--goal", goal, "--advise", "--json")
    arms = advice["arms"][:ARMS]
    known = {arm["name"] for arm in arms}
    for name, keys in OTHERS.items():
        arm = {"name": name, **keys}
        if len(arms) < ARMS and name not in known and is_possible(plan, arm):
            arms.append(arm)
    with open("/tmp/arms.toml", "w") as file:
        file.write(f"repeats = {repeats}\n{plan}[[cell]]\n" + "".join(map(section, arms)))
    result = whylate("run", "/tmp/arms.toml", "-o", "/tmp/arms", "--json", "-q")
    series, statistic = goal.split(" ")[:2]
    print(f"first {advice['first']}")
    print(f"cures {' '.join(arm['name'] for arm in arms if any(is_named(arm['name'], cure) for cure in cures))}")
    for cell in result["cells"]:
        values = [value(repeat, series, statistic) for repeat in cell["repeats"] if "error" not in repeat]
        print(" ".join([*cell["treatments"], *map(str, values)] if cell["treatments"] else ["none", *map(str, values)]))


def is_named(name, cure):
    """A cure that ends in `-` stands for all that begin like this."""
    return name == cure or cure.endswith("-") and name.startswith(cure)


def value(repeat, series, statistic):
    """The largest of all CPUs, with missed periods counted where they are."""
    probes = [probe for probe in repeat["probes"] if probe["probe"] == series]
    return max((probe.get("corrected") or probe)[f"{statistic}_ns"] for probe in probes)


if __name__ == "__main__":
    main()
