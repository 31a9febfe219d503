#!/bin/sh
# What the BPF programs cost: `perf bench sched pipe` alone, with `whylate histograms`, with histograms and causes,
# with bpftrace's run-queue latency script, and with `perf sched record`, in alternating rounds; then the mean time of
# each program under a periodic real-time task, from the kernel's own statistics, without and with a probe whose spikes
# are explained; and at 1,000 and 5,000 wake-ups a second the time of all programs for each wake-up of that task, in
# alternating rounds with bpftrace's script. Needs root, perf, bpftrace and cyclictest.
#
# The goals: with the histograms the pipe loses at most half of what it loses with bpftrace, and a quarter of what it
# loses with perf; each program costs at most an empty one (63 ns) and 150 ns; of the script's time for a wake-up, all
# histograms take at most 0.5 at 1,000 a second and 0.35 at 5,000, with causes 0.6 and 0.5.
#
#     benches/bpf_cost.sh [ROUNDS] [PIPE_LOOPS]; with `rates ROUNDS` the last part alone
#
# HOLD names the example `hold` and WHYLATE the binary, if they are built already.
set -eu
only=all
[ "${1:-}" != rates ] || { only=rates; shift; }
rounds=${1:-7}
loops=${2:-200000}
# On one CPU: between two of them, leaving idle takes many times as long as the switch.
last=$(($(nproc --all) - 1))
. "$(dirname "$0")/common.sh"
hold=$(built "${HOLD:-}" examples/hold -p whylate-bpf --example hold)
whylate=$(built "${WHYLATE:-}" whylate)
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT

runqlat_script=$(dirname "$0")/runqlat.bt

pipe() {
    taskset -c "$last" perf bench -f simple sched pipe -l "$loops" 2>/dev/null | tail -1
}

# Runs the pipe while a tool runs; the tool ends by SIGTERM: a shell has its background jobs ignore SIGINT.
pipe_with() {
    "$@" > "$scratch/tool" 2>&1 &
    tool=$!
    sleep 2
    pipe
    kill -TERM "$tool" 2>/dev/null || true
    wait "$tool" 2>/dev/null || true
}

# The time of all programs in 4 s, in microseconds; of the output of `hold`.
sum() {
    awk '$2 == "runs" { for (i = 2; i < NF; i++) { if ($i == "runs") runs = $(i + 1); if ($i == "mean_ns") all += runs * $(i + 1) } }
         END { printf "%d", all / 1000 }'
}

# The programs of bpftrace's script, by the same statistics.
runqlat() {
    bpftrace "$runqlat_script" > /dev/null 2>&1 &
    tool=$!
    sleep 2
    "$hold" 4 others | sum
    kill -TERM "$tool" 2>/dev/null || true
    wait "$tool" 2>/dev/null || true
}

rates() {
    for period in 1000 200; do
        echo "round histograms all bpftrace_runqlat (us in 4 s, a task with a period of $period us)"
        cyclictest -q -m -t1 -a"$last" -p95 -i"$period" -D1h > /dev/null 2>&1 &
        cyclic=$!
        sleep 1
        round=0
        while [ "$round" -lt "$rounds" ]; do
            round=$((round + 1))
            echo "$round $("$hold" 4 histograms "0-$last" | sum) $("$hold" 4 all "0-$last" | sum) $(runqlat)"
        done | tee "$scratch/rates"
        kill "$cyclic"
        wait "$cyclic" 2>/dev/null || true
        for column in 2 3 4; do
            sort -n -k"$column" "$scratch/rates" | awk -v column="$column" '{ value[NR] = $column }
                END { print value[int((NR + 1) / 2)] }'
        done | awk -v wakeups=$((4000000 / period)) '{ median[NR] = $1 }
            END { printf "median for a wake-up: histograms %.2f us, all %.2f us, bpftrace %.2f us; histograms/bpftrace %.2f, all/bpftrace %.2f\n",
                  median[1] / wakeups, median[2] / wakeups, median[3] / wakeups, median[1] / median[3], median[2] / median[3] }'
    done
}

if [ "$only" = rates ]; then
    rates
    exit
fi

echo "round alone histograms all bpftrace_runqlat perf_sched_record (seconds for $loops round trips)"
round=0
while [ "$round" -lt "$rounds" ]; do
    round=$((round + 1))
    alone=$(pipe)
    histograms=$(pipe_with "$whylate" histograms --quiet --json -D 600)
    all=$(pipe_with "$hold" 600 all "0-$last" uncounted)
    runqlat=$(pipe_with bpftrace "$runqlat_script")
    record=$(pipe_with perf sched record -a -o "$scratch/perf.data")
    echo "$round $alone $histograms $all $runqlat $record"
done | tee "$scratch/rounds"

awk '
function median(values, count,    i, j, swap) {
    for (i = 1; i <= count; i++) for (j = i + 1; j <= count; j++)
        if (values[j] < values[i]) { swap = values[i]; values[i] = values[j]; values[j] = swap }
    return count % 2 ? values[(count + 1) / 2] : (values[count / 2] + values[count / 2 + 1]) / 2
}
{
    count++; alone[count] = $2
    for (tool = 2; tool <= 6; tool++) if (count == 1 || $tool < least[tool]) least[tool] = $tool
    for (tool = 3; tool <= 6; tool++) slower[tool, count] = $tool - $2
}
END {
    split("x x histograms all bpftrace_runqlat perf_sched_record", names, " ")
    printf "alone: median %.3f s, fastest %.3f s\n", median(alone, count), least[2]
    for (tool = 3; tool <= 6; tool++) {
        for (i = 1; i <= count; i++) one[i] = slower[tool, i]
        lost[tool] = median(one, count)
        printf "%s: slower by median %.3f s; fastest by %.3f s\n", names[tool], lost[tool], least[tool] - least[2]
    }
    for (tool = 3; tool <= 4; tool++) for (peer = 5; peer <= 6; peer++) if (lost[peer] > 0)
        printf "%s loses %.2f of what %s loses, in the fastest rounds %.2f\n", names[tool], lost[tool] / lost[peer],
               names[peer], (least[tool] - least[2]) / (least[peer] - least[2])
}' "$scratch/rounds"

for what in histograms all; do
    echo "mean time of each program, $what, cyclictest at priority 95 with a period of 200 us on CPU 1, 4 s:"
    cyclictest -q -m -t1 -a1 -p95 -i200 -D6 > /dev/null 2>&1 &
    cyclic=$!
    sleep 1
    "$hold" 4 "$what" 1
    wait "$cyclic"
done
for what in timer stall; do
    echo "mean time of each program, whylate measure $what --cpu 1 --causes, 5 s of 8:"
    "$whylate" measure "$what" --cpu 1 -D 8s --causes --json --quiet > /dev/null 2>&1 &
    measuring=$!
    sleep 2
    "$hold" 5 others
    wait "$measuring"
done
rates
