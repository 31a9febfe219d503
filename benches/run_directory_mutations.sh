#!/bin/sh
# Changes a run directory in many ways (bytes, missing, exchanged and cut files; impossible rows, written again with valid
# checksums, with and without a manifest that lists them) and reads each: none may give another figure or verdict without
# saying so, and none may make the reader panic. Usage: benches/run_directory_mutations.sh [COUNT], by default 4,000
set -eu
cd "$(dirname "$0")/.."
export WHYLATE_MUTATIONS="${1:-4000}"
exec cargo test --release -p whylate-store --test store no_change_of_a_run_directory
