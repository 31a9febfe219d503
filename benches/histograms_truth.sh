#!/bin/sh
# Whether the histograms hold every wake-up: a periodic real-time task (cyclictest) runs under `whylate histograms` of
# that task, and perf counts its sched_waking events at the same time. Prints both counts and what whylate says was
# lost.
# Needs root, cyclictest, perf and jq.
#
#     benches/histograms_truth.sh [SECONDS] [SOURCE]
#
# WHYLATE names the binary if it is built already.
set -eu
seconds=${1:-10}
source=${2:-bpf}
. "$(dirname "$0")/common.sh"
whylate=$(built "${WHYLATE:-}" whylate)
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT

cpu=$(($(nproc) - 1))
loops=$((seconds * 5000))
# Both begin before the task and end after it, so that neither sees a part of its wake-ups only.
"$whylate" histograms --source "$source" --task cyclictest --json --quiet -D $((seconds + 10)) > "$scratch/histograms.json" &
histograms=$!
perf record -q -a -m 8M -e sched:sched_waking --filter 'comm == "cyclictest" && prio == 4' -o "$scratch/perf.data" \
    -- sleep $((seconds + 9)) > /dev/null 2>&1 &
perf=$!
sleep 5
cyclictest -q -m -t1 -a"$cpu" -p95 -i200 -l "$loops" > "$scratch/cyclictest"
wait "$perf" "$histograms"

perf script -i "$scratch/perf.data" --show-lost-events > "$scratch/events" 2>/dev/null
waking=$(grep -c 'sched:sched_waking' "$scratch/events" || true)
lost=$(awk '/PERF_RECORD_LOST/ { lost += $NF } END { print lost + 0 }' "$scratch/events")
echo "perf: $waking wake-ups of cyclictest at priority 95, $lost records lost"
jq -r '
    def total(kind): [.cpus[].histograms[] | select(.kind == kind) | .samples] | add;
    "whylate (\(.source)): \(.wakeups.seen) seen, \(total("wakeup")) in wakeup, \(total("sharedprio")) in sharedprio, " +
    "\(.wakeups.without_switch) without switch, \(.wakeups.elsewhere) elsewhere, \(.lost) lost; " +
    "\(total("timerwakeupswitch")) in timerwakeupswitch"' "$scratch/histograms.json"
echo "cyclictest: $loops loops"
