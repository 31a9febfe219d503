#!/bin/sh
# How many runs a second are pushed: into a folder, and with PYTHON (moto[server]) into an S3 server on this machine.
#   farm_ingest.sh RUNS COUNT WHYLATE [PYTHON]     RUNS keeps COUNT small runs; missing ones are measured
set -u
. "$(dirname "$(realpath "$0")")/common.sh"
[ $# -ge 3 ] || { sed -n 2,3p "$0"; exit 1; }
runs=$1 count=$2 whylate=$(realpath "$3") python=${4:-}
folder=$(mktemp -d)
moto=""
trap '[ -z "$moto" ] || kill $moto; rm -rf "$folder"' EXIT
small_plan >"$folder/plan.toml"
mkdir -p "$runs"
for number in $(seq "$count"); do
    [ -e "$runs/run-$number/run.json" ] || "$whylate" run "$folder/plan.toml" -o "$runs/run-$number" --quiet >/dev/null 2>&1
done
rate() { # NAME LAKE
    begun=$(date +%s%N)
    # RUNS may keep more of them than COUNT.
    "$whylate" push $(seq -f "$runs/run-%.0f" "$count") "$2" >"$folder/said" || exit 1
    taken=$((($(date +%s%N) - begun) / 1000000))
    pushed=$(wc -l <"$folder/said")
    [ "$pushed" -eq "$count" ] || { echo "$1: $pushed runs were pushed, not $count" >&2; exit 1; }
    objects=$(sed -n 's/.*: \([0-9]*\) objects.*/\1/p' "$folder/said" | head -1)
    echo "$1: $pushed runs of $objects objects in $taken ms: $((count * 1000 / taken)) runs/s"
}
rate "folder $(stat -f -c %T "$folder")" "$folder/lake"
rate "the same again" "$folder/lake"
[ -n "$python" ] || { echo "SKIPPED: S3: no Python with moto was named" >&2; exit 0; }
export AWS_ACCESS_KEY_ID=a AWS_SECRET_ACCESS_KEY=b AWS_REGION=us-east-1 AWS_ALLOW_HTTP=true AWS_ENDPOINT_URL=http://127.0.0.1:5610
"$python" -m moto.server -H 127.0.0.1 -p 5610 >"$folder/moto.log" 2>&1 &
moto=$!
for look in $(seq 60); do curl -s -X PUT http://127.0.0.1:5610/latency >/dev/null && break || sleep 1; done
begun=$(date +%s%N)
for number in $(seq 100); do curl -s -X PUT --data-binary x "http://127.0.0.1:5610/latency/empty-$number" >/dev/null; done
echo "the server itself: $((100000000000 / ($(date +%s%N) - begun))) small objects/s, one process of curl for each"
rate "S3 (moto), after $look s" s3://latency/farm
