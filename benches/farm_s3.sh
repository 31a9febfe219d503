#!/bin/sh
# Pushes runs to an S3 server that is killed in the middle, again and again, and counts what is lost.
#   farm_s3.sh WHYLATE PYTHON KILLS     PYTHON has moto[server] and duckdb
# moto keeps objects in memory: a proxy stands between, and it is what dies, so that the objects stay as a server's disk
# keeps them. It ends in the middle of requests: before them, within bodies, and between writing and answering.
set -u
. "$(dirname "$(realpath "$0")")/common.sh"
whylate=$1 python=$2 kills=$3
folder=$(mktemp -d)
here=$(dirname "$(realpath "$0")")
export AWS_ACCESS_KEY_ID=a AWS_SECRET_ACCESS_KEY=b AWS_REGION=us-east-1 AWS_ALLOW_HTTP=true
export AWS_ENDPOINT_URL=http://127.0.0.1:5601 XDG_CACHE_HOME=$folder/cache WHYLATE_QUERY_PYTHON=$python
"$python" -m moto.server -H 127.0.0.1 -p 5600 >"$folder/moto.log" 2>&1 &
moto=$!
trap 'kill $moto 2>/dev/null; rm -rf "$folder"' EXIT
sleep 5
curl -s -X PUT http://127.0.0.1:5600/latency >/dev/null
small_plan >"$folder/plan.toml"
lost=0 cut=0 pushes=0
for kill in $(seq "$kills"); do
    "$whylate" run "$folder/plan.toml" -o "$folder/run-$kill" --quiet >/dev/null 2>&1
    "$python" "$here/farm_s3_proxy.py" 5601 5600 "$((kill * 7919 % 48000 + 200))" &
    proxy=$!
    sleep 0.2
    timeout 60 "$whylate" push "$folder/run-$kill" s3://latency/farm >/dev/null 2>&1 || cut=$((cut + 1))
    kill -9 $proxy 2>/dev/null
    wait $proxy 2>/dev/null
    "$python" "$here/farm_s3_proxy.py" 5601 5600 0 &
    proxy=$!
    sleep 0.2
    "$whylate" push "$folder/run-$kill" s3://latency/farm >/dev/null 2>"$folder/said" || {
        lost=$((lost + 1))
        cat "$folder/said"
    }
    pushes=$((pushes + 1))
    rm -rf "$folder/back"
    "$whylate" pull "s3://latency/farm/$(hostname)/run-$kill" "$folder/back" >/dev/null 2>"$folder/said" &&
        diff -r "$folder/run-$kill" "$folder/back" >/dev/null || {
        lost=$((lost + 1))
        cat "$folder/said"
    }
    kill -9 $proxy
    wait $proxy 2>/dev/null
    rm -rf "$folder/run-$kill"
done
"$python" "$here/farm_s3_proxy.py" 5601 5600 0 &
proxy=$!
sleep 0.2
"$whylate" pull s3://latency/farm --check | grep -c whole
"$whylate" farm query bounds --lake s3://latency/farm --json | tr -d '\n '
echo
# The pages of the same bucket; the first answer may take longer than a page waits (202).
"$whylate" serve --lake s3://latency/farm --address 127.0.0.1:5602 2>/dev/null &
serve=$!
for page in /farm "/farm/board/$(hostname)" "/farm/compare?first=kernel%3E%3D1&second=kernel%3E%3D99"; do
    for look in $(seq 60); do
        answer=$(curl -s -o "$folder/page" -w '%{http_code} after %{time_total} s' "http://127.0.0.1:5602$page")
        case $answer in 000* | 202*) sleep 1 ;; *) break ;; esac
    done
    echo "$page: $answer, look $look, $(wc -c <"$folder/page") bytes, $(grep -o '<li class="card' "$folder/page" | wc -l) cards"
done
kill $serve
# A cut object in the bucket: left out, and named.
object=$(curl -s 'http://127.0.0.1:5600/latency?prefix=farm/table%3Druns&max-keys=1' | grep -o '<Key>[^<]*' | cut -c6-)
curl -s --aws-sigv4 aws:amz:us-east-1:s3 --user a:b -X PUT --data-binary PAR1 "http://127.0.0.1:5600/latency/$object" >/dev/null
"$whylate" farm query bounds --lake s3://latency/farm --json >"$folder/said"
echo "with a cut object: exit code $?, $(tr -d '\n ' <"$folder/said")"
kill -9 $proxy
echo "pushes $pushes, cut off $cut, lost or different $lost"
