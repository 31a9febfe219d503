#!/bin/sh
# Before the files go.
set -e
if [ -d /sys/module/whylate_memtype ]; then
    rmmod whylate_memtype || echo "whylate-memtype-dkms: the module is in use, so it was not unloaded" >&2
fi
dkms remove -m whylate_memtype -v 0.1.0 --all || true
