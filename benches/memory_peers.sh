#!/bin/sh
# Compares the memory load with stress-ng (--memrate, --stream) and mbw, in alternating rounds on one CPU, and prints
# a Markdown table: per working set and peer the medians and the ratio of ours to the peer, round by round.
#
#   benches/memory_peers.sh [-b BINARY] [-c CPU] [-r ROUNDS] [-s SECONDS] [-H] [MiB...]
#
# BINARY takes `internal-load` (whylate does); by default target/release/whylate. -H gives our buffers huge pages.
# Bytes are counted alike: a read once, a write once, a copy twice. "MB" of stress-ng and mbw is 2^20 bytes.
#   read, write, non-temporal write: against the best of --memrate's methods of the same kind;
#   copy: against --stream (copy, scale, add and triad; read plus written bytes; three arrays that are the working set
#   together) and against the better of mbw's loop and memcpy (-t0, -t1; two arrays). Not mbw's -t2: it reads one block
#   of 256 KiB again and again, so that its source never leaves the cache: a different working set.
# --stream measures only in runs of 5 s and more: it takes 6 s whatever SECONDS says.
set -eu

binary=target/release/whylate cpu=$(($(nproc) - 1)) rounds=5 seconds=2 huge=false
while getopts b:c:r:s:H option; do
    case $option in
    b) binary=$OPTARG ;;
    c) cpu=$OPTARG ;;
    r) rounds=$OPTARG ;;
    s) seconds=$OPTARG ;;
    H) huge=true ;;
    *) exit 1 ;;
    esac
done
shift $((OPTIND - 1))
[ $# -gt 0 ] || set -- 1 32 130 1024
for tool in stress-ng mbw taskset awk "$binary"; do
    command -v "$tool" >/dev/null || { echo "memory_peers: $tool is missing" >&2; exit 69; }
done
results=$(mktemp)
trap 'rm -f "$results"' EXIT

# ours ACCESS KIB: median GB/s of the intervals of 100 ms. The load runs until its standard input is closed.
ours() {
    request="{\"work\":{\"memory\":{\"cpus\":\"$cpu\",\"access\":\"$1\",\"working_set\":\"$2KiB\",\"huge_pages\":$huge}},\"interval\":\"100ms\"}"
    { printf '%s\n' "$request"; sleep "$((seconds + 1))"; } | "$binary" internal-load | awk -F'[:,}]' '
        /"error"/ { print > "/dev/stderr" }
        /"rate"/ {
            for (i = 1; i < NF; i++) if ($i ~ /"value"/) print $(i + 1) / 1e9
        }' | sort -g | awk '{ value[NR] = $1 } END { if (NR) printf "%.3f\n", value[int((NR + 1) / 2)] }'
}

# memrate KIB: lines "CATEGORY GB/s", the best method of each category.
memrate() {
    # One pass of all its methods must fit: it begins with the writes.
    taskset -c "$cpu" stress-ng --memrate 1 --memrate-bytes "$1K" -t "$((seconds + 2 + $1 / 131072))" --metrics 2>&1 | awk '
        / MB per sec/ {
            for (i = 2; i <= NF; i++) if ($i == "MB") { rate = $(i - 2); name = $(i - 1) }
            kind = name ~ /^read/ ? "read" : name ~ /nt$/ ? "non-temporal-write" : "write"
            if (rate > best[kind]) best[kind] = rate
        }
        END { for (kind in best) printf "%s %.3f\n", kind, best[kind] * 1048576 / 1e9 }'
}

# stream KIB: GB/s. Its three arrays are each four times the cache size in the option.
stream() {
    taskset -c "$cpu" stress-ng --stream 1 --stream-l3-size "$(($1 * 1024 / 12))" -t 6 2>&1 |
        awk '/memory rate:/ { for (i = 1; i < NF; i++) if ($(i + 1) == "MB") sum += $i; printf "%.3f\n", sum * 1048576 / 1e9 }'
}

# copies KIB: GB/s, the better of the two methods; its two arrays are whole MiB.
copies() {
    for test in 0 1; do
        taskset -c "$cpu" mbw -q -n $((seconds * 6000000 / $1 + 3)) -t$test "$(($1 / 2048))" | awk '/^AVG/ { print $(NF - 1) * 2 * 1048576 / 1e9 }'
    done | sort -g | tail -1
}

for mib; do
    kib=$((mib * 1024))
    # mbw takes whole MiB for each of its two arrays.
    pair_kib=$((kib < 2048 ? 2048 : kib / 2048 * 2048))
    round=0
    while [ "$round" -lt "$rounds" ]; do
        round=$((round + 1))
        echo "$mib MiB, round $round" >&2
        peers=$(memrate $kib)
        for access in read write non-temporal-write; do
            echo "$mib $access memrate $(ours $access $kib) $(echo "$peers" | awk -v k=$access '$1 == k { print $2 }')"
        done >>"$results"
        echo "$mib copy stream $(ours copy $kib) $(stream $kib)" >>"$results"
        echo "$((pair_kib / 1024)) copy mbw $(ours copy $pair_kib) $(copies $pair_kib)" >>"$results"
    done
done

echo "$(stress-ng --version | cut -d' ' -f1-3 | tr -d ,), mbw; CPU $cpu, $rounds rounds of $seconds s, huge pages: $huge; $(uname -srm)"
echo
echo "| working set | kind | peer | ours GB/s | peer GB/s | ratio: median (range) |"
echo "|---:|---|---|---:|---:|---:|"
sort -k1,1n -k2,2 -k3,3 -s "$results" | awk '
    function median(text, parts, n, i, j, t) {
        n = split(text, parts, " ")
        for (i = 2; i <= n; i++) for (j = i; j > 1 && parts[j - 1] + 0 > parts[j] + 0; j--) { t = parts[j]; parts[j] = parts[j - 1]; parts[j - 1] = t }
        low = parts[1]; high = parts[n]
        return n % 2 ? parts[(n + 1) / 2] + 0 : (parts[n / 2] + parts[n / 2 + 1]) / 2
    }
    function flush() {
        if (key == "") return
        split(key, k, " ")
        r = median(ratio)
        printf "| %s MiB | %s | %s | %.1f | %.1f | %.2f (%.2f to %.2f) |\n", k[1], k[2], k[3], median(ours), median(peer), r, lowest, highest
    }
    function add() { ours = ours " " $4; peer = peer " " $5; q = $4 / $5; ratio = ratio " " q; if (q < lowest) lowest = q; if (q > highest) highest = q }
    NF < 5 { print "memory_peers: a figure is missing: " $0 > "/dev/stderr"; next }
    { now = $1 " " $2 " " $3 }
    now != key { flush(); key = now; ours = peer = ratio = ""; lowest = 1e9; highest = 0 }
    { add() }
    END { flush() }'
