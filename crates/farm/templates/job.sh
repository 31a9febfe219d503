#!/bin/sh
# Measures, compares the measurement with the request, and brings the run into the lake.
#   job.sh HOST PLAN RUN [KERNEL]
# Exit codes: 0 pass, 2 a latency above the limit, 3 a setting was not restored, 1 everything else. A run that does
# not meet the request never gives 0. To continue an interrupted run, give the same RUN.
set -u
whylate=${WHYLATE:-@PROGRAM@}
results=${WHYLATE_RESULTS:-/var/lib/whylate/farm}
lake=${WHYLATE_LAKE-@LAKE@}
host=$1
plan=$2
run=$3-${WHYLATE_SLOT:-@SLOT@}
kernel=${4:-}

directory=$results/$run
mkdir -p "$results" || exit 1
# Only one plan at a time on a machine, whatever starts it: two plans would disturb each other.
if command -v flock >/dev/null 2>&1; then
    exec 9>"$results/lock" && flock 9 || exit 1
else
    echo "job.sh: flock is missing: start no other plan on this machine while this plan runs" >&2
fi
# The exit code of a run that has ended is kept next to it, and the run is not measured again.
if [ -e "$directory.ended" ]; then
    measured=$(cat "$directory.ended")
else
    if [ -e "$directory/run.json" ]; then
        "$whylate" run --resume "$directory" --quiet
    else
        "$whylate" run "$plan" -o "$directory" --quiet
    fi
    measured=$?
    # A program that does nothing also exits with 0. Without a run.json no run has ended, and the next try measures.
    case $measured in 0 | 2) [ ! -s "$directory/run.json" ] || echo "$measured" >"$directory.ended" ;; esac
fi

# The request, which is compared with the run here and stored with the run in the lake.
set -- --plan "$plan" --host "$host" ${kernel:+--kernel "$kernel"}

# No false pass: plan, machine, kernel, scheduling, CPUs, samples and loads are read back from the run.
"$whylate" farm verify "$directory" "$@"
verified=$?

pushed=0
if [ -n "$lake" ]; then
    # The labels of the machine, for questions.
    farm=$(dirname "$0")/farm.toml
    [ ! -e "$farm" ] || set -- "$@" --farm "$farm"
    "$whylate" push "$directory" "$lake" "$@"
    pushed=$?
fi

case $measured in
    3) exit 3 ;;
    0 | 2) [ "$verified" -eq 0 ] && [ "$pushed" -eq 0 ] && [ -s "$directory/run.json" ] && exit "$measured" ;;
esac
echo "job.sh: INCOMPLETE; exit codes: run $measured, verify $verified, push $pushed" >&2
exit 1
