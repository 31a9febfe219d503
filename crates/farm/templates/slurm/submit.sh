#!/bin/sh
# Submits an array job for each machine, with one task for each plan of the machine, one after the other. Arguments go to
# sbatch, for example --test-only or --partition=boards.
set -eu
cd "$(dirname "$0")"
mkdir -p logs
@SUBMITS@
