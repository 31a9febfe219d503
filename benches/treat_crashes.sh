#!/bin/sh
# Signals (SIGKILL, SIGHUP, SIGQUIT, SIGTERM, Ctrl-C twice) and a closed terminal at random moments of `treat apply`, of
# runs with treatments and of `treat restore`: a process that ends in order restores what it changed, and afterwards `restore` has to
# bring back every path exactly. On a machine made of files, and on this one (interrupts, a sysctl, the affinity of a
# process that sleeps; needs root). Takes a few minutes.
#
#     benches/treat_crashes.sh [COUNT]
set -eu
cd "$(dirname "$0")/.."
WHYLATE_CRASHES="${1:-200}" cargo test --package whylate --test cli treat_crashes -- --nocapture 2>&1 |
    grep -E 'restored exactly|skipped|panicked|crash [0-9]+:|test result'
