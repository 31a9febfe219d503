#!/bin/sh
# Submits a job for each machine and plan; arguments go to sbatch, for example --test-only or --partition=boards.
# An array job cannot name a node for each of its tasks, so each machine is a job of its own.
set -eu
cd "$(dirname "$0")"
mkdir -p logs
@SUBMITS@
