#!/usr/bin/env python3
"""Translates a CUDA source to PTX with NVRTC, and prints it.

    pip install nvidia-cuda-nvrtc-cu12
    python3 gpu/shaders/cuda_ptx.py gpu/shaders/cuda.cu > gpu/shaders/cuda.ptx

NVRTC is looked for among the packages of this Python, or where NVRTC names it. For devices from 2018 on (compute
capability 7.5); drivers translate it for newer ones.
"""

import ctypes
import glob
import os
import re
import sys

ARCHITECTURE = "--gpu-architecture=compute_75"


def library():
    named = os.environ.get("NVRTC")
    found = [named] if named else [
        path for folder in sys.path for path in glob.glob(f"{folder}/nvidia/cuda_nvrtc/lib/libnvrtc.so.*")
    ]
    if not found:
        sys.exit("NVRTC is missing: pip install nvidia-cuda-nvrtc-cu12, or name libnvrtc.so in NVRTC")
    return ctypes.CDLL(found[0])


def main():
    nvrtc = library()
    source = open(sys.argv[1], "rb").read()
    program = ctypes.c_void_p()
    nvrtc.nvrtcCreateProgram(ctypes.byref(program), source, b"cuda.cu", 0, None, None)
    options = (ctypes.c_char_p * 1)(ARCHITECTURE.encode())
    failed = nvrtc.nvrtcCompileProgram(program, 1, options)
    size = ctypes.c_size_t()
    nvrtc.nvrtcGetProgramLogSize(program, ctypes.byref(size))
    log = ctypes.create_string_buffer(size.value)
    nvrtc.nvrtcGetProgramLog(program, log)
    sys.stderr.write(log.value.decode())
    if failed:
        sys.exit(1)
    nvrtc.nvrtcGetPTXSize(program, ctypes.byref(size))
    text = ctypes.create_string_buffer(size.value)
    nvrtc.nvrtcGetPTX(program, text)
    # The oldest version that has this architecture: drivers refuse newer ones than they know.
    sys.stdout.write(re.sub(r"^\.version .*", ".version 6.3", text.value.decode(), count=1, flags=re.M))


main()
