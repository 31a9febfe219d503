#!/bin/sh
# Compares our reading of trace.dat with `trace-cmd report` on the same file, in alternating rounds, by the CPU time
# (user and system) that each takes, opening included. Prints a Markdown table: events per CPU second, and the ratio
# round by round.
#
#   benches/trace_peers.sh [-b BINARY] [-r ROUNDS] FILE...
#
# BINARY is the example `read` (cargo build --release -p whylate-trace --example read). "all" decodes every event; "named"
# also looks up the name of each function, as the peer does; "wakeups" gives only those that find late wake-ups, and
# passes over the others; its rate counts both, as the peer's does. trace-cmd writes to /dev/null; -R does not interpret
# `print fmt`, which is its faster way.
set -eu

binary=target/release/examples/read rounds=5
while getopts b:r: option; do
    case $option in
    b) binary=$OPTARG ;;
    r) rounds=$OPTARG ;;
    *) exit 1 ;;
    esac
done
shift $((OPTIND - 1))
for tool in trace-cmd awk bash "$binary"; do
    command -v "$tool" >/dev/null || { echo "trace_peers: $tool is missing" >&2; exit 69; }
done

# CPU seconds of a command.
seconds() {
    bash -c 'TIMEFORMAT="%U %S"; time "$@" >/dev/null 2>&1' bash "$@" 2>&1 | tail -1 | awk '{ print $1 + $2 }'
}

trace-cmd --version 2>&1 | awk 'NF { print; exit }'
echo
echo '| file | events | trace-cmd report -R (M/s) | all (M/s) | all: ratio (range) | named: ratio (range) | wakeups: ratio (range) |'
echo '|---|---|---|---|---|---|---|'
for file; do
    events=$("$binary" --time "$file" | awk 'END { print $1 }')
    round=0
    while [ "$round" -lt "$rounds" ]; do
        round=$((round + 1))
        echo "$(seconds trace-cmd report -R -i "$file") $(seconds "$binary" --time "$file") $(seconds "$binary" --time --wakeups "$file") $(seconds "$binary" --time --names "$file")"
    done | awk -v file="$(basename "$file")" -v events="$events" '
        function median(values, count,    i, j, swap) {
            for (i = 1; i <= count; i++) for (j = i + 1; j <= count; j++) if (values[j] < values[i]) {
                swap = values[i]; values[i] = values[j]; values[j] = swap
            }
            return values[int((count + 1) / 2)]
        }
        function at_least(time) { return time > 0.001 ? time : 0.001 }
        {
            peer[NR] = at_least($1); all[NR] = at_least($2); named[NR] = at_least($4)
            first[NR] = peer[NR] / all[NR]; second[NR] = peer[NR] / at_least($3); third[NR] = peer[NR] / named[NR]
        }
        END {
            middle = median(first, NR); other = median(second, NR); last = median(third, NR)
            printf "| %s | %d | %.2f | %.2f | %.1f (%.1f to %.1f) | %.1f (%.1f to %.1f) | %.1f (%.1f to %.1f) |\n", file,
                events, events / 1e6 / median(peer, NR), events / 1e6 / median(all, NR), middle, first[1], first[NR],
                last, third[1], third[NR], other, second[1], second[NR]
        }'
done
