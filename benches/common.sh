# Sourced by the shell scripts beside it.

# The path of a program of this repository; it is built where VALUE is empty. CARGO is what builds it, PROGRAM where the
# release profile puts it.
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
