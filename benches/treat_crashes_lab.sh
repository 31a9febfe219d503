#!/bin/sh
# Ends of all kinds at random moments of treatments in guests of the lab, each restored exactly: benches/treat_crashes_guest.sh,
# COUNT times on a kernel, CHUNK in each boot. Builds nothing: `cargo xtask lab test` has built the lab's program and the
# guest's whylate. Prints what each guest says, and the sum. FIRST is the number of the first one.
#
#     benches/treat_crashes_lab.sh KERNEL [COUNT [CHUNK]]
set -eu
cd "$(dirname "$0")/.."
kernel=$1 count=$((${FIRST:-0} + ${2:-200})) chunk=${3:-40}
lab=${CARGO_TARGET_DIR:-target}/debug/whylate-lab
log=$(mktemp)
trap 'rm -f "$log" "$log.chunk"' EXIT
first=${FIRST:-0}
while [ $first -lt "$count" ]; do
    most=$((count - first < chunk ? count - first : chunk))
    seed=$(date +%N | sed 's/^0*//')
    # A guest on a busy host may fail to boot at all: that is no kill.
    boots=0
    until "$lab" run multi "$kernel" -- "FIRST=$first COUNT=$most SEED=$seed
$(cat benches/treat_crashes_guest.sh)" >"$log.chunk" 2>&1; do
        cat "$log.chunk"
        boots=$((boots + 1))
        if grep -q "^lab: .* with " "$log.chunk" || [ $boots -ge 3 ]; then
            exit 1
        fi
    done
    cat "$log.chunk"
    cat "$log.chunk" >>"$log"
    first=$((first + most))
done
grep '^restored' "$log" | awk -v kernel="$kernel" -v count=$((count - ${FIRST:-0})) '
    { ends++; how[$3]++; if ($4 > 0) { with++; left += $4 } }
    END {
        printf "%s: %d of %d restored exactly; %d ends left %d changes behind;", kernel, ends, count, with, left
        for (one in how) printf " %s %d", one, how[one]
        print ""
    }'
