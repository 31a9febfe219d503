#!/usr/bin/env python3
"""Repeats until a search has proved the cure: `whylate fix` guided by causes, not guided, random draws, and Optuna.

On simulated machines (crates/stats/tests/simulated), twelve treatments of which one helps, first-order autoregression of 0.5;
or, with --measured, on values that guests of the lab showed with each of twelve treatments while a trouble was planted
(benches/fix_arms_guest.py), of which each repeat draws one.
All methods prove by the same rule: pairs with the untreated machine, evidence of 1 / (0.05 / 2^k) for the k-th claim.
Random search and Optuna have no rule for when they have drawn enough: several numbers of draws are tried.

    python3 -m venv /tmp/optuna && /tmp/optuna/bin/pip install optuna
    /tmp/optuna/bin/python benches/fix_ablation.py [SEARCHES] [--measured FILE…]
"""

import os
import statistics
import subprocess
import sys
import warnings

import optuna

BUDGET = 400
DRAWS = (12, 24, 36, 52)
PROGRAM = ["cargo", "run", "--quiet", "-p", "whylate-stats", "--example", "fix_ablation", "--"]


def ran(*words):
    output = subprocess.run([*PROGRAM, *map(str, words)], check=True, capture_output=True, text=True).stdout
    return [None if line == "none" else int(line) for line in output.split()]


class Machine:
    """The simulated machine, asked line by line."""

    def __init__(self, world):
        pipe = subprocess.PIPE
        self.process = subprocess.Popen([*PROGRAM, "serve", world], stdin=pipe, stdout=pipe, text=True)

    def ask(self, *words):
        self.process.stdin.write(" ".join(map(str, words)) + "\n")
        self.process.stdin.flush()
        return self.process.stdout.readline().split()

    def close(self):
        self.process.stdin.close()
        self.process.wait()


def by_optuna(machine, seed, draws):
    """Draws by the sampler of Optuna, then proofs of the arms with the best means."""
    arms, *good = map(int, machine.ask("new", seed))
    study = optuna.create_study(sampler=optuna.samplers.TPESampler(seed=seed))
    values = {}
    for _ in range(draws):
        trial = study.ask()
        arm = trial.suggest_categorical("arm", list(range(arms)))
        value = float(machine.ask("measure", arm)[0])
        values.setdefault(arm, []).append(value)
        study.tell(trial, value)
    order = sorted(values, key=lambda arm: statistics.fmean(values[arm]))
    for claim, arm in enumerate(order, 1):
        end, repeats = machine.ask("confirm", arm, claim)
        if end == "proved":
            return int(repeats) if arm in good else None
        if int(repeats) >= BUDGET:
            return None
    return None


def row(name, results):
    found = [repeats for repeats in results if repeats is not None]
    # A search without a result has cost the whole budget.
    mean = statistics.fmean(BUDGET if repeats is None else repeats for repeats in results)
    median = statistics.median(BUDGET if repeats is None else repeats for repeats in results)
    print(f"| {name} | {len(found)} of {len(results)} | {median:.0f} | {mean:.1f} |", flush=True)
    return mean


def main():
    words, files = sys.argv[1:], []
    if "--measured" in words:
        at = words.index("--measured")
        # The program knows a file by its slash.
        words, files = words[:at], [os.path.abspath(path) for path in words[at + 1 :]]
    searches = int(words[0]) if words else 200
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    warnings.filterwarnings("ignore")
    print(f"Optuna {optuna.__version__}, {searches} searches each")
    for world in files or ("quantile", "maximum", "planted"):
        print(f"\n{os.path.basename(world)}\n\n| search | cure proved | repeats, median | mean |\n|---|---|--:|--:|")
        guided = row("guided by causes", ran("guided", world, searches))
        others = {"not guided": row("not guided", ran("whole", world, searches))}
        for draws in DRAWS:
            others[f"random, {draws}"] = row(f"random, {draws} draws", ran("random", world, searches, draws))
        for draws in DRAWS:
            machine = Machine(world)
            name = f"Optuna (TPE), {draws} draws"
            results = [by_optuna(machine, seed, draws) for seed in range(1, searches + 1)]
            others[f"optuna, {draws}"] = row(name, results)
            machine.close()
        for name, mean in others.items():
            print(f"guided / {name}: {guided / mean:.2f}")


if __name__ == "__main__":
    main()
