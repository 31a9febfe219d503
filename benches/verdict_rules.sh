#!/usr/bin/env bash
# How often the rules of comparison make false claims and find real differences, on simulated machines: the table in records/.
#
#     benches/verdict_rules.sh [RUNS]
set -euo pipefail
cd "$(dirname "$0")/.."
WHYLATE_SIMULATED_RUNS="${1:-1000}" cargo test --release -p whylate-stats --test scenarios -- --nocapture --test-threads 1
