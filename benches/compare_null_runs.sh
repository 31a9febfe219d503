#!/usr/bin/env bash
# How often `whylate compare` claims a difference between two runs although nothing was changed, on this machine: 100 pairs
# of runs, one right after the other, with ten more runs as the history; then four runs against four that alternate with them.
# Usage: benches/compare_null_runs.sh WHYLATE [FOLDER]; runs that exist in FOLDER are not made again.
set -euo pipefail
whylate="${1:?the binary}"; folder="${2:-$(mktemp -d)}"
here="$(dirname "$0")"
name() { printf '%s/r%03d' "$folder" "$1"; }
for n in $(seq 210); do
    [ -d "$(name "$n")" ] || "$whylate" run "$here/null-short.toml" -o "$(name "$n")" -q >/dev/null
done
history=""
for n in $(seq 201 210); do history="$history,$(name "$n")"; done

compared() { # A B: the deciding outcome, its ratio and p-value, and how many of all statistics differ
    ("$whylate" compare "$1" "$2" --history "${history#,}" --json || true) | python3 -c '
import json, sys
said = json.load(sys.stdin)
all = [it["outcome"] for it in said["contrasts"]]
first = [it for it in said["contrasts"] if it["primary"]][0]
differ = sum(it in ("worse", "better") for it in all)
print(said["outcome"], "%.3f" % first["ratio"], "p=%.3f" % first["p_value"], "all:", differ, "of", len(all))'
}
count() { # what
    awk -v what="$1" '{ count[$1]++; differ += $5; all += $7 }
        END { for (it in count) printf "%s: %s %d of %d\n", what, it, count[it], NR; printf "%s: of all statistics %d of %d differ\n", what, differ, all }'
}

for k in $(seq 100); do compared "$(name $((2 * k - 1)))" "$(name $((2 * k)))"; done | tee "$folder.pairs" | count "two runs, one after the other"
for k in $(seq 0 24); do
    a=""; b=""
    for n in 1 3 5 7; do a="$a,$(name $((8 * k + n)))"; b="$b,$(name $((8 * k + n + 1)))"; done
    compared "${a#,}" "${b#,}"
done | tee "$folder.fours" | count "four runs against four"
