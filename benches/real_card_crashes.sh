#!/bin/bash
# Ends benches/real_card.sh at random moments by SIGINT, SIGTERM, SIGHUP and SIGKILL, and checks what is left: processes,
# mounts, settings. Each piece runs in its short form, in one folder after the other. Root; takes some minutes.
#
#     benches/real_card_crashes.sh [COUNT]
# A job of its own: a shell without jobs makes its children ignore SIGINT.
set -um
cd "$(dirname "$0")/.." || exit
count=${1:-20}
bin=$(readlink -f "${REAL_CARD_BIN:-.card}")
out=$(mktemp -d)
signals=(INT TERM HUP KILL)

settings() {
    cut -d' ' -f2 /proc/mounts | sort
    grep -H . /proc/irq/*/smp_affinity_list /proc/irq/default_smp_affinity 2>/dev/null
    grep -H . /proc/sys/kernel/watchdog_cpumask /proc/sys/kernel/nmi_watchdog /proc/sys/kernel/sched_rt_runtime_us \
        /sys/devices/virtual/workqueue/cpumask /sys/devices/system/cpu/cpu*/cpufreq/scaling_governor 2>/dev/null
    find /sys/fs/cgroup -maxdepth 2 -name 'whylate*' 2>/dev/null
}
# Programs that the script took along and that run.
processes() {
    local program
    for program in /proc/[0-9]*/exe; do
        case $(readlink "$program" 2>/dev/null) in "$bin"/* | "$out"/*) echo "$program" ;; esac
    done
}

[ -z "$(processes)" ] || { echo "programs of $bin run already"; exit 1; }
bad=0
for number in $(seq "$count"); do
    before=$(settings)
    piece=$((RANDOM % 7 + 1))
    signal=${signals[RANDOM % 4]}
    after=$((RANDOM % 12)).$((RANDOM % 10))
    REAL_CARD_SHORT=1 benches/real_card.sh "$out" $piece >/dev/null 2>&1 &
    pid=$!
    sleep "$after"
    kill -"$signal" $pid 2>/dev/null
    wait $pid 2>/dev/null
    # After SIGKILL its programs end by themselves.
    for _ in $(seq 60); do [ -n "$(processes)" ] || break; sleep 0.5; done
    left=$(processes)
    changed=$(diff <(echo "$before") <(settings))
    if [ -n "$left$changed" ]; then
        bad=$((bad + 1))
        echo "crash $number: piece $piece, SIG$signal after $after s: left: $left $changed"
    else
        echo "crash $number: piece $piece, SIG$signal after $after s: nothing left"
    fi
done
# A call afterwards packs what a killed one has left, and leaves nothing but its results.
REAL_CARD_SHORT=1 benches/real_card.sh "$out" 1 >/dev/null 2>&1
echo "afterwards: $(ls -A "$out" | tr '\n' ' ')"
rm -rf "$out"
echo "$bad of $count left something"
[ "$bad" = 0 ]
