#!/bin/sh
# Every question of `whylate farm query` in every engine, over one generated lake: DuckDB, and Spark with two workers. The engines come from pip, into an environment of this test's own.
#   farm_engines.sh [FOLDER]
# FOLDER keeps the environment for the next call. Spark needs Java.
# Exit codes: those of `cargo test`; 77 SKIPPED: something is missing.
set -u
for tool in cargo python3 java; do
    command -v "$tool" >/dev/null || { echo "SKIPPED: farm_engines.sh: there is no $tool" >&2; exit 77; }
done
folder=${1:-}
[ -n "$folder" ] || { folder=$(mktemp -d) && trap 'rm -rf "$folder"' EXIT; }
if [ ! -x "$folder/bin/python" ]; then
    python3 -m venv "$folder" && "$folder/bin/pip" install --quiet duckdb pyspark || {
        echo "SKIPPED: farm_engines.sh: pip cannot install the engines" >&2
        exit 77
    }
fi
"$folder/bin/pip" list 2>/dev/null | grep -E '^(duckdb|pyspark) '
# Workers are processes of their own, which reach the first one by its address.
export SPARK_LOCAL_IP=127.0.0.1 PYSPARK_SUBMIT_ARGS='--master local-cluster[2,1,1024] pyspark-shell'
export WHYLATE_QUERY_PYTHON="$folder/bin/python"
cd "$(dirname "$0")/.." && cargo test -p whylate-farm --test questions --test damaged --test lake -- --nocapture
