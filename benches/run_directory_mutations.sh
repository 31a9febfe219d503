#!/bin/sh
# Changes a run directory in 4,000 ways (bytes, missing, exchanged and cut files; rows that cannot be, written anew with valid
# checksums, with and without a manifest that lists them) and reads each: none may give another figure or verdict without
# saying so, and none may make the reader panic. Usage: benches/run_directory_mutations.sh
set -eu
cd "$(dirname "$0")/.."
exec cargo test --release -p whylate-store --test store -- --ignored --nocapture no_change_of_thousands
