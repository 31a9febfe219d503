#!/usr/bin/env bash
# How many of the 28 pairs of eight runs of one idle plan have a claim by cause in `whylate compare`, on this
# machine: `null_pairs.sh WHYLATE FOLDER [CPU]`. Runs that exist in FOLDER are not made again.
set -euo pipefail
whylate="${1:?the binary}"; folder="${2:?a folder}"; cpu="${3:-last}"
mkdir -p "$folder"
cat >"$folder/null.toml" <<TOML
name = "null"
question = "Do runs without any difference differ by cause?"
duration = "400ms"
repeats = 8
settle = "20ms"
warmup = "20ms"
noise_floor = "50ms"
primary = "timer p99"
causes = true
[target]
cpus = "$cpu"
[[probe]]
kind = "timer"
interval = "200us"
[[cell]]
name = "idle"
TOML
for n in $(seq 8); do
    [ -e "$folder/r$n/result.json" ] || "$whylate" run "$folder/null.toml" -o "$folder/r$n" -q >/dev/null
done
claims=0
for a in $(seq 7); do
    for b in $(seq $((a + 1)) 8); do
        found=$( ("$whylate" compare "$folder/r$a" "$folder/r$b" --json || true) | python3 -c '
import json, sys
for row in json.load(sys.stdin)["causes"]:
    if row["change"] not in ("same", "cannot_tell"):
        print(row["cause"], row["change"], "p = %.3f" % row["p_value"], end="; ")')
        [ -z "$found" ] || { claims=$((claims + 1)); echo "r$a r$b: $found"; }
    done
done
echo "$claims of 28 pairs have a claim by cause"
