#!/bin/sh
# After the files are there: DKMS builds the module for this kernel, and later for each new one.
set -e
dkms add -m whylate_memtype -v 0.1.0 2>/dev/null || true
dkms install -m whylate_memtype -v 0.1.0 ||
    echo "whylate-memtype-dkms: the module was not built for kernel $(uname -r): install that kernel's headers, then run: dkms autoinstall" >&2
