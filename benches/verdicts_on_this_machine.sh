#!/usr/bin/env bash
# How often a verdict is false, and how often a real difference is found, on this machine:
# 20 runs of two equal cells, and 10 runs of a memory load against idle on the same CPU.
# Usage: benches/verdicts_on_this_machine.sh WHYLATE [NULL_RUNS] [LOADED_RUNS]
set -euo pipefail
whylate="${1:?the binary}"; null_runs="${2:-20}"; loaded_runs="${3:-10}"
here="$(dirname "$0")"
folder="$(mktemp -d)"
trap 'rm -rf "$folder"' EXIT

outcome() { # PLAN RUN: the deciding comparison of the run
    # A run with a repeat that failed ends with 1 and is counted as what it says.
    ("$whylate" run "$1" -o "$folder/$2" --json -q 2>"$folder/$2.log" || true) >"$folder/$2.json"
    python3 - "$folder/$2.json" "$folder/$2.log" <<'PYTHON'
import json, sys
try:
    run = json.load(open(sys.argv[1]))
except ValueError:
    print("run", "-", "failed", open(sys.argv[2]).read().strip())
    sys.exit()
for cell in run["cells"]:
    for repeat in cell["repeats"]:
        if repeat.get("error"):
            print(cell["name"], "-", "failed-repeat", repeat["error"])
primary = [it for it in run["comparisons"] if it["primary"]]
for it in primary:
    print(it["cell"], it["statistic"], it["outcome"], "ratio %.3f" % it.get("ratio", float("nan")), "p %.4f" % it["p_value"])
PYTHON
}

echo "null runs:"
for n in $(seq "$null_runs"); do outcome "$here/null.toml" "null-$n"; done | sort | awk '{ print; count[$3]++ } END { for (o in count) print "  " o ": " count[o] }'
echo "memory load against idle on the same CPU:"
for n in $(seq "$loaded_runs"); do outcome "$here/loaded.toml" "loaded-$n"; done | awk '{ print; count[$3]++ } END { for (o in count) print "  " o ": " count[o] }'
