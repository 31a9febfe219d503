#!/bin/sh
# Searches on a machine on which nothing is known to help: how many claim something. Needs root; each takes BUDGET at most.
#
#     benches/fix_null.sh PROGRAM [SEARCHES] [BUDGET] [TREATMENTS]
set -eu
program=$1
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cat >"$folder/plan.toml" <<'PLAN'
name = "null"
duration = "300ms"
settle = "50ms"
warmup = "20ms"
noise_floor = "0s"
[target]
cpus = "last"
[[probe]]
kind = "timer"
interval = "500us"
PLAN
claims=0
for seed in $(seq 1 "${2:-10}"); do
    "$program" fix "$folder/plan.toml" --goal 'timer p99' --yes "${4:-vm-stat-interval,workqueue-mask,watchdog}" --budget "${3:-90s}" --seed "$seed" \
        -o "$folder/$seed" --json -q >"$folder/$seed.json" 2>"$folder/$seed.txt" || true
    [ -s "$folder/$seed.json" ] || { cat "$folder/$seed.txt"; exit 1; }
    python3 - "$seed" "$folder/$seed.json" <<'SAY'
import json, sys
result = json.load(open(sys.argv[2]))
print(f"seed {sys.argv[1]}: {result['repeats']} repeats in {result['took_ns'] / 1e9:.0f} s, restored {result['restored']},",
      f"{result['sentence']}")
SAY
    python3 -c 'import json, sys; sys.exit(not json.load(open(sys.argv[1]))["recommended"])' "$folder/$seed.json" &&
        claims=$((claims + 1))
done
echo "$claims of ${2:-10} searches claim something"
