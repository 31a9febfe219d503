#!/bin/sh
# Submits an array job for each machine, on that machine, with a task for each of its plans, one after the other. Arguments go to
# sbatch, for example --test-only or --partition=boards.
set -eu
cd "$(dirname "$0")"
mkdir -p logs
@SUBMITS@
