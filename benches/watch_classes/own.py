# SPDX-License-Identifier: MIT OR Apache-2.0
"""A thread `control` that works each 10 ms; in one of ten cycles `replan` takes about 5 ms. See classes.c for what it prints."""
import ctypes
import os
import sys
import threading
import time

cycles, cpu = int(sys.argv[1]), int(sys.argv[2])
took = []


def spin(rounds):
    total = 0
    for number in range(rounds):
        total = total * 3 + number & 0xFFFF
    return total


def filter_samples():
    spin(ROUNDS // 25)


def replan():
    total = 0
    for number in range(ROUNDS):
        total = total * 3 + number & 0xFFFF
    return total


def update(nth):
    filter_samples()
    if nth % 10 == 5:
        replan()


def control():
    ctypes.CDLL(None).prctl(15, b"control", 0, 0, 0)
    os.sched_setaffinity(0, [cpu])
    os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(50))
    begin = time.monotonic_ns() + 500_000_000
    for nth in range(cycles):
        due = begin + nth * 10_000_000
        time.sleep(max(0, due - time.monotonic_ns()) / 1e9)
        update(nth)
        took.append(time.monotonic_ns() - due)
    print(threading.get_native_id(), cycles, *took)
    print("done", flush=True)


ROUNDS = 100_000
times = []
for _ in range(5):
    start = time.monotonic_ns()
    replan()
    times.append(time.monotonic_ns() - start)
ROUNDS = ROUNDS * 5_000_000 // min(times)
thread = threading.Thread(target=control)
thread.start()
thread.join()
time.sleep(1)
