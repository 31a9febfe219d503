# The chores by short names; each is one command of Cargo, so `just` is never needed.

# lists the chores
default:
    @just --list

# builds and runs an experiment on this machine: just run memory-load --set duration=10s
run *arguments:
    cargo run --release -- run {{arguments}}

# everything continuous integration does
test:
    cargo xtask test

# the gate for each commit: what needs only a compiler
check:
    cargo xtask check

# the rules of the source tree
tidy:
    cargo xtask tidy

# formats, then tells what clippy thinks
lint:
    cargo fmt --all
    cargo clippy --workspace --all-targets -- -D warnings

# the documentation of all crates
docs:
    cargo doc --workspace --no-deps --open

# compiles the BPF programs into crates/bpf/objects
bpf:
    cargo xtask bpf

# the static binaries for x86_64 and aarch64
dist:
    cargo xtask dist

# each fuzz target for that long
fuzz seconds="60":
    cargo xtask fuzz {{seconds}}
