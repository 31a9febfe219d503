# Sourced by the shell scripts in this folder.

# The path of a program of this repository; it is built if VALUE is empty. CARGO is the command that builds it, PROGRAM the
# place where the release profile puts it.
#
#     program=$(built VALUE PROGRAM CARGO...)
built() {
    [ -z "$1" ] || { echo "$1"; return; }
    folder=$(cd "$(dirname "$0")/.." && pwd)
    program=$2
    shift 2
    cargo build --quiet --release "$@" --manifest-path "$folder/Cargo.toml" >&2 || return
    echo "${CARGO_TARGET_DIR:-$folder/target}/release/$program"
}

# A plan that any user can run in a fraction of a second, for scripts that count runs and not latencies.
small_plan() {
    cat <<'PLAN'
name = "small"
repeats = 2
duration = "50ms"
warmup = "0s"
[[probe]]
kind = "timer"
policy = "other"
[[cell]]
PLAN
}
